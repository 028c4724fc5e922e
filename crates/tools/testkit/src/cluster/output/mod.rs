//! The outputs of the generator: a file, an etcd, Kubernetes objects, or a snapshot.

mod etcd;
mod export;
mod kubernetes;
mod snapshot;

pub(super) use self::kubernetes::pod_of;
pub use self::kubernetes::{KubeCluster, KubeObject, LeftOut};
