//! Reading a datastore and judging what was read.

use std::path::Path;
use std::sync::Arc;

use calipam_check::{Options, Report, check};
use calipam_datastore::Datastore;
use calipam_datastore::settings::{LocalFiles, Overrides, Settings};
use calipam_model::snapshot::Snapshot;

pub async fn open(overrides: Overrides) -> Datastore {
    let settings = Settings::resolve(&overrides, &Default::default(), &LocalFiles).unwrap();
    Datastore::open(&settings).await.unwrap()
}

pub async fn open_etcd(endpoint: String) -> Datastore {
    open(Overrides { etcd_endpoints: Some(endpoint), ..Overrides::default() }).await
}

/// Opens a Kubernetes datastore, or an etcd with Kubernetes beside it.
pub async fn open_kubernetes(kubeconfig: &Path, etcd_endpoints: Option<String>) -> Datastore {
    let kind = if etcd_endpoints.is_some() { "etcd" } else { "kubernetes" };
    let kubeconfig = Some(kubeconfig.display().to_string());
    open(Overrides { datastore: Some(kind.into()), kubeconfig, etcd_endpoints, ..Overrides::default() }).await
}

pub async fn open_file(path: &Path) -> Datastore {
    open(Overrides { datastore: Some(path.display().to_string()), ..Overrides::default() }).await
}

pub async fn observe(datastore: &Datastore) -> Snapshot {
    datastore.observe(&(Arc::new(|_| {}) as _)).await.unwrap()
}

/// Judges as the generator's clock wants it: by the time at which the cluster was made.
pub fn judge(snapshot: &Snapshot) -> Report {
    check(snapshot, &Options::default())
}

/// `code subject` of every finding, ascending.
pub fn lines(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> =
        report.findings.iter().map(|f| format!("{} {}", f.code, f.subject)).collect();
    lines.sort_unstable();
    lines
}
