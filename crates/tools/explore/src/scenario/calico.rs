//! Worlds in which Calico's own plugin and collector write at the same time as calipam's.

use calipam_assign::plugin::Wanted;

use super::repairs::{LEAK, any, handle_path, the_leaked};
use super::{Before, Cluster, FIRST, ONE_BLOCK, Scenario, TWO_BLOCKS, cidr, large, plain};
use crate::actor::{Call, Command, Program, add, calipam, collect, del, release_empty};
use crate::invariants::repairs::BY_HAND;

/// Makes Calico's plugin serve a call.
fn calico(call: Call) -> Call {
    call.by(Program::Calico)
}

impl Before<'_> {
    /// Removes a node and its pod. The pod's address is leaked.
    fn gone(&self, node: &str, pod: &str) {
        self.leak(node, pod);
        self.0.data().remove(&format!("{}nodes/{node}", calipam_model::key::RESOURCE_PREFIX));
    }
}

pub(super) fn all() -> Vec<Scenario> {
    use Command::{Assign, Rebuild, Release, ReleaseAddress, Split, Undo};
    vec![
        plain(
            "calico-add-beside-add",
            "pods of two nodes, one with Calico's plugin, want an address, and one block can be had",
            ONE_BLOCK,
            |_| {},
            || vec![add(calico(Call::new("a", "p"))), add(Call::new("b", "q"))],
        ),
        plain(
            "calico-add-beside-add-one-node",
            "both plugins are called on a node, as while one takes the place of the other",
            TWO_BLOCKS,
            |_| {},
            || vec![add(calico(Call::new("a", "p"))), add(Call::new("a", "q"))],
        ),
        plain(
            "calico-same-address",
            "two pods ask for the same address, one of Calico's plugin",
            TWO_BLOCKS,
            |_| {},
            || {
                let wanted = Wanted::Address(LEAK.into());
                let call = |node, pod| Call { wanted: wanted.clone(), ..Call::new(node, pod) };
                vec![add(calico(call("a", "p"))), add(call("b", "q"))]
            },
        ),
        plain(
            "calico-add-beside-del",
            "a pod of Calico's plugin borrows from a block that has no owner while its last pod stops",
            ONE_BLOCK,
            |before| before.pod_in_unowned("a", "p"),
            || vec![add(calico(Call::new("b", "q"))), del(Call::new("a", "p"))],
        ),
        plain(
            "add-beside-calico-del",
            "a pod borrows from a block that has no owner while Calico's plugin stops its last pod",
            ONE_BLOCK,
            |before| before.pod_in_unowned("a", "p"),
            || vec![add(Call::new("b", "q")), del(calico(Call::new("a", "p")))],
        ),
        large(
            "calico-reclaim-beside-add",
            "Calico's plugin takes over an empty block whose owner wants an address from it",
            ONE_BLOCK,
            |before| before.block(FIRST, "a"),
            || vec![add(Call::new("a", "p")), add(calico(Call::new("b", "q")))],
        ),
        large(
            "reclaim-beside-calico-add",
            "a node takes over an empty block whose owner wants an address from it by Calico's plugin",
            ONE_BLOCK,
            |before| before.block(FIRST, "a"),
            || vec![add(calico(Call::new("a", "p"))), add(Call::new("b", "q"))],
        ),
        large(
            "calico-add-beside-give-up",
            "a pod of Calico's plugin starts while the empty block of its node is given up",
            TWO_BLOCKS,
            |before| before.block(FIRST, "a"),
            || vec![add(calico(Call::new("a", "p"))), release_empty(cidr(FIRST), "a")],
        ),
        plain(
            "calico-del-twice",
            "both plugins stop one pod",
            ONE_BLOCK,
            |before| before.pod("a", "p"),
            || vec![del(calico(Call::new("a", "p"))), del(Call::new("a", "p"))],
        ),
        large(
            "collector-of-a-gone-node",
            "a node is gone: the collector takes its blocks while a pod of another node wants an address",
            ONE_BLOCK,
            |before| before.gone("b", "gone"),
            || vec![collect(), add(Call::new("a", "p"))],
        ),
        large(
            "collector-of-an-empty-block",
            "the collector takes the second, empty block of a node that wants an address",
            TWO_BLOCKS,
            |before| {
                ["w", "x", "y", "z"].into_iter().for_each(|pod| before.pod("a", pod));
                before.block("10.0.0.4/30", "a");
            },
            || vec![collect(), add(Call::new("a", "p"))],
        ),
        large(
            "collector-beside-cooldown",
            "the collector releases what a gone pod had while another pod stops, and addresses cool down",
            Cluster { cooldown: 30, ..ONE_BLOCK },
            |before| {
                before.pod("a", "p");
                before.leak("a", "gone");
            },
            || vec![collect(), del(Call::new("a", "p"))],
        ),
        plain(
            "calico-add-beside-release",
            "a leaked address is released while a pod of Calico's plugin asks for it",
            ONE_BLOCK,
            |before| before.leak("a", "gone"),
            || {
                let wants = add(calico(the_leaked("a", "p")));
                vec![calipam("release", false, &[Release], &[Release]), wants]
            },
        ),
        plain(
            "calico-del-beside-release",
            "an address is released by its name while Calico's plugin stops its pod",
            ONE_BLOCK,
            |before| before.pod("a", "p"),
            || {
                let commands = [ReleaseAddress(LEAK.into())];
                vec![calipam("release", false, &commands, &commands), del(calico(any("a", "p")))]
            },
        ),
        large(
            "calico-add-beside-rebuild",
            "a block without its handle is repaired while a pod of Calico's plugin wants an address",
            ONE_BLOCK,
            |before| before.leak_without_handle("a", "gone"),
            || vec![calipam("rebuild", false, &[Rebuild], &[Rebuild]), add(calico(any("a", "p")))],
        ),
        plain(
            "calico-del-beside-rebuild",
            "a handle is repaired while Calico's plugin, which needs it, stops the pod",
            ONE_BLOCK,
            |before| {
                before.pod("a", "p");
                before.damage("p", &handle_path("p"));
            },
            || vec![calipam("rebuild", false, &[Rebuild], &[Rebuild]), del(calico(any("a", "p")))],
        ),
        plain(
            "calico-add-beside-assign",
            "an address is assigned that a pod of Calico's plugin asks for",
            ONE_BLOCK,
            |before| {
                before.block(FIRST, "a");
                before.by_hand();
            },
            || {
                let assign = [Assign(LEAK.into(), "a", BY_HAND)];
                vec![calipam("assign", false, &assign, &[Undo]), add(calico(the_leaked("a", "p")))]
            },
        ),
        large(
            "calico-add-beside-split",
            "a pool is split and made whole while a pod of Calico's plugin wants an address",
            TWO_BLOCKS,
            |_| {},
            || {
                let split = calipam("split and undo", false, &[Split("pool"), Undo], &[Undo]);
                vec![split, add(calico(any("a", "p")))]
            },
        ),
        plain(
            "collector-beside-rebuild",
            "a leaked address without its handle is released by the collector and by a rebuild",
            ONE_BLOCK,
            |before| {
                before.pod("a", "p");
                before.leak_without_handle("a", "gone");
            },
            || vec![calipam("rebuild", false, &[Rebuild], &[Rebuild]), collect()],
        ),
        large(
            "collector-beside-undo",
            "a release is undone while the collector looks",
            ONE_BLOCK,
            |before| before.leak("a", "gone"),
            || vec![calipam("release and undo", true, &[Release, Undo], &[Undo]), collect()],
        ),
    ]
}
