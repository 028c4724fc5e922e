//! Pools, reservations, nodes and configuration. There are few of these objects, so they are compared field by field.

use std::collections::{BTreeMap, BTreeSet};

use calipam_check::Scope;
use calipam_model::config::{
    AssignIps, ClusterInformation, IpamConfig, IpamSetting, KubeControllersConfiguration,
};
use calipam_model::key::{DEFAULT, Key};
use calipam_model::node::Node;
use calipam_model::pool::{Pool, Reservation};
use calipam_model::snapshot::{Snapshot, Source};
use calipam_model::words::joined;
use serde::Serialize;

use super::uncompared::Hidden;
use crate::block_change::Change;

/// A changed object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectChange {
    pub name: String,
    pub change: Change,
    /// The changed fields or, if the object is new or gone, all fields that have a value.
    pub fields: Vec<FieldChange>,
}

/// A changed field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldChange {
    /// The name, usually as in Calico's API.
    pub field: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// The fields of an object by name, without empty ones.
type Fields = BTreeMap<String, String>;

/// The identity of an object: the index of its list in the result of [`changes`], its name, its source and its key.
type Id = (usize, String, Source, Key);

// The indexes of the lists.
const POOLS: usize = 0;
const RESERVATIONS: usize = 1;
const NODES: usize = 2;
const CONFIGURATION: usize = 3;

/// Compares pools, reservations, nodes and configuration, and returns the changes of each, in this order. Skips unread
/// sources and objects that cannot be decoded.
pub(crate) fn changes(
    old: &Snapshot,
    new: &Snapshot,
    hidden: &Hidden,
    scope: &Scope,
) -> [Vec<ObjectChange>; 4] {
    let mut old_objects = objects_in_scope(old, scope);
    let mut new_objects = objects_in_scope(new, scope);
    let ids: BTreeSet<Id> = old_objects.keys().chain(new_objects.keys()).cloned().collect();
    let mut changes: [Vec<ObjectChange>; 4] = Default::default();
    for id in ids {
        let before = old_objects.remove(&id);
        let after = new_objects.remove(&id);
        let (list, name, source, key) = id;
        if !old.has_read(source) || !new.has_read(source) || hidden.has(&key) {
            continue;
        }
        if let Some(change) = Change::of(&before, &after) {
            let fields = field_changes(before.unwrap_or_default(), after.unwrap_or_default());
            changes[list].push(ObjectChange { name, change, fields });
        }
    }
    changes
}

/// Returns the objects of a snapshot that are in the scope, with the fields that are compared.
fn objects_in_scope(snapshot: &Snapshot, scope: &Scope) -> BTreeMap<Id, Fields> {
    let mut objects = BTreeMap::new();
    let mut add = |list, name: &str, source, key: Key, fields: Fields| {
        objects.insert((list, name.to_owned(), source, key), fields);
    };
    for pool in snapshot.pools.iter().map(|pool| &pool.value) {
        if scope.nodes.is_empty() && scope.has_network(pool.cidr) {
            add(
                POOLS,
                &pool.name,
                Source::Pools,
                Key::Pool(pool.name.clone()),
                pool_fields(pool),
            );
        }
    }
    for Reservation { name, cidrs, .. } in snapshot.reservations.iter().map(|reservation| &reservation.value)
    {
        let is_in_networks = cidrs.iter().any(|cidr| scope.has_network(*cidr));
        if scope.is_everything() || scope.nodes.is_empty() && is_in_networks {
            let fields = fields_with_values([("reservedCIDRs", joined(cidrs, ", "))]);
            add(
                RESERVATIONS,
                name,
                Source::Reservations,
                Key::Reservation(name.clone()),
                fields,
            );
        }
    }
    for node in snapshot.nodes.iter().map(|node| &node.value) {
        if scope.networks.is_empty() && scope.has_node(&node.name) {
            add(
                NODES,
                &node.name,
                Source::Nodes,
                Key::Node(node.name.clone()),
                node_fields(node),
            );
        }
    }

    // Cluster information and settings belong to the cluster, not to nodes or pools in a scope.
    if !scope.is_everything() {
        return objects;
    }
    if let Some(cluster) = &snapshot.cluster {
        let key = Key::cluster_information();
        add(
            CONFIGURATION,
            "ClusterInformation",
            Source::ClusterInformation,
            key,
            cluster_fields(cluster),
        );
    }
    if let Some(config) = &snapshot.ipam_config {
        add(
            CONFIGURATION,
            "IPAMConfig",
            Source::IpamConfig,
            Key::IpamConfig,
            config_fields(config),
        );
    }
    if let Some(config) = &snapshot.ipam_configuration {
        let key = Key::ipam_configuration();
        add(
            CONFIGURATION,
            "IPAMConfiguration",
            Source::IpamConfiguration,
            key,
            config_fields(config),
        );
    }
    if let Some(controllers) = &snapshot.kube_controllers {
        let source = Source::KubeControllersConfiguration;
        let key = Key::KubeControllersConfiguration(DEFAULT.to_owned());
        add(
            CONFIGURATION,
            "KubeControllersConfiguration",
            source,
            key,
            controllers_fields(controllers),
        );
    }
    objects
}

/// Compares the fields of an object, and returns those with different values, by name.
fn field_changes(mut fields_before: Fields, mut fields_after: Fields) -> Vec<FieldChange> {
    let names: BTreeSet<String> = fields_before.keys().chain(fields_after.keys()).cloned().collect();
    let mut changes = Vec::new();
    for field in names {
        let before = fields_before.remove(&field);
        let after = fields_after.remove(&field);
        if before != after {
            changes.push(FieldChange { field, before, after });
        }
    }
    changes
}

/// Collects the fields that have a value.
fn fields_with_values<const N: usize>(named_values: [(&str, String); N]) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in named_values {
        if !value.is_empty() {
            fields.insert(name.to_owned(), value);
        }
    }
    fields
}

/// Returns the fields of a pool that are compared.
fn pool_fields(pool: &Pool) -> Fields {
    let uses = pool.allowed_uses.iter().map(|allowed| allowed.name());
    fields_with_values([
        ("cidr", pool.cidr.to_string()),
        ("blockSize", pool.block_size.to_string()),
        ("disabled", pool.disabled.to_string()),
        ("nodeSelector", pool.node_selector.clone()),
        ("namespaceSelector", pool.namespace_selector.clone()),
        ("allowedUses", joined(uses, ", ")),
        (
            "assignmentMode",
            if pool.automatic { "Automatic" } else { "Manual" }.to_owned(),
        ),
        (
            "deletionTimestamp",
            if pool.deleting { "set" } else { "" }.to_owned(),
        ),
        ("Allocatable", pool.not_allocatable.is_none().to_string()),
    ])
}

/// Returns the fields of a node that are compared.
fn node_fields(node: &Node) -> Fields {
    let tainted = if node.tainted { "yes" } else { "" };
    let mut fields = fields_with_values([
        (
            "orchRefs.nodeName",
            node.kubernetes_name.clone().unwrap_or_default(),
        ),
        ("addresses", joined(&node.addresses, ", ")),
        ("tainted", tainted.to_owned()),
        ("plugin", node.plugin.clone().unwrap_or_default()),
    ]);
    for (name, value) in &node.labels {
        fields.insert(format!("labels.{name}"), value.clone());
    }
    for (kind, address) in &node.tunnels {
        fields.insert(kind.field().to_owned(), address.to_string());
    }
    fields
}

/// Returns the fields of the cluster information that are compared.
fn cluster_fields(cluster: &ClusterInformation) -> Fields {
    let ready = cluster.datastore_ready.map(|ready| ready.to_string());
    fields_with_values([
        ("clusterGUID", cluster.guid.clone()),
        ("clusterType", cluster.cluster_type.clone()),
        ("calicoVersion", cluster.calico_version.clone()),
        ("datastoreReady", ready.unwrap_or_default()),
    ])
}

/// Returns the settings of IPAM that are compared.
fn config_fields(config: &IpamConfig) -> Fields {
    let settings = [
        Some(IpamSetting::StrictAffinity(config.strict_affinity)),
        Some(IpamSetting::AutoAllocateBlocks(config.auto_allocate_blocks)),
        Some(IpamSetting::MaxBlocksPerHost(config.max_blocks_per_host)),
        config.kubevirt_persistence.map(IpamSetting::Kubevirt),
        Some(IpamSetting::Cooldown(config.cooldown_seconds)),
    ];
    let mut fields = Fields::new();
    for setting in settings.into_iter().flatten() {
        fields.insert(setting.name().to_owned(), setting.to_string());
    }
    fields
}

/// Returns the settings of kube-controllers that are compared.
fn controllers_fields(configuration: &KubeControllersConfiguration) -> Fields {
    let assigned = configuration.assign_ips.map(|assign| match assign {
        AssignIps::AllServices => "AllServices",
        AssignIps::RequestedServicesOnly => "RequestedServicesOnly",
    });
    let grace = configuration.leak_grace_period.map(|grace| format!("{grace:#}"));
    fields_with_values([
        ("node.leakGracePeriod", grace.unwrap_or_default()),
        ("loadBalancer.assignIPs", assigned.unwrap_or_default().to_owned()),
    ])
}
