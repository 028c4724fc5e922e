//! Options of `history`.

use std::net::IpAddr;
use std::path::PathBuf;

use calipam_history::timeline::About;
use calipam_model::IpNet;
use clap::ValueHint::DirPath;
use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Args};

use super::FleetArgs;
use super::address::address;

const SUBJECT: &str = "Subject";

/// Options of `history`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("about").required(true))]
pub(crate) struct HistoryArgs {
    /// An address: who it was assigned to, and when
    #[arg(long, value_name = "ADDRESS", value_parser = address, group = "about", help_heading = SUBJECT)]
    pub ip: Option<IpAddr>,
    /// A handle, by ID or ID prefix: its addresses
    #[arg(long, value_name = "ID", group = "about", help_heading = SUBJECT, value_parser = NonEmptyStringValueParser::new())]
    pub handle: Option<String>,
    /// A block: who owned it, and its addresses
    #[arg(long, value_name = "CIDR", group = "about", help_heading = SUBJECT)]
    pub block: Option<IpNet>,
    /// A node: its blocks and addresses
    #[arg(long, value_name = "NODE", group = "about", help_heading = SUBJECT, value_parser = NonEmptyStringValueParser::new())]
    pub node: Option<String>,
    /// Read the exports and recorded changes in this folder instead
    #[arg(long, value_name = "DIR", value_hint = DirPath)]
    pub archive: Option<PathBuf>,
    #[command(flatten)]
    pub fleet: FleetArgs,
}

impl HistoryArgs {
    /// Returns the subject of the call; clap ensures that there is one.
    pub(crate) fn about(&self) -> About {
        match self {
            Self { ip: Some(address), .. } => About::Address(*address),
            Self { handle: Some(id), .. } => About::Handle(id.trim_end_matches('…').to_owned()),
            Self { block: Some(cidr), .. } => About::Block(cidr.trunc()),
            Self { node, .. } => About::Node(node.clone().unwrap_or_default()),
        }
    }
}
