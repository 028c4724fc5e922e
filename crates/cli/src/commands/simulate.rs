//! The `simulate` command.

use std::sync::Arc;

use calipam_model::snapshot::DatastoreKind;
use calipam_simulate::answer::{self, advise, block_sizes, clashes, failure, scale};
use calipam_simulate::{Micros, Rate, Scenario, ScenarioError, Start};
use jiff::SignedDuration;

use crate::args::{Global, SimulateArgs};
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::operator::Person;
use crate::render::simulate::Answers;
use crate::render::text::count;
use crate::{connect, rerun};

/// The default number of runs for each block size with `--advise`.
const ADVISE_RUNS: u64 = 5;
/// The default number of runs for each cause with `--clashes`. Clashes are rare, so they need more runs.
const CLASH_RUNS: u64 = 20;

/// Simulates the scenario of the options, and prints the answers.
pub(super) fn run(args: &SimulateArgs, global: &Global, console: &Console) -> Result<Outcome> {
    let args_with_rates = with_rates(args, global, console)?;
    let scenario = build_scenario(&args_with_rates, global, console)?;
    let answers = run_simulations(&args_with_rates, &scenario).map_err(unusable_scenario)?;
    console.print(&answers)?;
    suggest_simulations(&answers, console);
    Ok(Outcome::Clean)
}

/// Converts the error for a scenario that cannot be simulated.
fn unusable_scenario(error: ScenarioError) -> Failure {
    Failure::usage(error.to_string()).hint_if(error.hint)
}

/// Returns the options with the arrival rate and lifetime of pods in an archive or in etcd's history, unless options
/// set them. Prints what was observed.
fn with_rates(args: &SimulateArgs, global: &Global, console: &Console) -> Result<SimulateArgs> {
    let mut args = args.clone();
    let Some(folder) = &args.rates_from else {
        return Ok(args);
    };
    let rates = if folder.as_os_str() == "etcd" {
        connect::with(global, console, async |access| {
            calipam_workflow::rates_of_etcd(access.datastore).await
        })?
    } else {
        calipam_workflow::rates(folder, &Person::never_asked(console))?
    };

    // A rate is a whole number of pods in a period.
    let hourly = rates.assigned_per_hour().round() as u64;
    let observed_seconds = u64::try_from(rates.observed.as_secs()).unwrap_or_default();
    let arrival = if rates.assigned == 0 {
        None
    } else if hourly == 0 {
        // Less than one pod per hour arrived.
        Some(Rate::per(rates.assigned, Micros::from_secs(observed_seconds)))
    } else {
        Some(Rate::per(hourly, Micros::from_secs(3_600)))
    };
    let lifetime_seconds = rates
        .lifetime()
        .and_then(|lifetime| u64::try_from(lifetime.as_secs()).ok());
    let lifetime = lifetime_seconds.map(|seconds| Micros::from_secs(seconds.max(1)));

    let started = count(rates.assigned as usize, "pod", "pods");
    let ended = count(rates.released as usize, "pod", "pods");
    let note = if rates.is_lower_bound {
        "; pods that started and ended between two exports are not counted"
    } else {
        ""
    };
    console.info(&format!(
        "{}: in {:#}, {started} started and {ended} ended; the average number of pods was {:.0}{note}",
        folder.display(),
        SignedDuration::from_secs(rates.observed.as_secs()),
        rates.average(),
    ));
    args.arrival = args.arrival.or(arrival);
    args.lifetime = args.lifetime.or(lifetime);
    Ok(args)
}

/// Builds the scenario from the options and the cluster.
fn build_scenario(args: &SimulateArgs, global: &Global, console: &Console) -> Result<Scenario> {
    let mut scenario = Scenario::default();
    if names_cluster(global) {
        start_with_cluster(&mut scenario, global, console)?;
    } else if args.pools.is_empty() {
        // Without any pool in the options, the cluster to simulate is the one that other commands would read.
        let started = start_with_cluster(&mut scenario, global, console);
        started.map_err(|failure| {
            failure.hint("name a cluster (`--datastore FILE`), or describe one (`--pool 10.244.0.0/16`)")
        })?;
    }
    args.change(&mut scenario)?;
    if scenario.pods_per_node == 0 && !args.advise && scenario.event.is_none() {
        // Without pods, there is nothing to simulate.
        scenario.pods_per_node = 1;
    }
    Ok(scenario)
}

/// Reads a cluster, and makes the scenario start with its blocks.
fn start_with_cluster(scenario: &mut Scenario, global: &Global, console: &Console) -> Result<()> {
    let (start, kind) = connect::with(global, console, async |access| {
        let snapshot = calipam_workflow::read(access).await?;
        Ok((Start::from_snapshot(&snapshot), snapshot.datastore))
    })?;
    if start.left_out > 0 {
        let blocks = count(start.left_out, "block", "blocks");
        console.warn(&format!("leaving out {blocks} that cannot be decoded"));
    }
    scenario.datastore = match kind {
        DatastoreKind::Kubernetes => kind,
        // Current plugins do not support etcd v2.
        DatastoreKind::Etcd | DatastoreKind::EtcdV2 => DatastoreKind::Etcd,
    };
    // New pods are added to the existing ones.
    scenario.pods_per_node = 0;
    scenario.start = Some(Arc::new(start));
    Ok(())
}

/// True if any connection option names a cluster. Options for users and certificates do not.
fn names_cluster(global: &Global) -> bool {
    let Global {
        datastore,
        etcd_endpoints,
        config,
        kubeconfig,
        contexts,
        kubectl,
        ..
    } = global;
    let names = [
        datastore,
        etcd_endpoints,
        kubeconfig,
        &kubectl.cluster,
        &kubectl.server,
    ];
    names.into_iter().any(Option::is_some) || config.is_some() || !contexts.is_empty()
}

/// Runs the simulations that the options request, and returns their results.
fn run_simulations(args: &SimulateArgs, scenario: &Scenario) -> Result<Answers, ScenarioError> {
    let mut answers = Answers::of(scenario)?;
    let runs = args.runs(1);
    let sizes = args.sizes();
    if args.advise {
        answers.advice = Some(advise(scenario, &sizes, args.runs(ADVISE_RUNS))?);
    } else if !sizes.is_empty() {
        answers.block_sizes = Some(block_sizes(scenario, &sizes, runs)?);
    }
    if scenario.event.is_some() {
        answers.failure = Some(failure(scenario, runs)?);
    }
    let causes = args.causes();
    if !causes.is_empty() {
        answers.clashes = Some(clashes(scenario, &causes, args.runs(CLASH_RUNS))?);
    }
    if args.answers_by_size() {
        answer_by_size(args, scenario, &mut answers)?;
    }
    Ok(answers)
}

/// Simulates the cluster at its size, or compares several sizes.
fn answer_by_size(
    args: &SimulateArgs,
    scenario: &Scenario,
    answers: &mut Answers,
) -> Result<(), ScenarioError> {
    let runs = args.runs(1);
    // An existing cluster has one size.
    if scenario.start.is_some() || args.nodes.len() == 1 {
        answers.run = Some(answer::runs(scenario, runs)?);
        return Ok(());
    }
    let nodes = match args.nodes.as_slice() {
        [] => answer::sizes_up_to(scenario.nodes),
        several => several.to_vec(),
    };
    answers.scale = Some(scale(scenario, &nodes, runs)?);
    Ok(())
}

/// Suggests further simulations.
fn suggest_simulations(answers: &Answers, console: &Console) {
    if let Some(advice) = &answers.advice
        && advice.block_size.is_none()
    {
        console.hint("every block size has drawbacks: a larger pool (`--pool`) can help");
    }
    if answers.scale.is_some() {
        let comparison = rerun::replacing("block_size", &["--block-size", "24..29"]);
        console.hint(&format!("compare block sizes: {comparison}"));
    }
}
