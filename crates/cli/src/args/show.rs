//! Options of `show`.

use std::net::IpAddr;
use std::path::PathBuf;

use calipam_check::views::PodName;
use calipam_model::names::namespaced;
use calipam_workflow::Object;
use clap::ValueHint::DirPath;
use clap::{ArgGroup, Args};
use jiff::Timestamp;

use super::address::address;
use super::fleet::FLEET;
use super::moment::{MOMENT, moment};
use super::{FleetArgs, PrintingArgs, SelectionArgs};
use crate::exit::{Failure, Result};

const SUBJECT: &str = "What to show";
const PAST: &str = "Past states";
/// The IDs of the options in [`SelectionArgs`].
const NAMES: [&str; 3] = ["nodes", "selector", "pools"];

/// Options of `show`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("subject"), group = ArgGroup::new("one"))]
pub(crate) struct ShowArgs {
    /// An address, a pod (NAMESPACE/NAME), a CIDR, or the name of a node, pool or handle
    #[arg(value_name = "OBJECT", value_parser = object, groups = ["subject", "one"], conflicts_with_all = NAMES)]
    pub object: Option<Object>,

    /// Every block, pool by pool
    #[arg(long, alias = "show-blocks", group = "subject", help_heading = SUBJECT)]
    pub blocks: bool,
    /// Every node: blocks, addresses, and how many more blocks it can claim
    #[arg(long = "nodes", group = "subject", conflicts_with = "pools", help_heading = SUBJECT)]
    pub every_node: bool,
    /// Every namespace with the number of its addresses, and of those that have leaked: who uses a pool
    #[arg(long, group = "subject", help_heading = SUBJECT)]
    pub namespaces: bool,
    /// Everything about one address
    #[arg(long, value_name = "ADDRESS", value_parser = address, groups = ["subject", "one"], conflicts_with_all = NAMES, help_heading = SUBJECT)]
    pub ip: Option<IpAddr>,
    /// One handle and its addresses, by ID or ID prefix
    #[arg(long, value_name = "ID", groups = ["subject", "one"], conflicts_with_all = NAMES, help_heading = SUBJECT)]
    pub handle: Option<String>,
    /// Addresses used on a node that does not own the block
    #[arg(long, alias = "show-borrowed", group = "subject", help_heading = SUBJECT)]
    pub borrowed: bool,
    /// The addresses of one pod: recorded for it, and used by it
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = pod, group = "subject", help_heading = SUBJECT)]
    pub pod: Option<PodName>,
    /// The IPAM configuration
    #[arg(long, alias = "show-configuration", group = "subject", conflicts_with_all = NAMES, help_heading = SUBJECT)]
    pub configuration: bool,
    /// Compare Kubernetes pods with Calico's records, node by node
    #[arg(long, group = "subject", conflicts_with = "pools", help_heading = SUBJECT)]
    pub compare: bool,
    /// A map of every pool, with findings; one cell per block, or per several blocks in large pools
    #[arg(long, group = "subject", conflicts_with_all = ["nodes", "selector"], help_heading = SUBJECT)]
    pub map: bool,
    /// Read only what belongs to an address or a handle: faster, but other owners and findings can be missed
    #[arg(long, requires = "one", help_heading = SUBJECT)]
    pub quick: bool,

    #[command(flatten)]
    pub selection: SelectionArgs,
    /// Show the state at --at, from the exports and recorded changes in this folder
    #[arg(long, value_name = "DIR", value_hint = DirPath, requires = "at", conflicts_with = "watch", help_heading = PAST)]
    pub archive: Option<PathBuf>,
    #[arg(long, value_name = "TIME", value_parser = moment, requires = "archive", help = MOMENT, help_heading = PAST)]
    pub at: Option<Timestamp>,
    /// With several clusters: propose ranges of this size, such as `/16` or `/48`, that no cluster uses
    #[arg(long, value_name = "/LENGTH", value_parser = prefix, help_heading = FLEET)]
    pub find_range: Option<u8>,
    #[command(flatten)]
    pub fleet: FleetArgs,
    #[command(flatten)]
    pub printing: PrintingArgs,
}

/// Reads a prefix length, with or without a slash.
fn prefix(text: &str) -> Result<u8, String> {
    match text.strip_prefix('/').unwrap_or(text).parse() {
        Ok(length @ 1..=128) => Ok(length),
        _ => Err("expected a prefix length such as `/16`".to_owned()),
    }
}

/// Reads the name of an object, whose kind is determined later.
pub(super) fn object(text: &str) -> Result<Object, String> {
    let text = without_ellipsis(text);
    if text.is_empty() {
        Err("expected a name".to_owned())
    } else {
        Ok(Object::Text(text))
    }
}

/// Removes the ellipsis from an ID that a table has shortened; the rest is enough to find it.
pub(super) fn without_ellipsis(id: &str) -> String {
    id.trim_end_matches('…').to_owned()
}

/// Reads a pod as `NAMESPACE/NAME`.
pub(super) fn pod(text: &str) -> Result<PodName, String> {
    namespaced_name(text, "default/web-0")
}

/// Reads a service as `NAMESPACE/NAME`.
pub(super) fn service(text: &str) -> Result<PodName, String> {
    namespaced_name(text, "default/web")
}

/// Reads `NAMESPACE/NAME`. The error shows an example.
fn namespaced_name(text: &str, example: &str) -> Result<(String, String), String> {
    let (namespace, name) =
        namespaced(text).ok_or_else(|| format!("expected NAMESPACE/NAME, such as `{example}`"))?;
    Ok((namespace.to_owned(), name.to_owned()))
}

/// The subject of the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Pools,
    Blocks,
    Nodes,
    Namespaces,
    Borrowed,
    Configuration,
    Compare,
    Map,
    Object(Object),
    /// The addresses of the selected nodes.
    Addresses,
}

impl Subject {
    /// True for an address or a handle, judging only by the form of its name.
    pub(crate) fn is_one(&self) -> bool {
        let Self::Object(object) = self else { return false };
        matches!(object.clone().by_form(), Object::Address(_) | Object::Handle(_))
    }
}

impl ShowArgs {
    /// Refuses table options if the subject is not printed as a table.
    pub(crate) fn check_table(&self, subject: &Subject) -> Result<()> {
        let has_table_options = self.printing.no_headers || self.printing.sort_by.is_some();
        let is_table = !subject.is_one() && *subject != Subject::Map;
        if has_table_options && !is_table {
            return Err(Failure::usage(
                "--no-headers and --sort-by only apply to tables, and this output is not a table",
            ));
        }
        Ok(())
    }

    /// Returns the address that the command shows; `None` if it shows something else.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        let Subject::Object(object) = self.subject() else {
            return None;
        };
        match object.by_form() {
            Object::Address(address) => Some(address),
            _ => None,
        }
    }

    /// Returns the object that an argument or option names; `None` if none does. clap allows only one of them, so the
    /// order is of no importance.
    fn named_object(&self) -> Option<Object> {
        if let Some(object) = &self.object {
            return Some(object.clone());
        }
        if let Some(address) = self.ip {
            return Some(Object::Address(address));
        }
        if let Some(id) = &self.handle {
            return Some(Object::Handle(without_ellipsis(id)));
        }
        let pod = self.pod.as_ref()?;
        Some(Object::Pod(pod.clone()))
    }

    /// Returns the subject of the command. clap ensures that at most one option names it, except that `--node` and
    /// `--pool` also limit other subjects. Without any, shows the pools.
    pub(crate) fn subject(&self) -> Subject {
        if let Some(object) = self.named_object() {
            return Subject::Object(object);
        }
        let flags = [
            (self.blocks, Subject::Blocks),
            (self.every_node, Subject::Nodes),
            (self.namespaces, Subject::Namespaces),
            (self.borrowed, Subject::Borrowed),
            (self.configuration, Subject::Configuration),
            (self.compare, Subject::Compare),
            (self.map, Subject::Map),
            // Only without another subject, which it limits.
            (self.selection.names_nodes(), Subject::Addresses),
        ];
        for (is_given, subject) in flags {
            if is_given {
                return subject;
            }
        }
        Subject::Pools
    }
}
