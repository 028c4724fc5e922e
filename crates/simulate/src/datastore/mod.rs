//! The simulated datastore: what it holds, what its requests cost, and its clients.

mod blocks;
mod caches;
mod client;
mod costs;
mod data;
mod limiter;
mod server;

pub(crate) use self::client::Client;
pub use self::costs::{Costs, CostsError};
pub(crate) use self::data::Data;
pub(crate) use self::server::Server;
