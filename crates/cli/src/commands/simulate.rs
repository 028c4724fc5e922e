//! `simulate`.

use std::path::Path;
use std::sync::Arc;

use calipam_datastore::Datastore;
use calipam_files::regular;
use calipam_model::snapshot::DatastoreKind;
use calipam_simulate::answer::{self, advise, block_sizes, clashes, failure, scale};
use calipam_simulate::{Event, Micros, Rate, Scenario, ScenarioError, Start};
use jiff::SignedDuration;

use crate::args::{Global, SimulateArgs, Vary};
use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::operator::Person;
use crate::render::simulate::{Answers, Measurement};
use crate::render::text::count;
use crate::{connect, hints};

pub(super) fn run(args: &SimulateArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    if args.measure {
        return measure(args, global, console);
    }
    let args = &with_rates(args, global, console)?;
    let scenario = scenario(args, global, console)?;
    if args.print_scenario {
        console.data(|out| write!(out, "{}", scenario.to_yaml()))?;
        return Ok(Outcome::Clean);
    }
    let answers = match args.compares() {
        true => comparison(args, &scenario)?,
        false => answers(args, &scenario).map_err(|error| refused(&error))?,
    };
    console.print(&answers)?;
    hint(&answers, console);
    Ok(Outcome::Clean)
}

/// Arrival and lifetime as an archive or etcd tells them, where the options do not say them.
fn with_rates(args: &SimulateArgs, global: &Global, console: &Console) -> Result<SimulateArgs, Failure> {
    let mut args = args.clone();
    let Some(folder) = &args.rates_from else { return Ok(args) };
    let rates = match folder.as_os_str() == "etcd" {
        true => connect::block_on(async {
            let datastore = connect::open(global, console).await?;
            Ok(calipam_workflow::rates_of_etcd(&datastore).await?)
        })?,
        false => calipam_workflow::rates(folder, &Person::watching(console))?,
    };
    let hourly = rates.arrived_per_hour().round() as u64;
    let seconds = u64::try_from(rates.observed.as_secs()).unwrap_or_default();
    let arrival = match hourly {
        0 => Rate::per(rates.arrived, Micros::from_secs(seconds)),
        hourly => Rate::per(hourly, Micros::from_secs(3_600)),
    };
    let arrival = (rates.arrived > 0).then_some(arrival);
    let lifetime = rates.lifetime().and_then(|lifetime| u64::try_from(lifetime.as_secs()).ok());
    let lifetime = lifetime.map(|seconds| Micros::from_secs(seconds.max(1)));

    let [arrived, left] = [(rates.arrived, "came"), (rates.left, "left")]
        .map(|(number, what)| format!("{} {what}", count(number as usize, "pod", "pods")));
    let least = if rates.is_least { "; what came and left between two exports is not known" } else { "" };
    console.info(&format!(
        "{}: in {:#} {arrived} and {left}, of {:.0} on average{least}",
        folder.display(),
        SignedDuration::from_secs(rates.observed.as_secs()),
        rates.average(),
    ));
    (args.arrival, args.lifetime) = (args.arrival.or(arrival), args.lifetime.or(lifetime));
    Ok(args)
}

/// What the options, the scenario file and the cluster say together.
fn scenario(args: &SimulateArgs, global: &Global, console: &Console) -> Result<Scenario, Failure> {
    let file = args.scenario.as_ref().or(args.compare.first());
    let mut scenario = file.map_or_else(|| Ok(Scenario::default()), |path| read(path))?;
    if names_cluster(global) {
        let (start, kind) = connect::block_on(async {
            let datastore = connect::open(global, console).await?;
            let snapshot = calipam_workflow::read(&datastore, &Person::watching(console)).await?;
            Ok((Start::of(&snapshot), snapshot.datastore))
        })?;
        if start.left_out > 0 {
            console.warn(&format!("leaving out {} that cannot be decoded", blocks(start.left_out)));
        }
        scenario.datastore = match kind {
            DatastoreKind::Kubernetes => kind,
            // A plugin of today would use etcd v3.
            DatastoreKind::Etcd | DatastoreKind::EtcdV2 => DatastoreKind::Etcd,
        };
        // What arrives comes to what is there.
        scenario.pods_per_node = 0;
        scenario.start = Some(Arc::new(start));
    }
    args.change(&mut scenario)?;
    if scenario.pods_per_node == 0 && !args.advise && scenario.events.is_empty() {
        // Something has to happen.
        scenario.pods_per_node = 1;
    }
    Ok(scenario)
}

/// A scenario from a file.
fn read(path: &Path) -> Result<Scenario, Failure> {
    let name = path.display();
    let failed = |error| Failure::Io { doing: format!("read {name}"), error };
    let text = regular::read_to_string(path).map_err(failed)?;
    Scenario::read(&text).map_err(|error| no_scenario(&format!("{name}: {error}")))
}

fn no_scenario(message: &str) -> Failure {
    let hint = Some("docs/simulate.md describes scenarios; `--print-scenario` prints one".into());
    Failure::Usage { message: message.to_owned(), hint }
}

/// Scenarios side by side: those of several files, or one with several values of a field.
fn comparison(args: &SimulateArgs, scenario: &Scenario) -> Result<Answers, Failure> {
    let mut named = Vec::new();
    if let Some(Vary { field, values }) = &args.vary {
        for value in values {
            let changed = scenario.with_field(field, value);
            let changed = changed.map_err(|error| no_scenario(&format!("{field}={value}: {error}")))?;
            named.push((format!("{field}={value}"), changed));
        }
    }
    for path in &args.compare {
        let mut scenario = Scenario { start: scenario.start.clone(), ..read(path)? };
        args.change(&mut scenario)?;
        named.push((path.display().to_string(), scenario));
    }
    let refused = |error| refused(&error);
    let mut answers = Answers::of(scenario).map_err(refused)?;
    answers.comparison = Some(answer::compare(named, args.runs()).map_err(refused)?);
    Ok(answers)
}

fn blocks(count: usize) -> String {
    crate::render::text::count(count, "block", "blocks")
}

/// True if the command line names a cluster. One that only settings files know is not meant.
fn names_cluster(global: &Global) -> bool {
    global.datastore.is_some() || global.etcd_endpoints.is_some() || global.config.is_some()
}

/// Does what the options ask for.
fn answers(args: &SimulateArgs, scenario: &Scenario) -> Result<Answers, ScenarioError> {
    let mut answers = Answers::of(scenario)?;
    let (runs, sizes) = (args.runs(), args.sizes());
    if args.advise {
        answers.advice = Some(advise(scenario, &sizes, runs)?);
    } else if !sizes.is_empty() {
        answers.block_sizes = Some(block_sizes(scenario, &sizes, runs)?);
    }
    if scenario.events.iter().any(|planned| is_failure(&planned.what)) {
        answers.failure = Some(failure(scenario, runs)?);
    }
    let causes = args.causes();
    if !causes.is_empty() {
        answers.clashes = Some(clashes(scenario, &causes, args.clash_runs())?);
    }
    if !answers.is_empty() {
        return Ok(answers);
    }
    if scenario.start.is_some() || !scenario.events.is_empty() || args.nodes.len() == 1 {
        answers.run = Some(answer::runs(scenario, runs)?);
    }
    if scenario.start.is_none() && scenario.events.is_empty() && args.nodes.len() != 1 {
        let nodes = match args.nodes.as_slice() {
            [] => answer::sizes_up_to(scenario.nodes),
            several => several.to_vec(),
        };
        answers.scale = Some(scale(scenario, &nodes, runs)?);
    }
    Ok(answers)
}

fn is_failure(event: &Event) -> bool {
    matches!(event, Event::FailNode(_) | Event::FailZone(_) | Event::PartitionNode(_))
}

fn refused(error: &ScenarioError) -> Failure {
    let hint = match error {
        ScenarioError::NoPool => "add one: `--pool 10.244.0.0/16`",
        ScenarioError::BlockLargerThanPool { .. } | ScenarioError::BlockSize { .. } => {
            "`--block-size` is a prefix length: 26 for blocks of 64 addresses"
        }
        ScenarioError::TooManyPodsOfNode { .. } => "`--max-pods-per-node` raises it",
        ScenarioError::LimitNeedsStrictAffinity => "add `--strict-affinity`",
        ScenarioError::Costs(_) | ScenarioError::Jitter(_) => "for example `--latency read=2ms,write=5ms`",
        _ => "",
    };
    Failure::Usage { message: error.to_string(), hint: (!hint.is_empty()).then(|| hint.to_owned()) }
}

fn hint(answers: &Answers, console: &Console) {
    if let Some(advice) = &answers.advice
        && advice.block_size.is_none()
    {
        console.hint("every block size has drawbacks: a larger pool (`--pool`) may help");
    }
    if answers.scale.is_some() {
        let sizes = hints::again(&["--block-size", "24..29"], &["block_size"]);
        console.hint(&format!("compare block sizes: {sizes}"));
    }
}

/// Times reads of a datastore, and writes where the operator agrees.
fn measure(args: &SimulateArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    let measurement = connect::block_on(async {
        let begin = std::time::Instant::now();
        let datastore: Datastore = connect::open(global, console).await?;
        if !datastore.is_live() {
            return Err(Failure::usage("a file has no latency: `--measure` needs a datastore"));
        }
        let connected = begin.elapsed();
        let reads = calipam_workflow::time_reads(&datastore, &Person::watching(console)).await?;
        let writes = match args.writes {
            true => {
                let person = Person::new(console, args.yes);
                calipam_workflow::time_writes(&datastore, &reads.cluster, &person).await?
            }
            false => Vec::new(),
        };
        Ok(Measurement::new(datastore.kind(), datastore.location(), connected, &reads, &writes))
    })?;
    console.print(&measurement)?;
    Ok(Outcome::Clean)
}
