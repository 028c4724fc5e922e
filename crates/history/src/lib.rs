//! The history of Calico's IPAM data. Pure functions: no I/O, no clock.
//!
//! [`diff`]: the differences between two snapshots of one cluster. [`timeline`]: the history of an address, handle,
//! block, node or pod, as events. [`trend`]: assignments and releases by pool, and forecasts. [`rates`]: how often pods
//! start and how long they run. [`past`]: reads the data for trends and rates from an archive or a recording. These
//! modules compare block states with `block_change.rs`. [`keep`]: rules that decide which exports of an archive are
//! kept.
//!
//! [`diff`] reports an object that cannot be decoded or was not read as not compared, and never as gone or unchanged.

mod block_change;
pub mod diff;
pub mod keep;
pub mod past;
pub mod rates;
pub mod timeline;
pub mod trend;

/// A hash map for up to a million short keys. Its hash function does not resist crafted collisions, which would only
/// cost time.
pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::FixedState>;
