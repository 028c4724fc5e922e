//! `check` of many clusters: checks each separately, drops its data, and then looks for problems between clusters.

use std::time::Instant;

use calipam_check::fleet::{Cluster, EarlierFleet, Used, compare, leave_out_doubles};
use calipam_check::{Filter, Finding};
use calipam_workflow::CheckResult;
use jiff::Timestamp;

use super::run::read;
use super::{Fleet, Named, each, refuse};
use crate::args::CheckArgs;
use crate::commands::check::{Checker, earlier, print};
use crate::console::Console;
use crate::exit::{self, Failure, Outcome};
use crate::render::fleet::FleetReport;
use crate::render::text::count;

type IsGiven = fn(&CheckArgs) -> bool;

/// Options that only make sense for one cluster.
const OF_ONE: [(&str, IsGiven); 7] = [
    ("--node", |args| !args.options.nodes.is_empty()),
    ("--selector", |args| args.options.selector.is_some()),
    ("--namespace", |args| args.options.namespace.is_some()),
    ("--pool", |args| !args.options.pools.is_empty()),
    ("--archive", |args| args.archive.is_some()),
    ("--report", |args| args.report.is_some()),
    ("--watch", |args| args.printing.watch.is_some()),
];

/// Checks the clusters, and prints one report on all of them.
///
/// # Errors
/// If an option only makes sense for one cluster, or a file that it names cannot be read or written. A cluster that
/// cannot be read is a finding.
pub(crate) fn run(
    args: &CheckArgs,
    fleet: &Fleet,
    begin: Instant,
    console: &Console,
) -> Result<Outcome, Failure> {
    let of_one = OF_ONE.iter().find(|(_, is_given)| is_given(args));
    refuse(of_one.map(|(name, _)| *name), "check that cluster alone")?;
    let checker = Checker::new(&args.options)?;
    let earlier = args.compare_with.as_deref().map(|path| earlier(path, EarlierFleet::decode)).transpose()?;

    let checked_each = each(&fleet.clusters, &args.fleet, console, |cluster, console| {
        check_one(cluster, &checker, args, console)
    });
    let checked_each = checked_each.into_iter().collect::<Result<Vec<_>, Failure>>()?;
    let (mut clusters, dropped): (Vec<Cluster>, Vec<Vec<Finding>>) = checked_each.into_iter().unzip();
    let mut dropped = clusters.iter().map(|cluster| cluster.name.clone()).zip(dropped).collect();
    let now = Timestamp::now();
    let mut notes = leave_out_doubles(&mut clusters, now);
    compare(&mut clusters);
    if clusters.iter().all(|cluster| cluster.group.is_none()) {
        notes.push(
            "No cluster has a group: problems between clusters that route to each other were not checked"
                .into(),
        );
    }

    let changes = earlier.map(|earlier| since(earlier, &clusters, &mut dropped, &mut notes));
    let report = keep(FleetReport::new(now, clusters, changes, notes), &checker, args, console);
    let outcome = outcome(&report, args);
    let report = FleetReport { took: begin.elapsed(), exit_code: exit::code(&Ok(outcome)), ..report };
    print(&report, report.number_of_findings() > 0, args, console)?;
    Ok(outcome)
}

/// Checks a cluster, and returns the data for report and comparison, and the findings that were not confirmed.
fn check_one(
    named: &Named,
    checker: &Checker<'_>,
    args: &CheckArgs,
    console: &Console,
) -> Result<(Cluster, Vec<Finding>), Failure> {
    let begin = Instant::now();
    let result = read(named, &args.fleet, console, async |datastore| {
        let CheckResult { report, snapshot, dropped } = checker.check_datastore(datastore, console).await?;
        let cluster = Cluster { is_live: datastore.is_live(), ..Cluster::of(report, &snapshot) };
        Ok((cluster, dropped))
    });
    let (mut cluster, dropped) = match result? {
        Ok(checked) => checked,
        Err(reason) => (Cluster::unreadable(&named.name, named.source.location(), reason), Vec::new()),
    };
    if named.group.is_none() {
        cluster.ranges.used = Used::default();
    }
    let findings = count(cluster.report.findings.len(), "finding", "findings");
    console.verbose(&format!("{}: {findings}, in {:.1} s", named.name, begin.elapsed().as_secs_f64()));
    let Named { name, group, labels, services, .. } = named.clone();
    Ok((Cluster { name, group, labels, services, ..cluster }, dropped))
}

/// Returns the changes of each cluster, and adds a note for each cluster that is no longer in the fleet.
fn since(
    mut earlier: EarlierFleet,
    clusters: &[Cluster],
    dropped: &mut std::collections::HashMap<String, Vec<Finding>>,
    notes: &mut Vec<String>,
) -> Vec<calipam_check::Changes> {
    let all_read = clusters.iter().all(|cluster| cluster.is_read);
    let changes = clusters.iter().map(|cluster| {
        let dropped = dropped.remove(&cluster.name).unwrap_or_default();
        earlier.changes(cluster, &dropped, all_read)
    });
    let changes = changes.collect();
    notes.extend(earlier.clusters.iter().map(|(name, report)| {
        let findings = count(report.findings.len(), "finding", "findings");
        format!("{name} is in the earlier report, with {findings}, but no longer in the fleet")
    }));
    changes
}

/// Filters the report by accepted findings and rules.
fn keep(mut report: FleetReport, checker: &Checker<'_>, args: &CheckArgs, console: &Console) -> FleetReport {
    for said in checker.ignored.apply_to_fleet(&mut report.clusters) {
        console.note(&said);
    }
    let (rules, skip) = (args.options.rules.clone(), args.options.skip_rules.clone());
    let filter = Filter { rules, skip, ..Filter::default() };
    report.clusters.iter_mut().for_each(|cluster| cluster.report.filter(&filter));
    report.changes.iter_mut().flatten().for_each(|changes| changes.narrow(&filter));
    report.sort();
    report
}

fn outcome(report: &FleetReport, args: &CheckArgs) -> Outcome {
    if report.clusters.iter().any(|cluster| !cluster.is_read) {
        return Outcome::PartlyRead;
    }
    let worst = report.each().filter_map(|(cluster, changes)| match changes {
        Some(changes) if args.fail_on_new => changes.worst_news(&cluster.report),
        _ => cluster.report.worst(),
    });
    if args.fail_on.fails(worst.min()) { Outcome::Findings } else { Outcome::Clean }
}
