//! Calico's custom resources on a test's API server: the kinds, as `docs/calico-ipam.md` describes them, and their
//! objects.

mod crds;
pub mod fake;
pub(crate) mod form;
mod lease;
mod lender;
mod objects;
mod pool;
mod seed;

pub(crate) use self::crds::foreign_kind;
pub use self::crds::{Flavour, install, install_kubevirt};
pub use self::lease::{Lease, lease};
pub use self::lender::lend;
pub(crate) use self::objects::named;
pub use self::objects::{create, create_in_etcd, delete, edit, find, read, service_account_token};
pub use self::pool::Kinds;
pub use self::seed::{seed, seed_nodes};
