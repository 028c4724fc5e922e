//! Worlds with the Kubernetes datastore, where each object is written by its own request.

use super::repairs::{LEAK, any, handle_path, the_leaked};
use super::{Cluster, FIRST, ONE_BLOCK, Scenario, TWO_BLOCKS, large};
use crate::actor::{Call, Command, Program, add, calipam, del};
use crate::invariants::repairs::BY_HAND;

const KUBERNETES: Cluster = Cluster { is_kubernetes: true, ..TWO_BLOCKS };
/// A cluster whose API server returns lists in pages of one object.
const PAGES: Cluster = Cluster { page: 1, ..KUBERNETES };

/// Makes calipam's plugin serve a call with an API server.
fn on_kubernetes(call: Call) -> Call {
    call.by(Program::OnKubernetes)
}

pub(super) fn all() -> Vec<Scenario> {
    use Command::{Assign, Rebuild, Release, ReleaseAddress, Split, Undo};
    vec![
        large(
            "kubernetes-release-and-undo",
            "a leaked address is released on Kubernetes, object by object, and that is undone",
            KUBERNETES,
            |before| {
                before.pod("a", "p");
                before.leak("a", "gone");
            },
            || vec![calipam("release and undo", false, &[Release, Undo], &[Undo])],
        ),
        large(
            "kubernetes-two-releases",
            "two people release the same on Kubernetes, one of them with the datastore locked",
            KUBERNETES,
            |before| before.leak("a", "gone"),
            || {
                let release = |name, locks| calipam(name, locks, &[Release], &[Release]);
                vec![release("release", false), release("another release", true)]
            },
        ),
        large(
            "kubernetes-split-and-undo",
            "a pool is split on Kubernetes, pool by pool, and that is undone",
            KUBERNETES,
            |before| before.pod("a", "p"),
            || vec![calipam("split and undo", false, &[Split("pool"), Undo], &[Undo])],
        )
        // There are no faults, since the objects of a killed split may be deleted after the undo compares them and
        // before it writes.
        .up_to(0),
        large(
            "kubernetes-rebuild",
            "a handle is gone, and an address is leaked",
            KUBERNETES,
            |before| {
                before.pod("a", "p");
                before.leak("a", "gone");
                before.damage("p", &handle_path("p"));
            },
            || vec![calipam("rebuild and undo", false, &[Rebuild], &[Rebuild])],
        ),
        large(
            "kubernetes-assign-and-undo",
            "an address is assigned and taken back on Kubernetes",
            KUBERNETES,
            |before| before.by_hand(),
            || {
                let assign = Assign(LEAK.into(), "a", BY_HAND);
                vec![calipam("assign and undo", false, &[assign, Undo], &[Undo])]
            },
        ),
        large(
            "kubernetes-add-beside-add",
            "pods of two nodes want an address of one block, by calipam's own client of Kubernetes",
            KUBERNETES,
            |before| before.block(FIRST, "a"),
            || {
                let wants = |node, pod| add(on_kubernetes(the_leaked(node, pod)));
                vec![wants("a", "p"), wants("b", "q")]
            },
        ),
        large(
            "kubernetes-add-beside-del",
            "a pod starts while the other one of its node stops",
            KUBERNETES,
            |before| before.pod("a", "p"),
            || vec![add(on_kubernetes(any("a", "q"))), del(on_kubernetes(any("a", "p")))],
        ),
        large(
            "kubernetes-claim-beside-del",
            "the last pod of a block without owner stops while a pod of another node claims the block anew",
            Cluster { is_kubernetes: true, ..ONE_BLOCK },
            |before| before.pod_in_unowned("a", "p"),
            || vec![add(on_kubernetes(any("b", "q"))), del(on_kubernetes(any("a", "p")))],
        ),
        large(
            "kubernetes-release-beside-add",
            "a leaked address is released while a pod wants one",
            KUBERNETES,
            |before| before.leak("a", "gone"),
            || vec![calipam("release", false, &[Release], &[Release]), add(on_kubernetes(any("a", "p")))],
        ),
        large(
            "kubernetes-release-beside-del",
            "an address is released by its name while its pod stops",
            KUBERNETES,
            |before| before.pod("a", "p"),
            || {
                let commands = [ReleaseAddress(LEAK.into())];
                vec![calipam("release", false, &commands, &commands), del(on_kubernetes(any("a", "p")))]
            },
        ),
        large(
            "kubernetes-rebuild-beside-add",
            "a block without its handle is repaired while a pod wants an address",
            KUBERNETES,
            |before| before.leak_without_handle("a", "gone"),
            || vec![calipam("rebuild", false, &[Rebuild], &[Rebuild]), add(on_kubernetes(any("a", "p")))],
        ),
        large(
            "kubernetes-pages",
            "a leaked address is released where each list comes in pages, whose revision may be gone",
            PAGES,
            |before| {
                before.pod("a", "p");
                before.leak("a", "gone");
            },
            || vec![calipam("release", false, &[Release], &[Release])],
        ),
    ]
}
