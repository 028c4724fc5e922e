//! Options of `assign`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_plan::assign::Request;
use calipam_workflow::{AssignRequest, Criteria};
use clap::{ArgGroup, Args};

use super::address::address;
use super::writing::WritingArgs;
use crate::exit::{Failure, Result};

const WHAT: &str = "What to assign";
const RECORD: &str = "What to record";

/// Options of `assign`.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("what").required(true))]
pub(crate) struct AssignArgs {
    /// This address; can be repeated
    #[arg(long = "ip", value_name = "ADDRESS", value_parser = address, value_delimiter = ',', group = "what", help_heading = WHAT)]
    pub addresses: Vec<IpAddr>,
    /// Number of addresses to assign, chosen as for a pod; this many of each family if the pools have both
    #[arg(long, value_name = "N", group = "what", value_parser = clap::value_parser!(u32).range(1..), help_heading = WHAT)]
    pub count: Option<u32>,
    /// The node that the addresses are for
    #[arg(long, value_name = "NODE", help_heading = WHAT)]
    pub node: String,
    /// Choose from this pool, by name or CIDR, instead of from the pools that select the node; can be repeated
    #[arg(
        long = "pool",
        value_name = "POOL",
        value_delimiter = ',',
        conflicts_with = "addresses",
        help_heading = WHAT
    )]
    pub pools: Vec<String>,
    /// Assign the addresses of --ip even if they are in use but not recorded, or if the allocator never assigns them
    /// to nodes
    #[arg(long, requires = "addresses", help_heading = WHAT)]
    pub force: bool,
    /// The handle of the addresses; without one, only `release --ip` frees them
    #[arg(long, value_name = "ID", allow_hyphen_values = true, help_heading = RECORD)]
    pub handle: Option<String>,
    /// An attribute to record, such as `note=reserved for the printer`; can be repeated
    #[arg(long = "attribute", value_name = "KEY=VALUE", value_parser = attribute, help_heading = RECORD)]
    pub attributes: Vec<(String, String)>,
    /// Print the plan and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub writing: WritingArgs,
}

impl AssignArgs {
    /// Returns the request that these options describe. Refuses an attribute that is given twice, since only one of its
    /// values could be recorded.
    pub(crate) fn request(&self) -> Result<AssignRequest> {
        let mut attributes = BTreeMap::new();
        for (key, value) in &self.attributes {
            if attributes.insert(key.clone(), value.clone()).is_some() {
                return Err(Failure::usage(format!(
                    "--attribute {key} is given more than once"
                )));
            }
        }
        // For the journal, which a dry run does not have.
        let target = if self.count.is_some() { "--count" } else { "--ip" };
        let command = if self.dry_run {
            None
        } else {
            Some(format!("assign {target}"))
        };

        Ok(AssignRequest {
            wanted: Request {
                node: self.node.clone(),
                addresses: self.addresses.clone(),
                count: self.count.unwrap_or(0),
                handle: self.handle.clone(),
                attributes,
                force: self.force,
                pools: Vec::new(),
            },
            pools: self.pools.clone(),
            // An assignment does not depend on findings, so nothing is rechecked.
            criteria: Criteria::default(),
            intent: self.writing.intent(command),
        })
    }
}

/// Reads `KEY=VALUE`.
fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}
