//! Options of `simulate`.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};

use calipam_files::regular;
use calipam_model::IpNet;
use calipam_model::snapshot::DatastoreKind;
use calipam_simulate::answer::{Cause, Runs};
use calipam_simulate::{Collector, Costs, Event, Micros, Planned, PoolSpec, Rate, Scenario};
use clap::Args;
use clap::ValueHint::{DirPath, FilePath};

use super::simulate_values::{CauseName, FamiliesName, Model, Removal, Sizes, Vary};
use crate::exit::Failure;

const CLUSTER: &str = "Cluster";
const LOAD: &str = "Load";
const QUESTION: &str = "What to show [default: ADD latency by cluster size]";
const COST: &str = "Datastore";

/// How long after the last pod has arrived nodes fail.
const CALM: Micros = Micros::from_mins(1);
/// When a node that fails is removed from the cluster, if nothing else is said.
const REMOVAL: Micros = Micros::from_mins(10);

/// Options of `simulate`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SimulateArgs {
    /// A scenario in YAML (docs/simulate.md); other options override it
    #[arg(long, value_name = "FILE", value_hint = FilePath, help_heading = CLUSTER)]
    pub scenario: Option<PathBuf>,
    /// Number of nodes; several, comma-separated, for one run each
    #[arg(long, value_name = "NUMBER", value_delimiter = ',', help_heading = CLUSTER)]
    pub nodes: Vec<u32>,
    /// Number of zones that the nodes are spread over
    #[arg(long, value_name = "NUMBER", help_heading = CLUSTER)]
    pub zones: Option<u32>,
    /// Average number of pods per node
    #[arg(long, value_name = "NUMBER", help_heading = CLUSTER)]
    pub pods_per_node: Option<u32>,
    /// Maximum pods per node, such as when others fail [default: 110]
    #[arg(long, value_name = "NUMBER", help_heading = CLUSTER)]
    pub max_pods_per_node: Option<u32>,
    /// A pool; can be repeated
    #[arg(long = "pool", value_name = "CIDR", help_heading = CLUSTER)]
    pub pools: Vec<IpNet>,
    /// The prefix length of blocks; a range such as `24..29` for one run each
    #[arg(long, value_name = "LENGTH|RANGE", help_heading = CLUSTER)]
    pub block_size: Option<Sizes>,
    /// Families in which a pod gets addresses, as in the CNI configuration [default: those of the pools]
    #[arg(long, value_enum, value_name = "FAMILIES", help_heading = CLUSTER)]
    pub families: Option<FamiliesName>,
    /// Nodes use addresses from their own blocks only
    #[arg(long, help_heading = CLUSTER)]
    pub strict_affinity: bool,
    /// Maximum blocks per node; needs strict affinity
    #[arg(long, value_name = "NUMBER", help_heading = CLUSTER)]
    pub max_blocks_per_host: Option<u32>,
    /// Time until a released address can be assigned again
    #[arg(long, value_name = "DURATION", help_heading = CLUSTER)]
    pub cooldown: Option<Micros>,

    /// How often pods are created, such as `20/s` [default: every five seconds on each node, at most 100/s]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, help_heading = LOAD)]
    pub arrival: Option<Rate>,
    /// Average lifetime of pods; each is replaced when it ends [default: forever]
    #[arg(long, value_name = "DURATION", help_heading = LOAD)]
    pub lifetime: Option<Micros>,
    /// `--arrival` and `--lifetime` from an archive of exports, a recording, or what etcd still knows
    #[arg(long, value_name = "FOLDER|etcd", value_hint = DirPath, help_heading = LOAD)]
    pub rates_from: Option<PathBuf>,
    /// How long to simulate [default: until nothing changes]
    #[arg(long, value_name = "DURATION", help_heading = LOAD)]
    pub duration: Option<Micros>,
    /// Time from the failure of a node to its removal from the cluster [default: 10m]
    #[arg(long, value_name = "DURATION|never", help_heading = LOAD)]
    pub removal: Option<Removal>,
    /// The leak grace period of kube-controllers [default: 15m]
    #[arg(long, value_name = "DURATION", help_heading = LOAD)]
    pub grace: Option<Micros>,
    /// Seed of everything random
    #[arg(long, value_name = "NUMBER", help_heading = LOAD)]
    pub seed: Option<u64>,

    /// Follow the addresses of a node that fails; without a name, of the first node
    #[arg(long, value_name = "NODE", num_args = 0..=1, default_missing_value = "", help_heading = QUESTION)]
    pub fail_node: Option<String>,
    /// Follow the addresses of a zone that fails
    #[arg(long, value_name = "NUMBER", conflicts_with = "fail_node", help_heading = QUESTION)]
    pub fail_zone: Option<u32>,
    /// When two pods get the same address, by these causes or all
    #[arg(
        long,
        value_name = "CAUSE",
        value_enum,
        value_delimiter = ',',
        num_args = 0..=1,
        default_missing_value = "all",
        help_heading = QUESTION
    )]
    pub clashes: Vec<CauseName>,
    /// Compare several scenarios; other options change each of them
    #[arg(long, value_name = "FILE", value_hint = FilePath, num_args = 2.., conflicts_with_all = ["scenario", "vary", "advise", "clashes", "fail_node", "fail_zone"], help_heading = QUESTION)]
    pub compare: Vec<PathBuf>,
    /// Compare values of one field of a scenario, such as `podsPerNode=20,30,40`
    #[arg(long, value_name = "FIELD=VALUE,…", conflicts_with_all = ["advise", "clashes", "fail_node", "fail_zone"], help_heading = QUESTION)]
    pub vary: Option<Vary>,
    /// Number of runs, with other seeds and pods per node: each number gets a range [default: 1; 5 with `--advise`, 20 with `--clashes`]
    #[arg(long, value_name = "NUMBER", help_heading = QUESTION)]
    pub runs: Option<NonZeroU32>,
    /// Number of parallel runs; results do not depend on it [default: one per processor]
    #[arg(long, value_name = "NUMBER", help_heading = QUESTION)]
    pub threads: Option<NonZeroUsize>,
    /// Recommend a block size, a pool size and maximum blocks per node
    #[arg(long, help_heading = QUESTION)]
    pub advise: bool,
    /// Measure reads of the datastore, and print them as `--latency`
    #[arg(long, conflicts_with_all = ["advise", "clashes", "fail_node", "fail_zone"], help_heading = QUESTION)]
    pub measure: bool,
    /// With `--measure`: writes too, of a handle of its own that is removed afterwards
    #[arg(long, requires = "measure", help_heading = QUESTION)]
    pub writes: bool,
    /// With `--writes`: do not ask for confirmation
    #[arg(short, long, requires = "writes", help_heading = QUESTION)]
    pub yes: bool,
    /// Print the scenario of these options, as a file for `--scenario`
    #[arg(long, help_heading = QUESTION)]
    pub print_scenario: bool,

    /// Which datastore to simulate [default: that of the cluster, else etcd]
    #[arg(long, value_enum, value_name = "KIND", help_heading = COST)]
    pub model: Option<Model>,
    /// Latency of its requests, such as `read=2ms,write=5ms`, or a profile: local-nvme, cloud-disk, loaded
    #[arg(long, value_name = "NAME=VALUE,…|PROFILE", help_heading = COST)]
    pub latency: Option<String>,
    /// Latency from what the server's `/metrics` prints: a file, or `-` for standard input
    #[arg(long, value_name = "FILE", value_hint = FilePath, help_heading = COST)]
    pub metrics: Option<PathBuf>,
}

/// The latency that the metrics of a server tell.
fn measured(path: &Path, datastore: DatastoreKind) -> Result<String, Failure> {
    let name = path.display();
    let failed = |error| Failure::Io { doing: format!("read {name}"), error };
    let text = match path.to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin()).map_err(failed)?,
        _ => regular::read_to_string(path).map_err(failed)?,
    };
    Costs::of_metrics(datastore, &text).map_err(|error| Failure::Usage {
        message: format!("{name}: {error}"),
        hint: Some(format!("expected the metrics of the simulated datastore, {datastore} (`--model`)")),
    })
}

/// Runs of each scenario where none are named: with each block size to advise on, and of each cause of clashes.
const ADVISE_RUNS: u64 = 5;
const CLASH_RUNS: u64 = 20;

/// Block sizes to compare where none are named.
const USUAL_SIZES: std::ops::RangeInclusive<u8> = 24..=29;

impl SimulateArgs {
    /// Changes a scenario as the options say.
    ///
    /// # Errors
    /// If they do not fit together.
    pub(crate) fn change(&self, scenario: &mut Scenario) -> Result<(), Failure> {
        fn set<T: Clone>(value: &mut T, given: &Option<T>) {
            if let Some(given) = given {
                *value = given.clone();
            }
        }
        if self.compares() && !self.sizes().is_empty() {
            return Err(Failure::usage("compare either block sizes or scenarios, not both"));
        }
        if let Some(most) = self.nodes.iter().max() {
            if scenario.start.is_some() {
                return Err(Failure::usage("the nodes come from the cluster: omit `--nodes`"));
            }
            if self.nodes.len() > 1 && !self.answers_by_size() {
                let message = "several numbers in `--nodes` cannot be combined with these options: give one";
                return Err(Failure::usage(message));
            }
            scenario.nodes = *most;
        }
        set(&mut scenario.zones, &self.zones);
        set(&mut scenario.pods_per_node, &self.pods_per_node);
        set(&mut scenario.max_pods_per_node, &self.max_pods_per_node);
        if !self.pools.is_empty() {
            scenario.pools = self.pools.iter().map(|cidr| PoolSpec::new(*cidr)).collect();
        }
        scenario.families = self.families.map(FamiliesName::families).or(scenario.families);
        if let Some(Sizes(sizes)) = &self.block_size
            && let [size] = sizes[..]
        {
            if scenario.start.is_none() {
                *scenario = scenario.with_block_size(size);
            } else if !self.advise {
                let message = "the block size of a cluster is fixed: give a range, or use `--advise`";
                return Err(Failure::usage(message));
            }
        }
        scenario.strict_affinity |= self.strict_affinity;
        set(&mut scenario.max_blocks_per_host, &self.max_blocks_per_host);
        set(&mut scenario.cooldown, &self.cooldown);
        scenario.arrival = self.arrival.or(scenario.arrival);
        scenario.lifetime = self.lifetime.or(scenario.lifetime);
        scenario.duration = self.duration.or(scenario.duration);
        set(&mut scenario.seed, &self.seed);
        if let Some(model) = self.model {
            scenario.datastore = model.kind();
        }
        let measured = self.metrics.as_deref().map(|path| measured(path, scenario.datastore)).transpose()?;
        if self.latency.is_some() || measured.is_some() {
            scenario.latency = measured.into_iter().chain(self.latency.clone()).collect::<Vec<_>>().join(",");
        }
        if let Some(grace) = self.grace {
            scenario.collector = Some(Collector { grace, ..scenario.collector.clone().unwrap_or_default() });
        }
        match self.removal {
            Some(Removal::Never) => scenario.removal = None,
            Some(Removal::After(after)) => scenario.removal = Some(after),
            None if self.fails() && scenario.removal.is_none() => scenario.removal = Some(REMOVAL),
            None => {}
        }
        self.plan_failure(scenario);
        Ok(())
    }

    /// True if the question is how latency grows with the number of nodes.
    fn answers_by_size(&self) -> bool {
        !self.fails()
            && !self.advise
            && self.clashes.is_empty()
            && self.sizes().is_empty()
            && !self.compares()
    }

    /// True if scenarios are compared.
    pub(crate) fn compares(&self) -> bool {
        self.vary.is_some() || !self.compare.is_empty()
    }

    fn fails(&self) -> bool {
        self.fail_node.is_some() || self.fail_zone.is_some()
    }

    fn plan_failure(&self, scenario: &mut Scenario) {
        let what = match (&self.fail_node, self.fail_zone) {
            (Some(name), _) if name.is_empty() => Event::FailNode(scenario.node_name(0)),
            (Some(name), _) => Event::FailNode(name.clone()),
            (None, Some(zone)) => Event::FailZone(zone),
            (None, None) => return,
        };
        let at = scenario.filled_at() + CALM;
        scenario.events.push(Planned { at, what });
    }

    /// How often each scenario runs.
    pub(crate) fn runs(&self) -> Runs {
        let usual = if self.advise { ADVISE_RUNS } else { 1 };
        Runs { each: self.runs_or(usual), threads: self.threads.map(Into::into).unwrap_or_default() }
    }

    /// How often each cause of clashes does.
    pub(crate) fn clash_runs(&self) -> Runs {
        Runs { each: self.runs_or(CLASH_RUNS), ..self.runs() }
    }

    fn runs_or(&self, usual: u64) -> u64 {
        self.runs.map_or(usual, |runs| runs.get().into())
    }

    /// The causes of clashes to look at.
    pub(crate) fn causes(&self) -> Vec<Cause> {
        if self.clashes.contains(&CauseName::All) {
            return Cause::ALL.to_vec();
        }
        let named = self.clashes.iter().filter_map(|name| match name {
            CauseName::All => None,
            CauseName::One(cause) => Some(*cause),
        });
        named.collect()
    }

    /// The block sizes to compare; empty for only the one of the scenario.
    pub(crate) fn sizes(&self) -> Vec<u8> {
        match &self.block_size {
            Some(Sizes(sizes)) if sizes.len() > 1 => sizes.clone(),
            Some(Sizes(sizes)) if self.advise => sizes.clone(),
            None if self.advise => USUAL_SIZES.collect(),
            _ => Vec::new(),
        }
    }
}
