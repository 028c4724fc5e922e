//! Worlds in which calipam's own commands write at the same time as other programs.

use calipam_model::config::IpamSetting;

use super::given::Given::{Leak, NoHandle, NoValue, Pod, Unowned};
use super::{
    BLOCK_AND_BY_HAND, BY_HAND_ONLY, FIRST, LEAK, LEAKED, ONE, POD, POD_AND_UNCOUNTED, Scenario, TWO,
    UNCOUNTED, assign, large, plain, slow, wanting,
};
use crate::actor::Command::{Configure, Others, Rebuild, Release, ReleaseAddress, Split, Undo};
use crate::actor::{Actor, add, again, calipam, collect, del, edit, undone, writes_endpoint_late};
use crate::invariants::repairs::CONFIG;
use crate::world::Event::{Hang, Silence};

const PART: &str = "/calico/resources/v3/projectcalico.org/ippools/split-pool-0";
const OTHER_POOL: &str = "/calico/resources/v3/projectcalico.org/ippools/other";
const OTHER: &str = r#"{"metadata": {"name": "other"}, "spec": {"cidr": "10.0.0.0/30", "blockSize": 30}}"#;

/// Splits a pool and undoes it. In between, someone creates another pool, and may delete a part of the split one.
fn split_beside_others(delete: Option<&'static str>) -> Vec<Actor> {
    let others = Others {
        create: (OTHER_POOL, OTHER),
        delete,
    };
    vec![calipam(false, &[Split("pool"), others, Undo], &[Undo])]
}

/// Runs that give up on the datastore, which never answers again, or answers after each limit.
fn unanswered() -> Vec<Scenario> {
    let twice = || vec![calipam(true, &[Release, Release], &[])];
    let beside_add = || vec![calipam(true, &[Release, Release], &[]), add(slow("a5/p"))];
    let and_undo = || vec![undone(Release)];
    vec![
        plain("release-unanswered", ONE, LEAKED, twice).with_silence(Silence),
        plain("release-answered-late", ONE, LEAKED, twice).with_silence(Hang),
        large("release-unanswered-beside-add", ONE, LEAKED, beside_add).with_silence(Silence),
        large("release-answered-late-beside-add", ONE, LEAKED, beside_add).with_silence(Hang),
        plain("undo-unanswered", ONE, LEAKED, and_undo).with_silence(Silence),
        plain("undo-answered-late", ONE, LEAKED, and_undo).with_silence(Hang),
        plain("rebuild-answered-late", ONE, POD_AND_UNCOUNTED, || {
            vec![calipam(false, &[Rebuild, Rebuild], &[])]
        })
        .with_silence(Hang),
    ]
}

pub(super) fn all() -> Vec<Scenario> {
    let commands = vec![
        // A leaked address is released.
        plain("release", ONE, LEAKED, || vec![again(Release)]),
        // The same with the datastore locked.
        plain("release-locked", ONE, LEAKED, || {
            vec![calipam(true, &[Release], &[Release])]
        })
        .with_jumps(),
        // A leaked address is released, and that is undone.
        plain("release-and-undo", ONE, LEAKED, || vec![undone(Release)]).with_jumps(),
        // A leaked address is released while a pod wants one.
        plain("release-beside-add", ONE, LEAKED, || {
            vec![again(Release), add(slow("a5/p"))]
        })
        .with_jumps(),
        // An address is released by its name while its pod stops.
        plain("release-beside-del", ONE, POD, || {
            vec![again(ReleaseAddress(LEAK)), del(slow("a5/p"))]
        }),
        // A leaked address is released by two at once while a pod wants it.
        large("release-beside-collector", ONE, LEAKED, || {
            vec![again(Release), collect(), add(wanting(0, slow("a5/p")))]
        }),
        // An address is released that turns out to be in use.
        plain("release-beside-endpoint", ONE, &[Leak("a5/late")], || {
            vec![again(Release), writes_endpoint_late(slow("a5/late"), LEAK)]
        }),
        // Two people release the same, with the datastore locked.
        plain("two-releases", ONE, LEAKED, || {
            let release = || calipam(true, &[Release], &[Release]);
            vec![release(), release()]
        }),
        // Two people release an address each, with the datastore locked.
        large(
            "two-releases-of-two",
            ONE,
            &[Leak("a5/gone"), Leak("a5/gone-too")],
            || {
                let commands = [0, 1].map(|last| [ReleaseAddress([10, 0, 0, last].into())]);
                commands.map(|release| calipam(true, &release, &release)).into()
            },
        ),
        // A release is undone while a pod gets the address.
        plain("undo-beside-add", ONE, LEAKED, || {
            vec![undone(Release), add(wanting(0, slow("a5/p")))]
        }),
        // A pool is split, and that is undone.
        plain("split-and-undo", TWO, POD, || vec![undone(Split("pool"))]),
        // A pool is split and made whole while a pod wants an address.
        large("split-beside-add", TWO, &[], || {
            vec![undone(Split("pool")), add(slow("a5/p"))]
        }),
        // A pool is split, someone replaces one of its parts, and the split is undone.
        plain("split-replaced-and-undo", TWO, &[], || {
            split_beside_others(Some(PART))
        }),
        // A pool is split, someone lays another one over the parts, and the split is undone.
        plain("split-overlapped-and-undo", TWO, &[], || {
            split_beside_others(None)
        }),
        // A setting is changed and changed back while someone changes another one.
        plain("configure-and-undo", ONE, &[], || {
            let other = edit("changes a setting", CONFIG, |found| {
                found.replace("\"ipCooldownSeconds\":0", "\"ipCooldownSeconds\":5")
            });
            vec![undone(Configure(IpamSetting::StrictAffinity(true))), other]
        }),
        // The handle of a pod is gone, and one counts too much.
        plain("rebuild", ONE, POD_AND_UNCOUNTED, || vec![again(Rebuild)]),
        // A block without its handles is repaired while a pod wants an address.
        plain("rebuild-beside-add", ONE, UNCOUNTED, || {
            vec![again(Rebuild), add(slow("a5/p"))]
        })
        .with_jumps(),
        // The handle of a pod is missing, and is made by a rebuild and by an ADD for another interface of the pod. A
        // DEL after a kill would leave the first address behind, since the handle does not count it yet.
        large(
            "rebuild-beside-second-add",
            TWO,
            &[Pod("a5/p"), Unowned(FIRST, "a5"), NoHandle("a5/p")],
            || vec![again(Rebuild), add(slow("a5/p"))],
        )
        .without_faults(),
        // A block that a pod uses is gone while the pod stops.
        plain(
            "rebuild-missing-block",
            ONE,
            &[
                Pod("a5/p"),
                NoValue("a5/p", "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-30"),
            ],
            || vec![again(Rebuild), del(slow("a5/p"))],
        ),
        // An address is assigned that a pod asks for.
        plain("assign-beside-add", ONE, BLOCK_AND_BY_HAND, || {
            vec![
                calipam(false, &[assign()], &[Undo]),
                add(wanting(0, slow("a5/p"))),
            ]
        })
        .with_jumps(),
        // An address is assigned and taken back while a pod wants any.
        large("assign-and-undo", TWO, BY_HAND_ONLY, || {
            vec![undone(assign()), add(slow("a5/p"))]
        }),
    ];
    [commands, unanswered()].concat()
}
