//! The network configuration on stdin (facts of the plugin, section 3). It configures the main CNI plugin; this IPAM
//! plugin uses only a part of it.

mod json;
mod settings;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::path::PathBuf;

use calipam_datastore::Secret;
use calipam_datastore::settings::KubernetesSettings;
use ipnet::IpNet;
use serde::Deserialize;

use self::json::Fields;
pub use self::json::WrongType;
use crate::protocol::environment::is_name;
use crate::protocol::{CniError, Code, Command, Version};

/// The default file with the node's name.
const NODE_NAME_FILE: &str = "/var/lib/calico/nodename";
/// The default lock file, which Calico's own plugin also locks.
const LOCK_FILE: &str = "/var/run/calico/ipam.lock";

/// The part of the configuration that this plugin uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    pub version: Version,
    /// The name of the network.
    pub name: String,
    pub ipam: Ipam,
    pub datastore: Datastore,
    pub node: NodeName,
    pub lock_file: PathBuf,
    pub log: Log,
    /// True if the namespaces of pods are looked up, for pool selectors.
    pub reads_namespaces: bool,
    /// True if the node may have only one block per family.
    pub single_block: bool,
    /// The addresses in `prevResult`, which CHECK compares and DEL releases.
    pub previous: Vec<IpAddr>,
    /// `cni.dev/valid-attachments`: the containers whose addresses GC keeps; `None` if the field is missing. An error
    /// in the field makes only GC fail.
    pub valid_containers: Result<Option<Vec<String>>, WrongType>,
}

/// The families and pools from which addresses are assigned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ipam {
    pub ipv4: bool,
    pub ipv6: bool,
    /// The CIDRs or names of pools. If empty, addresses come from the pools that select the node and the namespace.
    pub ipv4_pools: Vec<String>,
    pub ipv6_pools: Vec<String>,
}

/// The fields for the datastore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Datastore {
    /// The fields that are set, under the names of the environment variables that they override.
    pub variables: BTreeMap<&'static str, String>,
    /// The settings in `policy`, for reading namespaces, pods and machines. They do not apply to the datastore.
    pub policy: KubernetesSettings,
}

/// The configured sources of the node's name. The first one that has a name is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeName {
    pub stated: String,
    pub file: PathBuf,
    /// The old field `hostname`.
    pub host: String,
}

/// The level and file of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    pub level: tracing::Level,
    pub file: Option<PathBuf>,
    /// The size at which a file is rotated, in MiB.
    pub max_size: u64,
    /// The age at which old files are removed, in days.
    pub max_age: u64,
    /// The number of old files that are kept.
    pub max_count: usize,
}

impl Default for Log {
    /// The defaults of Calico's plugin.
    fn default() -> Self {
        Self {
            level: tracing::Level::INFO,
            file: None,
            max_size: 100,
            max_age: 30,
            max_count: 10,
        }
    }
}

/// A configuration with a valid name and version. The other fields are not decoded yet.
pub struct Document<'a> {
    fields: Fields<'a>,
    name: String,
    version: Version,
}

impl<'a> Document<'a> {
    /// Reads the fields that every command needs, in the order in which Calico's plugin checks them.
    ///
    /// # Errors
    /// If stdin is not JSON (code 6), has no valid name (7), or has a version that is unknown or lacks the command (1).
    pub fn read(stdin: &'a [u8], command: Option<Command>) -> Result<Self, CniError> {
        let text = std::str::from_utf8(stdin).map_err(broken)?;
        let fields = Fields::read(text).map_err(broken)?;
        let name = fields.text("name").map_err(broken)?;
        let version = fields.text("cniVersion").map_err(broken)?;
        if name.is_empty() {
            return Err(CniError::new(Code::InvalidConfiguration, "missing network name"));
        }
        if !is_name(&name) {
            let error = CniError::new(
                Code::InvalidConfiguration,
                "invalid characters found in network name",
            );
            return Err(error.with_details(&name));
        }
        let version = Version::parse_configuration(&version)?;
        if let Some(command) = command {
            command.check_version(version)?;
        }
        Ok(Self {
            fields,
            name,
            version,
        })
    }

    /// Reads all fields that the plugin uses.
    pub fn configuration(self) -> Result<Configuration, CniError> {
        configuration(self).map_err(|error| CniError::internal(format!("failed to load netconf: {error}")))
    }
}

fn broken(reason: impl Display) -> CniError {
    CniError::new(
        Code::Decoding,
        format!("error unmarshall network config: {reason}"),
    )
}

/// Reads the fields of the configuration, as Calico's plugin does.
fn configuration(document: Document<'_>) -> Result<Configuration, WrongType> {
    let Document {
        fields,
        name,
        version,
    } = document;
    let path = |field: &str, default: &str| -> Result<PathBuf, WrongType> {
        let text = fields.text(field)?;
        Ok(PathBuf::from(if text.is_empty() { default } else { &text }))
    };
    let kubernetes = fields.object("kubernetes")?;
    let policy = fields.object("policy")?;
    let kubeconfig = kubernetes.text("kubeconfig")?;
    // These fields are not used, but as in Calico, a wrong type is an error.
    let _: i64 = fields.get("qps", "a number")?;
    let _: i64 = fields.get("burst", "a number")?;
    Ok(Configuration {
        version,
        name,
        ipam: read_ipam(&fields.object("ipam")?)?,
        reads_namespaces: !kubeconfig.is_empty() || policy.text("type")? == "k8s",
        datastore: Datastore {
            variables: [
                ("DATASTORE_TYPE", fields.text("datastore_type")?),
                ("ETCD_ENDPOINTS", fields.text("etcd_endpoints")?),
                ("ETCD_DISCOVERY_SRV", fields.text("etcd_discovery_srv")?),
                ("ETCD_KEY_FILE", fields.text("etcd_key_file")?),
                ("ETCD_CERT_FILE", fields.text("etcd_cert_file")?),
                ("ETCD_CA_CERT_FILE", fields.text("etcd_ca_cert_file")?),
                ("KUBECONFIG", kubeconfig),
                ("K8S_API_ENDPOINT", kubernetes.text("k8s_api_root")?),
                ("CALICO_API_GROUP", fields.text("calico_api_group")?),
            ]
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .collect(),
            policy: KubernetesSettings {
                api_endpoint: policy.text("k8s_api_root")?,
                token: Secret::new(policy.text("k8s_auth_token")?),
                cert_file: policy.text("k8s_client_certificate")?,
                key_file: policy.text("k8s_client_key")?,
                ca_file: policy.text("k8s_certificate_authority")?,
                ..KubernetesSettings::default()
            },
        },
        node: NodeName {
            stated: fields.text("nodename")?,
            file: path("nodename_file", NODE_NAME_FILE)?,
            host: fields.text("hostname")?,
        },
        lock_file: path("ipam_lock_file", LOCK_FILE)?,
        log: read_log(&fields)?,
        single_block: fields.get("windows_use_single_network", "true or false")?,
        previous: previous_addresses(&fields),
        valid_containers: valid_containers(&fields),
    })
}

/// Reads the fields of `ipam`. A wrong type of an unused field is an error, too, as in Calico.
fn read_ipam(fields: &Fields<'_>) -> Result<Ipam, WrongType> {
    for unused in ["type", "name", "subnet"] {
        fields.text(unused)?;
    }
    let pools = |name: &str| -> Result<Vec<String>, WrongType> {
        let entries: Vec<Option<String>> = fields.get(name, "a list of strings")?;
        // Go reads a `null` in the list as an empty string.
        Ok(entries.into_iter().map(Option::unwrap_or_default).collect())
    };
    // Every text but "false" turns IPv4 on, and only "true" turns IPv6 on, as in Calico.
    Ok(Ipam {
        ipv4: fields.text("assign_ipv4")? != "false",
        ipv6: fields.text("assign_ipv6")? == "true",
        ipv4_pools: pools("ipv4_pools")?,
        ipv6_pools: pools("ipv6_pools")?,
    })
}

/// Reads the fields about logs. Numbers that are not positive stand for the defaults.
fn read_log(fields: &Fields<'_>) -> Result<Log, WrongType> {
    let defaults = Log::default();
    let number = |name: &str, default: u64| -> Result<u64, WrongType> {
        let number: i64 = fields.get(name, "a number")?;
        Ok(if number > 0 { number as u64 } else { default })
    };
    // As in Calico's plugin, an unknown level is not an error.
    let level = match fields.text("log_level")?.to_lowercase().as_str() {
        "debug" => tracing::Level::DEBUG,
        "error" => tracing::Level::ERROR,
        _ => tracing::Level::INFO,
    };
    let path = fields.text("log_file_path")?;
    let file = if path.is_empty() { None } else { Some(path.into()) };
    Ok(Log {
        level,
        file,
        max_size: number("log_file_max_size", defaults.max_size)?,
        max_age: number("log_file_max_age", defaults.max_age)?,
        max_count: number("log_file_max_count", defaults.max_count as u64)? as usize,
    })
}

/// Returns the addresses in `prevResult`, which is what ADD returned for the container. Ignores a malformed result and
/// malformed addresses, as Calico's plugin does.
fn previous_addresses(fields: &Fields<'_>) -> Vec<IpAddr> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Result {
        ips: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        address: String,
    }
    let Ok(Some(result)) = fields.find::<Result>("prevResult", "a result") else {
        return Vec::new();
    };
    let mut addresses = Vec::new();
    for entry in result.ips {
        addresses.extend(calipam_model::cidr::parse_address(&entry.address));
    }
    addresses
}

/// Returns the container IDs that GC must keep; `None` if the runtime gave no list, which is not an empty list.
fn valid_containers(fields: &Fields<'_>) -> Result<Option<Vec<String>>, WrongType> {
    #[derive(Deserialize)]
    struct Attachment {
        #[serde(rename = "containerID")]
        container: String,
    }
    let kind = "a list of attachments";
    let attachments: Option<Vec<Attachment>> = fields.find("cni.dev/valid-attachments", kind)?;
    let Some(attachments) = attachments else {
        return Ok(None);
    };
    let ids = attachments.into_iter().map(|attachment| attachment.container);
    Ok(Some(ids.collect()))
}

/// Parses an entry of a pool list as a CIDR, as Go does: it must have a prefix length, and host bits are cleared.
pub fn pool_cidr(entry: &str) -> Option<IpNet> {
    calipam_model::cidr::parse_pool(entry)
}

#[cfg(test)]
mod tests;
