//! The simulated datastore: what it holds, what its requests cost, and its clients.

mod blocks;
mod caches;
mod client;
mod data;
mod handles;
mod latency;
mod limiter;
mod metrics;
mod profiles;
mod server;
mod times;

pub(crate) use self::client::Client;
pub(crate) use self::data::Data;
pub use self::latency::{Costs, CostsError};
pub use self::metrics::NoHistogram;
pub use self::profiles::{PROFILES, Profile};
pub(crate) use self::server::Server;
pub use self::times::Latency;
