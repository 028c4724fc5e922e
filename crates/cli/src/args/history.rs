//! Options of `history`.

use std::net::IpAddr;
use std::path::PathBuf;

use calipam_check::views::PodName;
use calipam_model::IpNet;
use calipam_workflow::Object;
use clap::ValueHint::DirPath;
use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Args};

use super::FleetArgs;
use super::address::{address, network};
use super::show::{object, pod, without_ellipsis};

const SUBJECT: &str = "Subject";

/// Options of `history`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("about"))]
pub(crate) struct HistoryArgs {
    /// An address, a pod (NAMESPACE/NAME), a block (CIDR), or the name of a node or handle
    #[arg(value_name = "OBJECT", value_parser = object, group = "about", required_unless_present = "about")]
    pub object: Option<Object>,

    /// An address: who it was assigned to, and when
    #[arg(long, value_name = "ADDRESS", value_parser = address, group = "about", help_heading = SUBJECT)]
    pub ip: Option<IpAddr>,
    /// A handle, by ID or ID prefix: its addresses
    #[arg(long, value_name = "ID", group = "about", help_heading = SUBJECT, value_parser = NonEmptyStringValueParser::new())]
    pub handle: Option<String>,
    /// A block: who owned it, and its addresses
    #[arg(long, value_name = "CIDR", value_parser = network, group = "about", help_heading = SUBJECT)]
    pub block: Option<IpNet>,
    /// A node: its blocks and addresses
    #[arg(long, value_name = "NODE", group = "about", help_heading = SUBJECT, value_parser = NonEmptyStringValueParser::new())]
    pub node: Option<String>,
    /// A pod: its addresses
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = pod, group = "about", help_heading = SUBJECT)]
    pub pod: Option<PodName>,
    /// Read the exports and recorded changes in this folder instead
    #[arg(long, value_name = "DIR", value_hint = DirPath)]
    pub archive: Option<PathBuf>,
    #[command(flatten)]
    pub fleet: FleetArgs,
}

impl HistoryArgs {
    /// Returns the object whose history is shown. clap ensures that exactly one option or argument names it.
    pub(crate) fn object(&self) -> Object {
        if let Some(object) = &self.object {
            return object.clone();
        }
        if let Some(address) = self.ip {
            return Object::Address(address);
        }
        if let Some(id) = &self.handle {
            return Object::Handle(without_ellipsis(id));
        }
        if let Some(cidr) = self.block {
            return Object::Network(cidr.trunc());
        }
        if let Some(pod) = &self.pod {
            return Object::Pod(pod.clone());
        }
        Object::Node(self.node.clone().unwrap_or_default())
    }
}
