//! `check` of many clusters: checks each cluster separately, drops its data, and then looks for problems between
//! clusters.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use calipam_check::fleet::{Cluster, EarlierFleet, Used, compare, remove_duplicates};
use calipam_check::{Finding, Report, Scope};
use calipam_plan::advice::Advice;
use calipam_workflow::CheckResult;
use jiff::Timestamp;

use super::{Checker, meaning, print, worst, write_files};
use crate::args::{CheckArgs, CheckOptions};
use crate::commands::journals;
use crate::console::Console;
use crate::exit::{self, Outcome, Result};
use crate::fleet::{Fleet, Named, ReadOfCluster, each, read, refuse};
use crate::hints;
use crate::render::fleet::FleetReport;
use crate::render::text::count;

/// Checks the clusters, and prints one report on all of them.
///
/// # Errors
/// If an option only makes sense for one cluster, or the file of an option cannot be read or written. A cluster that
/// cannot be read is not an error, but a finding.
pub(crate) fn run(args: &CheckArgs, fleet: &Fleet, begin: Instant, console: &Console) -> Result<Outcome> {
    let CheckOptions {
        selection, namespace, ..
    } = &args.options;
    let options_of_one_cluster = [
        ("--node", !selection.nodes.is_empty()),
        ("--selector", selection.selector.is_some()),
        ("--namespace", namespace.is_some()),
        ("--pool", !selection.pools.is_empty()),
        ("--archive", args.reports.archive.is_some()),
        ("--report", args.reports.report.is_some()),
        ("--watch", args.printing.watch.is_some()),
    ];
    refuse(&options_of_one_cluster, "check that cluster alone")?;
    let checker = Checker::new(&args.options)?;
    let earlier = super::read_earlier_report(&args.reports, console, EarlierFleet::decode)?;

    let checked_each = each(&fleet.clusters, &args.fleet, console, |cluster, console| {
        check_one(cluster, &checker, args, console)
    })?;
    let mut clusters: Vec<Cluster> = Vec::new();
    let mut advice: BTreeMap<String, Advice> = BTreeMap::new();
    let mut dropped: HashMap<String, Vec<Finding>> = HashMap::new();
    for checked in checked_each {
        let name = &checked.cluster.name;
        advice.insert(name.clone(), checked.advice);
        dropped.insert(name.clone(), checked.dropped);
        clusters.push(checked.cluster);
    }

    let taken_at = Timestamp::now();
    let mut notes = fleet.notes.clone();
    notes.extend(remove_duplicates(&mut clusters, taken_at));
    compare(&mut clusters);
    if clusters.iter().all(|cluster| cluster.group.is_none()) {
        notes.push(
            "No cluster has a group: problems between clusters that route to each other were not checked"
                .into(),
        );
    }

    if let Some(earlier) = earlier {
        notes.extend(note_changes(earlier, &mut clusters, &mut dropped));
    }
    let mut reports: Vec<(&str, &mut Report)> = clusters
        .iter_mut()
        .map(|Cluster { name, report, .. }| (name.as_str(), report))
        .collect();
    checker.filter(&mut reports, Scope::default(), console);

    let severities = clusters.iter().filter_map(|cluster| worst(&cluster.report, args));
    let outcome = if clusters.iter().any(|cluster| !cluster.is_read) {
        Outcome::PartlyRead
    } else if args.fail_on.fails(severities.min()) {
        Outcome::Findings
    } else {
        Outcome::Clean
    };
    let exit_code = exit::code(&Ok(outcome));
    let report = FleetReport::new(taken_at, clusters, advice, notes, begin.elapsed(), exit_code);
    if args.reports.only_new {
        print_with_hint(&report.new_or_worse(), args, console)?;
        write_files(&report, args)?;
    } else {
        let printed = print_with_hint(&report, args, console);
        printed.and(write_files(&report, args))?;
    }
    note_unfinished_runs(&report, console);
    Ok(outcome)
}

/// Names the runs that did not finish on clusters with findings, as the check of one cluster does.
fn note_unfinished_runs(report: &FleetReport, console: &Console) {
    let mut concerned: Vec<&Cluster> = report.clusters.iter().collect();
    concerned.retain(|cluster| cluster.is_live && !cluster.report.findings.is_empty());
    let guids = concerned.iter().map(|cluster| &*cluster.report.cluster.guid);
    let guids = guids.collect();
    let unfinished_runs = journals::unfinished_runs(&guids, console);
    for cluster in concerned {
        let Some(unfinished) = unfinished_runs.get(&cluster.report.cluster.guid) else {
            continue;
        };
        let console = console.of_cluster(&cluster.name);
        hints::for_cluster(&cluster.name, || journals::note_unfinished(unfinished, &console));
    }
}

/// Prints a report of a fleet, with a hint about its worst finding.
fn print_with_hint(report: &FleetReport, args: &CheckArgs, console: &Console) -> Result<()> {
    let findings = report.reports().flat_map(|report| &report.findings);
    let worst = findings.min_by_key(|finding| finding.severity);
    print(report, worst.is_some(), args, console)?;
    if let Some(worst) = worst
        && console.format.is_for_people()
    {
        console.hint(&meaning(worst, console));
    }
    Ok(())
}

/// A checked cluster.
struct CheckedOne {
    /// The data for the report and the comparison.
    cluster: Cluster,
    advice: Advice,
    /// The findings that were not confirmed.
    dropped: Vec<Finding>,
}

/// Checks a cluster.
fn check_one(
    named: &Named,
    checker: &Checker<'_>,
    args: &CheckArgs,
    console: &Console,
) -> Result<CheckedOne> {
    let begin = Instant::now();
    let result = read(named, &args.fleet, console, async |access| {
        let (checked, advice) = checker.check(access).await?;
        let CheckResult {
            report,
            snapshot,
            dropped,
        } = checked;
        let cluster = Cluster {
            is_live: access.datastore.is_live(),
            ..Cluster::of(report, &snapshot)
        };
        Ok(CheckedOne {
            cluster,
            advice,
            dropped,
        })
    });
    let CheckedOne {
        mut cluster,
        advice,
        dropped,
    } = match result? {
        ReadOfCluster::Read(checked) => checked,
        ReadOfCluster::Unreadable(reason) => CheckedOne {
            cluster: Cluster::unreadable(&named.name, named.source.location(), reason),
            advice: Advice::default(),
            dropped: Vec::new(),
        },
    };
    if named.group.is_none() {
        cluster.ranges.used = Used::default();
    }
    let findings = count(cluster.report.findings.len(), "finding", "findings");
    console.verbose(&format!(
        "{}: {findings}, in {:.1} s",
        named.name,
        begin.elapsed().as_secs_f64()
    ));
    let Named {
        name,
        group,
        labels,
        services,
        ..
    } = named.clone();
    Ok(CheckedOne {
        cluster: Cluster {
            name,
            group,
            labels,
            services,
            ..cluster
        },
        advice,
        dropped,
    })
}

/// Sets the changes since the earlier report in each cluster's report. `dropped` has the findings of each cluster that
/// were not confirmed. Returns a note for each cluster that is no longer in the fleet.
fn note_changes(
    mut earlier: EarlierFleet,
    clusters: &mut [Cluster],
    dropped: &mut HashMap<String, Vec<Finding>>,
) -> Vec<String> {
    let all_read = clusters.iter().all(|cluster| cluster.is_read);
    for cluster in clusters {
        let dropped = dropped.remove(&cluster.name).unwrap_or_default();
        cluster.report.changes = Some(earlier.changes(cluster, &dropped, all_read));
    }

    // The clusters that are still in the fleet were removed from the earlier report with their changes.
    let mut notes = Vec::new();
    for (name, report) in &earlier.clusters {
        let findings = count(report.findings.len(), "finding", "findings");
        notes.push(format!(
            "{name} is in the earlier report, with {findings}, but no longer in the fleet"
        ));
    }
    notes
}
