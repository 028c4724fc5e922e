//! The outputs of the generator: a file, an etcd, Kubernetes objects, or a snapshot.

mod etcd;
mod export;
mod kubernetes;
mod snapshot;

pub use self::kubernetes::{KubeCluster, KubeObject};
pub(super) use self::kubernetes::{foreign_kind, pod_of};
