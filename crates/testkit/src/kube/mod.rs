//! Calico's custom resources on a test's API server: the kinds, as the fact sheet describes them, and objects of them.

mod crds;
mod objects;

pub use self::crds::{Flavour, install, install_kubevirt};
pub use self::objects::{create, create_in_etcd, service_account_token};
