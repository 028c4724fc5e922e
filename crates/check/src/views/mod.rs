//! The views of `show` and other commands, such as pools, blocks, nodes, one address or one handle. A view is plain
//! data, which the `cli` crate renders.

mod address;
#[cfg(test)]
mod address_tests;
mod addresses;
mod blocks;
mod borrowed;
mod calicoctl;
mod compare;
mod configuration;
mod gone_node;
mod handle;
mod map;
mod namespaces;
mod nodes;
mod pools;
mod scope;
mod service;
pub mod sources;
#[cfg(test)]
mod tests;
mod why;

use std::fmt;

use calipam_model::snapshot::{Coverage, Snapshot, Source};
use serde::{Serialize, Serializer};

pub use self::address::{AddressView, BlockOfAddress, HandleOfAddress, OwnerStatus, PoolOfAddress, address};
pub use self::addresses::{AddressList, HeldAddress, PodName, addresses};
pub use self::blocks::{BlockList, BlockView, blocks};
pub use self::borrowed::{BorrowedAddress, BorrowedList, borrowed};
pub use self::calicoctl::{
    AddressOwner, CalicoctlAllocation, CalicoctlBlock, CalicoctlView, LeakedHandle, calicoctl,
};
pub use self::compare::{Comparison, NodeComparison, RecordedFor, compare};
pub(crate) use self::configuration::settings_of;
pub use self::configuration::{ConfigurationView, Setting, configuration};
pub use self::gone_node::LeftOfNode;
pub use self::handle::{HandleBlock, HandleView, handle, handle_ids};
pub use self::map::{MapCell, MapLimits, MapList, MappedBlock, PoolMap, map};
pub use self::namespaces::{NamespaceList, NamespaceView, namespaces};
pub use self::nodes::{NodeFamily, NodeList, NodePlugin, NodePool, NodeView, TunnelView, nodes};
pub(crate) use self::pools::pools_in;
pub use self::pools::{OutsidePools, PoolList, PoolView, pools};
pub use self::service::explain_service;
pub use self::why::{Asking, Explanation, FamilyAnswer, RequestState, explain};
pub use crate::record::AddressState;
pub use crate::services::{FamilyOfService, ServiceExplanation, ServiceState, of_earlier_services};

/// A number of addresses. IPv6 pools can have more than fit into 64 bits. In JSON and YAML, values up to 2^53, which
/// every reader keeps exactly, are numbers; larger ones are strings of decimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u128);

/// The largest number that all JSON readers keep exactly.
const EXACT: u128 = 1 << 53;

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match u64::try_from(self.0) {
            Ok(number) if self.0 <= EXACT => serializer.serialize_u64(number),
            _ => serializer.collect_str(&self.0),
        }
    }
}

impl From<u32> for Count {
    fn from(number: u32) -> Self {
        Self(number.into())
    }
}

/// Returns the sources of users and records from which only some objects were read. Views lack the findings that need
/// all objects of such a source.
fn partly_read(snapshot: &Snapshot) -> Vec<Source> {
    let sources = [
        Source::Blocks,
        Source::Nodes,
        Source::Endpoints,
        Source::Pods,
        Source::Services,
    ];
    let is_partial = |source: &Source| snapshot.coverage.get(source) == Some(&Coverage::Partial);
    sources.into_iter().filter(is_partial).collect()
}
