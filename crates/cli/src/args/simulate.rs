//! Options of `simulate`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use calipam_model::IpNet;
use calipam_model::snapshot::DatastoreKind;
use calipam_simulate::answer::Cause;
use calipam_simulate::{Event, Families, Micros, Planned, PoolSpec, Rate, Scenario};
use clap::Args;
use clap::ValueHint::DirPath;

use super::address::network;
use super::simulate_values::{Removal, Sizes, cause, families, model};
use crate::exit::{Failure, Result};

const CLUSTER: &str = "Cluster";
const LOAD: &str = "Load";
const QUESTION: &str = "What to show [default: ADD latency by cluster size]";

/// The time from the arrival of the last pod to the failure of a node.
const CALM: Micros = Micros::from_mins(1);
/// The default time from the failure of a node to its removal from the cluster.
const REMOVAL: Micros = Micros::from_mins(10);

/// Options of `simulate`. Descriptions are short: the help has at most 60 lines.
#[derive(Clone, Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Number of nodes; a comma-separated list makes one run for each
    #[arg(long, value_name = "NUMBER", value_delimiter = ',', help_heading = CLUSTER)]
    pub nodes: Vec<u32>,
    /// Average number of pods per node
    #[arg(long, value_name = "NUMBER", help_heading = CLUSTER)]
    pub pods_per_node: Option<u32>,
    /// Maximum pods per node [default: 110]
    #[arg(long, value_name = "NUMBER", help_heading = CLUSTER)]
    pub max_pods_per_node: Option<u32>,
    /// A pool; can be repeated
    #[arg(long = "pool", value_name = "CIDR", value_parser = network, help_heading = CLUSTER)]
    pub pools: Vec<IpNet>,
    /// Prefix length of blocks; `24..29` makes one run for each
    #[arg(long, value_name = "LENGTH|RANGE", help_heading = CLUSTER)]
    pub block_size: Option<Sizes>,
    /// IP families: ipv4, ipv6 or dual [default: those of the pools]
    #[arg(long, value_parser = families(), value_name = "FAMILIES", hide_possible_values = true, help_heading = CLUSTER)]
    pub families: Option<Families>,
    /// Nodes use addresses from their own blocks only
    #[arg(long, help_heading = CLUSTER)]
    pub strict_affinity: bool,
    /// Maximum blocks per node; needs strict affinity
    #[arg(long, value_name = "NUMBER", help_heading = CLUSTER)]
    pub max_blocks_per_host: Option<u32>,
    /// Time until a released address can be assigned again
    #[arg(long, value_name = "DURATION", help_heading = CLUSTER)]
    pub cooldown: Option<Micros>,
    /// etcd or kubernetes [default: that of the cluster, else etcd]
    #[arg(long, value_parser = model(), value_name = "KIND", hide_possible_values = true, help_heading = CLUSTER)]
    pub model: Option<DatastoreKind>,
    /// Like `read=2ms`, or a profile: local-nvme, cloud-disk, loaded
    #[arg(long, value_name = "NAME=VALUE,…", help_heading = CLUSTER)]
    pub latency: Option<String>,

    /// Rate of new pods [default: 1 per node every 5s, at most 100/s]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, help_heading = LOAD)]
    pub arrival: Option<Rate>,
    /// Average lifetime until a pod is replaced [default: forever]
    #[arg(long, value_name = "DURATION", help_heading = LOAD)]
    pub lifetime: Option<Micros>,
    /// Take --arrival and --lifetime from an archive, recording or etcd
    #[arg(long, value_name = "FOLDER|etcd", value_hint = DirPath, help_heading = LOAD)]
    pub rates_from: Option<PathBuf>,
    /// How long to simulate [default: until nothing changes]
    #[arg(long, value_name = "DURATION", help_heading = LOAD)]
    pub duration: Option<Micros>,
    /// Time until a failed node is removed [default: 10m]
    #[arg(long, value_name = "DURATION|never", help_heading = LOAD)]
    pub removal: Option<Removal>,
    /// The leak grace period of kube-controllers [default: 15m]
    #[arg(long, value_name = "DURATION", help_heading = LOAD)]
    pub grace: Option<Micros>,
    /// Seed for all random choices
    #[arg(long, value_name = "NUMBER", help_heading = LOAD)]
    pub seed: Option<u64>,

    /// Follow the addresses of a node that fails [default: the first node]
    #[arg(long, value_name = "NODE", num_args = 0..=1, default_missing_value = "", help_heading = QUESTION)]
    pub fail_node: Option<String>,
    /// Show when two pods get one address, by cause: old-backup, shared-handle, freed-by-hand, partition, or none for
    /// comparison [default: all]
    #[arg(
        long,
        value_name = "CAUSE",
        value_parser = cause(),
        value_delimiter = ',',
        num_args = 0..=1,
        default_missing_value = "all",
        hide_possible_values = true,
        help_heading = QUESTION
    )]
    pub clashes: Vec<Option<Cause>>,
    /// Recommend a block size, a pool size and maximum blocks per node
    #[arg(long, help_heading = QUESTION)]
    pub advise: bool,
    /// Runs of each scenario [default: 1; --advise: 5, --clashes: 20]
    #[arg(long, value_name = "NUMBER", help_heading = QUESTION)]
    pub runs: Option<NonZeroU32>,
}

/// The block sizes that `--advise` compares by default.
const USUAL_SIZES: std::ops::RangeInclusive<u8> = 24..=29;

impl SimulateArgs {
    /// Applies the options to a scenario.
    ///
    /// # Errors
    /// If options contradict each other or the scenario.
    pub(crate) fn change(&self, scenario: &mut Scenario) -> Result<()> {
        fn set<T: Clone>(value: &mut T, given: &Option<T>) {
            if let Some(given) = given {
                *value = given.clone();
            }
        }
        if let Some(largest) = self.nodes.iter().max() {
            if scenario.start.is_some() {
                return Err(Failure::usage("the nodes come from the cluster: omit `--nodes`"));
            }
            if self.nodes.len() > 1 && !self.answers_by_size() {
                let message = "several numbers in `--nodes` cannot be combined with these options: give one";
                return Err(Failure::usage(message));
            }
            scenario.nodes = *largest;
        }

        set(&mut scenario.pods_per_node, &self.pods_per_node);
        set(&mut scenario.max_pods_per_node, &self.max_pods_per_node);
        if !self.pools.is_empty() {
            scenario.pools = self.pools.iter().map(|cidr| PoolSpec::new(*cidr)).collect();
        }
        scenario.families = self.families;

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

        scenario.strict_affinity = self.strict_affinity;
        set(&mut scenario.max_blocks_per_host, &self.max_blocks_per_host);
        set(&mut scenario.cooldown, &self.cooldown);
        scenario.arrival = self.arrival;
        scenario.lifetime = self.lifetime;
        scenario.duration = self.duration;
        set(&mut scenario.seed, &self.seed);
        set(&mut scenario.datastore, &self.model);
        set(&mut scenario.latency, &self.latency);

        scenario.grace = self.grace.or(scenario.grace);
        scenario.removal = match self.removal {
            Some(Removal::Never) => None,
            Some(Removal::After(after)) => Some(after),
            None => self.fail_node.as_ref().map(|_| REMOVAL),
        };
        scenario.event = self.fail_node.as_ref().map(|name| {
            let name = if name.is_empty() {
                scenario.node_name(0)
            } else {
                name.clone()
            };
            Planned {
                at: scenario.filled_at() + CALM,
                what: Event::FailNode(name),
            }
        });
        Ok(())
    }

    /// True if the options request only the time that pods wait, for one or more cluster sizes.
    pub(crate) fn answers_by_size(&self) -> bool {
        self.fail_node.is_none() && !self.advise && self.clashes.is_empty() && self.sizes().is_empty()
    }

    /// Returns the number of runs of each scenario: the value of `--runs`, or else `usually`.
    pub(crate) fn runs(&self, usually: u64) -> u64 {
        self.runs.map_or(usually, |runs| runs.get().into())
    }

    /// Returns the causes of clashes to simulate.
    pub(crate) fn causes(&self) -> Vec<Cause> {
        let mut causes = Vec::new();
        for cause in &self.clashes {
            match cause {
                Some(cause) => causes.push(*cause),
                // The value `all`.
                None => return Cause::ALL.to_vec(),
            }
        }
        causes
    }

    /// Returns the block sizes to compare; none if only the scenario's block size is simulated.
    pub(crate) fn sizes(&self) -> Vec<u8> {
        let Some(Sizes(sizes)) = &self.block_size else {
            return if self.advise {
                USUAL_SIZES.collect()
            } else {
                Vec::new()
            };
        };
        // A single size is that of the scenario, unless advice is wanted about it.
        if sizes.len() > 1 || self.advise {
            return sizes.clone();
        }
        Vec::new()
    }
}
