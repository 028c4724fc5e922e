//! Faults, and the findings that each must cause. The expectations come from the design, not from running a check.

mod affinities;
mod blocks;
mod corrupt;
mod handles;
mod in_use;
mod kubernetes;
mod leaks;
mod nodes;
mod owners;
mod pools;
mod undecodable;

use std::net::Ipv4Addr;

use ipnet::{IpNet, Ipv4Net};
use serde_json::json;

use super::layout::ClusterSpec;
use super::wire::{Attribute, Block, Tunnel, key};
use super::{Cluster, Form, Pod};
use crate::kube::form::{HOSTNAME_HASH, hostname_hash};

/// The values of affinities. Objects are deleted in two steps only in Kubernetes, but the field also exists in etcd.
const CONFIRMED: &str = r#"{"state":"confirmed","deleted":false}"#;
const PENDING: &str = r#"{"state":"pending","deleted":false}"#;
const RELEASING: &str = r#"{"state":"pendingDeletion","deleted":false}"#;
const HALF_DELETED: &str = r#"{"state":"pendingDeletion","deleted":true}"#;

/// The codes of an affinity that is neither confirmed nor that of its block's owner.
const UNSETTLED: [&str; 2] = ["unsettled-affinity", MISMATCH];
const MISMATCH: &str = "affinity-block-mismatch";

/// The number of times that a cluster can have a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Any number of times. Each fault has its own victims.
    Many,
    /// Once, together with other faults.
    Once,
    /// Once, without other faults, since it changes the findings about the rest.
    Alone,
}

/// The clusters that can have a fault.
///
/// A cluster in Kubernetes cannot have it in these cases:
///
/// * The value is not JSON, or the schema refuses it. The API server accepts neither.
/// * The key is broken. The name of an object has no family, type or slash that could be wrong. It is in lower case,
///   and has no carriage return.
/// * Two objects would need the same name, since the name of an affinity does not contain its type.
/// * The fault is a difference between two etcd keys that are a single object in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Anywhere,
    /// In etcd only.
    Etcd,
    /// In etcd, or in Kubernetes in the classic group. There, a string need not be a CIDR: the schema for pools and
    /// reservations did not require it before 3.32, and the schema for blocks still does not. A block may have any
    /// owner, and the field `deleted` of an affinity is a string.
    Classic,
}

/// A row of the table below.
struct Row {
    name: &'static str,
    scope: Scope,
    place: Place,
    apply: fn(&mut Cluster),
}

/// Declares lists of faults: variant, scope, place unless it is anywhere, the function that injects it, and a summary.
macro_rules! faults {
    ($($list:ident $list_doc:literal {
        $($variant:ident $scope:ident $(in $place:ident)? $apply:expr, $doc:literal;)*
    })*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $($(#[doc = $doc] $variant,)*)*
        }

        impl Fault {
            $(#[doc = $list_doc] pub const $list: &'static [Self] = &[$(Self::$variant,)*];)*

            fn row(self) -> Row {
                match self {
                    $($(Self::$variant => Row {
                        name: stringify!($variant),
                        scope: Scope::$scope,
                        place: [$(Place::$place,)? Place::Anywhere][0],
                        apply: $apply,
                    },)*)*
                }
            }
        }
    };
}

faults! {
    KUBERNETES_ONLY "Faults that only a cluster in Kubernetes can have; etcd does not show most of them." {
    AffinityLabelsMissing Many |c| kubernetes::labels(c, kubernetes::unlabelled()), "written before 3.31";
    AffinityLabelsOfOther Many |c| kubernetes::labels(c, json!({"labels": {HOSTNAME_HASH: hostname_hash("another-node")}})), "labelled with another node's name";
    AffinityLabelsOfNone Many kubernetes::labels_of_none, "a node that is not upgraded yet";
    AffinityDeletedText Many in Classic kubernetes::deleted_text, "deleted: neither true nor false";
    AffinityMisnamed Many kubernetes::misnamed, "under a name by which Calico does not look for it";
    HandleCaseCollision Many kubernetes::case_collision, "two IDs, one object";
    PodFinished Many |c| kubernetes::pod_finished(c, json!({"phase": "Succeeded"})), "a pod has finished and keeps its addresses";
    PodEvicted Many |c| kubernetes::pod_finished(c, json!({"phase": "Failed", "reason": "Evicted"})), "the same after an eviction";
    PodDisagreement Many kubernetes::pod_disagreement, "status and annotation name different addresses";
    ServiceGone Many kubernetes::service_gone, "a service is gone, its address is not";
    ServiceExtra Many kubernetes::service_extra, "two addresses are recorded, the ingress names one";
    ServiceWithoutAddress Many kubernetes::service_without_address, "no ingress for days";
    ServiceUnrecorded Many kubernetes::service_unrecorded, "the address of a service was released";
    InstanceOfDeletedMachine Many kubernetes::orphan_instance, "a machine is deleted, its instance is not";
    PodBetweenSandboxes Many kubernetes::between_sandboxes, "a pod whose status names another one's address";
    PodWithoutAddress Many kubernetes::without_address, "a pod that has its allocation and no address yet";
    PodGoneEndpointLeft Many kubernetes::pod_gone, "a pod is gone, its endpoint is not";
    UnrecordedOfOther Many in_use::of_other_plugin, "pods of another CNI plugin in a pool";
    NodeLeftBehind Many nodes::left_behind, "a node is gone from Kubernetes, its Calico node is not";
    NodeObjectMissing Many nodes::object_missing, "Calico's object of a live node is lost";
    PodOnOtherNode Many kubernetes::on_other_node, "a pod runs on another node than its endpoint";
    MachineGone Many |c| drop(kubernetes::machine_gone(c)), "a virtual machine is gone, its address is not";
    PoolOverServices Many kubernetes::pool_over_services, "a pool covers the address of a service";
    HostLocal Alone kubernetes::host_local, "pods have addresses of host-local, and a few records are left";
    }
    ALL "All faults that a cluster in etcd can have." {
    LeakedNoOwner Many |c| drop(leaks::end(c, Cluster::victim)), "a pod is gone, its addresses are not";
    LeakedWithoutTime Many |c| leaks::recorded_at(c, None), "as before, recorded without timestamp";
    LeakedFuture Many leaks::future, "as before, recorded by a clock that is years fast";
    LeakedNewSandbox Many leaks::new_sandbox, "a pod got other addresses on the same node";
    LeakedHalf Many leaks::half, "a pod uses one of its two addresses only";
    LeakedMoved Many leaks::moved, "a pod moved to another node";
    LeakedTunnelMoved Many leaks::tunnel_moved, "a node took another tunnel address";
    LeakedTunnelOff Many leaks::tunnels_off, "a node has given up all its tunnels";
    LeakedAnonymous Many |c| leaks::unknown(c, Attribute::default()), "an empty record that nothing uses";
    LeakedUnknownHandle Many leaks::unknown_handle, "a handle of no known form";
    LeakedForeign Many leaks::foreign, "attributes of another IPAM client";
    LeakedContainer Many leaks::container, "a handle with a container ID and no attributes";
    LeakedLegacy Many leaks::legacy, "a pod of Calico 2.x is gone";
    LeakedInDisabledPool Many |c| drop(leaks::end(c, leaks::disabled_pool)), "in a disabled pool";
    LeakedInUnownedBlock Many leaks::in_unowned_block, "in a block that its node gave up";
    NodeGone Many nodes::gone, "a node is gone with its pods";
    NodeGonePodsLeft Many nodes::gone_pods_left, "a node object is gone, its endpoints are not";
    TunnelMissing Many nodes::tunnel_missing, "a node has a key of WireGuard and no address for its tunnel";
    EndpointOnMissingNode Many nodes::endpoint_on_missing, "an endpoint names no node";
    DuplicatePods Many in_use::duplicate_pods, "a pod uses another one's address as well";
    DuplicateTakenOver Many in_use::taken_over, "a pod uses another one's addresses instead";
    DuplicateTunnel Many in_use::duplicate_tunnel, "a pod and a tunnel have one address";
    DuplicateUnrecorded Many in_use::duplicate_unrecorded, "two pods use a free address";
    AddressInSeveralBlocks Many in_use::in_several_blocks, "two blocks record the address";
    UnallocatedFreed Many |c| in_use::freed(c, Cluster::victim), "the addresses of a live pod were released";
    UnallocatedBypassing Many in_use::bypassing, "a pod with ipAddrsNoIpam, which etcd does not show";
    UnallocatedCooling Many in_use::cooling, "the addresses of a live pod cool down";
    UnallocatedForeign Many in_use::foreign_freed, "the address of a container of bare CNI was released";
    UnallocatedNoBlock Many in_use::no_block, "the blocks of a live node are lost";
    UnallocatedTunnel Many in_use::tunnel_freed, "a live tunnel address was released";
    UnallocatedDisabledPool Many |c| in_use::freed(c, leaks::disabled_pool), "in a disabled pool";
    OutsidePools Many in_use::outside_pools, "a pod uses an address of no pool";
    OutsidePoolsRecorded Many in_use::outside_pools_recorded, "the pool of a block is gone";
    OutsidePoolsTunnel Many in_use::outside_pools_tunnel, "a tunnel address of no pool";
    OwnerMismatchPod Many owners::other_pod, "used by one pod, recorded for another";
    OwnerMismatchNode Many owners::other_node, "recorded for the pod's sandbox on another node";
    OwnerMismatchTunnel Many owners::tunnel_as_pod, "a tunnel's, recorded for a pod";
    OwnerMismatchPodAsTunnel Many owners::pod_as_tunnel, "a pod's, recorded for a tunnel";
    OwnerMismatchLegacy Many owners::legacy, "an old handle names another pod";
    OwnerMismatchContainer Many owners::container, "the handle names another sandbox";
    OwnerMismatchForeign Many owners::foreign, "recorded by another IPAM client for another container";
    OwnerMismatchReserved Alone owners::reserved, "in use on an ordinal that Windows reserves";
    BorrowedTunnel Many |c| owners::borrowed_tunnel(c, Tunnel::Vxlan), "a tunnel address of another node's block";
    BorrowedTunnelV6 Many |c| owners::borrowed_tunnel(c, Tunnel::WireguardV6), "the same with IPv6";
    CorruptShort Many |c| corrupt::block(c, &["array-length"], |b| b.allocations.truncate(60)), "too few entries for addresses";
    CorruptLong Many |c| corrupt::block(c, &["array-length"], |b| b.allocations.extend([None, Some(0)])), "too many entries for addresses";
    CorruptNull Many in Etcd corrupt::null, "no entries for addresses at all";
    CorruptIndexNegative Many |c| corrupt::index(c, 5, -1), "an index below 0";
    CorruptIndexHuge Many |c| corrupt::index(c, 63, 1_000_000_000), "an index of a thousand millions";
    CorruptUnreferenced Many corrupt::unreferenced, "a record that no ordinal uses";
    CorruptFreeTwice Many |c| corrupt::block(c, &["free-list-duplicate"], |b| b.unallocated.push(40)), "free more than once";
    CorruptFreeOutOfRange Many |c| corrupt::block(c, &["free-list-out-of-range"], |b| b.unallocated.push(64)), "a free ordinal that is none";
    CorruptFreeAllocated Many |c| corrupt::block(c, &["free-list-allocated"], |b| b.unallocated.push(0)), "free and allocated";
    CorruptFreeIncomplete Many |c| corrupt::block(c, &["free-list-incomplete"], |b| b.unallocated.retain(|o| *o != 7)), "neither free nor allocated";
    CorruptFuture Many corrupt::future, "released in the future";
    CorruptKey Many corrupt::key, "key and value name different blocks";
    CorruptSeveralWays Many corrupt::several_ways, "several things at once";
    OverlappingBlocks Many blocks::overlapping, "a smaller block inside a larger one";
    BlockOutsidePools Many blocks::outside_pools, "an empty block of no pool";
    BlockSizeMismatch Many blocks::size_mismatch, "the pool's block size was changed";
    BlockOfMissingNode Many blocks::node_missing, "a node is gone, its block is not";
    BlockOfMissingNodeAlone Many blocks::node_missing_alone, "without affinity";
    EmptyUnownedBlock Many |c| blocks::empty_unowned(c, "empty-unowned-block", |_| ()), "without owner, and nothing in it";
    EmptyUnownedWindows Many |c| blocks::empty_unowned(c, "empty-unowned-block", Block::reserve_for_windows), "only what Windows reserves";
    BlockWithoutAffinity Many blocks::without_affinity, "the affinity object is lost";
    VirtualWithoutAffinity Many blocks::virtual_without_affinity, "the same, for services";
    BlockHostAffinityOnly Many blocks::host_affinity_only, "an owner by the oldest field only";
    BlockUnexpectedOwner Many in Classic blocks::unexpected_owner, "an owner that is neither node nor virtual";
    NodeOverBlockLimit Many blocks::over_limit, "21 blocks of one pool";
    AffinityOfOther Many affinities::confirmed_of_other, "for a block of another node";
    AffinityOfUnowned Many |c| affinities::of_unowned(c, CONFIRMED, &[MISMATCH]), "for a block without owner";
    AffinityOfOtherOnly Many affinities::of_other_only, "the owner of the block has none";
    AffinityPendingOfOther Many |c| drop(affinities::of_other(c, PENDING, &UNSETTLED)), "a lost race";
    AffinityVirtualOfNode Many affinities::virtual_of_node, "a virtual one, a node's block";
    AffinityWithoutBlock Many |c| affinities::without_block(c, CONFIRMED, "affinity-without-block"), "confirmed, and no block";
    AffinityOldWithoutBlock Many affinities::old_without_block, "with the value of 2.x";
    AffinityPending Many |c| affinities::of_owner(c, "host", PENDING, "unsettled-affinity"), "pending, the block is its own";
    AffinityPendingWithoutBlock Many |c| affinities::without_block(c, PENDING, "unsettled-affinity"), "no block yet";
    AffinityReleasing Many |c| affinities::of_owner(c, "host", RELEASING, "unsettled-affinity"), "pendingDeletion, the block still its own";
    AffinityReleased Many |c| affinities::of_unowned(c, RELEASING, &UNSETTLED), "pendingDeletion, the block without owner already";
    AffinityReleasedWithoutBlock Many |c| affinities::without_block(c, RELEASING, "unsettled-affinity"), "no block";
    AffinityOfMissingNode Many affinities::node_missing, "the node is gone, no block";
    AffinityUnexpected Many in Etcd |c| affinities::of_owner(c, "@", CONFIRMED, "unexpected-affinity-type"), "the @ form";
    OrphanHandle Many |c| handles::orphan(c, |c| c.victim().block()), "nothing is recorded under it";
    OrphanHandleNoBlock Many |c| handles::orphan(c, Cluster::spare_block), "its block is gone";
    OrphanHandleEmpty Many handles::orphan_empty, "it names no block";
    MissingHandle Many |c| handles::missing(c, |c| c.victim().handle), "a live pod's handle is lost";
    MissingTunnelHandle Many |c| handles::missing(c, |c| Tunnel::Ipip.handle(&c.victim_node(0).0.name)), "a tunnel's handle is lost";
    HandleCountLow Many |c| handles::miscount(c, handles::pair, &[-1]), "it counts too few";
    HandleCountNoEntry Many |c| handles::miscount(c, handles::in_two_blocks, &[0, -1]), "it leaves a block out";
    HandleCountHigh Many |c| handles::miscount(c, Cluster::victim, &[2]), "it counts too many";
    HandleCountGoneBlock Many handles::count_gone_block, "it names a block that is gone";
    HandleCountBoth Many |c| handles::miscount(c, handles::in_two_blocks, &[1, -1]), "too many here, too few there";
    CarriageReturn Many in Etcd handles::carriage_return, "in the record and in the key";
    CarriageReturnRecord Many handles::carriage_return_record, "in the record only";
    CarriageReturnKey Many in Etcd handles::carriage_return_key, "in a second key";
    SharedLegacyHandle Many handles::shared_legacy, "one pod, two addresses, an old handle";
    SharedLegacySuccessor Many handles::shared_legacy_successor, "with its predecessor's";
    HalfDeletedAffinity Many |c| affinities::without_block(c, HALF_DELETED, "half-deleted"), "marked deleted";
    HalfDeletedHandle Many |c| handles::empty(c, r#"{"block":{},"deleted":true}"#, "half-deleted"), "marked deleted";
    HalfDeletedBlock Many |c| blocks::empty_unowned(c, "half-deleted", |b| b.deleted = true), "marked deleted";
    OverlappingDisabled Many |c| drop(pools::pool_and_half(c, true)), "a disabled pool inside another";
    OverlappingDeleted Many pools::overlapping_deleted, "a pool that is being deleted inside another";
    OverlappingRefused Many pools::overlapping_refused, "a pool that Calico's controller refused";
    OverlappingPools Many pools::overlapping, "a pool inside another";
    PoolOverNodes Many pools::over_nodes, "a pool covers the address of a node";
    TwinPools Many pools::twins, "two pools with one CIDR";
    PoolNearlyFull Many pools::nearly_full, "15 of 16 addresses";
    PoolNearlyFullReserved Many pools::nearly_full_reserved, "what is not reserved is taken";
    StrandedByLimit Many pools::stranded_by_limit, "20 full blocks";
    UndecodableBlock Many in Etcd undecodable::block, "no JSON";
    UndecodableBlockType Many in Etcd |c| undecodable::block_field(c, r#""unallocated":[1,"#, r#""unallocated":["one","#), "a text where a number belongs";
    UndecodableBlockCidr Many in Classic |c| undecodable::block_field(c, r#""cidr":"10."#, r#""cidr":"10.300."#), "no CIDR";
    UndecodableBlockKey Many in Etcd |c| undecodable::block_key(c, "-26", "-66"), "a key without CIDR";
    UnmaskedBlockKey Many |c| undecodable::unmasked(c, |pod| key::block(pod.block())), "a key that is not the canonical one";
    UppercaseBlockKey Many in Etcd undecodable::uppercase_block, "a key with capital letters";
    UnmaskedAffinityKey Many |c| undecodable::unmasked(c, Pod::affinity), "the same of an affinity";
    UndecodableFamily Many in Etcd |c| undecodable::block_key(c, "ipv4", "ipv6"), "an IPv4 block below ipv6";
    UndecodableAffinity Many in Etcd |c| undecodable::affinity(c, "host", "confirmed"), "no JSON";
    UndecodableAffinityType Many in Etcd |c| undecodable::affinity(c, "rack", CONFIRMED), "a key of an unknown kind";
    UndecodableHandle Many in Etcd |c| undecodable::handle(c, r#"["10.244.1.0/26"]"#), "a list where an object belongs";
    UndecodableHandleBlock Many |c| undecodable::handle(c, r#"{"10.244.1.0-26":1}"#), "it names no CIDR";
    UndecodableHandleKey Many in Etcd undecodable::handle_key, "an ID with a slash";
    UndecodableKey Many in Etcd undecodable::unknown_key, "a key of no known shape";
    UndecodableBytes Many in Etcd undecodable::bytes, "a key that is no text";
    UndecodableNode Many in Etcd undecodable::node, "no JSON";
    UndecodableNodeField Many undecodable::node_field, "a bad tunnel address";
    UndecodableEndpoint Many in Etcd undecodable::endpoint, "cut in the middle";
    UndecodableEndpointField Many undecodable::endpoint_field, "a bad address";
    UndecodableGrace Once undecodable::grace, "a leakGracePeriod that is no duration";
    UndecodableControllers Alone in Etcd |c| undecodable::resource(c, "kubecontrollersconfigurations/default", r#"{"spec":7}"#), "no JSON";
    UndecodableInformation Alone in Etcd |c| undecodable::resource(c, "clusterinformations/default", "not json"), "no JSON";
    UndecodablePool Alone in Classic undecodable::pool, "a CIDR that is none";
    SmallPool Alone pools::smaller_than_block, "a /28 with blocks of /26";
    InvalidSelector Alone pools::invalid_selector, "a nodeSelector without a value";
    UndecodableReservation Alone in Etcd |c| undecodable::resource(c, "ipreservations/infra", "[]"), "no JSON";
    UndecodableReservationField Alone in Classic undecodable::reservation_field, "no CIDR";
    UndecodableConfig Alone in Etcd undecodable::config, "no JSON";
    UndecodableConfiguration Alone in Etcd |c| undecodable::resource(c, "ipamconfigurations/default", r#""IPAMConfiguration""#), "no JSON";
    BlocksLost Alone in_use::all_blocks_lost, "every block is gone";
    StrandedBefore332 Alone pools::stranded_before_332, "all blocks are of others, one is empty";
    EmptyConfig Alone pools::empty_settings, "both configurations are {}: no automatic allocation";
    DatastoreLocked Once pools::locked, "the datastore is locked";
    NoClusterInformation Alone pools::no_information, "the cluster information is gone";
    AutoAllocationOff Alone pools::auto_allocation_off, "nodes cannot claim blocks";
    ConfigurationMismatch Once in Etcd pools::settings_mismatch, "the two configurations differ";
    StrictAffinity Once pools::strict, "strict affinity is on, and addresses are borrowed";
    }
}

impl Fault {
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// True if the fault changes the findings about the rest of a cluster. Such a fault excludes all other faults.
    pub fn stands_alone(self) -> bool {
        self.row().scope == Scope::Alone
    }

    /// All faults that a cluster in a form can have.
    pub fn all_in(form: Form) -> impl Iterator<Item = Self> {
        let faults = Self::KUBERNETES_ONLY.iter().chain(Self::ALL).copied();
        faults.filter(move |fault| fault.exists_in(form))
    }

    /// True if a cluster in this form can have the fault.
    pub fn exists_in(self, form: Form) -> bool {
        match self.row().place {
            Place::Anywhere => true,
            Place::Etcd => Form::IN_ETCD.contains(&form),
            Place::Classic => form != Form::Native,
        }
    }
}

impl Cluster {
    /// The cluster with `count` more of a fault, like [`inject`](Self::inject).
    pub fn with(mut self, fault: Fault, count: usize) -> Self {
        self.inject(fault, count);
        self
    }

    /// Injects a fault `count` times and adds its findings to the ground truth. A fault that is possible only once is
    /// injected at most once.
    pub fn inject(&mut self, fault: Fault, count: usize) {
        let Row { scope, apply, .. } = fault.row();
        let count = if scope == Scope::Many { count } else { count.min(1) };
        (0..count).for_each(|_| apply(self));
    }

    /// The largest number of each fault for which a wide cluster has enough spare blocks, nodes and pools.
    pub const MOST_OF_EACH_FAULT: usize = 128;

    /// Creates a small cluster with `count` of each fault that can be combined and that etcd can have.
    pub fn all_faults(spec: ClusterSpec, count: usize) -> Self {
        let mut cluster = Self::small(spec);
        cluster.inject_all(Fault::ALL.iter().copied(), count);
        cluster
    }

    /// Creates a small cluster with `count` of each fault that can be combined and is possible in a form, including
    /// those that only Kubernetes can have.
    pub fn all_faults_of(spec: ClusterSpec, form: Form, count: usize) -> Self {
        let mut cluster = Self::small(spec);
        cluster.inject_all(Fault::all_in(form), count);
        cluster
    }

    /// Injects `count` of each of the faults that can be combined.
    pub fn inject_all(&mut self, faults: impl IntoIterator<Item = Fault>, count: usize) {
        // Strict affinity is last in the list, since its findings depend on everything else.
        let faults = faults.into_iter().filter(|fault| !fault.stands_alone());
        faults.for_each(|fault| self.inject(fault, count));
    }

    /// Adds a block to a healthy node, with its affinity and one pod.
    fn victim_block(&mut self) -> Pod {
        let node = self.host().name;
        let block = self.spare_block();
        self.claim(block, &node);
        self.add_pod(&node, &[block])
    }

    /// Claims a block for a healthy node and starts a pod there.
    fn victim_in(&mut self, block: IpNet) -> Pod {
        let node = self.host().name;
        self.claim(block, &node);
        self.add_pod(&node, &[block])
    }

    /// Adds a pod of Calico 2.x with an address of IPv4.
    fn legacy_victim(&mut self) -> Pod {
        let info = self.host();
        self.add_legacy_pod(&info.name, &info.blocks[..1])
    }

    /// Returns a block outside all pools, with the usual size.
    fn foreign_block(&mut self) -> IpNet {
        let number = self.next_pool;
        self.next_pool += 1;
        let first = u32::from(Ipv4Addr::new(198, 18, 0, 0));
        Ipv4Net::new_assert((first + number * 64).into(), 26).into()
    }

    /// Returns the name of a node that does not exist.
    fn missing_node(&mut self) -> String {
        self.next_spare += 1;
        format!("gone-{}", self.next_spare)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_cluster_has_room_for_many_of_each_fault() {
        // Panics if there is not.
        Cluster::all_faults(ClusterSpec::new(1).wide(), Cluster::MOST_OF_EACH_FAULT);
    }
}
