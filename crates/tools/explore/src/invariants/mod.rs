//! The invariants that hold at every step and at the end.

pub(crate) mod repairs;

use std::collections::BTreeMap;

use calipam_check::{Code, Finding, Options, check};
use calipam_model::snapshot::{DatastoreKind, ETCD_SOURCES, Source};
use calipam_testkit::memory::MemoryStore;
use jiff::SignedDuration;

use crate::actor::{Call, clean_up, served, would_assign};
use crate::objects::Objects;
use crate::truth::Pod;
use crate::world::{NODES, PendingRequest, World, kubernetes, snapshot};

/// Findings that a crash may leave in addition to [`OF_QUIET`] (facts 3.15). Any other finding would be damage.
/// Addresses leak if their endpoint is not written yet, or already deleted. A handle is left over if it counts an
/// address before it is allocated, or after its release.
const OF_CRASHES: &[Code] = &[Code::LeakedAddress, Code::OrphanHandle, Code::NodeOverBlockLimit];

/// Findings that may remain after DEL was repeated. They concern affinities that the next claim or release settles, and
/// surplus counts in a pod's handle, which remain until the pod stops.
const OF_QUIET: &[Code] = &[
    Code::HandleCount,
    Code::UnsettledAffinity,
    Code::AffinityWithoutBlock,
    Code::AffinityBlockMismatch,
    Code::AffinityConflict,
    Code::EmptyUnownedBlock,
    Code::NodeWithoutAddresses,
    Code::PoolNearlyFull,
];

/// Checks the invariants after a step. `by` is the request of the step.
pub(crate) fn always(world: &World, by: Option<&PendingRequest>) -> Result<(), String> {
    if let Some(violation) = world.truth.take_violations().into_iter().next() {
        return Err(violation);
    }
    let changes = world.data.take_changes();
    if changes.is_empty() {
        return Ok(());
    }
    repairs::written(world, by, changes)?;
    let objects = Objects::of(&world.values())?;
    let recorded = objects.recorded()?;
    for (address, user) in world.truth.users() {
        match recorded.get(&address) {
            Some(handle) if *handle == user => {}
            Some(handle) => return Err(format!("{address} of {user} is recorded for {handle}")),
            None if world.truth.has(&user, |pod| pod.is_damaged) => {}
            None => return Err(format!("{address}, which {user} uses, is free")),
        }
    }
    objects.handles_count_enough(world)?;
    objects.blocks_have_one_affinity()
}

/// Checks the end, with all actors stopped and DEL repeated: no claim is half done, nothing is leaked, and a check
/// explains the leftovers.
pub(crate) fn at_the_end(world: &World) -> Result<(), String> {
    if !world.audit().has_faults {
        Objects::of(&world.values())?.claims_are_whole()?;
    }
    nothing_is_leaked(world, &[])
}

/// Checks the end in worlds where nodes lose blocks that they use or claim. Another node may own such a block by now,
/// and an affinity may be unsettled until the next claim. A block whose creation takes effect after its node gave the
/// block up has no affinity (`docs/safety.md`).
pub(crate) fn at_the_end_of_claims(world: &World) -> Result<(), String> {
    let late: &[Code] = if world.audit().has_lost_answers {
        &[Code::BlockWithoutAffinity]
    } else {
        &[]
    };
    nothing_is_leaked(world, &[&[Code::BorrowedUnderStrictAffinity], late].concat())
}

/// Checks the end, and also that the next pod on a node is assigned an address of each family.
pub(crate) fn next_pod_starts(world: &World) -> Result<(), String> {
    nothing_is_leaked(world, &[])?;
    let copy = world.copy();
    stop(world, &copy.data, |pod| !pod.is_served())?;
    let call = Call::of_both("a5/later");
    let addresses = served(&copy.data, &call);
    if addresses.len() != call.wants() {
        return Err(format!("the next pod gets {addresses:?}"));
    }
    copy.data
        .put(&call.endpoint(), call.endpoint_object(&addresses).to_string());
    let mut recorded = Objects::of(&copy.values())?.recorded()?;
    for address in addresses {
        if let Some(user) = world.truth.users().get(&address) {
            return Err(format!("the next pod gets {address}, which {user} uses"));
        }
        recorded.remove(&address);
    }
    if recorded != world.truth.users() {
        return Err(format!("{recorded:?} are recorded beside the next pod"));
    }
    explained(world, &copy.values(), OF_QUIET)
}

/// Runs DEL again for the selected pods.
fn stop(world: &World, data: &MemoryStore, is_stopped: fn(&Pod) -> bool) -> Result<(), String> {
    for (handle, pod) in world.truth.pods().iter().filter(|(_, pod)| is_stopped(pod)) {
        clean_up(data, &pod.node, handle).map_err(|error| format!("DEL of {handle} fails: {error}"))?;
    }
    Ok(())
}

fn nothing_is_leaked(world: &World, also: &[Code]) -> Result<(), String> {
    let copy = world.copy();
    if !world.audit().has_faults {
        Objects::of(&copy.values())?.handles_count_exactly(world)?;
    }
    explained(world, &copy.values(), &[OF_QUIET, OF_CRASHES, also].concat())?;

    // A late write, which takes effect last, may also leave something behind.
    stop(world, &copy.data, |pod| !pod.is_served())?;
    let objects = Objects::of(&copy.values())?;
    let users = world.truth.users();
    if !world.audit().has_lost_answers {
        objects.handles_count_exactly(world)?;
    }
    objects
        .are_only_of(&users)
        .map_err(|what| format!("{what} after DEL was repeated"))?;
    explained(world, &copy.values(), &[OF_QUIET, also].concat())?;

    stop(world, &copy.data, Pod::is_served)?;
    let left = Objects::of(&copy.values())?.are_only_of(&BTreeMap::new());
    left.map_err(|what| format!("{what} after all pods stopped"))
}

/// Checks that a node's notes hide no address from its next ADD, whatever happened to the notes file.
pub(crate) fn notes_hide_nothing(world: &World) -> Result<(), String> {
    at_the_end(world)?;
    for node in NODES {
        let call = Call::from(&*format!("{node}/next"));
        let notes = world.notes.of(node);
        if would_assign(world, &call, notes.as_ref()) != would_assign(world, &call, None) {
            return Err(format!(
                "the next ADD on {node} ends otherwise by what the node has kept: {notes:?}"
            ));
        }
    }
    Ok(())
}

/// Checks that `check` reports only the findings in `allowed`. If the clock jumped, `check` may also report a clock
/// that went back.
fn explained(world: &World, values: &[(String, Vec<u8>, i64)], allowed: &[Code]) -> Result<(), String> {
    let mut snapshot = snapshot(values);
    (snapshot.taken_at, snapshot.rechecked) = (world.now(), true);
    if values.iter().any(|(path, ..)| path.starts_with(kubernetes::ALL)) {
        snapshot.datastore = DatastoreKind::Kubernetes;
        let own = ETCD_SOURCES
            .into_iter()
            .filter(|source| *source != Source::Endpoints);
        snapshot.mark_read(own.chain([Source::Pods, Source::Services]));
    } else {
        snapshot.mark_read(ETCD_SOURCES);
    }
    let options = Options {
        grace: Some(SignedDuration::ZERO),
        ..Options::default()
    };
    let is_of_clock = |finding: &Finding| {
        !world.jumped().is_zero()
            && finding.code == Code::CorruptBlock
            && finding.message().contains("was released in the future")
    };
    let mut findings = check(&snapshot, &options).findings.into_iter();
    let other = findings.find(|finding| !allowed.contains(&finding.code) && !is_of_clock(finding));
    other.map_or(Ok(()), |other| {
        Err(format!("check finds {}: {}", other.code, other.message()))
    })
}
