//! Faults, and the findings that each must cause. The expectations come from the design, not from running a check.

mod affinities;
mod blocks;
mod corrupt;
mod forms;
mod handles;
mod in_use;
mod kubernetes;
mod leaks;
mod nodes;
mod owners;
mod pools;
mod settings;
mod undecodable;
mod undecodable_sources;

use ipnet::{IpNet, Ipv4Net};

use super::layout::ClusterSpec;
use super::{Cluster, Form, Pod};

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

/// Declares lists of faults: variant, name, scope, the function that injects it, and a summary.
macro_rules! faults {
    ($($list:ident $list_doc:literal {
        $($variant:ident $name:literal $scope:ident $apply:path, $doc:literal;)*
    })*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $($(#[doc = $doc] $variant,)*)*
        }

        impl Fault {
            $(#[doc = $list_doc] pub const $list: &'static [Self] = &[$(Self::$variant,)*];)*

            pub fn name(self) -> &'static str {
                match self { $($(Self::$variant => $name,)*)* }
            }

            /// A one-line summary.
            pub fn summary(self) -> &'static str {
                match self { $($(Self::$variant => $doc,)*)* }
            }

            fn scope(self) -> Scope {
                match self { $($(Self::$variant => Scope::$scope,)*)* }
            }

            fn apply(self, cluster: &mut Cluster) {
                match self { $($(Self::$variant => $apply(cluster),)*)* }
            }
        }
    };
}

faults! {
    KUBERNETES_ONLY "Faults that only a cluster in Kubernetes can have; etcd does not show most of them." {
    AffinityLabelsMissing "affinity-labels-missing" Many kubernetes::labels_missing, "written before 3.31";
    AffinityLabelsOfOther "affinity-labels-of-other" Many kubernetes::labels_of_other, "labelled with another node's name";
    AffinityLabelsOfNone "affinity-labels-of-none" Many kubernetes::labels_of_none, "a node that is not upgraded yet";
    AffinityDeletedText "affinity-deleted-text" Many kubernetes::deleted_text, "deleted: neither true nor false";
    AffinityMisnamed "affinity-misnamed" Many kubernetes::misnamed, "under a name by which Calico does not look for it";
    HandleCaseCollision "handle-case-collision" Many kubernetes::case_collision, "two IDs, one object";
    PodFinished "pod-finished" Many kubernetes::pod_finished, "a pod has finished and keeps its addresses";
    PodEvicted "pod-evicted" Many kubernetes::pod_evicted, "the same after an eviction";
    PodDisagreement "pod-disagreement" Many kubernetes::pod_disagreement, "status and annotation name different addresses";
    ServiceGone "service-gone" Many kubernetes::service_gone, "a service is gone, its address is not";
    ServiceExtra "service-extra" Many kubernetes::service_extra, "two addresses are recorded, the ingress names one";
    ServiceWithoutAddress "service-without-address" Many kubernetes::service_without_address, "no ingress for days";
    ServiceUnrecorded "service-unrecorded" Many kubernetes::service_unrecorded, "the address of a service was released";
    InstanceOfDeletedMachine "instance-of-deleted-machine" Many kubernetes::orphan_instance, "a machine is deleted, its instance is not";
    PodBetweenSandboxes "pod-between-sandboxes" Many kubernetes::between_sandboxes, "a pod whose status names another one's address";
    PodWithoutAddress "pod-without-address" Many kubernetes::without_address, "a pod that has its allocation and no address yet";
    PodGoneEndpointLeft "pod-gone-endpoint-left" Many kubernetes::pod_gone, "a pod is gone, its endpoint is not";
    UnrecordedOfOther "unrecorded-of-other" Many in_use::of_other_plugin, "pods of another CNI plugin in a pool";
    NodeLeftBehind "node-left-behind" Many nodes::left_behind, "a node is gone from Kubernetes, its Calico node is not";
    NodeObjectMissing "node-object-missing" Many nodes::object_missing, "Calico's object of a live node is lost";
    PodOnOtherNode "pod-on-other-node" Many kubernetes::on_other_node, "a pod runs on another node than its endpoint";
    MachineGone "machine-gone" Many kubernetes::machine_gone, "a virtual machine is gone, its address is not";
    PoolOverServices "pool-over-services" Many kubernetes::pool_over_services, "a pool covers the address of a service";
    HostLocal "host-local" Alone kubernetes::host_local, "pods have addresses of host-local, and a few records are left";
    }
    ALL "All faults that a cluster in etcd can have." {
    LeakedNoOwner "leaked-no-owner" Many leaks::no_owner, "a pod is gone, its addresses are not";
    LeakedWithoutTime "leaked-without-time" Many leaks::without_time, "as before, recorded without timestamp";
    LeakedFuture "leaked-future" Many leaks::future, "as before, recorded by a clock that is years fast";
    LeakedNewSandbox "leaked-new-sandbox" Many leaks::new_sandbox, "a pod got other addresses on the same node";
    LeakedHalf "leaked-half" Many leaks::half, "a pod uses one of its two addresses only";
    LeakedMoved "leaked-moved" Many leaks::moved, "a pod moved to another node";
    LeakedTunnelMoved "leaked-tunnel-moved" Many leaks::tunnel_moved, "a node took another tunnel address";
    LeakedTunnelOff "leaked-tunnel-off" Many leaks::tunnels_off, "a node has given up all its tunnels";
    LeakedAnonymous "leaked-anonymous" Many leaks::anonymous, "an empty record that nothing uses";
    LeakedUnknownHandle "leaked-unknown-handle" Many leaks::unknown_handle, "a handle of no known form";
    LeakedForeign "leaked-foreign" Many leaks::foreign, "attributes of another IPAM client";
    LeakedContainer "leaked-container" Many leaks::container, "a handle with a container ID and no attributes";
    LeakedLegacy "leaked-legacy" Many leaks::legacy, "a pod of Calico 2.x is gone";
    LeakedInDisabledPool "leaked-in-disabled-pool" Many leaks::in_disabled_pool, "in a disabled pool";
    LeakedInUnownedBlock "leaked-in-unowned-block" Many leaks::in_unowned_block, "in a block that its node gave up";
    NodeGone "node-gone" Many nodes::gone, "a node is gone with its pods";
    NodeGonePodsLeft "node-gone-pods-left" Many nodes::gone_pods_left, "a node object is gone, its endpoints are not";
    TunnelMissing "tunnel-missing" Many nodes::tunnel_missing, "a node has a key of WireGuard and no address for its tunnel";
    EndpointOnMissingNode "endpoint-on-missing-node" Many nodes::endpoint_on_missing, "an endpoint names no node";
    DuplicatePods "duplicate-pods" Many in_use::duplicate_pods, "a pod uses another one's address as well";
    DuplicateTakenOver "duplicate-taken-over" Many in_use::taken_over, "a pod uses another one's addresses instead";
    DuplicateTunnel "duplicate-tunnel" Many in_use::duplicate_tunnel, "a pod and a tunnel have one address";
    DuplicateUnrecorded "duplicate-unrecorded" Many in_use::duplicate_unrecorded, "two pods use a free address";
    AddressInSeveralBlocks "address-in-several-blocks" Many in_use::in_several_blocks, "given out by two blocks";
    UnallocatedFreed "unallocated-freed" Many in_use::freed, "the addresses of a live pod were released";
    UnallocatedBypassing "unallocated-bypassing" Many in_use::bypassing, "a pod with ipAddrsNoIpam, which etcd does not show";
    UnallocatedCooling "unallocated-cooling" Many in_use::cooling, "the addresses of a live pod cool down";
    UnallocatedForeign "unallocated-foreign" Many in_use::foreign_freed, "the address of a container of bare CNI was released";
    UnallocatedNoBlock "unallocated-no-block" Many in_use::no_block, "the blocks of a live node are lost";
    UnallocatedTunnel "unallocated-tunnel" Many in_use::tunnel_freed, "a live tunnel address was released";
    UnallocatedDisabledPool "unallocated-disabled-pool" Many in_use::freed_in_disabled_pool, "in a disabled pool";
    OutsidePools "outside-pools" Many in_use::outside_pools, "a pod uses an address of no pool";
    OutsidePoolsRecorded "outside-pools-recorded" Many in_use::outside_pools_recorded, "the pool of a block is gone";
    OutsidePoolsTunnel "outside-pools-tunnel" Many in_use::outside_pools_tunnel, "a tunnel address of no pool";
    OwnerMismatchPod "owner-mismatch-pod" Many owners::other_pod, "used by one pod, recorded for another";
    OwnerMismatchNode "owner-mismatch-node" Many owners::other_node, "recorded for the pod's sandbox on another node";
    OwnerMismatchTunnel "owner-mismatch-tunnel" Many owners::tunnel_as_pod, "a tunnel's, recorded for a pod";
    OwnerMismatchPodAsTunnel "owner-mismatch-pod-as-tunnel" Many owners::pod_as_tunnel, "a pod's, recorded for a tunnel";
    OwnerMismatchLegacy "owner-mismatch-legacy" Many owners::legacy, "an old handle names another pod";
    OwnerMismatchContainer "owner-mismatch-container" Many owners::container, "the handle names another sandbox";
    OwnerMismatchForeign "owner-mismatch-foreign" Many owners::foreign, "recorded by another IPAM client for another container";
    OwnerMismatchReserved "owner-mismatch-reserved" Many owners::reserved, "in use on an ordinal that Windows reserves";
    BorrowedTunnel "borrowed-tunnel" Many owners::borrowed_tunnel, "a tunnel address of another node's block";
    BorrowedTunnelV6 "borrowed-tunnel-v6" Many owners::borrowed_tunnel_v6, "the same with IPv6";
    CorruptShort "corrupt-short" Many corrupt::short, "too few entries for addresses";
    CorruptLong "corrupt-long" Many corrupt::long, "too many entries for addresses";
    CorruptNull "corrupt-null" Many corrupt::null, "no entries for addresses at all";
    CorruptIndexNegative "corrupt-index-negative" Many corrupt::index_negative, "an index below 0";
    CorruptIndexHuge "corrupt-index-huge" Many corrupt::index_huge, "an index of a thousand millions";
    CorruptUnreferenced "corrupt-unreferenced" Many corrupt::unreferenced, "a record that no ordinal uses";
    CorruptFreeTwice "corrupt-free-twice" Many corrupt::free_twice, "free more than once";
    CorruptFreeOutOfRange "corrupt-free-out-of-range" Many corrupt::free_out_of_range, "a free ordinal that is none";
    CorruptFreeAllocated "corrupt-free-allocated" Many corrupt::free_allocated, "free and allocated";
    CorruptFreeIncomplete "corrupt-free-incomplete" Many corrupt::free_incomplete, "neither free nor allocated";
    CorruptFuture "corrupt-future" Many corrupt::future, "released in the future";
    CorruptKey "corrupt-key" Many corrupt::key, "key and value name different blocks";
    CorruptSeveralWays "corrupt-several-ways" Many corrupt::several_ways, "several things at once";
    OverlappingBlocks "overlapping-blocks" Many blocks::overlapping, "a smaller block inside a larger one";
    BlockOutsidePools "block-outside-pools" Many blocks::outside_pools, "an empty block of no pool";
    BlockSizeMismatch "block-size-mismatch" Many blocks::size_mismatch, "the pool's block size was changed";
    BlockOfMissingNode "block-of-missing-node" Many blocks::node_missing, "a node is gone, its block is not";
    BlockOfMissingNodeAlone "block-of-missing-node-alone" Many blocks::node_missing_alone, "without affinity";
    EmptyUnownedBlock "empty-unowned-block" Many blocks::empty_unowned, "without owner, and nothing in it";
    EmptyUnownedWindows "empty-unowned-windows" Many blocks::empty_unowned_windows, "only what Windows reserves";
    BlockWithoutAffinity "block-without-affinity" Many blocks::without_affinity, "the affinity object is lost";
    VirtualWithoutAffinity "virtual-without-affinity" Many blocks::virtual_without_affinity, "the same, for services";
    BlockHostAffinityOnly "block-host-affinity-only" Many blocks::host_affinity_only, "an owner by the oldest field only";
    BlockUnexpectedOwner "block-unexpected-owner" Many blocks::unexpected_owner, "an owner that is neither node nor virtual";
    NodeOverBlockLimit "node-over-block-limit" Many blocks::over_limit, "21 blocks of one pool";
    AffinityOfOther "affinity-of-other" Many affinities::block_of_other, "for a block of another node";
    AffinityOfUnowned "affinity-of-unowned" Many affinities::block_without_owner, "for a block without owner";
    AffinityOfOtherOnly "affinity-of-other-only" Many affinities::block_of_other_only, "the owner of the block has none";
    AffinityPendingOfOther "affinity-pending-of-other" Many affinities::pending_of_other, "a lost race";
    AffinityVirtualOfNode "affinity-virtual-of-node" Many affinities::virtual_of_node, "a virtual one, a node's block";
    AffinityWithoutBlock "affinity-without-block" Many affinities::without_block, "confirmed, and no block";
    AffinityOldWithoutBlock "affinity-old-without-block" Many affinities::old_without_block, "with the value of 2.x";
    AffinityPending "affinity-pending" Many affinities::pending, "pending, the block is its own";
    AffinityPendingWithoutBlock "affinity-pending-without-block" Many affinities::pending_without_block, "no block yet";
    AffinityReleasing "affinity-releasing" Many affinities::releasing, "pendingDeletion, the block still its own";
    AffinityReleased "affinity-released" Many affinities::released, "pendingDeletion, the block without owner already";
    AffinityReleasedWithoutBlock "affinity-released-without-block" Many affinities::released_without_block, "no block";
    AffinityOfMissingNode "affinity-of-missing-node" Many affinities::node_missing, "the node is gone, no block";
    AffinityUnexpected "affinity-unexpected" Many affinities::unexpected, "the @ form";
    OrphanHandle "orphan-handle" Many handles::orphan, "nothing is recorded under it";
    OrphanHandleNoBlock "orphan-handle-no-block" Many handles::orphan_no_block, "its block is gone";
    OrphanHandleEmpty "orphan-handle-empty" Many handles::orphan_empty, "it names no block";
    MissingHandle "missing-handle" Many handles::missing, "a live pod's handle is lost";
    MissingTunnelHandle "missing-tunnel-handle" Many handles::missing_tunnel, "a tunnel's handle is lost";
    HandleCountLow "handle-count-low" Many handles::count_low, "it counts too few";
    HandleCountNoEntry "handle-count-no-entry" Many handles::count_no_entry, "it leaves a block out";
    HandleCountHigh "handle-count-high" Many handles::count_high, "it counts too many";
    HandleCountGoneBlock "handle-count-gone-block" Many handles::count_gone_block, "it names a block that is gone";
    HandleCountBoth "handle-count-both" Many handles::count_both, "too many here, too few there";
    CarriageReturn "carriage-return" Many handles::carriage_return, "in the record and in the key";
    CarriageReturnRecord "carriage-return-record" Many handles::carriage_return_record, "in the record only";
    CarriageReturnKey "carriage-return-key" Many handles::carriage_return_key, "in a second key";
    SharedLegacyHandle "shared-legacy-handle" Many handles::shared_legacy, "one pod, two addresses, an old handle";
    SharedLegacySuccessor "shared-legacy-successor" Many handles::shared_legacy_successor, "with its predecessor's";
    HalfDeletedAffinity "half-deleted-affinity" Many affinities::half_deleted, "marked deleted";
    HalfDeletedHandle "half-deleted-handle" Many handles::half_deleted, "marked deleted";
    HalfDeletedBlock "half-deleted-block" Many blocks::half_deleted, "marked deleted";
    OverlappingDisabled "overlapping-disabled" Many pools::overlapping_disabled, "a disabled pool inside another";
    OverlappingDeleted "overlapping-deleted" Many pools::overlapping_deleted, "a pool that is being deleted inside another";
    OverlappingRefused "overlapping-refused" Many pools::overlapping_refused, "a pool that Calico's controller refused";
    OverlappingPools "overlapping-pools" Many pools::overlapping, "a pool inside another";
    PoolOverNodes "pool-over-nodes" Many pools::over_nodes, "a pool covers the address of a node";
    TwinPools "twin-pools" Many pools::twins, "two pools with one CIDR";
    PoolNearlyFull "pool-nearly-full" Many pools::nearly_full, "15 of 16 addresses";
    PoolNearlyFullReserved "pool-nearly-full-reserved" Many pools::nearly_full_reserved, "what is not reserved is taken";
    StrandedByLimit "stranded-by-limit" Many pools::stranded_by_limit, "20 full blocks";
    UndecodableBlock "undecodable-block" Many undecodable::block, "no JSON";
    UndecodableBlockType "undecodable-block-type" Many undecodable::block_type, "a text where a number belongs";
    UndecodableBlockCidr "undecodable-block-cidr" Many undecodable::block_cidr, "no CIDR";
    UndecodableBlockKey "undecodable-block-key" Many undecodable::block_key, "a key without CIDR";
    UnmaskedBlockKey "unmasked-block-key" Many undecodable::unmasked_block, "a key that is not the canonical one";
    UppercaseBlockKey "uppercase-block-key" Many undecodable::uppercase_block, "a key with capital letters";
    UnmaskedAffinityKey "unmasked-affinity-key" Many undecodable::unmasked_affinity, "the same of an affinity";
    UndecodableFamily "undecodable-family" Many undecodable::family, "an IPv4 block below ipv6";
    UndecodableAffinity "undecodable-affinity" Many undecodable::affinity, "no JSON";
    UndecodableAffinityType "undecodable-affinity-type" Many undecodable::affinity_type, "a key of an unknown kind";
    UndecodableHandle "undecodable-handle" Many undecodable::handle, "a list where an object belongs";
    UndecodableHandleBlock "undecodable-handle-block" Many undecodable::handle_block, "it names no CIDR";
    UndecodableHandleKey "undecodable-handle-key" Many undecodable::handle_key, "an ID with a slash";
    UndecodableKey "undecodable-key" Many undecodable::unknown_key, "a key of no known shape";
    UndecodableBytes "undecodable-bytes" Many undecodable::bytes, "a key that is no text";
    UndecodableNode "undecodable-node" Many undecodable_sources::node, "no JSON";
    UndecodableNodeField "undecodable-node-field" Many undecodable_sources::node_field, "a bad tunnel address";
    UndecodableEndpoint "undecodable-endpoint" Many undecodable_sources::endpoint, "cut in the middle";
    UndecodableEndpointField "undecodable-endpoint-field" Many undecodable_sources::endpoint_field, "a bad address";
    UndecodableGrace "undecodable-grace" Once undecodable_sources::grace, "a leakGracePeriod that is no duration";
    UndecodableControllers "undecodable-controllers" Alone undecodable_sources::controllers, "no JSON";
    UndecodableInformation "undecodable-information" Alone undecodable_sources::information, "no JSON";
    UndecodablePool "undecodable-pool" Alone undecodable_sources::pool, "a CIDR that is none";
    InvalidSelector "invalid-selector" Alone pools::invalid_selector, "a nodeSelector without a value";
    UndecodableReservation "undecodable-reservation" Alone undecodable_sources::reservation, "no JSON";
    UndecodableReservationField "undecodable-reservation-field" Alone undecodable_sources::reservation_field, "no CIDR";
    UndecodableConfig "undecodable-config" Alone undecodable_sources::config, "no JSON";
    UndecodableConfiguration "undecodable-configuration" Alone undecodable_sources::configuration, "no JSON";
    BlocksLost "blocks-lost" Alone in_use::all_blocks_lost, "every block is gone";
    StrandedBefore332 "stranded-before-3.32" Alone pools::stranded_before_332, "all blocks are of others, one is empty";
    EmptyConfig "empty-config" Alone settings::empty, "both configurations are {}: no automatic allocation";
    DatastoreLocked "datastore-locked" Once settings::locked, "the datastore is locked";
    AutoAllocationOff "auto-allocation-off" Once settings::auto_allocation_off, "nodes cannot claim blocks";
    ConfigurationMismatch "configuration-mismatch" Once settings::mismatch, "the two configurations differ";
    StrictAffinity "strict-affinity" Once settings::strict, "strict affinity is on, and addresses are borrowed";
    }
}

impl Fault {
    /// True if the fault changes the findings about the rest of a cluster. Such a fault excludes all other faults.
    pub fn stands_alone(self) -> bool {
        self.scope() == Scope::Alone
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
        let count = if fault.scope() == Scope::Many { count } else { count.min(1) };
        for _ in 0..count {
            fault.apply(self);
        }
    }

    /// Creates a small cluster with `count` of each fault that can be combined.
    pub fn all_faults(spec: ClusterSpec, count: usize) -> Self {
        let mut cluster = Self::small(spec);
        cluster.inject_all(count);
        cluster
    }

    /// Injects `count` of each fault that can be combined.
    pub fn inject_all(&mut self, count: usize) {
        // Strict affinity is last in the list, since its findings depend on everything else.
        for fault in Fault::ALL.iter().filter(|f| !f.stands_alone()) {
            self.inject(*fault, count);
        }
    }

    /// Creates a small cluster with `count` of each fault that can be combined and is possible in a form, including
    /// those that only Kubernetes can have.
    pub fn all_faults_of(spec: ClusterSpec, form: Form, count: usize) -> Self {
        let mut cluster = Self::small(spec);
        cluster.inject_all_of(form, count);
        cluster
    }

    /// Injects `count` of each fault that can be combined and is possible in a form.
    pub fn inject_all_of(&mut self, form: Form, count: usize) {
        let faults = Fault::KUBERNETES_ONLY.iter().chain(Fault::ALL);
        for fault in faults.filter(|fault| !fault.stands_alone() && fault.exists_in(form)) {
            self.inject(*fault, count);
        }
    }

    /// Expects a finding in every form.
    fn expect(&mut self, code: &'static str, subject: impl ToString) {
        self.expect_in(&Form::ALL, code, subject);
    }

    /// Expects a finding in some forms.
    fn expect_in(&mut self, forms: &[Form], code: &'static str, subject: impl ToString) {
        forms.iter().for_each(|form| self.truths[*form as usize].expect(code, subject.to_string()));
    }

    /// Expects a finding with `detail` in its evidence, in every form.
    fn expect_detail(&mut self, code: &'static str, subject: impl ToString, detail: &'static str) {
        self.expect_detail_in(&Form::ALL, code, subject, detail);
    }

    fn expect_detail_in(
        &mut self,
        forms: &[Form],
        code: &'static str,
        subject: impl ToString,
        detail: &'static str,
    ) {
        for form in forms {
            self.truths[*form as usize].expect_detail(code, subject.to_string(), detail);
        }
    }

    /// Expects a finding with an unusual severity.
    fn expect_as_in(
        &mut self,
        forms: &[Form],
        code: &'static str,
        subject: impl ToString,
        severity: &'static str,
    ) {
        for form in forms {
            self.truths[*form as usize].expect_as(code, subject.to_string(), severity);
        }
    }

    /// Expects all addresses of a pod to be reported as leaked for a reason.
    fn expect_leaked(&mut self, pod: &Pod, reason: &'static str) {
        self.expect_leaked_in(&Form::ALL, pod, reason);
    }

    fn expect_leaked_in(&mut self, forms: &[Form], pod: &Pod, reason: &'static str) {
        for (address, _) in &pod.addresses {
            self.expect_detail_in(forms, "leaked-address", address, reason);
        }
    }

    /// Expects a finding for each address of a pod.
    fn expect_for(&mut self, code: &'static str, pod: &Pod) {
        for (address, _) in &pod.addresses {
            self.expect(code, address);
        }
    }

    /// Adds a block to a healthy node, with its affinity and one pod.
    fn victim_block(&mut self) -> (String, IpNet, Pod) {
        let node = self.host().name;
        let block = self.spare_block();
        self.claim(block, &node);
        let pod = self.add_pod(&node, &[block]);
        (node, block, pod)
    }

    /// Claims a block for a healthy node and starts a pod there. Returns the node and the pod.
    fn victim_in(&mut self, block: IpNet) -> (String, Pod) {
        let node = self.host().name;
        self.claim(block, &node);
        let pod = self.add_pod(&node, &[block]);
        (node, pod)
    }

    /// Returns a block outside all pools, with the usual size.
    fn foreign_block(&mut self) -> IpNet {
        let number = self.next_pool;
        self.next_pool += 1;
        Ipv4Net::new_assert((u32::from(std::net::Ipv4Addr::new(198, 18, 0, 0)) + number * 64).into(), 26)
            .into()
    }

    /// Returns the name of a node that does not exist.
    fn missing_node(&mut self) -> String {
        self.next_spare += 1;
        format!("gone-{}", self.next_spare)
    }
}
