//! Options of `show`.

use std::net::IpAddr;

use clap::{ArgGroup, Args};

const SUBJECT: &str = "What to show";

/// Options of `show`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("subject"))]
pub struct ShowArgs {
    /// Every block, pool by pool
    #[arg(long, group = "subject", help_heading = SUBJECT)]
    pub blocks: bool,
    /// Every node: its blocks, its addresses, and how many blocks it may still claim
    #[arg(long, group = "subject", help_heading = SUBJECT)]
    pub nodes: bool,
    /// The whole story of one address
    #[arg(long, value_name = "ADDRESS", group = "subject", help_heading = SUBJECT)]
    pub ip: Option<IpAddr>,
    /// One handle and the addresses that are recorded under it
    #[arg(long, value_name = "ID", group = "subject", help_heading = SUBJECT)]
    pub handle: Option<String>,
    /// Addresses whose owner is not on the node that owns the block
    #[arg(long, group = "subject", help_heading = SUBJECT)]
    pub borrowed: bool,
    /// The allocator's configuration
    #[arg(long, group = "subject", help_heading = SUBJECT)]
    pub configuration: bool,
    /// What Kubernetes runs against what Calico records, node by node
    #[arg(long, group = "subject", help_heading = SUBJECT)]
    pub compare: bool,
    /// With --ip: read everything, to name every owner of the address
    #[arg(long, requires = "ip", help_heading = SUBJECT)]
    pub all_owners: bool,
}

/// What is to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Pools,
    Blocks,
    Nodes,
    Borrowed,
    Configuration,
    Compare,
    /// Everything is read where `all_owners` is set.
    Address {
        address: IpAddr,
        all_owners: bool,
    },
    Handle(String),
}

impl ShowArgs {
    /// What is to be shown.
    pub fn subject(&self) -> Subject {
        match self {
            Self { ip: Some(address), all_owners, .. } => {
                Subject::Address { address: *address, all_owners: *all_owners }
            }
            Self { handle: Some(id), .. } => Subject::Handle(id.clone()),
            Self { blocks: true, .. } => Subject::Blocks,
            Self { nodes: true, .. } => Subject::Nodes,
            Self { borrowed: true, .. } => Subject::Borrowed,
            Self { configuration: true, .. } => Subject::Configuration,
            Self { compare: true, .. } => Subject::Compare,
            _ => Subject::Pools,
        }
    }
}
