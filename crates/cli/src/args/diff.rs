//! Options of `diff`.

use std::net::IpAddr;
use std::path::PathBuf;

use calipam_model::IpNet;
use clap::Args;
use clap::ValueHint::{DirPath, FilePath};
use jiff::Timestamp;

use super::FleetArgs;
use super::address::{address, network};
use super::moment::{MOMENT, moment};
use super::selection::{SELECTION, SelectionArgs};
use super::writing::RecheckArgs;

/// Options of `diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The earlier state: a file, `etcd`, `etcd@REVISION`, or `kubernetes`; with several clusters, a file or
    /// folder with an earlier state of each, as for --fleet
    #[arg(
        value_name = "OLD",
        value_parser = StateName::parse,
        value_hint = FilePath,
        required_unless_present = "archive"
    )]
    pub old: Option<StateName>,
    /// The later state
    #[arg(
        value_name = "NEW",
        value_parser = StateName::parse,
        value_hint = FilePath,
        required_unless_present_any = ["archive", "fleet", "context"]
    )]
    pub new: Option<StateName>,
    /// Compare the state at --at in this archive with the next export, or with NEW. With several clusters, this folder
    /// has an archive for each, which is compared with the cluster's present state
    #[arg(long, value_name = "DIR", value_hint = DirPath, requires = "at")]
    pub archive: Option<PathBuf>,
    #[arg(long, value_name = "TIME", value_parser = moment, requires = "archive", help = MOMENT)]
    pub at: Option<Timestamp>,
    /// Compare even states of different clusters
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub recheck: RecheckArgs,
    #[command(flatten)]
    pub fleet: FleetArgs,

    /// Only this address; can be repeated
    #[arg(long = "ip", value_name = "ADDRESS", value_parser = address, value_delimiter = ',', help_heading = SELECTION)]
    pub addresses: Vec<IpAddr>,
    /// Only this block; can be repeated
    #[arg(long = "block", value_name = "CIDR", value_parser = network, value_delimiter = ',', help_heading = SELECTION)]
    pub blocks: Vec<IpNet>,
    #[command(flatten)]
    pub selection: SelectionArgs,
}

impl DiffArgs {
    /// Returns the addresses and blocks to which the comparison is limited.
    pub(crate) fn networks(&self) -> [Vec<IpNet>; 2] {
        let addresses = self.addresses.iter().map(|address| IpNet::from(*address));
        [
            addresses.collect(),
            self.blocks.iter().map(IpNet::trunc).collect(),
        ]
    }
}

/// The source of a cluster state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateName {
    /// The value for `--datastore`.
    pub datastore: String,
    /// A past etcd revision.
    pub revision: Option<i64>,
    /// The name in documents, if it is a state of an archive.
    pub shown_as: Option<String>,
}

impl StateName {
    /// Reads the name of a state: `etcd`, `etcd` at an earlier revision as in `etcd@48250`, `kubernetes`, or a path.
    ///
    /// # Errors
    /// If the revision is not a number above 0.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let Some(revision) = text.strip_prefix("etcd@") else {
            return Ok(Self {
                datastore: text.to_owned(),
                revision: None,
                shown_as: None,
            });
        };
        // etcd's first revision is 1.
        let revision: i64 = revision.parse().unwrap_or(0);
        if revision <= 0 {
            let message =
                "expected a revision after `etcd@`, such as `etcd@48250`; a file of that name is `./etcd@…`";
            return Err(message.to_owned());
        }
        Ok(Self {
            datastore: "etcd".to_owned(),
            revision: Some(revision),
            shown_as: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states() {
        let state = |datastore: &str, revision| {
            Ok(StateName {
                datastore: datastore.into(),
                revision,
                shown_as: None,
            })
        };
        assert_eq!(StateName::parse("etcd"), state("etcd", None));
        assert_eq!(StateName::parse("etcd@48250"), state("etcd", Some(48250)));
        assert_eq!(StateName::parse("./etcd@x"), state("./etcd@x", None));
        for bad in [
            "etcd@",
            "etcd@0",
            "etcd@-1",
            "etcd@now",
            "etcd@99999999999999999999",
        ] {
            assert!(StateName::parse(bad).is_err(), "{bad}");
        }
    }
}
