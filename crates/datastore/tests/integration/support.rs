//! Helpers to open and read a datastore.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use calipam_datastore::read::ProgressFn;
use calipam_datastore::settings::{LocalFiles, Overrides, Settings};
use calipam_datastore::write::{Consent, Question};
use calipam_datastore::{Datastore, Result};
use calipam_model::snapshot::Snapshot;

/// Settings from command-line options and environment variables.
pub(crate) fn resolve(overrides: &Overrides, environment: &[(&str, &str)]) -> Settings {
    let environment: BTreeMap<_, _> =
        environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Settings::resolve(overrides, &environment, &LocalFiles).unwrap()
}

pub(crate) async fn open(overrides: Overrides) -> Datastore {
    Datastore::open(&resolve(&overrides, &[])).await.unwrap()
}

/// Opens an etcd that uses neither TLS nor authentication.
pub(crate) async fn open_etcd(endpoint: &str) -> Datastore {
    open(Overrides { etcd_endpoints: Some(endpoint.to_owned()), ..Overrides::default() }).await
}

/// Opens a Kubernetes datastore, or an etcd whose pods are read from Kubernetes.
pub(crate) async fn open_kubernetes(kubeconfig: &Path, etcd_endpoints: Option<String>) -> Datastore {
    let kind = if etcd_endpoints.is_some() { "etcd" } else { "kubernetes" };
    let kubeconfig = Some(kubeconfig.display().to_string());
    open(Overrides { datastore: Some(kind.into()), kubeconfig, etcd_endpoints, ..Overrides::default() }).await
}

/// Opens a data file; returns an error for any other file.
pub(crate) async fn open_file(path: &Path) -> Result<Datastore> {
    let overrides = Overrides { datastore: Some(path.display().to_string()), ..Overrides::default() };
    Datastore::open(&resolve(&overrides, &[])).await
}

/// Reads everything.
pub(crate) async fn observe(store: &Datastore) -> Result<Snapshot> {
    store.observe(&quiet()).await
}

pub(crate) fn quiet() -> ProgressFn {
    Arc::new(|_| {})
}

/// Consent to write to the test clusters.
pub(crate) fn consent() -> Consent {
    let question = Question {
        cluster: "0f0e1d2c".into(),
        location: "a test".into(),
        addresses: 1,
        blocks: 1,
        handles: 1,
        others: 1,
        pods: 0,
    };
    Consent::from_option(question, true).unwrap()
}
