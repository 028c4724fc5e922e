//! Kubeconfigs with arbitrary text. The worst result is a clear error.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use tokio::time::timeout;

use super::token_file::TokenFile;
use super::{connect, transport};
use crate::secret::Secret;
use crate::settings::any_text_tests::text;
use crate::settings::{KubectlOptions, KubernetesSettings};

/// The URL of a port on which no server listens.
const NOBODY: &str = "https://127.0.0.1:1";

/// Creates a client, and sends a request to [`NOBODY`].
fn client(settings: &KubernetesSettings) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut config = connect::config(settings).await.map_err(|error| error.to_string())?;
        TokenFile::take(&mut config).map_err(|error| error.to_string())?;
        let server = connect::location(&config.cluster_url);
        assert!(config.auth_info.exec.is_none(), "no program is run");
        let client =
            transport::client(config).map_err(|error| connect::unusable(&server, &error).to_string())?;
        // Headers with arbitrary text are created only when a request is sent.
        if server == NOBODY {
            let request = http::Request::get("/version").body(Vec::new()).unwrap();
            let _ = timeout(Duration::from_secs(1), client.request_text(request)).await;
        }
        Ok(())
    })
}

fn inline(text: impl Into<String>) -> KubernetesSettings {
    KubernetesSettings { kubeconfig_inline: Secret::new(text), ..KubernetesSettings::default() }
}

/// Returns a kubeconfig in which the field with this number contains `text`.
fn kubeconfig(field: usize, text: &str) -> String {
    let mut cluster = json!({"server": NOBODY});
    let mut user = json!({});
    let mut context = json!({"cluster": "c", "user": "u"});
    match field {
        0..7 => {
            let names = [
                "server",
                "proxy-url",
                "tls-server-name",
                "certificate-authority",
                "certificate-authority-data",
                "insecure-skip-tls-verify",
                "disable-compression",
            ];
            cluster[names[field]] = text.into();
        }
        7..15 => {
            let names = [
                "token",
                "tokenFile",
                "username",
                "password",
                "client-certificate",
                "client-certificate-data",
                "client-key-data",
                "as",
            ];
            user[names[field - 7]] = text.into();
            if field == 9 {
                user["password"] = text.into();
            }
        }
        15 => context["namespace"] = text.into(),
        16 => user["as-groups"] = json!([text]),
        17 => context["cluster"] = text.into(),
        _ => context = text.into(),
    }
    json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "a", "context": context}]})
    .to_string()
}

proptest! {
    #[test]
    fn no_kubeconfig_panics(any in text(), field in 0usize..19) {
        let _ = client(&inline(any.clone()));
        let _ = client(&inline(kubeconfig(field, &any)));
        let _ = client(&inline(kubeconfig(18, "").replace("\"\"", &any)));
    }

    #[test]
    fn no_option_panics(any in text(), field in 0usize..9) {
        let mut settings = inline(kubeconfig(15, "default"));
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
