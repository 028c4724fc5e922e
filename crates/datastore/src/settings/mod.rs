//! Connection settings from calicoctl's configuration file, its environment variables, and the command line, with
//! calicoctl's precedence (facts section 7).

#[cfg(test)]
pub(crate) mod any_text_tests;
mod endpoint;
mod fields;
mod file;
mod tls;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use calipam_files::regular;
use calipam_model::hint::{Call, Hint};

use self::endpoint::normalise;
use self::fields::Values;
use self::tls::tls;
use crate::error::{Attempt, ENDPOINTS, Error, SettingsError};
use crate::secret::Secret;

/// Default path of calicoctl's configuration file.
pub const DEFAULT_CONFIG: &str = "/etc/calico/calicoctl.cfg";
/// The default of [`Timeouts::connect`].
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The default of [`Timeouts::request`].
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The settings from the command line; all others come from the file or the environment.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The settings file.
    pub config: Option<PathBuf>,
    pub kubeconfig: Option<String>,
    pub context: Option<String>,
    /// Comma-separated URLs, which imply etcd as the datastore.
    pub etcd_endpoints: Option<String>,
    /// Files with the CA certificate, the client's certificate and its key, for etcd. Each overrides the corresponding
    /// setting in the file or the environment, whether that setting is a file or text.
    pub etcd_cacert: Option<PathBuf>,
    pub etcd_cert: Option<PathBuf>,
    pub etcd_key: Option<PathBuf>,
    /// `etcd`, `etcdv2`, `kubernetes`, a file, or `-` for standard input.
    pub datastore: Option<String>,
    /// The name of a file in documents, in place of its path.
    pub shown_as: Option<String>,
    /// Time limit to connect, if it is not the default.
    pub connect_timeout: Option<Duration>,
    pub kubectl: KubectlOptions,
    /// True if credential plugins must not ask the user for anything.
    pub unattended: bool,
}

/// kubectl's connection options. They override the kubeconfig and the settings of calicoctl.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubectlOptions {
    pub cluster: Option<String>,
    pub user: Option<String>,
    /// URL of the API server.
    pub server: Option<String>,
    pub token: Secret,
    pub as_user: Option<String>,
    /// The groups to impersonate, with the user.
    pub as_groups: Vec<String>,
    /// See [`Timeouts::request`].
    pub request_timeout: Option<Duration>,
    /// True if the server's certificate is not verified.
    pub insecure: bool,
    pub certificate_authority: Option<PathBuf>,
    /// Certificate and key of the client.
    pub client_identity: Option<(PathBuf, PathBuf)>,
    /// The expected name in the server's certificate.
    pub tls_server_name: Option<String>,
}

/// Reads the files named in settings.
pub trait Files {
    /// The content of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// True if the file exists.
    fn exists(&self, path: &Path) -> bool;
}

#[derive(Clone, Copy, Debug, Default)]
pub struct LocalFiles;

impl Files for LocalFiles {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        regular::read(path)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
}

/// The location of the data, and the connection settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub target: Target,
    /// The settings for Kubernetes, if it is the datastore or is read in addition to etcd.
    pub kubernetes: KubernetesSettings,
    /// See [`Overrides::shown_as`].
    pub shown_as: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Etcd(EtcdSettings),
    /// etcd v2, of Calico 2.x.
    EtcdV2(EtcdSettings),
    Kubernetes,
    /// A file with an export, an etcd snapshot or Kubernetes objects, or a folder with Kubernetes objects.
    File(PathBuf),
    /// An export, an etcd snapshot, or Kubernetes objects from standard input.
    StandardInput,
}

/// The connection settings for etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdSettings {
    /// URLs; at least one, unless a test provides the transport.
    pub endpoints: Vec<String>,
    /// User and password, if both are set; Calico ignores one without the other.
    pub user: Option<(String, Secret)>,
    pub tls: TlsSettings,
    pub timeouts: Timeouts,
}

/// Time limits for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Limit to connect to each endpoint.
    pub connect: Duration,
    /// Limit for an answer; from Kubernetes and etcd v2, for its headers and then for each chunk of its body. All tries
    /// share it, as long as there is no answer; a run that writes has twice the time ([`crate::budget`]).
    pub request: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: CONNECT_TIMEOUT,
            request: REQUEST_TIMEOUT,
        }
    }
}

impl Timeouts {
    fn new(overrides: &Overrides) -> Self {
        Self {
            connect: overrides.connect_timeout.unwrap_or(CONNECT_TIMEOUT),
            request: overrides.kubectl.request_timeout.unwrap_or(REQUEST_TIMEOUT),
        }
    }
}

impl EtcdSettings {
    /// The settings that help to explain why a request with this time limit failed.
    pub(crate) fn attempt(&self, timeout: Duration) -> Attempt {
        Attempt {
            timeout: timeout.as_secs(),
            connect: self.timeouts.connect.as_secs(),
            has_certificate: self.tls.identity.is_some(),
        }
    }
}

/// Certificates and key for TLS, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// The CA that signed the server's certificate; `None` to trust the system's CAs.
    pub ca: Option<String>,
    /// Certificate and key of the client.
    pub identity: Option<(String, Secret)>,
}

impl TlsSettings {
    /// True if anything is set.
    pub fn is_set(&self) -> bool {
        self.ca.is_some() || self.identity.is_some()
    }
}

/// The connection settings for Kubernetes. Empty strings mean "not set".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubernetesSettings {
    /// Path of a kubeconfig, or a list of paths, from the command line, the settings file or `KUBECONFIG`.
    pub kubeconfig: String,
    /// The text of a kubeconfig; overrides `kubeconfig`.
    pub kubeconfig_inline: Secret,
    pub context: String,
    /// URL of the API server.
    pub api_endpoint: String,
    /// Files with key, certificate and CA certificate.
    pub key_file: String,
    /// See `key_file`.
    pub cert_file: String,
    /// See `key_file`.
    pub ca_file: String,
    pub token: Secret,
    /// True if the server's certificate is not verified.
    pub insecure: bool,
    /// The API group of Calico's objects, as set by `CALICO_API_GROUP`.
    pub api_group: String,
    /// True if addresses are assigned from the nodes' pod CIDRs, not by Calico IPAM.
    pub use_pod_cidr: bool,
    pub kubectl: KubectlOptions,
    /// True if credential plugins must not ask the user for anything.
    pub unattended: bool,
    pub timeouts: Timeouts,
}

impl KubernetesSettings {
    /// True if a kubeconfig or the URL of an API server is named.
    pub fn is_named(&self) -> bool {
        let has_url = !self.api_endpoint.is_empty() || self.kubectl.server.is_some();
        has_url || !self.kubeconfig.is_empty() || !self.kubeconfig_inline.is_empty()
    }

    /// True if the cluster is named by context, name or URL. A kubeconfig alone does not name a cluster, since its
    /// current context may be any cluster.
    pub fn names_cluster(&self) -> bool {
        let has_url = !self.api_endpoint.is_empty() || self.kubectl.server.is_some();
        has_url || !self.context.is_empty() || self.kubectl.cluster.is_some()
    }

    /// Returns the settings, or an error if addresses come from host-local IPAM.
    pub(crate) fn require_calico_ipam(&self) -> Result<&Self, Error> {
        if !self.use_pod_cidr {
            return Ok(self);
        }
        Err(Error::other(
            "usePodCIDR is set: host-local IPAM assigns the addresses, not Calico IPAM",
            "nothing can be checked: each node assigns addresses from its own pod CIDR. If that is wrong, \
             unset USE_POD_CIDR (field usePodCIDR)",
        ))
    }

    /// The connection settings for Kubernetes, whichever datastore is set.
    pub fn resolve(
        overrides: &Overrides,
        environment: &BTreeMap<String, String>,
        files: &impl Files,
    ) -> Result<Self, SettingsError> {
        let values = load(overrides, environment, files)?;
        Ok(kubernetes(&values, overrides, environment))
    }
}

impl Settings {
    /// Determines where the data is and how to connect to it. `environment` is the process environment.
    ///
    /// If a settings file exists, only the file is used, otherwise the environment. The command line overrides both.
    /// `KUBECONFIG` is also used if there is a settings file that names no kubeconfig.
    pub fn resolve(
        overrides: &Overrides,
        environment: &BTreeMap<String, String>,
        files: &impl Files,
    ) -> Result<Self, SettingsError> {
        let data_file = offline_file(overrides, files)?;
        let values = if data_file.is_some() && overrides.config.is_none() {
            // A data file needs no settings, so invalid settings in the default file do not matter.
            Values::default()
        } else {
            load(overrides, environment, files)?
        };
        let kubernetes = kubernetes(&values, overrides, environment);
        let target = match data_file {
            Some(file) => file,
            None => server(&values, overrides, files)?,
        };

        // For the Kubernetes datastore, the kubeconfig may be at its default path.
        if let Some(context) = &overrides.context
            && target != Target::Kubernetes
            && kubernetes.kubeconfig.is_empty()
            && kubernetes.kubeconfig_inline.is_empty()
        {
            return Err(SettingsError::context_alone(context));
        }
        Ok(Self {
            target,
            kubernetes,
            shown_as: overrides.shown_as.clone(),
        })
    }

    /// Like [`Self::resolve`], but uses only the environment, without a settings file. Used by the CNI plugin.
    pub fn from_environment(
        environment: &BTreeMap<String, String>,
        files: &impl Files,
    ) -> Result<Self, SettingsError> {
        let values = Values::from_environment(environment)?;
        let none = Overrides::default();
        let kubernetes = kubernetes(&values, &none, environment);
        let target = server(&values, &none, files)?;
        Ok(Self {
            target,
            kubernetes,
            shown_as: None,
        })
    }
}

/// The file or standard input that is named as the datastore. Any string that looks like a path means a file, even if
/// the file is missing, since an unreadable file is not a usage error.
fn offline_file(overrides: &Overrides, files: &impl Files) -> Result<Option<Target>, SettingsError> {
    match overrides.datastore.as_deref() {
        None | Some("etcd" | "etcdv3" | "etcdv2" | "kubernetes") => Ok(None),
        Some("-") => Ok(Some(Target::StandardInput)),
        Some(name) if name.contains(['/', '.']) || files.exists(Path::new(name)) => {
            Ok(Some(Target::File(PathBuf::from(name))))
        }
        Some(name) => Err(SettingsError::invalid(
            format!("no data file or datastore {name:?}: it is neither `etcd`, nor `kubernetes`, nor a file"),
            "a datastore is `etcd`, `etcdv2` (Calico 2.x), `kubernetes` or the path of a file",
        )),
    }
}

/// Reads the settings file or, if none is named and the default one is missing, the environment.
fn load(
    overrides: &Overrides,
    environment: &BTreeMap<String, String>,
    files: &impl Files,
) -> Result<Values, SettingsError> {
    let path = overrides.config.as_deref().unwrap_or(Path::new(DEFAULT_CONFIG));
    if overrides.config.is_none() && !files.exists(path) {
        return Values::from_environment(environment);
    }
    let text = files.read(path).map_err(|error| {
        let hint = Hint::new(
            "give another file, {}, or none to use the environment",
            [Call::connected(["--config", "FILE"])],
        );
        SettingsError::unreadable(
            format!("cannot read the settings file {}: {error}", path.display()),
            hint,
        )
    })?;
    file::parse(path, &text)
}

/// The server that holds the data: the one on the command line, or the one in the settings, or etcd v3 if endpoints are
/// set, or else Kubernetes.
fn server(values: &Values, overrides: &Overrides, files: &impl Files) -> Result<Target, SettingsError> {
    let type_in_settings = values.text("datastoreType");
    let datastore_type = if let Some(on_command_line) = overrides.datastore.as_deref() {
        on_command_line
    } else if overrides.etcd_endpoints.is_some() {
        // Endpoints on the command line imply etcd; the settings may name its version.
        match type_in_settings {
            Some("etcdv2") => "etcdv2",
            _ => "etcd",
        }
    } else {
        match type_in_settings {
            Some(known @ ("etcdv3" | "etcdv2" | "kubernetes")) => known,
            Some(unknown) => return Err(SettingsError::unknown_datastore(unknown)),
            None if values.text("etcdEndpoints").is_some() => "etcd",
            None => "kubernetes",
        }
    };
    Ok(match datastore_type {
        "kubernetes" => Target::Kubernetes,
        "etcdv2" => Target::EtcdV2(etcd(values, overrides, files)?),
        _ => Target::Etcd(etcd(values, overrides, files)?),
    })
}

/// The settings of etcd, by the command line, the environment or the settings file.
fn etcd(values: &Values, overrides: &Overrides, files: &impl Files) -> Result<EtcdSettings, SettingsError> {
    let tls = tls(values, overrides, files)?;
    let on_command_line = overrides.etcd_endpoints.as_deref();
    let list = on_command_line
        .or(values.text("etcdEndpoints"))
        .unwrap_or_default();
    // Calico's client always has a TLS configuration, so etcd's client uses TLS for endpoints without a scheme.
    // Endpoints on the command line are read as in etcdctl.
    let usual_scheme = if on_command_line.is_some() && !tls.is_set() {
        "http"
    } else {
        "https"
    };
    let mut endpoints = Vec::new();
    for endpoint in list.split(',') {
        if !endpoint.trim().is_empty() {
            endpoints.push(normalise(endpoint, usual_scheme)?);
        }
    }

    if let Some(domain) = values.text("etcdDiscoverySrv")
        && on_command_line.is_none()
    {
        if endpoints.is_empty() {
            return Err(not_looked_up(domain));
        }
        return Err(SettingsError::invalid(
            "both etcd endpoints and a discovery domain are set",
            "keep one of ETCD_ENDPOINTS and ETCD_DISCOVERY_SRV",
        ));
    }
    if endpoints.is_empty() {
        return Err(SettingsError::no_endpoints());
    }

    let user = match (values.text("etcdUsername"), values.text("etcdPassword")) {
        (Some(user), Some(password)) => Some((user.to_owned(), Secret::new(password))),
        _ => None,
    };
    Ok(EtcdSettings {
        endpoints,
        user,
        tls,
        timeouts: Timeouts::new(overrides),
    })
}

/// The error if the endpoints can only be found by a discovery domain.
fn not_looked_up(domain: &str) -> SettingsError {
    let hint = Hint::new(
        "`dig +short SRV _etcd-client-ssl._tcp.{}` (or _etcd-client._tcp) lists the endpoints; give them with {}",
        [Call::Name(domain.to_owned()), Call::connected(ENDPOINTS)],
    );
    let message = format!("the discovery domain {domain:?} is set, but SRV records are not looked up");
    SettingsError::invalid(message, hint)
}

/// The settings of Kubernetes, by the command line, the settings file or the environment.
fn kubernetes(
    values: &Values,
    overrides: &Overrides,
    environment: &BTreeMap<String, String>,
) -> KubernetesSettings {
    let on_command_line = overrides.kubeconfig.as_deref();
    let in_environment = environment
        .get("CALICO_KUBECONFIG")
        .or(environment.get("KUBECONFIG"));
    let kubeconfig = on_command_line
        .or(values.text("kubeconfig"))
        .or(in_environment.map(String::as_str))
        .unwrap_or_default();
    // A kubeconfig on the command line overrides the inline one.
    let mut kubeconfig_inline = String::new();
    if on_command_line.is_none() {
        kubeconfig_inline = values.owned("kubeconfigInline");
    }
    KubernetesSettings {
        kubeconfig: kubeconfig.to_owned(),
        kubeconfig_inline: Secret::new(kubeconfig_inline),
        context: overrides
            .context
            .clone()
            .unwrap_or_else(|| values.owned("k8sCurrentContext")),
        api_endpoint: values.owned("k8sAPIEndpoint"),
        key_file: values.owned("k8sKeyFile"),
        cert_file: values.owned("k8sCertFile"),
        ca_file: values.owned("k8sCAFile"),
        token: Secret::new(values.owned("k8sAPIToken")),
        insecure: values.flag("k8sInsecureSkipTLSVerify"),
        api_group: values.owned("calicoAPIGroup"),
        use_pod_cidr: values.flag("usePodCIDR"),
        kubectl: overrides.kubectl.clone(),
        unattended: overrides.unattended,
        timeouts: Timeouts::new(overrides),
    }
}

#[cfg(test)]
mod tests;
