//! Permissions of users, and their authentication.

use std::time::{Duration, Instant};

use calipam_datastore::RECORDS;
use calipam_datastore::settings::{Settings, Timeouts};
use calipam_datastore::{Cause, Datastore, Error, Failure, Permission, Result, Secret};
use calipam_model::snapshot::Snapshot;
use calipam_testkit::World;
use calipam_testkit::datastore::{observe, quiet};
use calipam_testkit::kube::{Flavour, create, edit, install, service_account_token};
use calipam_testkit::servers::KubeApiserver;
use serde::Deserialize;
use serde_json::Value;

use super::support::{SHORT, kubeconfig_with_token, open, seeded, settings, settings_for_url};

pub(super) const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
pub(super) const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// The documents in docs/kubernetes/rbac.yaml: the roles, and a binding for the first one.
pub(super) fn documented() -> Vec<Value> {
    let text = include_str!("../../../../../docs/kubernetes/rbac.yaml");
    serde_yaml::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_role_is_enough_and_what_is_missing_is_named() {
    let world = seeded(Flavour::Classic);
    let server = world.server();
    let folder = tempfile::tempdir().unwrap();
    let token = service_account_token(server, "calipam").unwrap();
    let settings = settings(&kubeconfig_with_token(server, folder.path(), &token));

    // Nothing is granted yet: all missing permissions are named before anything is read.
    let store = Datastore::open(&settings).await.unwrap();
    let error = store.observe(&quiet()).await.unwrap_err();
    let Error::Permission { missing, .. } = &error else {
        panic!("{error}")
    };
    // Eleven kinds to get and list, and two of KubeVirt to list.
    assert_eq!(missing.len(), 2 * 11 + 2, "{error}");
    assert!(!error.is_usage() && !error.to_string().contains(&token));

    let [mut role, mut binding, repairer, ..]: [_; 5] = documented().try_into().unwrap();
    let rules = role["rules"].as_array_mut().unwrap();
    for rule in rules.iter_mut() {
        rule["resources"]
            .as_array_mut()
            .unwrap()
            .retain(|resource| resource != "pods");
    }
    rules.retain(|rule| rule["resources"] != serde_json::json!([]));
    create(server, ROLES, &[role]).unwrap();
    binding["subjects"][0]["namespace"] = "default".into();
    create(server, BINDINGS, &[binding]).unwrap();
    let lacks_more =
        |result: &Result<_>| matches!(result, Err(Error::Permission { missing, .. }) if missing.len() > 2);
    let error = wait_for(&settings, |result| !lacks_more(result))
        .await
        .unwrap_err();
    let said = "the user system:serviceaccount:default:calipam lacks permissions: get, list pods";
    assert!(error.to_string().ends_with(said), "{error}");
    let Error::Permission { missing, .. } = &error else {
        panic!("{error}")
    };
    let pods = |verb| Permission {
        group: String::new(),
        resource: "pods".into(),
        verb,
    };
    assert_eq!(*missing, [pods("get"), pods("list")]);

    let [role, ..]: [_; 5] = documented().try_into().unwrap();
    edit(server, &format!("{ROLES}/calipam-reader"), |stored| {
        *stored = role
    });
    let snapshot = wait_for(&settings, Result::is_ok).await.unwrap();
    assert_eq!((snapshot.blocks.len(), snapshot.pods.len()), (1, 1));

    // Reads are allowed but writes are not, which is detected before any write.
    let store = Datastore::open(&settings).await.unwrap();
    let error = store.may_write(&RECORDS, true).await.unwrap_err();
    let Error::Permission { missing, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(missing.len(), 3 * 3 + 1, "{error}");
    create(server, ROLES, &[repairer]).unwrap();
    let [_, mut binding, ..]: [_; 5] = documented().try_into().unwrap();
    binding["metadata"]["name"] = "calipam-repairer".into();
    binding["roleRef"]["name"] = "calipam-repairer".into();
    binding["subjects"][0]["namespace"] = "default".into();
    create(server, BINDINGS, &[binding]).unwrap();
    let begin = Instant::now();
    while let Err(error) = store.may_write(&RECORDS, true).await {
        assert!(begin.elapsed() < Duration::from_secs(30), "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Reads again until `done` accepts the result, for up to 30 seconds: permissions do not take effect at once.
async fn wait_for(settings: &Settings, done: impl Fn(&Result<Snapshot>) -> bool) -> Result<Snapshot> {
    let begin = Instant::now();
    loop {
        let result = Datastore::open(settings).await.unwrap().observe(&quiet()).await;
        if done(&result) || begin.elapsed() > Duration::from_secs(30) {
            return result;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Request { failure, .. } => failure,
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_and_servers_have_distinct_errors() {
    let world = World::kubernetes(Flavour::Classic);
    let server = world.server();
    let folder = tempfile::tempdir().unwrap();
    let wrong = settings(&kubeconfig_with_token(server, folder.path(), "wrong"));
    let error = Datastore::open(&wrong).await.unwrap_err();
    assert!(!error.to_string().contains("wrong"));
    assert_eq!(failure(error), Failure::Unauthorized);

    // The CA that signed the server's certificate is unknown.
    let mut unknown = settings_for_url(&server.url());
    assert_eq!(
        failure(Datastore::open(&unknown).await.unwrap_err()),
        Failure::Connection(Cause::CertificateNotTrusted)
    );
    // Settings that replace a kubeconfig: URL, CA and token; URL, CA and client certificate.
    unknown.kubernetes.ca_file = server.pki.ca.display().to_string();
    let mut by_token = unknown.clone();
    by_token.kubernetes.token = Secret::new(server.token());
    Datastore::open(&by_token).await.unwrap();
    let mut by_certificate = unknown.clone();
    by_certificate.kubernetes.cert_file = server.pki.client.certificate.display().to_string();
    by_certificate.kubernetes.key_file = server.pki.client.key.display().to_string();
    Datastore::open(&by_certificate).await.unwrap();
    let mut insecure = settings_for_url(&server.url());
    insecure.kubernetes.insecure = true;
    insecure.kubernetes.token = Secret::new(server.token());
    Datastore::open(&insecure).await.unwrap();

    let plain = settings_for_url(&server.url().replace("https:", "http:"));
    assert!(Datastore::open(&plain).await.is_err());
    let mut context = settings(&server.kubeconfig());
    context.kubernetes.context = "other".into();
    let error = Datastore::open(&context).await.unwrap_err();
    assert!(
        error.is_usage() && error.to_string().contains("context \"other\" does not exist"),
        "{error}"
    );
    context.kubernetes.use_pod_cidr = true;
    let error = Datastore::open(&context).await.unwrap_err();
    assert!(error.to_string().starts_with("usePodCIDR is set"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_or_is_gone_is_given_up_in_time() {
    let server = KubeApiserver::start().unwrap();
    install(&server, Flavour::Classic).unwrap();
    let mut settings = settings(&server.kubeconfig());
    settings.kubernetes.timeouts = Timeouts {
        connect: SHORT,
        request: SHORT,
    };
    let store = Datastore::open(&settings).await.unwrap();
    server.pause().unwrap();
    for result in [
        store.observe(&quiet()).await.map(drop),
        Datastore::open(&settings).await.map(drop),
    ] {
        let found = failure(result.unwrap_err());
        // Which limit ends first depends on the requests at the same time.
        let causes = [Cause::TimedOut(SHORT.as_secs()), Cause::GivenUp(SHORT.as_secs())];
        assert!(causes.map(Failure::from).contains(&found), "{found}");
    }
    server.resume().unwrap();
    observe(&open(&server).await).await;
    let gone = settings_for_url(&server.url());
    drop(server);
    assert_eq!(
        failure(Datastore::open(&gone).await.unwrap_err()),
        Failure::Connection(Cause::Refused)
    );
}
