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

/// Returns the settings of an [`IpamConfig`]: name, effective value, and true if the value is Calico's default because
/// the field is missing. `is_limited` is true if Calico has a built-in block limit.
pub(crate) fn settings_of(config: &IpamConfig, is_limited: bool) -> [(&'static str, String, bool); 5] {
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
    [
        ("strictAffinity", config.strict_affinity.to_string(), false),
        (
            "autoAllocateBlocks",
            config.auto_allocate_blocks.to_string(),
            false,
        ),
        ("maxBlocksPerHost", blocks, !has_blocks),
        (
            "kubeVirtVMAddressPersistence",
            persistence.to_owned(),
            config.kubevirt_persistence.is_none(),
        ),
        (
            "ipCooldownSeconds",
            config.cooldown_seconds.max(0).to_string(),
            false,
        ),
    ]
}

pub fn configuration(snapshot: &Snapshot) -> ConfigurationView {
    let origin = match (&snapshot.ipam_config, snapshot.datastore) {
        _ if snapshot.effective_ipam_config().is_none() => {
            "stored, but cannot be decoded: Calico's default is shown"
        }
        (None, _) if !snapshot.ignored_configs.is_empty() => {
            "Calico's default: there is no IPAM configuration called default"
        }
        (None, _) => "Calico's default: nothing is stored",
        (Some(_), DatastoreKind::Etcd | DatastoreKind::EtcdV2) => "/calico/ipam/v2/config",
        (Some(_), DatastoreKind::Kubernetes) => "IPAM configuration default",
    };
    let is_limited = snapshot.block_limit().is_some();
    let effective = settings_of(&snapshot.effective_ipam_config().unwrap_or_default(), is_limited);
    let resource = snapshot
        .ipam_configuration
        .filter(|_| snapshot.datastore == DatastoreKind::Etcd);
    let resource = resource.map(|config| settings_of(&config, is_limited));
    let mut settings: Vec<Setting> = Vec::new();
    for (position, (name, value, is_absent)) in effective.into_iter().enumerate() {
        let other = resource
            .as_ref()
            .map(|r| r[position].1.clone())
            .filter(|other| *other != value);
        let is_default = is_absent && snapshot.ipam_config.is_some();
        let origin = if is_default {
            "Calico's default (not set)"
        } else {
            origin
        };
        settings.push(Setting {
            name,
            value,
            origin: origin.to_owned(),
            resource: other,
        });
    }
    settings.extend(others(snapshot));
    ConfigurationView {
        settings,
        ignored: snapshot.ignored_configs.clone(),
    }
}

fn others(snapshot: &Snapshot) -> Vec<Setting> {
    let setting = |name, value: String, origin: &str| Setting {
        name,
        value,
        origin: origin.to_owned(),
        resource: None,
    };
    let mut settings = Vec::new();
    let controllers = "KubeControllersConfiguration/default";
    settings.push(
        match snapshot
            .kube_controllers
            .as_ref()
            .and_then(|c| c.leak_grace_period)
        {
            Some(grace) => setting("leakGracePeriod", format!("{grace:#}"), controllers),
            None => setting(
                "leakGracePeriod",
                format!("{DEFAULT_GRACE:#}"),
                "Calico's default",
            ),
        },
    );
    settings.extend(snapshot.serves_services().map(|serves| match serves {
        Ok(controller) => setting("assignIPs", format!("{:?}", controller.assign), controllers),
        Err(why) => setting("assignIPs", "none".to_owned(), &why.to_string()),
    }));
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
