//! The simulated datastore: what it holds, what its requests cost, and its clients.

mod blocks;
mod caches;
mod client;
mod costs;
mod data;
mod handles;
mod latency;
mod limiter;
mod metrics;
mod profiles;
mod server;

pub(crate) use self::client::Client;
pub use self::costs::{Costs, CostsError};
pub(crate) use self::data::Data;
pub use self::latency::Latency;
pub use self::metrics::NoHistogram;
pub use self::profiles::{PROFILES, Profile};
pub(crate) use self::server::Server;
