//! The cluster and user of a context in a kubeconfig. kube's own function for this purpose also reads the proxy
//! environment variables, but not in the same way as client-go (see `proxy`).

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use kube::config::{AuthInfo, Cluster, Kubeconfig, KubeconfigError};

use super::pem::{certificates, certificates_of, unusable_kubeconfig};
use super::proxy;
use crate::error::Error;
use crate::settings::KubernetesSettings;

/// The configuration for the settings' context, or for the current context. `name` is the name of the kubeconfig.
pub(super) fn configuration(
    kubeconfig: Kubeconfig,
    settings: &KubernetesSettings,
    name: &str,
) -> Result<Config, Error> {
    let unusable = |error: KubeconfigError| unusable_kubeconfig(name, &error);
    let missing = |reason: String| Error::Kubeconfig {
        what: name.into(),
        reason,
    };
    let Kubeconfig {
        current_context,
        contexts,
        clusters,
        auth_infos,
        ..
    } = kubeconfig;

    let context_name = if settings.context.is_empty() {
        current_context.ok_or_else(|| unusable(KubeconfigError::CurrentContextNotSet))?
    } else {
        settings.context.clone()
    };
    let found_context = contexts
        .iter()
        .find(|named| named.name == context_name)
        .and_then(|named| named.context.clone());
    let Some(context) = found_context else {
        let available: Vec<&str> = contexts.iter().map(|named| named.name.as_str()).collect();
        return Err(missing(format!(
            "context {context_name:?} does not exist; available contexts: {}",
            available.join(", ")
        )));
    };

    let cluster_name = settings.kubectl.cluster.clone().unwrap_or(context.cluster);
    let found_cluster = clusters
        .into_iter()
        .find(|named| named.name == cluster_name)
        .and_then(|named| named.cluster);
    let cluster =
        found_cluster.ok_or_else(|| unusable(KubeconfigError::LoadClusterOfContext(cluster_name)))?;

    let user_name = settings.kubectl.user.clone().or(context.user);
    let found_user = auth_infos
        .into_iter()
        .find(|named| Some(&named.name) == user_name.as_ref());
    // As in client-go, a context may name a user that does not exist, but an option may not.
    if let Some(user_of_option) = &settings.kubectl.user
        && found_user.is_none()
    {
        return Err(missing(format!("auth info {user_of_option:?} does not exist")));
    }
    let mut user: AuthInfo = found_user.and_then(|named| named.auth_info).unwrap_or_default();
    if let Some(plugin) = &mut user.exec
        && plugin.provide_cluster_info
    {
        plugin.cluster = Some((&cluster).try_into().map_err(unusable)?);
    }

    let Some(server) = &cluster.server else {
        return Err(unusable(KubeconfigError::MissingClusterUrl));
    };
    let url = server
        .parse()
        .map_err(|error| unusable(KubeconfigError::ParseClusterUrl(error)))?;
    let mut config = Config::new(url);
    if let Some(namespace) = context.namespace {
        config.default_namespace = namespace;
    }
    config.root_cert = authority(&cluster, name)?;
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or(false);
    config.disable_compression = cluster.disable_compression.unwrap_or(false);
    if let Some(proxy) = cluster.proxy_url
        && !proxy.is_empty()
    {
        config.proxy_url = Some(proxy::parse("the kubeconfig's proxy-url", &proxy)?);
    }
    config.tls_server_name = cluster.tls_server_name;
    config.auth_info = user;
    Ok(config)
}

/// The server's certificate authorities, from the kubeconfig.
fn authority(cluster: &Cluster, name: &str) -> Result<Option<Vec<Vec<u8>>>, Error> {
    if let Some(data) = &cluster.certificate_authority_data
        && !data.is_empty()
    {
        let what = format!("the CA certificate in {name}");
        let Ok(pem) = STANDARD.decode(data) else {
            return Err(Error::Kubeconfig {
                what,
                reason: "it is not base64".into(),
            });
        };
        return certificates_of(&pem, &what).map(Some);
    }
    if let Some(path) = &cluster.certificate_authority
        && !path.is_empty()
    {
        return certificates(Path::new(path)).map(Some);
    }
    Ok(None)
}
