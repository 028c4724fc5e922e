//! Opens and reads the datastores of tests.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use calipam_datastore::Datastore;
pub use calipam_datastore::read::quiet;
use calipam_datastore::settings::{LocalFiles, Overrides, Settings};
use calipam_datastore::write::{Consent, ObjectCounts, ProposedChange, Question};
use calipam_model::snapshot::Snapshot;

/// Time limit for a connection to a server that runs, however busy the machine is.
const CONNECT: Duration = Duration::from_secs(60);

/// Options that select an etcd. `endpoints` is a list with commas.
pub fn etcd(endpoints: impl Into<String>) -> Overrides {
    Overrides {
        etcd_endpoints: Some(endpoints.into()),
        ..Overrides::default()
    }
}

/// Options that select the API server in a kubeconfig.
pub fn kubernetes(kubeconfig: &Path) -> Overrides {
    let kubeconfig = Some(kubeconfig.display().to_string());
    Overrides {
        datastore: Some("kubernetes".to_owned()),
        kubeconfig,
        ..Overrides::default()
    }
}

/// Options that select an etcd, with the pods of an API server.
pub fn etcd_with_kubernetes(endpoints: impl Into<String>, kubeconfig: &Path) -> Overrides {
    let datastore = Some("etcd".to_owned());
    let etcd_endpoints = Some(endpoints.into());
    Overrides {
        datastore,
        etcd_endpoints,
        ..kubernetes(kubeconfig)
    }
}

/// Options that select a file or a folder.
pub fn file(path: &Path) -> Overrides {
    Overrides {
        datastore: Some(path.display().to_string()),
        ..Overrides::default()
    }
}

/// The settings for these options, without environment variables.
///
/// # Panics
/// Panics if the options are wrong.
pub fn settings(overrides: &Overrides) -> Settings {
    Settings::resolve(overrides, &BTreeMap::new(), &LocalFiles).expect("the options are right")
}

/// Opens the datastore that the options select.
///
/// # Panics
/// Panics if it cannot be opened.
pub async fn open(overrides: Overrides) -> Datastore {
    let patient = Overrides {
        connect_timeout: overrides.connect_timeout.or(Some(CONNECT)),
        ..overrides
    };
    Datastore::open(&settings(&patient))
        .await
        .expect("the datastore can be opened")
}

/// Reads everything.
///
/// # Panics
/// Panics if a read fails.
pub async fn observe(store: &Datastore) -> Snapshot {
    store.observe(&quiet()).await.expect("everything can be read")
}

/// Consent to change any number of objects of a cluster.
pub fn consent(cluster: &str) -> Consent {
    let many = usize::MAX / 8;
    let counts = ObjectCounts {
        addresses: many,
        blocks: many,
        handles: many,
        others: many,
    };
    let question = Question {
        cluster: cluster.to_owned(),
        location: "a test".to_owned(),
        change: ProposedChange::Objects(counts),
    };
    Consent::from_option(question, true).expect("the option says yes")
}
