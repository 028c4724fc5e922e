//! The simulated datastore: its content, the costs of its requests, and its clients.

mod blocks;
mod caches;
mod client;
mod costs;
mod data;
mod latency;
mod limiter;
mod profiles;
mod server;

pub(crate) use self::client::Client;
pub use self::costs::Costs;
pub(crate) use self::data::Data;
pub use self::latency::Latency;
pub(crate) use self::server::Server;
