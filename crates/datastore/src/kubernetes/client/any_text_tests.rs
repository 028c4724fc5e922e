//! Kubeconfigs with arbitrary text. The worst result is a clear error.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::token_file::TokenFile;
use super::{connect, transport};
use crate::budget::Budget;
use crate::secret::Secret;
use crate::settings::any_text_tests::text;
use crate::settings::{KubectlOptions, KubernetesSettings};

/// The URL of a port on which no server listens.
const NOBODY: &str = "https://127.0.0.1:1";

/// Creates a client, and sends a request to [`NOBODY`].
fn client(settings: &KubernetesSettings) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut config = connect::config(settings)
            .await
            .map_err(|error| error.to_string())?;
        TokenFile::take(&mut config).map_err(|error| error.to_string())?;
        let server = connect::location(&config.cluster_url);
        assert!(config.auth_info.exec.is_none(), "no program is run");
        let budget = Budget::new(Duration::from_secs(1));
        let client = transport::client(config, &budget)
            .map_err(|error| connect::unusable(&server, &error).to_string())?;
        // Headers with arbitrary text are created only when a request is sent.
        if server == NOBODY {
            let request = http::Request::get("/version").body(Vec::new()).unwrap();
            let _ = timeout(Duration::from_secs(1), client.request_text(request)).await;
        }
        Ok(())
    })
}

fn inline(text: impl Into<String>) -> KubernetesSettings {
    KubernetesSettings {
        kubeconfig_inline: Secret::new(text),
        ..KubernetesSettings::default()
    }
}

/// Fields of a kubeconfig that are texts.
const FIELDS: [&str; 17] = [
    "/clusters/0/cluster/server",
    "/clusters/0/cluster/proxy-url",
    "/clusters/0/cluster/tls-server-name",
    "/clusters/0/cluster/certificate-authority",
    "/clusters/0/cluster/certificate-authority-data",
    "/clusters/0/cluster/insecure-skip-tls-verify",
    "/clusters/0/cluster/disable-compression",
    "/users/0/user/token",
    "/users/0/user/tokenFile",
    "/users/0/user/password",
    "/users/0/user/client-certificate",
    "/users/0/user/client-certificate-data",
    "/users/0/user/client-key-data",
    "/users/0/user/as",
    "/contexts/0/context/namespace",
    "/contexts/0/context/cluster",
    "/contexts/0/context",
];

/// Returns a kubeconfig with this value in a field.
fn kubeconfig(field: &str, value: Value) -> String {
    let mut config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "c", "cluster": {"server": NOBODY}}], "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}]});
    let (object, name) = field.rsplit_once('/').unwrap();
    config.pointer_mut(object).unwrap()[name] = value;
    config.to_string()
}

proptest! {
    #[test]
    fn no_kubeconfig_panics(any in text(), field in select(&FIELDS[..])) {
        let _ = client(&inline(any.clone()));
        let _ = client(&inline(kubeconfig(field, json!(any))));
        let _ = client(&inline(kubeconfig("/users/0/user", json!({"username": any, "password": any}))));
        let _ = client(&inline(kubeconfig("/users/0/user/as-groups", json!([any]))));
        let _ = client(&inline(kubeconfig("/contexts/0/context", json!("")).replace("\"\"", &any)));
    }

    #[test]
    fn no_option_panics(any in text(), field in 0usize..9) {
        let mut settings = inline(kubeconfig("/contexts/0/context/namespace", json!("default")));
        let kubectl = &mut settings.kubectl;
        match field {
            0 => kubectl.server = Some(any),
            1 => kubectl.token = Secret::new(any),
            2 => kubectl.as_user = Some(any),
            3 => *kubectl = KubectlOptions { as_user: Some("a".into()), as_groups: vec![any], ..Default::default() },
            4 => kubectl.tls_server_name = Some(any),
            5 => kubectl.certificate_authority = Some(any.into()),
            6 => settings.token = Secret::new(any),
            7 => settings.api_endpoint = any,
            _ => settings.context = any,
        }
        let _ = client(&settings);
    }
}
