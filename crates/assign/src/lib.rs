//! A Calico allocator: it assigns and releases addresses, claims blocks and gives them up (facts, section 3). It writes
//! the same states in the same order as Calico's own allocator, which can run at the same time. An interruption at any
//! point leaves only states that Calico can handle (facts 3.15). `docs/cni.md` lists the Calico bugs that this
//! allocator does not have.
//!
//! [`Allocator`] provides the operations and works on any [`Store`]. [`SnapshotStore`] only collects writes, so that
//! they can be shown before they are made.
//!
//! "Facts" in this crate's comments means the project's `docs/calico-ipam.md`, and "facts of the plugin" the notes on
//! Calico's own plugin on which `docs/cni.md` is based.

mod address;
mod affinity;
mod allocator;
mod auto;
mod capacity;
mod error;
mod event;
mod family;
mod full;
mod go_random;
mod handle;
mod hosts;
mod keys;
mod next;
mod notes;
mod on_snapshot;
mod owners;
pub mod plugin;
mod pools;
mod recent;
mod record;
mod release;
mod request;
mod store;
mod walk;

pub use affinity::InUse;
pub use allocator::Allocator;
pub use auto::Inputs;
pub use error::{Error, Partly, Result};
pub use event::{Event, NotReclaimed, Observer, OwnBlock, Passed, PoolPassedOver};
pub use family::Family;
pub use full::FullBlocks;
pub use next::{
    AddressSource, Allocatable, Answer, Given, NextAddress, NodeNeed, NodeRoom, NotAsked, NotKnown, Outlook,
    PodAdd, PoolLimit, Reason, Refused, ServiceAnswer, ServiceCall, ServiceFamily, ServiceOutcome,
    TunnelAnswer, TunnelLack, TunnelPools, TunnelStep, Wanted, cluster_refusal,
};
pub use notes::{MemoryNotes, Notes};
pub use on_snapshot::{SnapshotStore, Write, without_waiting};
pub use owners::{Expected, NewOwner, OwnerAttributes, OwnerConditions, OwnerUpdates, PodName};
pub use pools::PoolsForNode;
pub use recent::KnownState;
pub use record::Record;
pub use release::{Release, Released};
pub use request::{AssignIp, Assigned, AutoAssign, AutoAssigned, Message};
pub use store::{Entry, ListsSince, Query, Store, StoreError, Swap};
pub use walk::{
    around as blocks_around, holding as blocks_holding, holding_elsewhere as blocks_holding_elsewhere,
    scatter,
};
