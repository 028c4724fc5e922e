//! The outputs of the generator: a file, an etcd, Kubernetes objects, or a snapshot.

mod etcd;
mod export;
mod kubernetes;

use calipam_model::snapshot::{Coverage, ETCD_SOURCES, Snapshot, Source, WhySkipped};

pub(super) use self::kubernetes::pod_of;
pub use self::kubernetes::{KubeCluster, KubeObject};
use super::Cluster;

impl Cluster {
    /// The snapshot that a read of this cluster in etcd, without a kubeconfig, would give.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot {
            location: "testkit".to_owned(),
            revision: self.entries.len().to_string(),
            taken_at: self.spec().now,
            rechecked: true,
            ..Snapshot::default()
        };
        snapshot.mark_read(ETCD_SOURCES);
        for source in [Source::Pods, Source::Services, Source::Machines] {
            snapshot
                .coverage
                .insert(source, Coverage::Skipped(WhySkipped::NoKubeconfig));
        }
        let mut revision = 0;
        self.for_each_entry(|key, value| {
            revision += 1;
            snapshot.add_entry(key, value, revision);
        });
        snapshot
    }
}
