//! Worlds in which calipam's own commands write at the same time as other programs.

use calipam_assign::plugin::Wanted;
use calipam_model::config::IpamSetting;

use super::{Before, Cluster, FIRST, ONE_BLOCK, Scenario, TWO_BLOCKS, large, plain};
use crate::actor::{Call, Command, add, calipam, collect, del, edit, writes_endpoint_late};
use crate::invariants::repairs::{BY_HAND, CONFIG};

pub(super) const LEAK: [u8; 4] = [10, 0, 0, 0];
/// A pool that can be split in two.
const SPLITTABLE: Cluster = TWO_BLOCKS;

impl Before<'_> {
    /// Adds a deleted pod whose address is still recorded.
    pub(super) fn leak(&self, node: &str, pod: &str) {
        self.pod(node, pod);
        let call = Call::new(node, pod);
        self.0.data().remove(&call.endpoint());
        self.0.truth.remove_pod(&call.handle());
    }

    /// Removes a key that records a pod's addresses.
    pub(super) fn damage(&self, pod: &str, path: &str) {
        self.0.data().remove(path);
        self.0.truth.damage(&Call::new("", pod).handle());
    }

    /// Adds a deleted pod whose address is still recorded, and removes the pod's handle.
    pub(super) fn leak_without_handle(&self, node: &str, pod: &str) {
        self.leak(node, pod);
        self.damage(pod, &handle_path(pod));
    }

    /// Adds a handle without a pod.
    pub(super) fn by_hand(&self) {
        self.0.truth.begin(BY_HAND, "a");
        self.0.truth.remove_pod(BY_HAND);
    }
}

/// A call for a pod that wants any address.
pub(super) fn any(node: &str, pod: &str) -> Call {
    Call { is_watched: true, ..Call::new(node, pod) }
}

/// A call for a pod that wants the leaked address.
pub(super) fn the_leaked(node: &str, pod: &str) -> Call {
    Call { wanted: Wanted::Address(LEAK.into()), ..any(node, pod) }
}

/// The key of a pod's handle.
pub(super) fn handle_path(pod: &str) -> String {
    format!("/calico/ipam/v2/handle/k8s-pod-network.{pod}")
}

pub(super) fn all() -> Vec<Scenario> {
    use Command::{Assign, Configure, Others, Rebuild, Release, ReleaseAddress, Split, Undo};
    vec![
        plain(
            "release",
            "a leaked address is released",
            ONE_BLOCK,
            |before| before.leak("a", "gone"),
            || vec![calipam("release", false, &[Release], &[Release])],
        ),
        plain(
            "release-locked",
            "the same with the datastore locked",
            ONE_BLOCK,
            |before| before.leak("a", "gone"),
            || vec![calipam("release", true, &[Release], &[Release])],
        )
        .with_jumps(),
        plain(
            "release-and-undo",
            "a leaked address is released, and that is undone",
            ONE_BLOCK,
            |before| before.leak("a", "gone"),
            || vec![calipam("release and undo", false, &[Release, Undo], &[Undo])],
        )
        .with_jumps(),
        plain(
            "release-beside-add",
            "a leaked address is released while a pod wants one",
            ONE_BLOCK,
            |before| before.leak("a", "gone"),
            || vec![calipam("release", false, &[Release], &[Release]), add(any("a", "p"))],
        )
        .with_jumps(),
        plain(
            "release-beside-del",
            "an address is released by its name while its pod stops",
            ONE_BLOCK,
            |before| before.pod("a", "p"),
            || {
                let commands = [ReleaseAddress(LEAK.into())];
                vec![calipam("release", false, &commands, &commands), del(any("a", "p"))]
            },
        ),
        large(
            "release-beside-collector",
            "a leaked address is released by two at once while a pod wants it",
            ONE_BLOCK,
            |before| before.leak("a", "gone"),
            || vec![calipam("release", false, &[Release], &[Release]), collect(), add(the_leaked("a", "p"))],
        ),
        plain(
            "release-beside-endpoint",
            "an address is released that turns out to be in use",
            ONE_BLOCK,
            |before| before.leak("a", "late"),
            || {
                let late = writes_endpoint_late(any("a", "late"), LEAK.into());
                vec![calipam("release", false, &[Release], &[Release]), late]
            },
        ),
        plain(
            "two-releases",
            "two people release the same, with the datastore locked",
            ONE_BLOCK,
            |before| before.leak("a", "gone"),
            || {
                let release = |name| calipam(name, true, &[Release], &[Release]);
                vec![release("release"), release("another release")]
            },
        ),
        large(
            "two-releases-of-two",
            "two people release an address each, with the datastore locked",
            ONE_BLOCK,
            |before| ["gone", "gone-too"].into_iter().for_each(|pod| before.leak("a", pod)),
            || {
                let release = |name, address: [u8; 4]| {
                    let commands = [ReleaseAddress(address.into())];
                    calipam(name, true, &commands, &commands)
                };
                vec![release("release", LEAK), release("another release", [10, 0, 0, 1])]
            },
        ),
        plain(
            "undo-beside-add",
            "a release is undone while a pod gets the address",
            ONE_BLOCK,
            |before| before.leak("a", "gone"),
            || vec![calipam("release and undo", false, &[Release, Undo], &[Undo]), add(the_leaked("a", "p"))],
        ),
        plain(
            "split-and-undo",
            "a pool is split, and that is undone",
            SPLITTABLE,
            |before| before.pod("a", "p"),
            || vec![calipam("split and undo", false, &[Split("pool"), Undo], &[Undo])],
        ),
        large(
            "split-beside-add",
            "a pool is split and made whole while a pod wants an address",
            SPLITTABLE,
            |_| {},
            || vec![calipam("split and undo", false, &[Split("pool"), Undo], &[Undo]), add(any("a", "p"))],
        ),
        plain(
            "split-replaced-and-undo",
            "a pool is split, someone replaces one of its parts, and the split is undone",
            SPLITTABLE,
            |_| {},
            || {
                let others = Others { create: (OTHER_POOL, OTHER), delete: Some(PART) };
                vec![calipam("split and undo", false, &[Split("pool"), others, Undo], &[Undo])]
            },
        ),
        plain(
            "split-overlapped-and-undo",
            "a pool is split, someone lays another one over the parts, and the split is undone",
            SPLITTABLE,
            |_| {},
            || {
                let others = Others { create: (OTHER_POOL, OTHER), delete: None };
                vec![calipam("split and undo", false, &[Split("pool"), others, Undo], &[Undo])]
            },
        ),
        plain(
            "configure-and-undo",
            "a setting is changed and changed back while someone changes another one",
            ONE_BLOCK,
            |_| {},
            || {
                let setting = Configure(IpamSetting::StrictAffinity(true));
                let other = edit("changes a setting", CONFIG, |found| {
                    let [was, is] = ["\"ipCooldownSeconds\":0", "\"ipCooldownSeconds\":5"];
                    Some(found.unwrap_or("{}").replace(was, is))
                });
                vec![calipam("configure and undo", false, &[setting, Undo], &[Undo]), other]
            },
        ),
        plain(
            "rebuild",
            "the handle of a pod is gone, and one counts too much",
            ONE_BLOCK,
            |before| {
                before.pod("a", "p");
                before.leak_without_handle("a", "gone");
            },
            || vec![calipam("rebuild", false, &[Rebuild], &[Rebuild])],
        ),
        plain(
            "rebuild-beside-add",
            "a block without its handles is repaired while a pod wants an address",
            ONE_BLOCK,
            |before| before.leak_without_handle("a", "gone"),
            || vec![calipam("rebuild and undo", false, &[Rebuild], &[Rebuild]), add(any("a", "p"))],
        )
        .with_jumps(),
        large(
            "rebuild-beside-second-add",
            "the handle of a pod is missing, and is made by a rebuild and by an ADD for another interface of the pod",
            TWO_BLOCKS,
            |before| {
                before.pod_in_unowned("a", "p");
                before.damage("p", &handle_path("p"));
            },
            || vec![calipam("rebuild", false, &[Rebuild], &[Rebuild]), add(any("a", "p"))],
        )
        // A DEL after a kill would leave the first address behind, since the handle does not count it yet.
        .without_faults(),
        plain(
            "rebuild-missing-block",
            "a block that a pod uses is gone while another pod of its node wants an address",
            ONE_BLOCK,
            |before| {
                before.pod("a", "p");
                before.damage("p", "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-30");
            },
            || vec![calipam("rebuild", false, &[Rebuild], &[Rebuild]), del(any("a", "p"))],
        ),
        plain(
            "assign-beside-add",
            "an address is assigned that a pod asks for",
            ONE_BLOCK,
            |before| {
                before.block(FIRST, "a");
                before.by_hand();
            },
            || {
                let assign = [Assign(LEAK.into(), "a", BY_HAND)];
                vec![calipam("assign", false, &assign, &[Undo]), add(the_leaked("a", "p"))]
            },
        )
        .with_jumps(),
        large(
            "assign-and-undo",
            "an address is assigned and taken back while a pod wants any",
            TWO_BLOCKS,
            |before| before.by_hand(),
            || {
                let assign = Assign(LEAK.into(), "a", BY_HAND);
                vec![calipam("assign and undo", false, &[assign, Undo], &[Undo]), add(any("a", "p"))]
            },
        ),
    ]
}

const PART: &str = "/calico/resources/v3/projectcalico.org/ippools/split-pool-0";
const OTHER_POOL: &str = "/calico/resources/v3/projectcalico.org/ippools/other";
const OTHER: &str = r#"{"metadata": {"name": "other"}, "spec": {"cidr": "10.0.0.0/30", "blockSize": 30}}"#;
