//! Worlds in which a pool is migrated, phase by phase, while pods and the collector run.

use super::repairs::any;
use super::{FIRST, ONE_BLOCK, Scenario, TWO_BLOCKS, large, plain};
use crate::actor::{Command, add, calipam, collect, del};
use crate::invariants;
use crate::world::World;

const TO: Command = Command::Migrate("10.0.1.0/29", None);
/// A migration through a temporary pool to blocks of two addresses.
const SIZED: Command = Command::Migrate("10.0.1.0/29", Some(31));

/// The phases of a migration of a pool without users.
const PHASES: [Command; 4] = [TO; 4];
const THERE_AND_BACK: [Command; 7] = [SIZED; 7];

pub(super) fn all() -> Vec<Scenario> {
    use Command::Undo;
    let scenarios = vec![
        Scenario {
            end: has_moved,
            ..plain(
                "migrate",
                "a pool with a leaked address is left for another one",
                ONE_BLOCK,
                |before| before.leak("a", "gone"),
                || vec![calipam("migrate", false, &PHASES, &PHASES)],
            )
        },
        Scenario {
            end: is_resized,
            ..plain(
                "migrate-there-and-back",
                "a pool with an empty block gets blocks of another size through a temporary one",
                ONE_BLOCK,
                |before| before.block(FIRST, "a"),
                || vec![calipam("migrate", false, &THERE_AND_BACK, &THERE_AND_BACK)],
            )
        },
        large(
            "migrate-beside-add",
            "a pool is left while a pod wants an address",
            ONE_BLOCK,
            |_| {},
            || vec![calipam("migrate", false, &PHASES, &PHASES), add(any("a", "p"))],
        ),
        large(
            "migrate-beside-add-in-block",
            "the same where the node has an empty block",
            ONE_BLOCK,
            |before| before.block(FIRST, "a"),
            || vec![calipam("migrate", false, &PHASES, &PHASES), add(any("a", "p"))],
        ),
        large(
            "migrate-beside-del-and-collector",
            "a pool is left while its last pod stops and the collector works",
            TWO_BLOCKS,
            |before| {
                before.leak("a", "gone");
                before.pod("b", "p");
            },
            || vec![calipam("migrate", false, &PHASES, &PHASES), del(any("b", "p")), collect()],
        ),
        large(
            "migrate-there-and-back-beside-add",
            "a pool gets blocks of another size while a pod wants an address",
            ONE_BLOCK,
            |_| {},
            || vec![calipam("migrate", false, &THERE_AND_BACK, &THERE_AND_BACK), add(any("a", "p"))],
        ),
        large(
            "migrate-and-undo",
            "a pool is created and disabled, and each of that undone before it is done again",
            ONE_BLOCK,
            |before| before.leak("a", "gone"),
            || {
                let phases = [TO, Undo, TO, TO, Undo];
                vec![calipam("migrate and undo", false, &phases, &[Undo])]
            },
        ),
    ];
    scenarios.into_iter().map(|scenario| Scenario { longest: 160, ..scenario }).collect()
}

/// Checks that only the new pool is left, if nothing went wrong.
fn has_moved(world: &World) -> Result<(), String> {
    ends_with(world, "10.0.1.0/29", "30")
}

fn is_resized(world: &World) -> Result<(), String> {
    ends_with(world, ONE_BLOCK.pool, "31")
}

/// Checks that exactly one pool is left, and that it has this CIDR and block size.
fn ends_with(world: &World, cidr: &str, size: &str) -> Result<(), String> {
    invariants::repairs::at_the_end(world)?;
    let pools = world.values().into_iter().filter(|(path, ..)| path.contains("/ippools/"));
    let pools: Vec<String> =
        pools.map(|(_, value, _)| String::from_utf8_lossy(&value).into_owned()).collect();
    let is_left = |pool: &String| {
        pool.contains(&format!("\"cidr\":\"{cidr}\"")) && pool.contains(&format!("\"blockSize\":{size}"))
    };
    match pools.as_slice() {
        [pool] if is_left(pool) => Ok(()),
        _ if world.audit.has_faults() => Ok(()),
        _ => Err(format!("the migration ends with {pools:?}")),
    }
}
