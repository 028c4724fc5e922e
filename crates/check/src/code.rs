//! Codes and severities of findings.

use std::fmt;
use std::str::FromStr;

use calipam_model::snapshot::Source;

/// The severity of a finding, ordered from critical to informational.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Traffic is or will be broken.
    Critical,
    /// Capacity is lost, or broken data could make Calico fail.
    Error,
    /// Data is inconsistent, or needs attention although nothing has failed yet.
    Warning,
    /// Informational.
    Info,
}

impl Severity {
    /// All severities, from critical to informational.
    pub const ALL: [Self; 4] = [Self::Critical, Self::Error, Self::Warning, Self::Info];
}

calipam_model::display_serialized!(Severity);

/// The error for a string that is not a rule's code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown rule {0:?}")]
pub struct UnknownCode(pub String);

/// A property of a rule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trait {
    /// See [`Code::looks_at_users`].
    Users,
    /// See [`Code::is_rebuilt`].
    Rebuilt,
    /// See [`Code::has_other_severities`].
    Varies,
}

/// Declares the codes: variant, name, severity, properties, the sources that the rule requires besides Calico's own
/// data, and summary.
macro_rules! codes {
    ($($variant:ident $name:literal $severity:ident [$($of:ident)*] ($($source:ident)*) $summary:literal,)*) => {
        /// The name of a rule, and of the findings that it yields. Names are stable; `docs/findings.md` explains each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $summary] $variant,)*
        }

        impl Code {
            /// All codes, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The usual severity. If the code [has others](Self::has_other_severities), its rule decides.
            pub fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }

            fn traits(self) -> &'static [Trait] {
                match self { $(Self::$variant => &[$(Trait::$of),*],)* }
            }

            /// The sources that the rule requires besides Calico's own data.
            pub fn needs(self) -> &'static [Source] {
                match self { $(Self::$variant => &[$(Source::$source),*],)* }
            }

            /// The condition of the rule, in one line.
            pub fn summary(self) -> &'static str {
                match self { $(Self::$variant => $summary,)* }
            }
        }
    };
}

codes! {
    DuplicateAddress "duplicate-address" Critical [Users] () "two or more live owners use the same address",
    AddressInSeveralBlocks "address-in-several-blocks" Critical [] () "two or more overlapping blocks record the address as allocated",
    UnallocatedInUse "unallocated-in-use" Critical [Users Rebuilt] () "a live owner uses a pool address that no block records as allocated",
    LeakedAddress "leaked-address" Error [Users Varies] () "an address has been allocated for longer than the grace period, but is not in use",
    InUseOutsidePools "in-use-outside-pools" Error [Users] () "a live owner uses an address that is in no pool",
    UnrecordedAddress "unrecorded-address" Warning [Users] (Pods Services) "a pod or service has an address of an enabled pool that is free in IPAM: Calico did not assign it",
    OwnerMismatch "owner-mismatch" Error [Users Rebuilt] () "an address is used by an owner other than the recorded one",
    WrongNodeRecorded "wrong-node-recorded" Error [Users Rebuilt] (Pods) "the record of an address names the pod that uses it, but not the pod's node",
    BorrowedTunnelAddress "borrowed-tunnel-address" Warning [Users] () "a tunnel address is in another node's block",
    TunnelAddressMissing "tunnel-address-missing" Warning [] () "a node lacks a tunnel address of a kind that other nodes have",
    BorrowedUnderStrictAffinity "borrowed-under-strict-affinity" Warning [Users] () "an address is borrowed from another node's block although strict affinity is on",
    SharedLegacyHandle "shared-legacy-handle" Warning [] () "one <namespace>.<pod> handle holds several addresses of one family",
    UnexpectedBlockOwner "unexpected-block-owner" Error [] () "the block's owner is neither host:<node> nor virtual:<name>",
    CorruptBlock "corrupt-block" Error [Rebuilt] () "the block's data is inconsistent",
    OverlappingBlocks "overlapping-blocks" Error [] () "two blocks overlap",
    BlockOutsidePools "block-outside-pools" Warning [] () "no pool, enabled or disabled, contains the block",
    BlockSizeMismatch "block-size-mismatch" Info [] () "the block's size differs from its pool's block size",
    BlockOfMissingNode "block-of-missing-node" Error [Users] () "the node that owns the block does not exist",
    EmptyUnownedBlock "empty-unowned-block" Warning [Rebuilt] () "the block has no owner and no allocation",
    BlockWithoutAffinity "block-without-affinity" Warning [Rebuilt] () "the block has an owner, but no affinity",
    AffinityBlockMismatch "affinity-block-mismatch" Error [Rebuilt] () "the affinity's block belongs to another node or to none",
    AffinityConflict "affinity-conflict" Error [Rebuilt] () "several nodes hold an affinity for one block",
    AffinityWithoutBlock "affinity-without-block" Info [] () "the affinity is confirmed, but its block does not exist",
    UnsettledAffinity "unsettled-affinity" Warning [Rebuilt] () "the affinity is still pending or pendingDeletion after a recheck",
    AffinityOfMissingNode "affinity-of-missing-node" Warning [Users] () "the affinity's node does not exist",
    UnexpectedAffinityType "unexpected-affinity-type" Warning [Rebuilt] () "the affinity's type is neither host nor virtual",
    AffinityLabels "affinity-labels" Warning [Rebuilt Varies] () "the labels by which Calico finds an affinity are missing or wrong",
    NodeOverBlockLimit "node-over-block-limit" Info [] () "in one pool alone, the node holds more blocks than maxBlocksPerHost (20 if not set)",
    OrphanHandle "orphan-handle" Warning [] () "no allocation refers to the handle object",
    MissingHandle "missing-handle" Error [Rebuilt] () "allocations refer to a handle that has no object",
    HandleCount "handle-count" Warning [Rebuilt Varies] () "the handle's counts differ from what the blocks record",
    HandleCarriageReturn "handle-carriage-return" Warning [] () "the handle ID contains a carriage return",
    HandleCaseCollision "handle-case-collision" Error [] () "two handle IDs differ only in case and share one object",
    HalfDeleted "half-deleted" Warning [Rebuilt] () "a block, affinity or handle is marked deleted, but still exists",
    EndpointWithoutPod "endpoint-without-pod" Warning [Users] (Pods Endpoints) "the pod of a workload endpoint is gone, or finished long ago",
    PodWithoutEndpoint "pod-without-endpoint" Warning [Users] (Pods Endpoints) "a running pod has no workload endpoint",
    PodAddressDisagreement "pod-address-disagreement" Warning [Users] (Pods) "pod status, CNI annotation and endpoint do not name the same addresses",
    EndpointOfMissingNode "endpoint-of-missing-node" Warning [Users] () "a live endpoint or pod names a node that does not exist",
    NodeObjectMissing "node-object-missing" Error [Users] () "a Kubernetes node holds blocks, but Calico has no node object for it",
    EndpointNodeMismatch "endpoint-node-mismatch" Warning [Users] (Pods Endpoints) "endpoint and pod name different nodes",
    ServiceWithoutAddress "service-without-address" Warning [Users] (Services) "a LoadBalancer service that Calico manages lacks an address",
    ServiceAddressExtra "service-address-extra" Warning [Users] (Services) "an address is recorded for a service whose status.loadBalancer does not list it",
    OverlappingPools "overlapping-pools" Error [] () "two pools overlap",
    PoolOverlapsNodes "pool-overlaps-nodes" Critical [] () "an enabled pool for pods or tunnels covers addresses of the cluster's nodes",
    PoolOverlapsServices "pool-overlaps-services" Error [] (Services) "an enabled pool covers addresses of the cluster's services",
    InvalidPoolSelector "invalid-pool-selector" Error [] () "a selector of an enabled pool does not parse, so Calico refuses requests for addresses",
    PoolSmallerThanBlock "pool-smaller-than-block" Error [] () "an enabled pool is smaller than one of its blocks, so that no block fits into it",
    PoolNearlyFull "pool-nearly-full" Warning [Varies] () "nearly all addresses in an enabled pool are taken",
    NodeWithoutAddresses "node-without-addresses" Error [Varies] () "the next pod on one or more nodes gets no address",
    PodWithoutAddress "pod-without-address" Error [Users Varies] (Pods) "a pod is waiting for an address that IPAM does not give it",
    PodsWithoutCalicoIpam "pods-without-calico-ipam" Info [Users Varies] (Pods Nodes) "pods have addresses from host-local, not from Calico IPAM",
    AutoAllocationOff "auto-allocation-off" Warning [] () "nodes cannot claim blocks: autoAllocateBlocks is false",
    ConfigurationMismatch "configuration-mismatch" Warning [] () "the two copies of the IPAM configuration in etcd differ",
    NoClusterInformation "no-cluster-information" Error [] () "ClusterInformation is missing or incomplete, so Calico's plugin fails",
    DatastoreLocked "datastore-locked" Error [] () "the datastore is locked: datastoreReady is false",
    UndecodableObject "undecodable-object" Error [Users] () "a key or value does not parse",
    AddressInSeveralClusters "address-in-several-clusters" Critical [Varies] () "clusters that route to each other use the same address",
    OverlappingClusterPools "overlapping-cluster-pools" Error [] () "pools of clusters that route to each other overlap",
    PoolCoversOtherCluster "pool-covers-other-cluster" Error [] () "a pool covers addresses of another cluster's nodes, tunnels or services",
    DisabledPoolMismatch "disabled-pool-mismatch" Warning [] () "a disabled pool covers only part of another cluster's pool",
    ClusterSettingsDiffer "cluster-settings-differ" Info [] () "block size or strict affinity differs between clusters that route to each other",
    ClusterUnreadable "cluster-unreadable" Error [] () "a cluster in the fleet cannot be read",
}

impl Code {
    /// The codes that a check of one cluster can find. In [`Self::ALL`], they precede the codes for fleets.
    pub fn of_one_cluster() -> impl Iterator<Item = Self> + Clone {
        Self::ALL.iter().copied().filter(|code| !code.is_of_fleet())
    }

    /// True for codes that only a check of several clusters can find.
    pub fn is_of_fleet(self) -> bool {
        self >= Self::AddressInSeveralClusters
    }

    /// True if the rule looks at pods, endpoints, services or virtual machines. If these were not read, it finds less.
    pub fn looks_at_users(self) -> bool {
        self.traits().contains(&Trait::Users)
    }

    /// True if the rule gives a finding another severity than the usual one, depending on the state that it found.
    pub(crate) fn has_other_severities(self) -> bool {
        self.traits().contains(&Trait::Varies)
    }

    /// True if a rebuild is the remedy for the rule's findings. The rebuild repairs them, or its plan contains the
    /// reason why it does not.
    pub(crate) fn is_rebuilt(self) -> bool {
        self.traits().contains(&Trait::Rebuilt)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Code {
    type Err = UnknownCode;

    fn from_str(text: &str) -> Result<Self, UnknownCode> {
        Self::ALL
            .iter()
            .copied()
            .find(|code| code.name() == text)
            .ok_or_else(|| UnknownCode(text.to_owned()))
    }
}

calipam_model::serialize_displayed!(Code);
