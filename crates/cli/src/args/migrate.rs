//! Options of `migrate`.

use calipam_model::IpNet;
use calipam_plan::migrate::Target;
use calipam_workflow::Eviction;
use clap::Args;
use jiff::SignedDuration;

use super::address::network;
use super::duration;
use super::writing::{CriteriaArgs, WritingArgs};

const POOLS: &str = "Pools";
const EVICTING: &str = "Evicting";

/// Options of `migrate`.
#[derive(Clone, Debug, Args)]
pub(crate) struct MigrateArgs {
    /// The old pool, by name or CIDR [default: that of the migration in progress]
    #[arg(long, value_name = "POOL", help_heading = POOLS)]
    pub from: Option<String>,
    /// The new pool, by name
    #[arg(long, value_name = "POOL", conflicts_with = "to_cidr", help_heading = POOLS)]
    pub to: Option<String>,
    /// The CIDR of the new pool, which is created with the settings of the old one
    #[arg(long, value_name = "CIDR", value_parser = network, help_heading = POOLS)]
    pub to_cidr: Option<IpNet>,
    /// The name of the new pool [default: the old pool's name and the CIDR]
    #[arg(long, value_name = "NAME", requires = "to_cidr", help_heading = POOLS)]
    pub to_name: Option<String>,
    /// The block size of the new pool, as a prefix length [default: that of the old pool]
    #[arg(long, value_name = "LENGTH", conflicts_with = "to", requires = "from", help_heading = POOLS)]
    pub block_size: Option<u8>,
    /// The CIDR of a temporary pool, to change the block size of the old CIDR
    #[arg(long, value_name = "CIDR", value_parser = network, conflicts_with_all = ["to", "to_cidr"], requires = "block_size", help_heading = POOLS)]
    pub via: Option<IpNet>,
    /// Carry out the next phase; without --apply, it is only printed
    #[arg(long)]
    pub apply: bool,
    /// The default, accepted for users who are used to the other commands that write.
    #[arg(long = "dry-run", hide = true, conflicts_with = "apply")]
    _dry_run: bool,
    /// Continue even if the other pools have too few addresses for all users of the old pool
    #[arg(long)]
    pub force: bool,
    /// Evict the pods that still have to move; disruption budgets are respected
    #[arg(long, help_heading = EVICTING)]
    pub evict: bool,
    /// Maximum number of evicted pods that are not yet ready again
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), requires = "evict", help_heading = EVICTING)]
    pub batch: u32,
    /// Time between two batches
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = duration::parse, requires = "evict", help_heading = EVICTING)]
    pub pause: SignedDuration,
    /// Stop if evicted pods are not ready again, or budgets allow no eviction, for this long
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse, requires = "evict", help_heading = EVICTING)]
    pub patience: SignedDuration,
    /// Only pods on this node; can be repeated
    #[arg(long = "node", value_name = "NODE", value_delimiter = ',', requires = "evict", help_heading = EVICTING)]
    pub nodes: Vec<String>,
    /// Only pods in this namespace
    #[arg(long, value_name = "NAMESPACE", requires = "evict", help_heading = EVICTING)]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub criteria: CriteriaArgs,
    #[command(flatten)]
    pub writing: WritingArgs,
}

impl MigrateArgs {
    /// Returns the target of the migration: an existing pool, a new pool, or the same network with other blocks. A
    /// migration that has begun needs no target.
    pub(crate) fn target(&self) -> Target {
        if let Some(name) = &self.to {
            return Target::Pool(name.clone());
        }
        if let Some(cidr) = self.to_cidr {
            return Target::Network {
                cidr: cidr.trunc(),
                block_size: self.block_size,
                name: self.to_name.clone(),
            };
        }
        match self.block_size {
            Some(block_size) => Target::SameNetwork {
                block_size,
                via: self.via.map(|cidr| cidr.trunc()),
            },
            None => Target::Unstated,
        }
    }

    /// Returns how pods are to be evicted; `None` if they are not.
    pub(crate) fn eviction(&self) -> Option<Eviction> {
        if !self.evict {
            return None;
        }
        Some(Eviction {
            batch: self.batch as usize,
            pause: self.pause,
            patience: self.patience,
            nodes: self.nodes.clone(),
            namespace: self.namespace.clone(),
        })
    }
}
