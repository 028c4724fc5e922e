//! Creates the configuration of a connection from the settings: a kubeconfig with overrides, an API endpoint, or the
//! pod's service account (facts 7.2).

use std::path::{Path, PathBuf};

use calipam_files::regular;
use http::Uri;
use kube::Config;
use kube::client::AuthError;
use kube::config::{AuthInfo, ExecInteractiveMode, Kubeconfig};
use secrecy::ExposeSecret;

use super::classify::login_failure;
use super::pem::{certificates, endpoint, set_identity, unusable_kubeconfig};
use super::token_file::bearer;
use super::{context, flags, proxy, request_error};
use crate::error::{Error, Failure, SettingsError, innermost};
use crate::secret::redact_url;
use crate::settings::KubernetesSettings;

/// The name of an inline kubeconfig in errors.
const INLINE: &str = "the settings' field kubeconfigInline";

/// The configuration of the connection that the settings describe.
pub(crate) async fn config(settings: &KubernetesSettings) -> Result<Config, Error> {
    let mut config = base(settings).await?;
    apply(settings, &mut config)?;
    flags::apply(&settings.kubectl, &mut config)?;
    if config.proxy_url.is_none() {
        config.proxy_url = proxy::from_environment(&config.cluster_url, |name| std::env::var(name).ok())?;
    }

    require_usable_login(&config.auth_info)?;
    if settings.unattended
        && let Some(plugin) = &mut config.auth_info.exec
    {
        plugin.interactive_mode = Some(ExecInteractiveMode::Never);
    }

    // Failures are reported, not retried without the user's knowledge.
    config.default_retry = false;
    config.connect_timeout = Some(settings.timeouts.connect);
    // Each request has its own limits for reading and writing.
    config.read_timeout = None;
    config.write_timeout = None;
    Ok(config)
}

/// Rejects ways to log in that cannot succeed, with more helpful errors than those of kube.
fn require_usable_login(auth: &AuthInfo) -> Result<(), Error> {
    // kube's own error asks for a Cargo feature of kube, which means nothing to operators.
    if let Some(provider) = &auth.auth_provider
        && provider.name == "gcp"
    {
        let reason = "it logs in with the auth-provider gcp, which Google has removed: \
            `gcloud container clusters get-credentials` writes a new one";
        return Err(Error::Kubeconfig {
            what: "the kubeconfig".into(),
            reason: reason.into(),
        });
    }
    if let Some(token) = &auth.token
        && !token.expose_secret().is_empty()
        && bearer(token.expose_secret()).is_none()
    {
        let reason = "it has a line break or another control character";
        return Err(Error::Kubeconfig {
            what: "the token".into(),
            reason: reason.into(),
        });
    }
    Ok(())
}

/// The kubeconfig that the settings name, and its name in errors. `None` if there is no kubeconfig, or if the settings
/// have only an API endpoint.
fn kubeconfig(settings: &KubernetesSettings) -> Result<Option<(Kubeconfig, String)>, Error> {
    if !settings.kubeconfig_inline.is_empty() {
        let parsed = Kubeconfig::from_yaml(settings.kubeconfig_inline.reveal());
        let kubeconfig = parsed.map_err(|error| unusable_kubeconfig(INLINE, &error))?;
        return Ok(Some((kubeconfig, INLINE.to_owned())));
    }

    let paths = kubeconfig_paths(settings);
    if paths.is_empty() {
        return Ok(None);
    }
    let texts: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let name = format!("the kubeconfig {}", texts.join(", "));
    Ok(Some((merged(&paths, &name)?, name)))
}

/// The files that the settings name, or else the default file, if it exists and no API endpoint is set.
fn kubeconfig_paths(settings: &KubernetesSettings) -> Vec<PathBuf> {
    if !settings.kubeconfig.is_empty() {
        return std::env::split_paths(&settings.kubeconfig).collect();
    }
    if !settings.api_endpoint.is_empty() {
        return Vec::new();
    }
    let Some(home) = std::env::home_dir() else {
        return Vec::new();
    };
    let mut paths = vec![home.join(".kube/config")];
    paths.retain(|path| path.exists());
    paths
}

/// The kubeconfig's program that provides credentials; `None` if there is none, or the settings are not usable.
pub async fn credential_plugin(settings: &KubernetesSettings) -> Option<String> {
    config(settings).await.ok()?.auth_info.exec?.command
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeconfigNames {
    pub contexts: Vec<String>,
    pub clusters: Vec<String>,
    pub users: Vec<String>,
}

impl KubeconfigNames {
    /// The names in the settings' kubeconfig; none if there is no kubeconfig.
    pub fn read(settings: &KubernetesSettings) -> Result<Self, Error> {
        let mut names = Self::default();
        let Some((file, _)) = kubeconfig(settings)? else {
            return Ok(names);
        };
        for context in file.contexts {
            names.contexts.push(context.name);
        }
        for cluster in file.clusters {
            names.clusters.push(cluster.name);
        }
        for user in file.auth_infos {
            names.users.push(user.name);
        }
        Ok(names)
    }
}

/// Finds a context for `server`, the URL of an API server: the first context in the kubeconfig whose cluster has that
/// URL. Returns `None` if there is no such context, or if the context that the settings choose is already one of them.
///
/// `server` is a result of [`Datastore::location`](crate::Datastore::location).
pub fn context_of_server(settings: &KubernetesSettings, server: &str) -> Result<Option<String>, Error> {
    let Some((kubeconfig, _)) = kubeconfig(settings)? else {
        return Ok(None);
    };
    let contexts_of_server = contexts_of_server(&kubeconfig, server);
    let chosen_context = if settings.context.is_empty() {
        kubeconfig.current_context.as_ref()
    } else {
        Some(&settings.context)
    };
    if let Some(chosen_context) = chosen_context
        && contexts_of_server.contains(&chosen_context)
    {
        return Ok(None);
    }
    Ok(contexts_of_server.first().copied().cloned())
}

/// The names of the contexts whose cluster has the URL `server`, in the order of the kubeconfig.
fn contexts_of_server<'k>(kubeconfig: &'k Kubeconfig, server: &str) -> Vec<&'k String> {
    let mut names = Vec::new();
    for named in &kubeconfig.contexts {
        if let Some(context) = &named.context
            && server_of_cluster(kubeconfig, &context.cluster).as_deref() == Some(server)
        {
            names.push(&named.name);
        }
    }
    names
}

/// The URL of a kubeconfig's cluster, for output; `None` if there is no such cluster, or it has no valid URL.
fn server_of_cluster(kubeconfig: &Kubeconfig, name: &str) -> Option<String> {
    let named = kubeconfig.clusters.iter().find(|named| named.name == name)?;
    let url: Uri = named.cluster.as_ref()?.server.as_ref()?.parse().ok()?;
    Some(location(&url))
}

/// A server's URL without user and password, for output.
pub(super) fn location(url: &Uri) -> String {
    redact_url(&url.to_string()).trim_end_matches('/').to_owned()
}

/// The configuration by a kubeconfig, else by the API endpoint, else by the pod's service account.
async fn base(settings: &KubernetesSettings) -> Result<Config, Error> {
    if let Some((kubeconfig, name)) = kubeconfig(settings)? {
        return context::configuration(kubeconfig, settings, &name);
    }
    if !settings.context.is_empty() {
        return Err(SettingsError::context_alone(&settings.context).into());
    }
    let url = settings
        .kubectl
        .server
        .as_deref()
        .unwrap_or(&settings.api_endpoint);
    if !url.is_empty() {
        return Ok(Config::new(endpoint(url)?));
    }
    Config::incluster_env().map_err(|error| Error::NoCluster(innermost(&error)))
}

/// Merges several kubeconfigs. The first file that has a value determines it. Some of several files may be missing, but
/// not all of them.
fn merged(paths: &[PathBuf], name: &str) -> Result<Kubeconfig, Error> {
    let has_several = paths.len() > 1;
    let mut merged: Option<Kubeconfig> = None;
    for path in paths {
        if has_several && !path.exists() {
            continue;
        }
        let next = read_kubeconfig(path, name)?;
        merged = Some(match merged {
            None => next,
            Some(earlier) => earlier
                .merge(next)
                .map_err(|error| unusable_kubeconfig(name, &error))?,
        });
    }
    merged.ok_or_else(|| unreadable(name, "there is no such file".into()))
}

fn read_kubeconfig(path: &Path, name: &str) -> Result<Kubeconfig, Error> {
    // Opening it first rejects a pipe, which the next read would wait for.
    regular::open(path).map_err(|error| unreadable(name, error.to_string()))?;
    Kubeconfig::read_from(path).map_err(|error| unusable_kubeconfig(name, &error))
}

fn unreadable(name: &str, reason: String) -> Error {
    Error::KubeconfigFile {
        what: name.into(),
        reason,
    }
}

/// Applies settings that override or replace a kubeconfig.
fn apply(settings: &KubernetesSettings, config: &mut Config) -> Result<(), Error> {
    if !settings.api_endpoint.is_empty() {
        config.cluster_url = endpoint(&settings.api_endpoint)?;
    }
    if !settings.ca_file.is_empty() {
        config.root_cert = Some(certificates(Path::new(&settings.ca_file))?);
        config.root_cert_file = None;
    }
    if !settings.cert_file.is_empty() || !settings.key_file.is_empty() {
        set_identity(config, settings.cert_file.as_ref(), settings.key_file.as_ref())?;
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

/// True if the client has a certificate, or may get one from a plugin.
pub(crate) fn has_certificate(config: &Config) -> bool {
    let auth = &config.auth_info;
    auth.client_certificate.is_some() || auth.client_certificate_data.is_some() || auth.exec.is_some()
}

/// The error for a configuration from which no client can be created. A failure of a credential plugin or identity
/// provider is not the configuration's fault.
pub(crate) fn unusable(server: &str, error: &kube::Error) -> Error {
    let (what, reason) = match error {
        kube::Error::Auth(
            error @ (AuthError::MissingCommand
            | AuthError::ExecMissingClusterInfo
            | AuthError::ReadTokenFile(..)
            | AuthError::InvalidBearerToken(_)
            | AuthError::InvalidBasicAuth(_)),
        ) => ("the credentials", login_failure(error)),
        kube::Error::Auth(error) => {
            let failure = Failure::Login(login_failure(error));
            return request_error(server, "anything", failure);
        }
        kube::Error::RustlsTls(error) => ("the certificates", innermost(error)),
        other => ("the kubeconfig", innermost(other)),
    };
    Error::Kubeconfig {
        what: what.into(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::secret::Secret;

    fn kubeconfig(server: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
             clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n\
             contexts: [{{name: a, context: {{cluster: c, user: u}}}}]\n"
        )
    }

    fn write(folder: &TempDir, name: &str, text: &str) -> String {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    async fn read(settings: &KubernetesSettings) -> Result<Config, String> {
        config(settings).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn an_inline_kubeconfig_wins_then_the_first_in_the_list() {
        let folder = tempfile::tempdir().unwrap();
        let first = write(&folder, "a", &kubeconfig("https://a:6443", "token: x"));
        let second = write(&folder, "b", &kubeconfig("https://b:6443", "token: y"));
        let mut settings = KubernetesSettings {
            kubeconfig: format!("/does/not/exist:{first}:{second}"),
            ..Default::default()
        };
        let found = read(&settings).await.unwrap();
        assert_eq!(found.cluster_url, "https://a:6443");
        assert!(!found.default_retry && found.connect_timeout.is_some());
        settings.kubeconfig_inline = Secret::new(kubeconfig("https://c:6443", ""));
        assert_eq!(read(&settings).await.unwrap().cluster_url, "https://c:6443");
        settings.api_endpoint = "https://d:6443/k8s".into();
        settings.insecure = true;
        let found = read(&settings).await.unwrap();
        assert_eq!(found.cluster_url, "https://d:6443/k8s");
        assert!(found.accept_invalid_certs && found.root_cert.is_none());
    }

    #[test]
    fn the_context_of_a_server_is_found_if_another_one_is_current() {
        let folder = tempfile::tempdir().unwrap();
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
            clusters: [{name: x, cluster: {server: 'https://x:6443/'}}, {name: y, cluster: {server: 'https://u:p@y'}}]\n\
            contexts: [{name: a, context: {cluster: x, user: u}}, {name: b, context: {cluster: y, user: u}},\n\
            {name: c, context: {cluster: y, user: v}}, {name: d, context: {cluster: z, user: v}}, {name: e}]\n";
        let path = write(&folder, "a", text);
        let of = |server: &str, context: &str| {
            let kubeconfig = path.clone();
            let context = context.to_owned();
            let settings = KubernetesSettings {
                kubeconfig,
                context,
                ..Default::default()
            };
            context_of_server(&settings, server).unwrap()
        };
        assert_eq!(of("https://x:6443", ""), None);
        assert_eq!(of("https://x:6443", "b").as_deref(), Some("a"));
        assert_eq!(of("https://y", "").as_deref(), Some("b"));
        assert_eq!(of("https://y", "c"), None);
        assert_eq!(of("https://elsewhere", ""), None);
    }

    #[tokio::test]
    async fn unusable_settings_are_named_without_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let of = |path: &str| KubernetesSettings {
            kubeconfig: path.to_owned(),
            ..Default::default()
        };
        let broken = write(&folder, "a", "users: [{name: u, user: {token: hunter2}\n");
        let whole = write(&folder, "b", &kubeconfig("https://a:6443", "token: hunter2"));
        let ended = write(
            &folder,
            "c",
            &kubeconfig("https://a:6443", "auth-provider: {name: gcp, config: {}}"),
        );
        let no_yaml = format!("cannot use the kubeconfig {broken}: it is not a kubeconfig in YAML");
        let no_context = "context \"other\" does not exist; available contexts: a";
        for (settings, said) in [
            (of(&broken), no_yaml.as_str()),
            (of("/does/not/exist:/nor/this"), "there is no such file"),
            (of(&ended), "get-credentials"),
            (
                KubernetesSettings {
                    context: "other".into(),
                    ..of(&whole)
                },
                no_context,
            ),
            (
                KubernetesSettings {
                    ca_file: whole.clone(),
                    ..of(&whole)
                },
                "no PEM block",
            ),
            (
                KubernetesSettings {
                    api_endpoint: "u:hunter2@10.0.0.1:6443".into(),
                    ..of(&whole)
                },
                "",
            ),
        ] {
            let error = read(&settings).await.unwrap_err();
            assert!(error.contains(said) && !error.contains("hunter2"), "{error}");
        }
    }
}
