//! Many clusters in one call: which they are, and reading them side by side.

pub(crate) mod check;
mod contexts;
pub(crate) mod diff;
pub(crate) mod export;
mod file;
mod folder;
pub(crate) mod history;
mod run;
pub(crate) mod show;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use calipam_datastore::settings::Overrides;
use calipam_model::IpNet;

pub(crate) use self::run::each;
pub(crate) use self::source::{Named, Source};
use crate::args::{FleetArgs, Global};
use crate::exit::Failure;

/// The clusters of a call.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub clusters: Vec<Named>,
    /// Ranges that are used by something else, as the file says.
    pub taken: Vec<IpNet>,
}

impl Fleet {
    /// The clusters that the call names; `None` if it is about one.
    ///
    /// # Errors
    /// If the file, the folder or the kubeconfig cannot be read, or names no clusters.
    pub(crate) fn of_call(args: &FleetArgs, global: &Global) -> Result<Option<Self>, Failure> {
        let several = global.names_several();
        if args.routed && !several {
            return Err(Failure::usage("--routed needs several contexts")
                .hint("repeat --context, or use wildcards: --context '*'"));
        }
        if several {
            return contexts::fleet(args, global).map(Some);
        }
        let Some(path) = &args.fleet else { return Ok(None) };
        Self::read(path, &base(global)).map(Some)
    }

    /// The clusters that a file or folder names.
    ///
    /// # Errors
    /// If it cannot be read, or names no clusters.
    pub(crate) fn read(path: &Path, base: &Overrides) -> Result<Self, Failure> {
        let is_folder = fs::metadata(path).map_err(Failure::io(format!("read {}", path.display())))?.is_dir();
        let fleet = if is_folder { folder::fleet(path)? } else { file::fleet(path, base)? };
        if fleet.clusters.is_empty() {
            return Err(Failure::usage(format!("{} names no cluster", path.display())));
        }
        // What tells clusters apart is in lines for --ignore, in metrics and in links.
        let is_odd = |cluster: &&Named| cluster.name.chars().any(|c| c.is_whitespace() || c.is_control());
        if let Some(odd) = fleet.clusters.iter().find(is_odd) {
            return Err(Failure::usage(format!(
                "{}: the name {:?} has a space in it",
                path.display(),
                odd.name
            )));
        }
        let mut names: Vec<&str> = fleet.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                Err(Failure::usage(format!("{}: two clusters have the name {:?}", path.display(), pair[0]))
                    .hint("each cluster needs a name of its own"))
            }
            None => Ok(fleet),
        }
    }

    /// The clusters at an earlier time, which a file or folder names as `--fleet` does.
    pub(crate) fn earlier(path: &Path) -> Result<Earlier, Failure> {
        let fleet = Self::read(path, &unattended())?;
        let at = |cluster: Named| (place(&cluster), cluster);
        Ok(Earlier(fleet.clusters.into_iter().map(at).collect()))
    }
}

/// The clusters of a fleet at an earlier time, by where the exports of each lie: its group and name, however it was named.
pub(crate) struct Earlier(BTreeMap<PathBuf, Named>);

impl Earlier {
    /// The earlier state of a cluster; `None` if there is none.
    pub(crate) fn of(&self, cluster: &Named) -> Option<&Named> {
        self.0.get(&place(cluster))
    }

    /// Names of those that are not among `clusters`.
    pub(crate) fn others(&self, clusters: &[Named]) -> Vec<&str> {
        let places: BTreeSet<PathBuf> = clusters.iter().map(place).collect();
        let others = self.0.iter().filter(|(place, _)| !places.contains(*place));
        others.map(|(_, cluster)| cluster.name.as_str()).collect()
    }
}

fn place(cluster: &Named) -> PathBuf {
    folder::place(Path::new(""), cluster, "")
}

/// Refuses what is about one cluster.
fn refuse(option: Option<&'static str>, hint: &'static str) -> Result<(), Failure> {
    match option {
        None => Ok(()),
        Some(option) => {
            Err(Failure::usage(format!("{option} works on one cluster, but several are named")).hint(hint))
        }
    }
}

/// Settings of what no one is there to answer questions of.
fn unattended() -> Overrides {
    Overrides { unattended: true, ..Overrides::default() }
}

/// What the call says of every connection; no one is there to answer the questions of a credential plugin.
fn base(global: &Global) -> Overrides {
    Overrides { unattended: true, context: None, ..global.overrides() }
}
