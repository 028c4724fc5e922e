//! `diff`: compares two states of a cluster, and their findings.

use std::collections::HashSet;
use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};

use calipam_check::{Code, Context, Finding, Options, Report, Scope, Subject, check};
use calipam_datastore::Datastore;
use calipam_history::diff::{Difference, align, compare};
use calipam_model::IpNet;
use calipam_model::cidr::overlap;
use calipam_model::hint::{Call, Hint};
use calipam_model::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};

use crate::check::recheck;
use crate::failure::{Failure, Result};
use crate::operator::{Access, Operator};
use crate::read::{read_at, read_two};
use crate::scope::{
    Names, is_known_block, is_known_network, nothing_in_common, unknown_block, unknown_network,
};

/// One of the two states to compare, and its datastore.
pub struct Side {
    pub datastore: Datastore,
    /// The etcd revision of a past state; `None` for the current state.
    pub revision: Option<i64>,
}

impl Side {
    /// True if the time of the state is known. etcd does not store the times of its revisions.
    pub fn has_known_time(&self) -> bool {
        self.revision.is_none() && self.datastore.has_known_time()
    }

    /// True if the state can change while it is read.
    fn is_live(&self) -> bool {
        self.revision.is_none() && self.datastore.is_live()
    }
}

/// Two states of a cluster. Either both contain users of addresses (pods or endpoints), or neither does.
pub struct Pair {
    pub old: Snapshot,
    pub new: Snapshot,
}

/// Reads two states. Refuses states of different clusters, unless `force` is set.
pub async fn read_pair(old: &Side, new: &Side, force: bool, operator: &dyn Operator) -> Result<Pair> {
    let (mut before, mut after) = read_both(old, new, operator).await?;
    compare_clusters(&before, &after, force, operator)?;
    align(&mut before, &mut after);
    Ok(Pair {
        old: before,
        new: after,
    })
}

/// Checks and compares states that were read from two sides. If a live state has findings that the other state lacks,
/// the findings that a half-done Calico operation could explain are checked again after `pause`. Findings whose objects
/// have changed are dropped, unless both states have these findings.
pub async fn diff<'p>(
    pair: &'p Pair,
    [old, new]: [&Side; 2],
    wanted: &Scope,
    pause: SignedDuration,
    operator: &dyn Operator,
) -> Result<Difference<'p>> {
    let Pair {
        old: before,
        new: after,
    } = pair;
    let options = Options::default();
    let (unchecked, mut of_old, mut of_new) = thread::scope(|scope| {
        let of_new = scope.spawn(|| check(after, &options));
        let unchecked = scope.spawn(|| compare(before, after, wanted));
        let context = Context::new(before, &options);
        let of_old = context.check();
        let mut of_new = result_of(of_new);
        forget_aged(context, &of_old, after.taken_at, &mut of_new);
        (result_of(unchecked), of_old, of_new)
    });

    recheck_side(new, after, &mut of_new, &of_old, pause, operator).await?;
    recheck_side(old, before, &mut of_old, &of_new, pause, operator).await?;
    Ok(unchecked.checked(of_old, of_new, wanted))
}

/// Waits for a thread, and panics if it panicked.
fn result_of<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Reads both states. Two files are read in parallel, because decoding a file keeps only one core busy and there is no
/// server that could be overloaded.
async fn read_both(old: &Side, new: &Side, operator: &dyn Operator) -> Result<(Snapshot, Snapshot)> {
    let is_live = |side: &Side| side.datastore.is_live();
    if !is_live(old) && !is_live(new) {
        return read_two(&old.datastore, &new.datastore, operator).await;
    }
    let read = async |side: &Side| read_at(Access::new(&side.datastore, operator), side.revision).await;
    Ok((read(old).await?, read(new).await?))
}

/// Refuses to compare two clusters without `force`, and warns if one of them has no GUID.
fn compare_clusters(old: &Snapshot, new: &Snapshot, force: bool, operator: &dyn Operator) -> Result<()> {
    let guids = [old, new].map(|snapshot| snapshot.guid().to_owned());
    if let Some(unknown) = [old, new]
        .into_iter()
        .zip(&guids)
        .find(|(_, guid)| guid.is_empty())
    {
        operator.warn(format!(
            "{} does not name its cluster: the two states might be from different clusters",
            unknown.0.location
        ));
        return Ok(());
    }
    if guids[0] == guids[1] {
        return Ok(());
    }
    if !force {
        let message = format!(
            "the two states are from different clusters: {} and {}",
            guids[0], guids[1]
        );
        let hint = "name two states of the same cluster, or compare them anyway: {}";
        return Err(Failure::usage(message).hint(Hint::new(hint, [Call::again_with(["--force"])])));
    }

    operator.warn(format!(
        "--force: comparing different clusters, {} and {}",
        guids[0], guids[1]
    ));
    Ok(())
}

fn subjects(report: &Report) -> HashSet<(Code, &Subject)> {
    report.findings.iter().map(|finding| finding.key_ref()).collect()
}

/// Removes from the later report the findings that the earlier state would also have at the later time. An allocation
/// that was too young to be checked can become a finding merely because time has passed.
fn forget_aged(before: Context<'_>, of_old: &Report, later: Timestamp, of_new: &mut Report) {
    let known = subjects(of_old);
    let mut new_codes: HashSet<Code> = HashSet::new();
    for finding in &of_new.findings {
        if !known.contains(&finding.key_ref()) {
            new_codes.insert(finding.code);
        }
    }
    if before.now >= later || new_codes.is_empty() {
        return;
    }

    let aged = before.aged(later, &new_codes);
    let aged: HashSet<(Code, &Subject)> = aged.iter().map(|(code, subject)| (*code, subject)).collect();
    of_new.retain(|finding| {
        let key = finding.key_ref();
        known.contains(&key) || !aged.contains(&key)
    });
}

/// Checks the findings of a live state a second time, if the other state lacks some of them.
async fn recheck_side(
    side: &Side,
    snapshot: &Snapshot,
    report: &mut Report,
    other: &Report,
    pause: SignedDuration,
    operator: &dyn Operator,
) -> Result<()> {
    let known = subjects(other);
    let is_known = |finding: &Finding| known.contains(&finding.key_ref());
    let mut new = report.findings.iter().filter(|finding| !is_known(finding));
    if side.is_live() && new.any(|finding| !finding.depends_on.is_empty()) {
        let dropped = recheck(Access::new(&side.datastore, operator), snapshot, report, pause).await?;
        report.findings.extend(dropped.into_iter().filter(is_known));
    }
    Ok(())
}

/// Returns the part of two states that the networks and names select. Each named node or pool must exist in one of the
/// states. With several kinds of names, the part is their intersection.
///
/// # Errors
/// If a name is not found, or the selected networks have no address in common.
pub fn scope(pair: &Pair, networks: [Vec<IpNet>; 2], names: &Names) -> Result<Scope> {
    let states = [&pair.old, &pair.new];
    let mut scope = names.scope(&states)?;
    let [addresses, blocks] = &networks;
    if let Some(unknown) = addresses
        .iter()
        .find(|address| !is_known_network(&states, **address))
    {
        return Err(unknown_network(*unknown));
    }
    if let Some(unknown) = blocks.iter().find(|block| !is_known_block(&states, **block)) {
        return Err(unknown_block(*unknown));
    }
    let of_pools = std::mem::take(&mut scope.networks);
    for named in networks.into_iter().chain([of_pools]) {
        scope.networks = in_both(std::mem::take(&mut scope.networks), named)?;
    }
    scope.networks.sort();
    scope.networks.dedup();
    Ok(scope)
}

/// The intersection of networks of two kinds; if one kind is empty, the networks of the other kind.
fn in_both(some: Vec<IpNet>, others: Vec<IpNet>) -> Result<Vec<IpNet>> {
    if some.is_empty() {
        return Ok(others);
    }
    if others.is_empty() {
        return Ok(some);
    }

    let mut both: Vec<IpNet> = Vec::new();
    for network in &some {
        for other in &others {
            if !overlap(*network, *other) {
                continue;
            }
            // One of them contains the other.
            let is_other_smaller = network.prefix_len() < other.prefix_len();
            both.push(if is_other_smaller { *other } else { *network });
        }
    }
    if both.is_empty() {
        return Err(nothing_in_common(&some, &others));
    }
    Ok(both)
}
