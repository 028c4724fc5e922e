//! Worlds in which a pool is migrated, phase by phase, while pods and the collector run.

use super::given::Given::{Leak, Pod};
use super::{BLOCK, LEAKED, ONE, Scenario, TWO, large, plain, slow};
use crate::actor::Command::{self, Undo};
use crate::actor::{Actor, add, calipam, collect, del};
use crate::invariants;
use crate::world::World;

const TO: Command = Command::Migrate("10.0.1.0/29", None);
/// A migration through a temporary pool to blocks of two addresses.
const SIZED: Command = Command::Migrate("10.0.1.0/29", Some(31));

/// Runs all phases of a migration of a pool without users.
fn migrate() -> Actor {
    calipam(false, &[TO; 4], &[TO; 4])
}

fn there_and_back() -> Actor {
    calipam(false, &[SIZED; 7], &[SIZED; 7])
}

pub(super) fn all() -> Vec<Scenario> {
    let scenarios = vec![
        // A pool with a leaked address is left for another one.
        Scenario {
            end: has_moved,
            ..plain("migrate", ONE, LEAKED, || vec![migrate()])
        },
        // A pool with an empty block gets blocks of another size through a temporary one.
        Scenario {
            end: is_resized,
            ..plain("migrate-there-and-back", ONE, BLOCK, || vec![there_and_back()])
        },
        // A pool is left while a pod wants an address.
        large("migrate-beside-add", ONE, &[], || {
            vec![migrate(), add(slow("a5/p"))]
        }),
        // The same where the node has an empty block.
        large("migrate-beside-add-in-block", ONE, BLOCK, || {
            vec![migrate(), add(slow("a5/p"))]
        }),
        // A pool is left while its last pod stops and the collector works.
        large(
            "migrate-beside-del-and-collector",
            TWO,
            &[Leak("a5/gone"), Pod("b55/p")],
            || vec![migrate(), del(slow("b55/p")), collect()],
        ),
        // A pool gets blocks of another size while a pod wants an address.
        large("migrate-there-and-back-beside-add", ONE, &[], || {
            vec![there_and_back(), add(slow("a5/p"))]
        }),
        // A pool is created and disabled, and each of that undone before it is done again.
        large("migrate-and-undo", ONE, LEAKED, || {
            vec![calipam(false, &[TO, Undo, TO, TO, Undo], &[Undo])]
        }),
    ];
    scenarios
        .into_iter()
        .map(|scenario| Scenario {
            longest: 160,
            ..scenario
        })
        .collect()
}

/// Checks that only the new pool is left, if nothing went wrong.
fn has_moved(world: &World) -> Result<(), String> {
    ends_with(world, "10.0.1.0/29", "30")
}

fn is_resized(world: &World) -> Result<(), String> {
    ends_with(world, ONE.pool, "31")
}

/// Checks that exactly one pool is left, and that it has this CIDR and block size.
fn ends_with(world: &World, cidr: &str, size: &str) -> Result<(), String> {
    invariants::repairs::at_the_end(world)?;
    let pools = world
        .values()
        .into_iter()
        .filter(|(path, ..)| path.contains("/ippools/"));
    let pools: Vec<String> = pools
        .map(|(_, value, _)| String::from_utf8_lossy(&value).into_owned())
        .collect();
    let is_left = |pool: &String| {
        pool.contains(&format!("\"cidr\":\"{cidr}\"")) && pool.contains(&format!("\"blockSize\":{size}"))
    };
    match pools.as_slice() {
        [pool] if is_left(pool) => Ok(()),
        _ if world.audit().has_faults => Ok(()),
        _ => Err(format!("the migration ends with {pools:?}")),
    }
}
