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
    let (comparison, mut old_report, mut new_report) = thread::scope(|scope| {
        let new_check = scope.spawn(|| check(after, &options));
        let comparison = scope.spawn(|| compare(before, after, wanted));
        let context = Context::new(before, &options);
        let old_report = context.check();
        let mut new_report = result_of(new_check);
        forget_aged(context, &old_report, after.taken_at, &mut new_report);
        (result_of(comparison), old_report, new_report)
    });

    recheck_side(new, after, &mut new_report, &old_report, pause, operator).await?;
    recheck_side(old, before, &mut old_report, &new_report, pause, operator).await?;
    Ok(comparison.checked(old_report, new_report, wanted))
}

/// Waits for a thread, and panics if it panicked.
fn result_of<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Reads both states. Two files are read in parallel, because decoding a file keeps only one core busy and there is no
/// server that could be overloaded.
async fn read_both(old: &Side, new: &Side, operator: &dyn Operator) -> Result<(Snapshot, Snapshot)> {
    if !old.datastore.is_live() && !new.datastore.is_live() {
        return read_two(&old.datastore, &new.datastore, operator).await;
    }
    let before = read_at(Access::new(&old.datastore, operator), old.revision).await?;
    let after = read_at(Access::new(&new.datastore, operator), new.revision).await?;
    Ok((before, after))
}

/// Refuses to compare two clusters without `force`, and warns if one of them has no GUID.
fn compare_clusters(old: &Snapshot, new: &Snapshot, force: bool, operator: &dyn Operator) -> Result<()> {
    for snapshot in [old, new] {
        if snapshot.guid().is_empty() {
            operator.warn(format!(
                "{} does not name its cluster: the two states might be from different clusters",
                snapshot.location
            ));
            return Ok(());
        }
    }

    let old_guid = old.guid();
    let new_guid = new.guid();
    if old_guid == new_guid {
        return Ok(());
    }
    if !force {
        let message = format!("the two states are from different clusters: {old_guid} and {new_guid}");
        let hint = "name two states of the same cluster, or compare them anyway: {}";
        return Err(Failure::usage(message).hint(Hint::new(hint, [Call::again_with(["--force"])])));
    }
    operator.warn(format!(
        "--force: comparing different clusters, {old_guid} and {new_guid}"
    ));
    Ok(())
}

/// Returns the code and subject of each finding.
fn subjects(report: &Report) -> HashSet<(Code, &Subject)> {
    report.findings.iter().map(|finding| finding.key_ref()).collect()
}

/// Removes from the later report the findings that the earlier state would also have at the later time. An allocation
/// that was too young to be checked can become a finding merely because time has passed.
fn forget_aged(before: Context<'_>, old_report: &Report, later: Timestamp, new_report: &mut Report) {
    let old_subjects = subjects(old_report);
    let mut new_codes: HashSet<Code> = HashSet::new();
    for finding in &new_report.findings {
        if !old_subjects.contains(&finding.key_ref()) {
            new_codes.insert(finding.code);
        }
    }
    if before.now >= later || new_codes.is_empty() {
        return;
    }

    let aged = before.aged(later, &new_codes);
    let aged: HashSet<(Code, &Subject)> = aged.iter().map(|(code, subject)| (*code, subject)).collect();
    new_report.retain(|finding| {
        let key = finding.key_ref();
        old_subjects.contains(&key) || !aged.contains(&key)
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
    let other_subjects = subjects(other);
    let is_in_both = |finding: &Finding| other_subjects.contains(&finding.key_ref());
    let needs_recheck = |finding: &Finding| !is_in_both(finding) && !finding.depends_on.is_empty();
    if side.is_live() && report.findings.iter().any(needs_recheck) {
        let dropped = recheck(Access::new(&side.datastore, operator), snapshot, report, pause).await?;
        report.findings.extend(dropped.into_iter().filter(is_in_both));
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
    let [addresses, blocks] = networks;
    for address in &addresses {
        if !is_known_network(&states, *address) {
            return Err(unknown_network(*address));
        }
    }
    for block in &blocks {
        if !is_known_block(&states, *block) {
            return Err(unknown_block(*block));
        }
    }

    let addresses_in_blocks = intersection(addresses, blocks)?;
    scope.networks = intersection(addresses_in_blocks, scope.networks)?;
    scope.networks.sort();
    scope.networks.dedup();
    Ok(scope)
}

/// Returns the intersection of networks of two kinds; if one kind is empty, the networks of the other kind.
fn intersection(first: Vec<IpNet>, second: Vec<IpNet>) -> Result<Vec<IpNet>> {
    if first.is_empty() {
        return Ok(second);
    }
    if second.is_empty() {
        return Ok(first);
    }

    let mut smaller_networks: Vec<IpNet> = Vec::new();
    for network in &first {
        for other in &second {
            if !overlap(*network, *other) {
                continue;
            }
            // One of them contains the other.
            if network.prefix_len() < other.prefix_len() {
                smaller_networks.push(*other);
            } else {
                smaller_networks.push(*network);
            }
        }
    }
    if smaller_networks.is_empty() {
        return Err(nothing_in_common(&first, &second));
    }
    Ok(smaller_networks)
}
