//! What can go wrong with Kubernetes. Every error names the object and has a hint; none holds a secret.

use std::fmt;

/// Why Kubernetes could not be read.
#[derive(Debug, thiserror::Error)]
pub enum KubeError {
    /// The settings or the kubeconfig make no sense: a usage error.
    #[error("cannot use {what}: {reason}")]
    Config {
        /// What is set: a kubeconfig, a certificate.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The API server could not be reached, refused a request, or broke off.
    #[error("{server}: cannot read {what}: {failure}")]
    Request {
        /// The URL of the API server, without user and password.
        server: String,
        /// What was being read.
        what: String,
        /// What happened.
        failure: KubeFailure,
    },
    /// A write was refused or broke off. Where it broke off, it may have taken place.
    #[error("{server}: cannot write {what}: {failure}")]
    Write {
        /// The URL of the API server, without user and password.
        server: String,
        /// What was being written.
        what: String,
        /// What happened.
        failure: KubeFailure,
    },
    /// The user lacks permissions.
    #[error("{server}: the user may not {}", Missing(missing))]
    Permission {
        /// The URL of the API server.
        server: String,
        /// What is missing.
        missing: Vec<Permission>,
    },
    /// Calico's custom resources are not installed.
    #[error(
        "{server}: holds no Calico data: neither the API group crd.projectcalico.org nor projectcalico.org \
             has any of its kinds"
    )]
    NoCalico {
        /// The URL of the API server.
        server: String,
    },
    /// Addresses come from the nodes' pod CIDRs.
    #[error("the settings say usePodCIDR: addresses are given out by host-local IPAM, not by Calico's")]
    HostLocal,
    /// etcd and Kubernetes are not of one cluster.
    #[error(
        "{server}: is not the Kubernetes of this etcd: of its {nodes} nodes only {known} occur among Calico's"
    )]
    OtherCluster {
        /// The URL of the API server.
        server: String,
        /// Its nodes.
        nodes: usize,
        /// Those among them that a Calico node refers to.
        known: usize,
    },
}

/// A permission: verb, API group and resource, in the terms of RBAC.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// The API group; empty for the core one.
    pub group: String,
    /// The plural of the kind.
    pub resource: String,
    /// `list` or `get`.
    pub verb: &'static str,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeFailure {
    /// Nothing listens there.
    #[error("connection refused")]
    Refused,
    /// No answer, or no more of it, within the time-out.
    #[error("no answer within {0} s")]
    TimedOut(u64),
    /// The network does not reach it.
    #[error("not reachable: {0}")]
    Network(String),
    /// The name has no address.
    #[error("the name cannot be resolved")]
    NameNotResolved,
    /// The server speaks no TLS.
    #[error("the server speaks no TLS")]
    ServerIsPlain,
    /// No trusted authority has signed the server's certificate.
    #[error("the server's certificate is not trusted")]
    CertificateNotTrusted,
    /// The server's certificate has expired or is not valid yet.
    #[error("the server's certificate has expired or is not valid yet")]
    CertificateExpired,
    /// The server's certificate names other hosts.
    #[error("the server's certificate is for another name")]
    CertificateWrongName,
    /// TLS failed in another way.
    #[error("TLS failed: {0}")]
    Tls(String),
    /// Getting credentials failed.
    #[error("authentication failed: {0}")]
    Login(String),
    /// The server does not know the user.
    #[error("the server does not accept the credentials (401)")]
    Unauthorized,
    /// The user may not do this.
    #[error("permission denied (403): {0}")]
    Forbidden(String),
    /// The server has no such object or kind.
    #[error("not found (404)")]
    NotFound,
    /// The object is there already, or is not the version that was to be changed.
    #[error("the object has changed (409): {0}")]
    Conflict(String),
    /// The revision of a list was compacted away, again and again.
    #[error("the revision that was being read has been compacted (410)")]
    Gone,
    /// The server has too much to do.
    #[error("the server has too much to do (429)")]
    TooManyRequests,
    /// The server failed.
    #[error("the server failed ({code}): {message}")]
    Server {
        /// The HTTP status.
        code: u16,
        /// What the server says.
        message: String,
    },
    /// The connection was lost, or an answer broke off.
    #[error("the answer broke off: {0}")]
    Broken(String),
    /// What answers is no Kubernetes API server.
    #[error("what answers there is no Kubernetes API server: {0}")]
    NotKubernetes(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl KubeError {
    /// True where the user has to change the call or the settings.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Config { .. })
    }

    /// What to do next, where there is something to say.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Config { .. } => {
                "name a kubeconfig by `--kubeconfig` or KUBECONFIG, and a context in it by `--context`"
            }
            Self::Request { failure, .. } | Self::Write { failure, .. } => return failure.hint(),
            Self::Permission { missing, .. } => {
                return Some(format!(
                    "add this to a ClusterRole of the user (docs/kubernetes-rbac.yaml has all that is needed):\n{}",
                    rules(missing)
                ));
            }
            Self::NoCalico { .. } => {
                "is this the right cluster? Name another by `--context`. Where Calico keeps its data in etcd, give \
                 `--etcd-endpoints`"
            }
            Self::HostLocal => {
                "there is nothing to check then: each node gives out the addresses of its own pod CIDR. If that is \
                 not so, unset USE_POD_CIDR (field usePodCIDR)"
            }
            Self::OtherCluster { .. } => {
                "name the kubeconfig or context of the cluster that uses this etcd, or none to read etcd alone"
            }
        };
        Some(text.to_owned())
    }
}

impl KubeFailure {
    /// What to do next, where there is something to say.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Refused | Self::TimedOut(_) | Self::Network(_) => {
                "is the API server running, and is this its address? Another cluster of the kubeconfig is named by \
                 `--context`"
            }
            Self::NameNotResolved => "check the field `server` of the cluster in the kubeconfig",
            Self::ServerIsPlain => "write the server as http://… in the kubeconfig",
            Self::CertificateNotTrusted => {
                "give the CA certificate that signed it: `certificate-authority` in the kubeconfig, or K8S_CA_FILE"
            }
            Self::CertificateExpired => "renew the server's certificate, or set this machine's clock right",
            Self::CertificateWrongName => {
                "write the server with a name or address that the certificate lists, or set `tls-server-name`"
            }
            Self::Login(_) | Self::Unauthorized => {
                "does `kubectl get nodes` work with this kubeconfig? Tokens and certificates expire: log in again"
            }
            Self::Forbidden(_) => "docs/kubernetes-rbac.yaml has the ClusterRole that is needed",
            Self::Gone => {
                "etcd behind the API server is compacted faster than a list can be read: run it again when there is \
                 less load"
            }
            Self::TooManyRequests => "run it again when the API server has less to do",
            Self::Server { .. } | Self::Broken(_) => {
                "run it again; if it stays, look at the log of the API server and of a proxy before it"
            }
            Self::NotKubernetes(_) => "check the field `server` of the cluster in the kubeconfig",
            Self::NotFound | Self::Conflict(_) | Self::Tls(_) | Self::Other(_) => return None,
        };
        Some(text.to_owned())
    }
}

/// Permissions in one line: `list pods and ipamblocks.crd.projectcalico.org; get nodes`.
struct Missing<'a>(&'a [Permission]);

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, permission) in self.0.iter().enumerate() {
            let Permission { group, resource, verb } = permission;
            let separator = if i == 0 { "" } else { ", " };
            let dot = if group.is_empty() { "" } else { "." };
            write!(f, "{separator}{verb} {resource}{dot}{group}")?;
        }
        Ok(())
    }
}

/// The rules of a ClusterRole that grant the permissions, as YAML.
pub(super) fn rules(permissions: &[Permission]) -> String {
    let mut rules: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for Permission { group, resource, verb } in permissions {
        match rules.iter_mut().find(|(g, r, _)| (g, r) == (&group.as_str(), &resource.as_str())) {
            Some((_, _, verbs)) => verbs.push(verb),
            None => rules.push((group, resource, vec![verb])),
        }
    }
    let line = |(group, resource, verbs): &(&str, &str, Vec<&str>)| {
        format!("- {{apiGroups: [\"{group}\"], resources: [\"{resource}\"], verbs: [{}]}}", verbs.join(", "))
    };
    rules.iter().map(line).collect::<Vec<_>>().join("\n")
}
