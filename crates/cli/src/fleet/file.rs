//! The YAML file of a fleet, with the names and locations of clusters. Unknown fields are errors, since a misspelled
//! field could lead to a connection to another cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use calipam_check::read_document;
use calipam_datastore::settings::Overrides;
use calipam_files::regular;
use calipam_model::{IpNet, cidr};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Fleet, Named, Source};
use crate::connect;
use crate::exit::{Failure, Result};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    clusters: Vec<Value>,
    #[serde(default, deserialize_with = "cidrs")]
    taken: Vec<IpNet>,
}

/// An entry of `clusters`. Paths are relative to the folder of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Entry {
    name: String,
    group: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "cidrs")]
    services: Vec<IpNet>,
    datastore: Option<PathBuf>,
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    etcd_endpoints: Option<Endpoints>,
    #[serde(rename = "etcdCACertFile")]
    etcd_cacert: Option<PathBuf>,
    #[serde(rename = "etcdCertFile")]
    etcd_cert: Option<PathBuf>,
    #[serde(rename = "etcdKeyFile")]
    etcd_key: Option<PathBuf>,
    config: Option<PathBuf>,
}

/// A comma-separated string, as in calicoctl, or a list.
#[derive(Deserialize)]
#[serde(untagged, expecting = "etcdEndpoints are not URLs")]
enum Endpoints {
    Text(String),
    List(Vec<String>),
}

/// Reads a list of CIDRs. The error shows an example, since it is about a file that people write.
fn cidrs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let invalid = || D::Error::custom("not a list of CIDRs such as [10.0.0.0/16, 172.16.4.0/22]");
    let texts = Vec::<String>::deserialize(deserializer).map_err(|_| invalid())?;
    let mut cidrs = Vec::new();
    for text in texts {
        cidrs.push(cidr::parse_cidr(&text).ok_or_else(invalid)?);
    }
    Ok(cidrs)
}

/// Reads the clusters of a fleet from a file. Entries take the settings that they do not have from `base`. An error
/// names the cluster or, if it has no name, its number in the file.
pub(super) fn fleet(path: &Path, base: &Overrides) -> Result<Fleet> {
    let invalid = |message: String| {
        Failure::usage(format!("{}: {message}", path.display())).hint("docs/fleet.md has an example")
    };
    let file = regular::open(path).map_err(Failure::io_at("read", path))?;
    let value: Value = read_document(file).map_err(|error| invalid(format!("it is not YAML: {error}")))?;
    let File {
        clusters: entries,
        taken,
    } = File::deserialize(&value).map_err(|error| invalid(error.to_string()))?;

    // Relative paths in the file begin at its folder.
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut clusters = Vec::new();
    for (index, value) in entries.iter().enumerate() {
        let entry = Entry::deserialize(value).map_err(|error| error.to_string());
        match entry.and_then(|entry| entry.into_cluster(folder, base)) {
            Ok(cluster) => clusters.push(cluster),
            Err(message) => return Err(invalid(format!("{}: {message}", label(value, index)))),
        }
    }
    Ok(Fleet {
        clusters,
        taken,
        ..Fleet::default()
    })
}

/// Returns the name of an entry in errors: its `name` or, if it has none, its number.
fn label(entry: &Value, index: usize) -> String {
    match entry["name"].as_str() {
        Some(name) => format!("cluster {name:?}"),
        None => format!("cluster {}", index + 1),
    }
}

/// True for a file that describes a fleet, and is no export of a cluster: it is in YAML, and has the fields of a fleet.
pub(super) fn is_fleet(path: &Path) -> bool {
    let is_yaml = path
        .extension()
        .is_some_and(|ending| ending == "yaml" || ending == "yml");
    if !is_yaml {
        return false;
    }
    let Ok(file) = regular::open(path) else {
        return false;
    };
    read_document::<Value>(file).is_ok_and(|value| File::deserialize(&value).is_ok())
}

impl Entry {
    /// Checks that the entry names exactly one location, and that it has certificates only if the location is etcd.
    fn check_source(&self) -> Result<(), String> {
        let needed = "it needs one of datastore, etcdEndpoints, kubeconfig/context and config";
        let sources = self.sources();
        if sources.is_empty() {
            return Err(format!("it does not say how to connect: {needed}"));
        }
        if sources.len() > 1 {
            return Err(format!("it has {}: {needed}", sources.join(" and ")));
        }

        let certificates = [&self.etcd_cacert, &self.etcd_cert, &self.etcd_key];
        let has_certificates = certificates.iter().any(|file| file.is_some());
        if has_certificates && self.etcd_endpoints.is_none() {
            return Err("it has certificates for etcd, but no etcdEndpoints".to_owned());
        }
        Ok(())
    }

    /// Returns the fields of this entry that name a location.
    fn sources(&self) -> Vec<&'static str> {
        let mut sources = Vec::new();
        if self.datastore.is_some() {
            sources.push("datastore");
        }
        if self.etcd_endpoints.is_some() {
            sources.push("etcdEndpoints");
        } else if self.kubeconfig.is_some() || self.context.is_some() {
            // With etcd, the kubeconfig is used only to read pods and services.
            sources.push("kubeconfig/context");
        }
        if self.config.is_some() {
            sources.push("config");
        }
        sources
    }

    /// Creates the cluster of the entry. `folder` is the folder of the fleet's file.
    fn into_cluster(self, folder: &Path, base: &Overrides) -> Result<Named, String> {
        if self.name.is_empty() {
            return Err("it has no `name`".to_owned());
        }
        self.check_source()?;

        let in_folder = |path: Option<PathBuf>| path.map(|path| folder.join(path));
        let Self {
            name,
            group,
            labels,
            services,
            context,
            ..
        } = self;
        if let Some(file) = in_folder(self.datastore) {
            return Ok(Named {
                name,
                group,
                labels,
                services,
                source: Source::of_file(file, base),
            });
        }

        let etcd_endpoints = self.etcd_endpoints.map(|endpoints| match endpoints {
            Endpoints::Text(text) => text,
            Endpoints::List(list) => list.join(","),
        });
        let mut datastore = None;
        if self.config.is_none() && etcd_endpoints.is_none() {
            datastore = Some("kubernetes".to_owned());
        }
        let mut kubeconfig = in_folder(self.kubeconfig).map(|path| path.to_string_lossy().into_owned());
        if kubeconfig.is_none() && context.is_some() {
            // A context without a kubeconfig refers to the user's kubeconfig.
            kubeconfig = connect::environment().remove("KUBECONFIG");
        }
        let overrides = Overrides {
            config: in_folder(self.config),
            kubeconfig,
            context,
            etcd_endpoints,
            etcd_cacert: in_folder(self.etcd_cacert),
            etcd_cert: in_folder(self.etcd_cert),
            etcd_key: in_folder(self.etcd_key),
            datastore,
            ..base.clone()
        };
        Ok(Named {
            name,
            group,
            labels,
            services,
            source: Source {
                overrides,
                is_entry: true,
            },
        })
    }
}
