//! Pools, reservations, nodes and configuration: few objects, compared field by field.

use std::collections::BTreeMap;

use calipam_check::Scope;
use calipam_model::config::{
    AssignIps, ClusterInformation, IpamConfig, IpamSetting, KubeControllersConfiguration,
};
use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::pool::{Pool, PoolUse, Reservation};
use calipam_model::snapshot::{Snapshot, Source};
use serde::Serialize;

use super::uncompared::Hidden;

/// How an object differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    New,
    Gone,
    Changed,
}

impl ChangeKind {
    /// What people read.
    pub fn words(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Gone => "gone",
            Self::Changed => "changed",
        }
    }

    /// How two states of an object differ; `None` if they do not.
    pub(crate) fn of<T: PartialEq>(before: &Option<T>, after: &Option<T>) -> Option<Self> {
        match (before, after) {
            (None, None) => None,
            (None, Some(_)) => Some(Self::New),
            (Some(_), None) => Some(Self::Gone),
            (Some(before), Some(after)) => (before != after).then_some(Self::Changed),
        }
    }
}

/// An object that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectChange {
    pub name: String,
    pub change: ChangeKind,
    /// The fields that differ: of a new object and of one that is gone, all that say something.
    pub fields: Vec<FieldChange>,
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldChange {
    /// Its name in Calico's API.
    pub field: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// What an object says, field by field. Fields that say nothing are left out.
type Fields = BTreeMap<String, String>;

/// The states that are compared, and what of them.
pub(crate) struct Sides<'a> {
    pub old: &'a Snapshot,
    pub new: &'a Snapshot,
    pub hidden: &'a Hidden,
    pub scope: &'a Scope,
}

impl Sides<'_> {
    pub(crate) fn pools(&self, both_read: bool) -> Vec<ObjectChange> {
        self.by_name(both_read, Key::Pool, |snapshot| {
            let wanted = snapshot.pools.iter().map(|pool| &pool.value);
            let wanted = wanted.filter(|p| self.scope.nodes.is_empty() && self.scope.has_network(p.cidr));
            wanted.map(|pool| (pool.name.clone(), pool_fields(pool))).collect()
        })
    }

    pub(crate) fn reservations(&self, both_read: bool) -> Vec<ObjectChange> {
        let concerns = |reservation: &Reservation| {
            let in_scope = || reservation.cidrs.iter().any(|cidr| self.scope.has_network(*cidr));
            self.scope.is_everything() || self.scope.nodes.is_empty() && in_scope()
        };
        self.by_name(both_read, Key::Reservation, |snapshot| {
            let wanted = snapshot.reservations.iter().map(|r| &r.value).filter(|r| concerns(r));
            wanted.map(|reservation| (reservation.name.clone(), reservation_fields(reservation))).collect()
        })
    }

    pub(crate) fn nodes(&self, both_read: bool) -> Vec<ObjectChange> {
        self.by_name(both_read, Key::Node, |snapshot| {
            let wanted = snapshot.nodes.iter().map(|node| &node.value);
            let wanted = wanted.filter(|n| self.scope.networks.is_empty() && self.scope.has_node(&n.name));
            wanted.map(|node| (node.name.clone(), node_fields(node))).collect()
        })
    }

    fn by_name(
        &self,
        both_read: bool,
        key: impl Fn(String) -> Key,
        of: impl Fn(&Snapshot) -> BTreeMap<String, Fields>,
    ) -> Vec<ObjectChange> {
        compare(both_read, of(self.old), of(self.new), |name| self.hidden.has(&key(name.to_owned())))
    }

    /// Cluster information and settings, which concern no part of the cluster alone.
    pub(crate) fn configuration(&self, both_read: impl Fn(Source) -> bool) -> Vec<ObjectChange> {
        if !self.scope.is_everything() {
            return Vec::new();
        }
        let default = || "default".to_owned();
        let kinds = [
            ("ClusterInformation", Source::ClusterInformation, Key::ClusterInformation(default())),
            ("IPAMConfig", Source::IpamConfig, Key::IpamConfig),
            ("IPAMConfiguration", Source::IpamConfiguration, Key::IpamConfiguration(default())),
            (
                "KubeControllersConfiguration",
                Source::KubeControllersConfiguration,
                Key::KubeControllersConfiguration(default()),
            ),
        ];
        let of = |snapshot: &Snapshot, source: Source| match source {
            Source::ClusterInformation => snapshot.cluster.as_ref().map(cluster_fields),
            Source::IpamConfig => snapshot.ipam_config.as_ref().map(config_fields),
            Source::IpamConfiguration => snapshot.ipam_configuration.as_ref().map(config_fields),
            _ => snapshot.kube_controllers.as_ref().map(controllers_fields),
        };
        let one = |(name, source, key): (&str, Source, Key)| {
            let side = |snapshot: &Snapshot| -> BTreeMap<String, Fields> {
                of(snapshot, source).into_iter().map(|fields| (name.to_owned(), fields)).collect()
            };
            compare(both_read(source), side(self.old), side(self.new), |_| self.hidden.has(&key))
        };
        kinds.into_iter().flat_map(one).collect()
    }
}

/// What differs between objects by name, but for those that cannot be decoded on either side.
fn compare(
    both_read: bool,
    mut old: BTreeMap<String, Fields>,
    mut new: BTreeMap<String, Fields>,
    is_hidden: impl Fn(&str) -> bool,
) -> Vec<ObjectChange> {
    if !both_read {
        return Vec::new();
    }
    let mut names: Vec<String> = old.keys().chain(new.keys()).cloned().collect();
    names.sort();
    names.dedup();
    let one = |name: String| {
        let (before, after) = (old.remove(&name), new.remove(&name));
        let change = ChangeKind::of(&before, &after)?;
        let fields = field_changes(before.unwrap_or_default(), after.unwrap_or_default());
        Some(ObjectChange { name, change, fields })
    };
    names.into_iter().filter(|name| !is_hidden(name)).filter_map(one).collect()
}

fn field_changes(mut before: Fields, mut after: Fields) -> Vec<FieldChange> {
    let mut names: Vec<String> = before.keys().chain(after.keys()).cloned().collect();
    names.sort();
    names.dedup();
    let one = |field: String| {
        let (before, after) = (before.remove(&field), after.remove(&field));
        (before != after).then_some(FieldChange { field, before, after })
    };
    names.into_iter().filter_map(one).collect()
}

fn fields<const N: usize>(all: [(&str, String); N]) -> Fields {
    let said = all.into_iter().filter(|(_, value)| !value.is_empty());
    said.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn pool_fields(pool: &Pool) -> Fields {
    let uses = pool.allowed_uses.iter().map(|allowed| match allowed {
        PoolUse::Workload => "Workload",
        PoolUse::Tunnel => "Tunnel",
        PoolUse::LoadBalancer => "LoadBalancer",
    });
    fields([
        ("cidr", pool.cidr.to_string()),
        ("blockSize", pool.block_size.to_string()),
        ("disabled", pool.disabled.to_string()),
        ("nodeSelector", pool.node_selector.clone()),
        ("namespaceSelector", pool.namespace_selector.clone()),
        ("allowedUses", uses.collect::<Vec<_>>().join(", ")),
        ("assignmentMode", if pool.automatic { "Automatic" } else { "Manual" }.to_owned()),
        ("deletionTimestamp", if pool.deleting { "set" } else { "" }.to_owned()),
        ("Allocatable", pool.allocatable.to_string()),
    ])
}

fn reservation_fields(reservation: &Reservation) -> Fields {
    let cidrs: Vec<String> = reservation.cidrs.iter().map(ToString::to_string).collect();
    fields([("reservedCIDRs", cidrs.join(", "))])
}

fn node_fields(node: &Node) -> Fields {
    let mut all = fields([("orchRefs.nodeName", node.kubernetes_name.clone().unwrap_or_default())]);
    all.extend(node.labels.iter().map(|(name, value)| (format!("labels.{name}"), value.clone())));
    let addresses: Vec<String> = node.addresses.iter().map(ToString::to_string).collect();
    let tainted = if node.tainted { "yes" } else { "" }.to_owned();
    all.extend(fields([("addresses", addresses.join(", ")), ("tainted", tainted)]));
    all.extend(fields([("plugin", node.plugin.clone().unwrap_or_default())]));
    all.extend(node.tunnels.iter().map(|(kind, address)| (kind.field().to_owned(), address.to_string())));
    all
}

fn cluster_fields(cluster: &ClusterInformation) -> Fields {
    fields([
        ("clusterGUID", cluster.guid.clone()),
        ("clusterType", cluster.cluster_type.clone()),
        ("calicoVersion", cluster.calico_version.clone()),
        ("datastoreReady", cluster.datastore_ready.map(|ready| ready.to_string()).unwrap_or_default()),
    ])
}

fn config_fields(config: &IpamConfig) -> Fields {
    let settings = [
        Some(IpamSetting::StrictAffinity(config.strict_affinity)),
        Some(IpamSetting::AutoAllocateBlocks(config.auto_allocate_blocks)),
        Some(IpamSetting::MaxBlocksPerHost(config.max_blocks_per_host)),
        config.kubevirt_persistence.map(IpamSetting::Kubevirt),
        Some(IpamSetting::Cooldown(config.cooldown_seconds)),
    ];
    settings.into_iter().flatten().map(|setting| (setting.name().to_owned(), setting.to_string())).collect()
}

fn controllers_fields(configuration: &KubeControllersConfiguration) -> Fields {
    let assigned = configuration.assign_ips.map(|assign| match assign {
        AssignIps::AllServices => "AllServices",
        AssignIps::RequestedServicesOnly => "RequestedServicesOnly",
    });
    let grace = configuration.leak_grace_period.map(|grace| format!("{grace:#}"));
    fields([
        ("node.leakGracePeriod", grace.unwrap_or_default()),
        ("loadBalancer.assignIPs", assigned.unwrap_or_default().to_owned()),
    ])
}
