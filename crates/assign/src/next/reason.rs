//! The reasons why a request gets no address.

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::block::Cooling;

use crate::event::PoolPassedOver;
use crate::family::Family;

/// The reason why a request gets no address. Each cause has a variant of its own, with the object that causes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Calico has no node with this name.
    #[error("Calico does not know the node")]
    NoNode,
    /// The cluster information is missing, which Calico's main plugin reads first.
    #[error("the cluster information is missing")]
    NoClusterInformation,
    /// The datastore is locked: `datastoreReady` is false.
    #[error("the datastore is locked: datastoreReady is false")]
    NotReady,
    /// The cluster information has no `datastoreReady`.
    #[error("the cluster information has no datastoreReady, and Calico's plugin crashes")]
    ReadyNotSet,
    /// Neither Calico nor calipam can decode the IPAM configuration.
    #[error("the IPAM configuration cannot be decoded")]
    BrokenConfiguration,
    /// A reservation has an entry that is no CIDR, at which Calico's plugin crashes.
    #[error("the reservation {0} has an entry that is no CIDR, and Calico's plugin crashes")]
    MalformedReservation(String),
    /// There is no pool of the family.
    #[error("there is no pool for this family")]
    NoPool,
    /// Every pool of the family is disabled, being deleted or not allocatable.
    #[error("no pool is enabled")]
    NoneEnabled,
    /// Blocks are so small that every address is reserved for Windows.
    #[error("Windows reserves every address in blocks this small")]
    BlocksTooSmall,
    /// Every pool must be requested by name.
    #[error("every pool is Manual: it must be requested by name")]
    NoneAutomatic,
    /// No automatic pool selects the node.
    #[error("no pool selects the node")]
    NoneSelectsNode,
    /// None of the automatic pools that select the node also selects the namespace.
    #[error("no pool selects the namespace")]
    NoneSelectsNamespace,
    /// No pool that could serve the request allows workloads.
    #[error("no pool is for workloads")]
    NoneForWorkloads,
    /// The pod or its namespace names a pool that does not exist, by name.
    #[error("it asks for the pool {0:?}, which does not exist")]
    UnknownPool(String),
    /// The pod or its namespace names a pool, by name, whose CIDR cannot be read.
    #[error("it asks for the pool {pool:?}, whose CIDR is not valid: {cidr:?}")]
    BrokenPool { pool: String, cidr: String },
    /// The pod or its namespace names a CIDR that is no pool's.
    #[error("it asks for the pool {cidr}, which does not exist{}", .within.as_ref().map(|pool| format!(" ({pool} contains it, but a pool's whole CIDR must be named)")).unwrap_or_default())]
    UnknownCidr { cidr: IpNet, within: Option<String> },
    /// The pod or its namespace names a pool of the other family in the annotation of this family.
    #[error(
        "it asks for the pool {pool:?} in the annotation for {family}, but the pool is for the other family"
    )]
    OtherFamily { pool: String, family: Family },
    /// A pool that was named serves no request.
    #[error("it asks for the pool {pool}, but {why}")]
    NamedClosed { pool: String, why: PoolPassedOver },
    /// No pool that could serve the request allows LoadBalancer services.
    #[error("no pool is for LoadBalancer services")]
    NoneForServices,
    /// The selector of a pool does not parse.
    #[error("a selector of pool {0} does not parse")]
    BrokenSelector(String),
    /// The node is at its block limit.
    #[error("the block limit of {limit} is reached: the node holds {held}")]
    BlockLimit { held: u32, limit: u32 },
    /// The node uses a single block, as is usual on Windows, and it is full.
    #[error("its only block is full, and the node uses a single block")]
    SingleBlock,
    /// Nodes may not claim blocks.
    #[error("automatic block allocation is off")]
    NoAutoAllocation,
    /// Only other holders' blocks have free addresses, and affinity is strict.
    #[error("no block is left to claim, and strict affinity forbids borrowing")]
    StrictAffinity,
    /// Each pool that serves the request is smaller than one of its blocks.
    #[error("the pool {0} is smaller than one of its blocks")]
    SmallerThanBlock(String),
    /// The prefix length of the blocks of a pool that the request needs is longer than an address.
    #[error("the blocks of the pool {pool} would be /{block_size}, which is longer than an address")]
    ImpossibleBlocks { pool: String, block_size: u8 },
    /// No address in the pools is free.
    #[error("no address in its pools is free{}", .0.map(|cooling| format!("; {cooling}")).unwrap_or_default())]
    Exhausted(Option<Cooling>),
    /// Windows nodes need strict affinity.
    #[error("Windows nodes need strict affinity, but it is off")]
    WindowsNeedsStrictAffinity,
    /// The requested address is taken or in cooldown.
    #[error("{0} is taken")]
    Taken(IpAddr),
    /// The requested address is still recorded for an earlier container of the same pod.
    #[error("{0} is still recorded for an earlier container of the pod")]
    TakenByEarlier(IpAddr),
    /// The requested address is in no pool at all.
    #[error("{0} is in no pool")]
    OutsidePools(IpAddr),
    /// The pool of the requested address serves no request.
    #[error("{address} is in pool {pool}, but {why}")]
    InClosedPool {
        address: IpAddr,
        pool: String,
        why: PoolPassedOver,
    },
    /// The pool of the requested address does not allow workloads.
    #[error("{address} is in pool {pool}, which is not for workloads")]
    NotForWorkloads { address: IpAddr, pool: String },
    /// The requested address is in a block that the node does not own, and affinity is strict.
    #[error("strict affinity is on, and the node does not own block {0}")]
    ForeignBlock(IpNet),
    /// An annotation is not a JSON list of strings.
    #[error("its annotation {0} is not a JSON list of strings")]
    NotJson(&'static str),
    /// An annotation has an entry that the plugin cannot read.
    #[error("its annotation {annotation} has the invalid entry {entry:?}")]
    BadEntry { annotation: &'static str, entry: String },
    /// An annotation with addresses names none.
    #[error("its annotation {0} names no address")]
    NamesNothing(&'static str),
    /// An annotation names two addresses of one family.
    #[error("its annotation {annotation} names more than one {family} address")]
    TwoOfAFamily {
        annotation: &'static str,
        family: Family,
    },
    /// The pod has both annotations with addresses.
    #[error("it has both annotations ipAddrs and ipAddrsNoIpam")]
    TwoRequests,
    /// An annotation needs a feature that is off by default, and no running pod shows that it is on.
    #[error(
        "its annotation {annotation} needs the feature {feature}, which is off unless the node's CNI configuration enables it"
    )]
    FeatureOff {
        annotation: &'static str,
        feature: &'static str,
    },
    /// The annotation `ipFamilies` asks for no family.
    #[error("its annotation ipFamilies asks for no address")]
    NoFamily,
    /// The CNI configuration asks for no family, and neither does the pod.
    #[error("the CNI configuration asks for no address")]
    NoFamilyConfigured,
    /// The pod's VirtualMachineInstance, or the VirtualMachine behind it, does not exist.
    #[error("its virtual machine {0} does not exist")]
    NoMachine(String),
    /// The pod's owner reference names another VirtualMachineInstance than the one that exists.
    #[error("its virtual machine {0} was replaced by another one of that name")]
    MachineReplaced(String),
    /// The pod is the target of a live migration, and virtual machines do not keep their addresses.
    #[error("live migration needs kubeVirtVMAddressPersistence, which is Disabled")]
    MigrationOff,
    /// The pod is the target of a live migration, and its virtual machine has no address.
    #[error("its virtual machine has no address that could move with it")]
    NothingToMigrate,
    /// The virtual machine's address is in no enabled pool.
    #[error("its virtual machine has {0}, which is in no enabled pool")]
    MachineOutsidePools(IpAddr),
    /// The names of the virtual machine and its namespace are too long for a handle.
    #[error("the name of its virtual machine {0} is too long for a handle, and Calico's plugin crashes")]
    MachineNameTooLong(String),
    /// The pod names two addresses, and gets its virtual machine's address for each.
    #[error(
        "its annotation ipAddrs names two addresses, and Calico's plugin gives it {0} twice, the one of its virtual machine"
    )]
    OneForEach(IpAddr),
    /// The pod has a floating address of a family in which it has no address.
    #[error(
        "its annotation floatingIPs has {address:?}, but the pod has no {family} address, and Calico's plugin crashes"
    )]
    FloatingWithoutAddress { address: String, family: Family },
    /// The allocator met data that it cannot use.
    #[error("the allocator failed")]
    Other,
}

impl Reason {
    /// The reason's name in documents.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoNode => "no-node",
            Self::NoClusterInformation => "no-cluster-information",
            Self::NotReady => "datastore-locked",
            Self::ReadyNotSet => "datastore-ready-not-set",
            Self::BrokenConfiguration => "broken-configuration",
            Self::MalformedReservation(_) => "malformed-reservation",
            Self::NoPool => "no-pool",
            Self::NoneEnabled => "no-pool-enabled",
            Self::BlocksTooSmall => "blocks-too-small",
            Self::NoneAutomatic => "no-pool-automatic",
            Self::NoneSelectsNode => "no-pool-selects-node",
            Self::NoneSelectsNamespace => "no-pool-selects-namespace",
            Self::NoneForWorkloads => "no-pool-for-workloads",
            Self::NoneForServices => "no-pool-for-services",
            Self::UnknownPool(_) | Self::UnknownCidr { .. } => "unknown-pool",
            Self::BrokenPool { .. } => "named-pool-broken",
            Self::OtherFamily { .. } => "named-pool-of-other-family",
            Self::NamedClosed {
                why: PoolPassedOver::Disabled,
                ..
            } => "named-pool-disabled",
            Self::NamedClosed {
                why: PoolPassedOver::Deleting,
                ..
            } => "named-pool-terminating",
            Self::NamedClosed {
                why: PoolPassedOver::NotAllocatable(_),
                ..
            } => "named-pool-not-allocatable",
            Self::NamedClosed { .. } => "named-pool-not-enabled",
            Self::BrokenSelector(_) => "broken-selector",
            Self::BlockLimit { .. } => "block-limit",
            Self::SingleBlock => "single-block",
            Self::NoAutoAllocation => "no-auto-allocation",
            Self::StrictAffinity => "strict-affinity",
            Self::SmallerThanBlock(_) => "pool-smaller-than-block",
            Self::ImpossibleBlocks { .. } => "impossible-block-size",
            Self::Exhausted(_) => "exhausted",
            Self::WindowsNeedsStrictAffinity => "windows-needs-strict-affinity",
            Self::Taken(_) => "address-taken",
            Self::TakenByEarlier(_) => "address-taken-by-earlier-container",
            Self::OutsidePools(_) => "address-outside-pools",
            Self::InClosedPool { .. } => "address-in-closed-pool",
            Self::NotForWorkloads { .. } => "address-not-for-workloads",
            Self::ForeignBlock(_) => "foreign-block",
            Self::NotJson(_) => "annotation-not-json",
            Self::BadEntry { .. } => "annotation-invalid-entry",
            Self::NamesNothing(_) => "annotation-empty",
            Self::TwoOfAFamily { .. } => "annotation-two-of-a-family",
            Self::TwoRequests => "annotations-exclude-each-other",
            Self::FeatureOff { .. } => "feature-not-enabled",
            Self::FloatingWithoutAddress { .. } => "floating-without-address",
            Self::NoFamily => "no-family",
            Self::NoFamilyConfigured => "no-family-configured",
            Self::NoMachine(_) => "no-virtual-machine",
            Self::MachineReplaced(_) => "virtual-machine-replaced",
            Self::MigrationOff => "migration-without-persistence",
            Self::NothingToMigrate => "nothing-to-migrate",
            Self::MachineOutsidePools(_) => "virtual-machine-outside-pools",
            Self::MachineNameTooLong(_) => "virtual-machine-name-too-long",
            Self::OneForEach(_) => "virtual-machine-names-two-addresses",
            Self::Other => "other",
        }
    }

    /// True if the pod's or namespace's request is the cause, so that other pods of the node can get addresses.
    pub fn is_of_request(&self) -> bool {
        matches!(
            self,
            Self::UnknownPool(_)
                | Self::BrokenPool { .. }
                | Self::UnknownCidr { .. }
                | Self::OtherFamily { .. }
                | Self::NamedClosed { .. }
                | Self::Taken(_)
                | Self::TakenByEarlier(_)
                | Self::OutsidePools(_)
                | Self::InClosedPool { .. }
                | Self::NotForWorkloads { .. }
                | Self::ForeignBlock(_)
                | Self::NotJson(_)
                | Self::BadEntry { .. }
                | Self::NamesNothing(_)
                | Self::TwoOfAFamily { .. }
                | Self::TwoRequests
                | Self::FeatureOff { .. }
                | Self::FloatingWithoutAddress { .. }
                | Self::NoFamily
                | Self::NoMachine(_)
                | Self::MachineReplaced(_)
                | Self::MigrationOff
                | Self::NothingToMigrate
                | Self::MachineOutsidePools(_)
                | Self::MachineNameTooLong(_)
                | Self::OneForEach(_)
        )
    }
}
