//! Many concurrent calls, some of which are killed at any point. No address has two holders, and nothing is left after
//! a repeated DEL.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use calipam_assign::{Allocator, AutoAssign};
use calipam_datastore::allocation::AllocatorStore;
use calipam_model::pool::PoolUse;
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::rounds;
use tokio::task::LocalSet;
use tokio::time::timeout;

use crate::runtime::{addresses, wait};
use crate::world::{World, block_on};

const ALLOCATORS: usize = 16;

/// The number of containers of each allocator, which is larger in `cargo xtask soak`.
pub(crate) fn turns(usual: usize, soak: usize) -> usize {
    if rounds(1_usize) > 1 { soak } else { usual }
}

/// The holder of each address, as the containers see it.
type Ledger = Mutex<HashMap<IpAddr, String>>;

/// The numbers of calls that ended and of calls that were killed.
#[derive(Debug, Default)]
struct Calls {
    added: Cell<usize>,
    killed_adding: Cell<usize>,
    deleted: Cell<usize>,
    killed_deleting: Cell<usize>,
}

fn count(calls: &Cell<usize>) {
    calls.set(calls.get() + 1);
}

/// Lets allocators on two nodes, each with a separate connection, assign and release addresses. One call in eight is
/// killed. A request of a killed call may arrive after the first DEL, so each container is deleted once more at the
/// end.
pub(crate) fn churn(world: &World, rounds: usize) {
    let ledger: Arc<Ledger> = Arc::default();
    let calls: Rc<Calls> = Rc::default();
    block_on(LocalSet::new().run_until(async {
        let mut running = Vec::new();
        for number in 0..ALLOCATORS {
            let allocator = world.allocator().await;
            let (ledger, calls) = (Arc::clone(&ledger), Rc::clone(&calls));
            let host = if number % 2 == 0 { "a" } else { "b" };
            running.push(tokio::task::spawn_local(async move {
                let mut random = Rng::new(number as u64);
                for round in 0..rounds {
                    let handle = format!("net.c{number}-{round}");
                    live(&allocator, host, &handle, &ledger, &calls, &mut random).await;
                }
            }));
        }
        for allocator in running {
            allocator.await.unwrap();
        }
        let allocator = world.allocator().await;
        for number in 0..ALLOCATORS {
            for round in 0..rounds {
                release(&allocator, &format!("net.c{number}-{round}")).await;
            }
        }
    }));
    println!("{ALLOCATORS} allocators, {rounds} containers each: {calls:?}");
    assert!(ledger.lock().unwrap().is_empty());
    world.assert_empty();
}

/// Runs the calls for one container, from its ADD to its DEL.
async fn live(
    allocator: &Allocator<AllocatorStore>,
    host: &str,
    handle: &str,
    ledger: &Ledger,
    calls: &Calls,
    random: &mut Rng,
) {
    let request = AutoAssign {
        host: host.to_owned(),
        v4: 1,
        v6: 1,
        handle: Some(handle.to_owned()),
        attributes: Some([("node".to_owned(), host.to_owned())].into()),
        intended_use: Some(PoolUse::Workload),
        ..AutoAssign::default()
    };
    // Dropping a call is like killing its process.
    let patience = |random: &mut Rng| match random.below(8) {
        0 => Duration::from_micros(random.below(20_000)),
        _ => Duration::from_secs(60),
    };
    let assigned = timeout(patience(random), allocator.auto_assign(&request)).await;
    count(if assigned.is_ok() {
        &calls.added
    } else {
        &calls.killed_adding
    });
    if let Ok(assigned) = assigned {
        let assigned = match assigned {
            Ok(assigned) => assigned,
            Err(partly) if matches!(partly.error, calipam_assign::Error::TooManyConflicts) => partly.done,
            Err(partly) => panic!("{}", partly.error),
        };
        let mut ledger = ledger.lock().unwrap();
        for address in assigned.addresses() {
            let before = ledger.insert(address, handle.to_owned());
            assert_eq!(before, None, "{address} was given to {handle} too");
        }
    }
    ledger.lock().unwrap().retain(|_, holder| holder != handle);
    loop {
        match timeout(patience(random), allocator.release_by_handle_fully(handle)).await {
            Ok(Ok(()) | Err(calipam_assign::Error::NoHandle(_))) => return count(&calls.deleted),
            Ok(Err(error)) => assert!(
                matches!(error, calipam_assign::Error::TooManyConflicts),
                "{error}"
            ),
            Err(_) => count(&calls.killed_deleting),
        }
    }
}

/// Carries out a DEL that is not killed.
async fn release(allocator: &Allocator<AllocatorStore>, handle: &str) {
    match allocator.release_by_handle_fully(handle).await {
        Ok(()) | Err(calipam_assign::Error::NoHandle(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Runs processes of the plugin on one node and kills some.
#[test]
fn plugins_that_are_killed_lose_nothing() {
    let world = World::etcd();
    let runtime = world.runtime().with_ipam("assign_ipv6", "true");
    let ledger: Ledger = Mutex::default();
    thread::scope(|scope| {
        for number in 0..ALLOCATORS {
            let (runtime, ledger) = (&runtime, &ledger);
            scope.spawn(move || {
                let mut random = Rng::new(1_000 + number as u64);
                for round in 0..turns(3, 60) {
                    let container = format!("c{number}-{round}");
                    let stdin = runtime.configuration.to_string();
                    let mut add = runtime.start("ADD", &container, "", stdin.as_bytes());
                    if random.below(2) == 0 {
                        let end = Instant::now() + Duration::from_millis(random.below(400));
                        while Instant::now() < end && add.try_wait().unwrap().is_none() {
                            thread::sleep(Duration::from_millis(1));
                        }
                        add.kill().unwrap();
                    }
                    let outcome = wait(add);
                    if outcome.code == Some(0) {
                        let mut ledger = ledger.lock().unwrap();
                        for address in addresses(&outcome.json()) {
                            let before = ledger.insert(address.parse().unwrap(), container.clone());
                            assert_eq!(before, None, "{address} was given to {container} too");
                        }
                    }
                    ledger.lock().unwrap().retain(|_, holder| *holder != container);
                    runtime.call("DEL", &container, "").success();
                }
            });
        }
    });
    world.assert_empty();
}
