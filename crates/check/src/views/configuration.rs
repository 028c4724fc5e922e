//! The allocator configuration, with the origin of each setting.

use calipam_model::config::IpamConfig;
use calipam_model::snapshot::{DatastoreKind, Snapshot};
use serde::Serialize;

use crate::DEFAULT_GRACE;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationView {
    /// The allocator settings, and other settings that affect addresses.
    pub settings: Vec<Setting>,
    /// The names of IPAM configurations that Calico ignores, since they are not called `default`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Setting {
    /// The setting's name in the API.
    pub name: &'static str,
    /// The effective value.
    pub value: String,
    /// The object that contains the value, or a note that the value is a default.
    pub origin: String,
    /// The value in the IPAMConfiguration resource, if it differs. It can differ only with the etcd datastore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
}

/// A setting of an [`IpamConfig`].
pub(crate) struct ConfigSetting {
    /// The setting's name in the API.
    pub name: &'static str,
    /// The effective value.
    pub value: String,
    /// True if the value is Calico's default, because the field is missing.
    pub is_default: bool,
}

impl ConfigSetting {
    /// Creates a setting whose field is always present.
    fn stored(name: &'static str, value: impl ToString) -> Self {
        Self {
            name,
            value: value.to_string(),
            is_default: false,
        }
    }
}

/// Returns the settings of an [`IpamConfig`]. `is_limited` is true if Calico has a built-in block limit.
pub(crate) fn settings_of(config: &IpamConfig, is_limited: bool) -> [ConfigSetting; 5] {
    let has_blocks = config.max_blocks_per_host > 0;
    let blocks = if has_blocks || is_limited {
        config.block_limit().to_string()
    } else {
        "no limit".to_owned()
    };
    let persistence = if config.keeps_addresses_of_machines() {
        "Enabled"
    } else {
        "Disabled"
    };
    let cooldown = config.cooldown_seconds.max(0);
    [
        ConfigSetting::stored("strictAffinity", config.strict_affinity),
        ConfigSetting::stored("autoAllocateBlocks", config.auto_allocate_blocks),
        ConfigSetting {
            is_default: !has_blocks,
            ..ConfigSetting::stored("maxBlocksPerHost", blocks)
        },
        ConfigSetting {
            is_default: config.kubevirt_persistence.is_none(),
            ..ConfigSetting::stored("kubeVirtVMAddressPersistence", persistence)
        },
        ConfigSetting::stored("ipCooldownSeconds", cooldown),
    ]
}

/// Returns the settings that the allocator uses, and other settings that affect addresses.
pub fn configuration(snapshot: &Snapshot) -> ConfigurationView {
    let is_stored = snapshot.ipam_config.is_some();
    let config_origin = origin_of_config(snapshot);
    let is_limited = snapshot.block_limit().is_some();
    let effective = settings_of(&snapshot.effective_ipam_config().unwrap_or_default(), is_limited);
    // Only in etcd, the allocator reads another object than the resource that users see.
    let resource_values = match snapshot.ipam_configuration {
        Some(config) if snapshot.datastore == DatastoreKind::Etcd => {
            settings_of(&config, is_limited).map(|setting| Some(setting.value))
        }
        _ => Default::default(),
    };

    let mut settings: Vec<Setting> = Vec::new();
    for (setting, resource_value) in effective.into_iter().zip(resource_values) {
        let origin = if setting.is_default && is_stored {
            "Calico's default (not set)"
        } else {
            config_origin
        };
        settings.push(Setting {
            name: setting.name,
            origin: origin.to_owned(),
            resource: resource_value.filter(|value| *value != setting.value),
            value: setting.value,
        });
    }
    settings.extend(other_settings(snapshot));
    ConfigurationView {
        settings,
        ignored: snapshot.ignored_configs.clone(),
    }
}

/// Returns the object that contains the allocator's settings, or a note that there is none.
fn origin_of_config(snapshot: &Snapshot) -> &'static str {
    if snapshot.effective_ipam_config().is_none() {
        return "stored, but cannot be decoded: Calico's default is shown";
    }
    if snapshot.ipam_config.is_none() {
        return if snapshot.ignored_configs.is_empty() {
            "Calico's default: nothing is stored"
        } else {
            "Calico's default: there is no IPAM configuration called default"
        };
    }
    match snapshot.datastore {
        DatastoreKind::Etcd | DatastoreKind::EtcdV2 => "/calico/ipam/v2/config",
        DatastoreKind::Kubernetes => "IPAM configuration default",
    }
}

/// Returns the settings of Calico's controllers and of the cluster, as far as they were read, each with the object that
/// contains it.
fn other_settings(snapshot: &Snapshot) -> Vec<Setting> {
    let mut settings = settings_of_controllers(snapshot);
    if let Some(cluster) = &snapshot.cluster {
        let origin = "ClusterInformation/default";
        let ready = cluster
            .datastore_ready
            .map_or("not set".to_owned(), |ready| ready.to_string());
        settings.push(setting("datastoreReady", ready, origin));
        settings.push(setting("calicoVersion", cluster.calico_version.clone(), origin));
        settings.push(setting("clusterGUID", cluster.guid.clone(), origin));
    }
    settings
}

/// Returns the grace period of leaks, and which services Calico serves, if that is known.
fn settings_of_controllers(snapshot: &Snapshot) -> Vec<Setting> {
    const ORIGIN: &str = "KubeControllersConfiguration/default";
    let configured = snapshot.kube_controllers.as_ref();
    let grace = configured.and_then(|configuration| configuration.leak_grace_period);
    let origin_of_grace = if grace.is_some() {
        ORIGIN
    } else {
        "Calico's default"
    };
    let grace = grace.unwrap_or(DEFAULT_GRACE);
    let mut settings = vec![setting("leakGracePeriod", format!("{grace:#}"), origin_of_grace)];
    match snapshot.serves_services() {
        Some(Ok(controller)) => {
            let assigns = format!("{:?}", controller.assign);
            settings.push(setting("assignIPs", assigns, ORIGIN));
        }
        Some(Err(why)) => settings.push(setting("assignIPs", "none".to_owned(), &why.to_string())),
        None => {}
    }
    settings
}

/// Creates a setting that no resource repeats.
fn setting(name: &'static str, value: String, origin: &str) -> Setting {
    Setting {
        name,
        value,
        origin: origin.to_owned(),
        resource: None,
    }
}
