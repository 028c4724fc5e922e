//! The clusters of a fleet, and the settings to connect to them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use calipam_datastore::settings::{DEFAULT_CONFIG, Files, LocalFiles, Overrides, Settings};
use calipam_model::IpNet;

use crate::connect;
use crate::exit::Result;

/// A cluster of a fleet.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub name: String,
    pub group: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// The ranges of the cluster's services, from the file. No datastore has them.
    pub services: Vec<IpNet>,
    pub source: Source,
}

/// The location of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(super) overrides: Overrides,
    /// True for a data file or an entry in a fleet's file. These ignore environment variables and the default settings
    /// file, which could be for another cluster. False for a context.
    pub(super) is_entry: bool,
}

impl Source {
    /// Creates the source of a data file.
    pub(crate) fn of_file(path: PathBuf, base: &Overrides) -> Self {
        let overrides = Overrides {
            datastore: Some(named_file(&path)),
            ..base.clone()
        };
        Self {
            overrides,
            is_entry: true,
        }
    }

    /// Returns the location for reports, such as a path, a URL, or `context prod`: of the settings, the one that
    /// decides which cluster is read. Empty if there is none.
    pub(crate) fn location(&self) -> String {
        let settings = &self.overrides;
        // `kubernetes` does not tell which cluster it is, but the context does.
        if let Some(datastore) = &settings.datastore
            && datastore != "kubernetes"
        {
            return datastore.clone();
        }
        if let Some(endpoints) = &settings.etcd_endpoints {
            return endpoints.clone();
        }
        if let Some(config) = &settings.config {
            return config.display().to_string();
        }
        if let Some(context) = &settings.context {
            return format!("context {context}");
        }
        settings.kubeconfig.clone().unwrap_or_default()
    }

    /// Resolves the settings of the datastore.
    pub(crate) fn settings(&self) -> Result<Settings> {
        let settings = if self.is_entry {
            Settings::resolve(&self.overrides, &BTreeMap::new(), &OnlyNamed)
        } else {
            Settings::resolve(&self.overrides, &connect::environment(), &LocalFiles)
        };
        Ok(settings.map_err(calipam_datastore::Error::from)?)
    }
}

/// Formats a path so that it cannot be taken for a datastore kind.
fn named_file(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.contains(['/', '.']) {
        text.into_owned()
    } else {
        format!("./{text}")
    }
}

/// Hides the default settings file, which every cluster would share, unless an entry names it.
struct OnlyNamed;

impl Files for OnlyNamed {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        LocalFiles.read(path)
    }

    fn exists(&self, path: &Path) -> bool {
        path != Path::new(DEFAULT_CONFIG) && LocalFiles.exists(path)
    }
}
