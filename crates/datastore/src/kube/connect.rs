//! From the settings to a connection: kubeconfig, the settings that go over it, or the pod's service account
//! (facts 7.2).

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::classify::{innermost, of_login};
use super::error::KubeError;
use crate::secret::redact_url;
use crate::settings::KubernetesSettings;

/// What the configuration of the connection is called in errors where it is no file.
const INLINE: &str = "the field kubeconfigInline of the settings";

/// The configuration of the connection that the settings describe.
///
/// # Errors
/// Where a file is missing or makes no sense.
pub(super) async fn config(settings: &KubernetesSettings) -> Result<Config, KubeError> {
    let mut config = base(settings).await?;
    apply(settings, &mut config)?;
    // What fails is said, not tried again behind the user's back.
    config.default_retry = false;
    config.connect_timeout = Some(settings.connect_timeout());
    // Reading and writing have their limits around each request.
    config.read_timeout = None;
    config.write_timeout = None;
    Ok(config)
}

async fn base(settings: &KubernetesSettings) -> Result<Config, KubeError> {
    if !settings.kubeconfig_inline.is_empty() {
        let parsed = Kubeconfig::from_yaml(settings.kubeconfig_inline.reveal());
        return from_kubeconfig(parsed.map_err(|e| bad(INLINE, &e))?, settings, INLINE).await;
    }
    let home = || std::env::home_dir().map(|home| home.join(".kube/config")).filter(|path| path.exists());
    let paths: Vec<PathBuf> = match settings.kubeconfig.is_empty() {
        false => std::env::split_paths(&settings.kubeconfig).collect(),
        true if settings.api_endpoint.is_empty() => home().into_iter().collect(),
        true => Vec::new(),
    };
    if !paths.is_empty() {
        let name = format!("the kubeconfig {}", join(&paths));
        return from_kubeconfig(merged(&paths, &name)?, settings, &name).await;
    }
    if !settings.api_endpoint.is_empty() {
        return Ok(Config::new(endpoint(&settings.api_endpoint)?));
    }
    Config::incluster_env().map_err(|error| KubeError::Config {
        what: "Kubernetes".into(),
        reason: format!(
            "no kubeconfig is named, there is none at ~/.kube/config, and this is no pod of a cluster ({})",
            innermost(&error)
        ),
    })
}

/// Several kubeconfigs count as one, the first that says something wins. Of a list, files may be missing.
fn merged(paths: &[PathBuf], name: &str) -> Result<Kubeconfig, KubeError> {
    let mut merged: Option<Kubeconfig> = None;
    for path in paths.iter().filter(|path| paths.len() == 1 || path.exists()) {
        let one = Kubeconfig::read_from(path).map_err(|e| bad(name, &e))?;
        merged = Some(match merged {
            None => one,
            Some(before) => before.merge(one).map_err(|e| bad(name, &e))?,
        });
    }
    merged.ok_or_else(|| KubeError::Config { what: name.into(), reason: "there is no such file".into() })
}

async fn from_kubeconfig(
    kubeconfig: Kubeconfig,
    settings: &KubernetesSettings,
    name: &str,
) -> Result<Config, KubeError> {
    let context = Some(settings.context.clone()).filter(|context| !context.is_empty());
    let options = KubeConfigOptions { context, cluster: None, user: None };
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|e| bad(name, &e))
}

/// Applies what is set beside a kubeconfig, or instead of one.
fn apply(settings: &KubernetesSettings, config: &mut Config) -> Result<(), KubeError> {
    if !settings.api_endpoint.is_empty() {
        config.cluster_url = endpoint(&settings.api_endpoint)?;
    }
    if !settings.ca_file.is_empty() {
        config.root_cert = Some(certificates(Path::new(&settings.ca_file))?);
        config.root_cert_file = None;
    }
    if !settings.cert_file.is_empty() || !settings.key_file.is_empty() {
        let encoded = |path: &str, what| read(Path::new(path), what).map(|pem| STANDARD.encode(pem));
        let auth = &mut config.auth_info;
        auth.client_certificate_data = Some(encoded(&settings.cert_file, "the client certificate")?);
        auth.client_key_data = Some(encoded(&settings.key_file, "the client key")?.into());
        (auth.client_certificate, auth.client_key) = (None, None);
    }
    if !settings.token.is_empty() {
        config.auth_info.token = Some(settings.token.reveal().to_owned().into());
        config.auth_info.token_file = None;
    }
    if settings.insecure {
        config.accept_invalid_certs = true;
        config.root_cert = None;
        config.root_cert_file = None;
    }
    Ok(())
}

fn endpoint(text: &str) -> Result<Uri, KubeError> {
    let wrong = |reason: &str| KubeError::Config {
        what: format!("the API endpoint {}", redact_url(text)),
        reason: reason.to_owned(),
    };
    let uri: Uri = text.parse().map_err(|_| wrong("it is no URL"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err(wrong("it must begin with https:// or http://")),
    }
}

fn read(path: &Path, what: &str) -> Result<Vec<u8>, KubeError> {
    std::fs::read(path).map_err(|error| KubeError::Config {
        what: format!("{what} {}", path.display()),
        reason: error.to_string(),
    })
}

/// The certificates of a PEM file.
fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, KubeError> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    let what = "the CA certificate";
    let pem = read(path, what)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = read.unwrap_or_default();
    if found.is_empty() {
        return Err(KubeError::Config {
            what: format!("{what} {}", path.display()),
            reason: "it holds no PEM block `CERTIFICATE-----`".into(),
        });
    }
    Ok(found.into_iter().map(|certificate| certificate.to_vec()).collect())
}

fn join(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// What is wrong with a kubeconfig. Errors of its text show the text, which may hold secrets.
fn bad(what: &str, error: &KubeconfigError) -> KubeError {
    let reason = match error {
        KubeconfigError::Parse(_) => "it is no YAML of a kubeconfig".into(),
        KubeconfigError::CurrentContextNotSet => "it has no current context, and none is named".into(),
        KubeconfigError::LoadContext(name) => format!("it has no context {name:?}"),
        KubeconfigError::LoadClusterOfContext(name) => format!("it has no cluster {name:?}"),
        KubeconfigError::ParseClusterUrl(_) => "the URL of its cluster makes no sense".into(),
        KubeconfigError::ParseProxyUrl(_) => "the URL of its proxy makes no sense".into(),
        KubeconfigError::ReadConfig(error, _) => error.to_string(),
        other => other.to_string(),
    };
    KubeError::Config { what: what.into(), reason }
}

/// Why no client could be made of a configuration.
pub(super) fn unusable(error: &kube::Error) -> KubeError {
    let (what, reason) = match error {
        kube::Error::Auth(error) => ("the credentials", of_login(error)),
        kube::Error::ProxyProtocolUnsupported { .. } | kube::Error::ProxyProtocolDisabled { .. } => {
            ("the proxy", "its URL must begin with http:// or socks5://".into())
        }
        kube::Error::RustlsTls(error) => ("the certificates", innermost(error)),
        other => ("the kubeconfig", innermost(other)),
    };
    KubeError::Config { what: what.into(), reason }
}
