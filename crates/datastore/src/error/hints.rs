//! Hints for errors of a datastore and its settings.

use calipam_files::FileError;
use calipam_model::hint::{Call, Hint};
use calipam_model::words::joined;

use super::{Cause, Error, Failure, Permission, Rule, Server};

/// Options with placeholders for their values.
pub(crate) const ENDPOINTS: [&str; 2] = ["--etcd-endpoints", "https://HOST:2379"];
const CA: [&str; 2] = ["--etcd-cacert", "FILE"];
const FILE: [&str; 2] = ["--datastore", "FILE"];

impl Error {
    /// A hint about the next action, if there is one.
    pub fn hint(&self) -> Option<Hint> {
        Some(match self {
            Self::Settings(error) => error.hint(),
            Self::NoCluster(_) => {
                let other_etcd = Call::connected(["--etcd-endpoints", "URL"]).without(&["datastore"]);
                Hint::new(
                    "say where Calico keeps its data: give a kubeconfig with KUBECONFIG or {}; etcd with ETCD_ENDPOINTS or {}; or an export with {}",
                    [other_kubeconfig(), other_etcd, Call::connected(FILE)],
                )
            }
            Self::Kubeconfig { .. } | Self::KubeconfigFile { .. } => Hint::new(
                "name a kubeconfig with KUBECONFIG or {}, and a context in it with --context",
                [other_kubeconfig()],
            ),
            Self::Connect(tried) => {
                let failures = tried.iter().map(|tried| &tried.failure);
                return failures.max_by_key(|failure| weight(failure)).and_then(etcd);
            }
            Self::Write { server: Server::Etcd, failure: Failure::PermissionDenied(_), .. } => {
                "the etcd user needs write access to /calico/: `etcdctl role grant-permission ROLE --prefix=true readwrite /calico/`"
                    .into()
            }
            Self::Request { server, failure, .. } | Self::Write { server, failure, .. } => {
                return match server {
                    Server::Etcd => etcd(failure),
                    Server::Kubernetes => kubernetes(failure),
                };
            }
            Self::Permission { missing, .. } => format!(
                "add this to a ClusterRole of the user (docs/kubernetes/rbac.yaml has all rules):\n{}",
                joined(Permission::rules(missing).iter().map(Rule::yaml), "\n")
            )
            .into(),
            Self::NoRevisions { .. } => {
                "only etcd keeps past revisions: give its endpoints with `--etcd-endpoints`; for Kubernetes, keep an archive of exports (`export --archive`, `history --archive`)".into()
            }
            Self::NoCalico { .. } => return FileError::NoCalico.hint(),
            Self::Other { hint, .. } => hint.clone(),
            Self::File(error) => return error.kind.hint(),
        })
    }
}

fn other_kubeconfig() -> Call {
    Call::connected(["--kubeconfig", "FILE"]).without(&["context"])
}

pub(crate) fn other_context() -> Call {
    Call::connected(["--context", "NAME"])
}

/// The current call with an etcd in place of its datastore.
pub(crate) fn etcd_instead() -> Call {
    Call::connected(ENDPOINTS).without(&["datastore", "kubeconfig", "context"])
}

/// The weight of a failure. If several endpoints have failed, the failure with the highest weight has the most useful
/// hint.
fn weight(failure: &Failure) -> u8 {
    match failure {
        Failure::Connection(cause) => match cause {
            Cause::NameNotResolved
            | Cause::Network(_)
            | Cause::TimedOut(_)
            | Cause::GivenUp(_)
            | Cause::Refused => 0,
            Cause::Broken(_) => 1,
            Cause::ServerWantsTls | Cause::ServerIsPlain | Cause::Tls(_) => 2,
            Cause::CertificateNotTrusted
            | Cause::CertificateExpired
            | Cause::CertificateWrongName
            | Cause::CertificateBad(_)
            | Cause::ClientCertificateRequired
            | Cause::ClientCertificateRefused => 3,
        },
        Failure::AuthNeeded | Failure::WrongPassword | Failure::PermissionDenied(_) => 4,
        _ => 1,
    }
}

/// Suggests reading a snapshot of an etcd that cannot be read itself.
pub(crate) fn read_snapshot(before: &str) -> Hint {
    Hint::new(
        format!("{before}read a snapshot of one member: `etcdctl snapshot save FILE`, then {{}}"),
        [Call::connected(FILE).without(&["etcd_endpoints", "etcd_cacert", "etcd_cert", "etcd_key"])],
    )
}

/// Suggests how to resolve a failure of a request to etcd.
fn etcd(failure: &Failure) -> Option<Hint> {
    Some(match failure {
        Failure::Connection(cause) => return etcd_connection(cause),
        Failure::AuthNeeded => "set ETCD_USERNAME and ETCD_PASSWORD (fields etcdUsername, etcdPassword)".into(),
        Failure::WrongPassword => {
            "check ETCD_USERNAME and ETCD_PASSWORD (fields etcdUsername, etcdPassword)".into()
        }
        Failure::PermissionDenied(_) => {
            "the etcd user needs read access to /calico/: `etcdctl role grant-permission ROLE --prefix=true read /calico/`".into()
        }
        Failure::NoQuorum(_) => read_snapshot("see `etcdctl endpoint status --cluster`; or "),
        Failure::NoSpace => {
            "`etcdctl compact REVISION`, `etcdctl defrag` for each member, then `etcdctl alarm disarm`; or raise its \
             `--quota-backend-bytes`".into()
        }
        Failure::TooManyOperations => {
            "calipam sends up to 128: start etcd with `--max-txn-ops 128`, the usual limit".into()
        }
        Failure::NoV2Api => {
            "etcd 3.4 and 3.5 serve it with `--enable-v2`, older versions always, and 3.6 never. Calico 3 uses \
             etcd v3, DATASTORE_TYPE=etcdv3".into()
        }
        Failure::NotEtcd(_) => "etcd listens for clients on port 2379, and for its peers on 2380".into(),
        _ => return None,
    })
}

/// Suggests how to resolve a failure to connect to etcd.
fn etcd_connection(cause: &Cause) -> Option<Hint> {
    Some(match cause {
        Cause::Refused | Cause::TimedOut(_) | Cause::GivenUp(_) | Cause::Network(_) => Hint::new(
            "is etcd running there, and is the port right (usually 2379)? Set the endpoints with ETCD_ENDPOINTS or {}",
            [Call::connected(ENDPOINTS)],
        ),
        Cause::NameNotResolved => Hint::new(
            "check the host names in ETCD_ENDPOINTS or {}",
            [Call::connected(ENDPOINTS)],
        ),
        Cause::Broken(_) => "retry; if it happens again, see etcd's log".into(),
        Cause::ServerWantsTls => Hint::new(
            "write the endpoint as https://…, and give the CA certificate with ETCD_CA_CERT_FILE (field \
             etcdCACertFile) or {}",
            [Call::connected([ENDPOINTS, CA].concat())],
        ),
        Cause::ServerIsPlain => "write the endpoint as http://…".into(),
        Cause::CertificateNotTrusted => Hint::new(
            "give the CA certificate that signed it with ETCD_CA_CERT_FILE (field etcdCACertFile) or {}",
            [Call::connected(CA)],
        ),
        Cause::CertificateExpired => RENEW.into(),
        Cause::CertificateWrongName => {
            "write the endpoint with a name or address that the certificate lists".into()
        }
        Cause::ClientCertificateRequired => Hint::new(
            "give the certificate and key with ETCD_CERT_FILE and ETCD_KEY_FILE (fields etcdCertFile, etcdKeyFile) \
             or {}",
            [Call::connected(["--etcd-cert", "FILE", "--etcd-key", "FILE"])],
        ),
        Cause::ClientCertificateRefused => {
            "check that the certificate in ETCD_CERT_FILE is signed by the CA that this etcd trusts, and has \
             not expired"
                .into()
        }
        Cause::CertificateBad(_) | Cause::Tls(_) => return None,
    })
}

const RENEW: &str = "renew the server's certificate, or correct this machine's clock";
const LOOK_AT_LOG: &str =
    "retry; if it happens again, see the logs of the API server and of any proxy in front of it";

fn log_in_again() -> Hint {
    Hint::new(
        "does {} work with this kubeconfig? Tokens and certificates expire: log in again",
        [Call::kubectl(["get", "nodes"])],
    )
}

/// Suggests how to resolve a failure of a request to the API server.
fn kubernetes(failure: &Failure) -> Option<Hint> {
    Some(match failure {
        Failure::Connection(cause) => return kubernetes_connection(cause),
        Failure::Login(_) | Failure::Unauthorized => log_in_again(),
        Failure::PermissionDenied(_) => "docs/kubernetes/rbac.yaml has the necessary ClusterRole".into(),
        Failure::Compacted => {
            "the API server's etcd is compacted faster than a list can be read: retry when there is less load"
                .into()
        }
        Failure::TooManyRequests => "retry when the API server is less busy".into(),
        Failure::Server { .. } | Failure::Incomplete(_) => LOOK_AT_LOG.into(),
        Failure::NotKubernetes(_) => SERVER_FIELD.into(),
        _ => return None,
    })
}

const SERVER_FIELD: &str = "check the cluster's `server` field in the kubeconfig";

/// Suggests how to resolve a failure to connect to the API server.
fn kubernetes_connection(cause: &Cause) -> Option<Hint> {
    Some(match cause {
        Cause::Refused | Cause::TimedOut(_) | Cause::GivenUp(_) | Cause::Network(_) => Hint::new(
            "is the API server running, and is this its address? To use another cluster in the kubeconfig: {}",
            [other_context()],
        ),
        Cause::NameNotResolved => SERVER_FIELD.into(),
        Cause::Broken(_) => LOOK_AT_LOG.into(),
        Cause::ServerWantsTls => "write the server as https://… in the kubeconfig".into(),
        Cause::ServerIsPlain => "write the server as http://… in the kubeconfig".into(),
        Cause::CertificateNotTrusted => {
            "give the CA certificate that signed it: `certificate-authority` in the kubeconfig, or K8S_CA_FILE"
                .into()
        }
        Cause::CertificateExpired => RENEW.into(),
        Cause::CertificateWrongName => {
            "write the server with a name or address that the certificate lists, or set `tls-server-name`".into()
        }
        Cause::ClientCertificateRequired | Cause::ClientCertificateRefused => log_in_again(),
        Cause::CertificateBad(_) | Cause::Tls(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Tried;

    fn connect(failures: &[Failure]) -> Error {
        let tried = |failure: &Failure| Tried {
            endpoint: "https://a:2379".into(),
            failure: failure.clone(),
        };
        Error::Connect(failures.iter().map(tried).collect())
    }

    fn request(server: Server, failure: Failure) -> Error {
        Error::Request {
            server,
            endpoint: String::new(),
            what: String::new(),
            failure,
        }
    }

    #[test]
    fn the_hint_is_that_of_the_most_telling_failure() {
        let both = connect(&[Cause::Refused.into(), Failure::WrongPassword]);
        assert_eq!(both.hint(), etcd(&Failure::WrongPassword));
        assert!(connect(&[Cause::Refused.into()]).hint().is_some());
    }

    #[test]
    fn the_same_cause_has_another_hint_for_each_server() {
        let text = |server| {
            request(server, Cause::CertificateNotTrusted.into())
                .hint()
                .unwrap()
                .text
        };
        assert!(text(Server::Etcd).contains("ETCD_CA_CERT_FILE"));
        assert!(text(Server::Kubernetes).contains("certificate-authority"));
    }

    #[test]
    fn a_write_that_is_denied_needs_another_permission_than_a_read() {
        let denied = || Failure::PermissionDenied(String::new());
        let endpoint = String::new();
        let what = String::new();
        let write = Error::Write {
            server: Server::Etcd,
            endpoint,
            what,
            failure: denied(),
        };
        assert!(write.hint().unwrap().text.contains("readwrite"));
        assert!(
            !request(Server::Etcd, denied())
                .hint()
                .unwrap()
                .text
                .contains("readwrite")
        );
    }

    #[test]
    fn missing_permissions_become_rules_of_a_role() {
        let pods = |verb| Permission {
            group: String::new(),
            resource: "pods".into(),
            verb,
        };
        let group = "crd.projectcalico.org";
        let blocks = |verb| Permission {
            group: group.into(),
            resource: "ipamblocks".into(),
            verb,
        };
        let pools = Permission {
            group: group.into(),
            resource: "ippools".into(),
            verb: "list",
        };
        let handles = Permission {
            group: group.into(),
            resource: "ipamhandles".into(),
            verb: "list",
        };
        let missing = vec![
            pods("get"),
            pods("list"),
            blocks("get"),
            blocks("list"),
            handles,
            pools,
        ];
        let error = Error::Permission {
            endpoint: "e".into(),
            user: Some("jane".into()),
            missing,
        };
        let said = "e: the user jane lacks permissions: get, list pods; get, list ipamblocks (crd.projectcalico.org); \
            list ipamhandles, ippools (crd.projectcalico.org)";
        assert_eq!(error.to_string(), said);
        let rules = [
            r#"- {apiGroups: [""], resources: ["pods"], verbs: [get, list]}"#,
            r#"- {apiGroups: ["crd.projectcalico.org"], resources: ["ipamblocks"], verbs: [get, list]}"#,
            r#"- {apiGroups: ["crd.projectcalico.org"], resources: ["ipamhandles", "ippools"], verbs: [list]}"#,
        ];
        assert!(error.hint().unwrap().text.ends_with(&rules.join("\n")));
    }

    #[test]
    fn errors_that_operators_meet_have_hints() {
        let file = |kind| Error::File(calipam_files::Error::new("backup.db", kind));
        for error in [
            Error::NoCalico {
                location: String::new(),
            },
            file(FileError::Empty),
            file(FileError::UnknownKind(String::new())),
            file(FileError::SnapshotCut(String::new())),
            file(FileError::SnapshotDamaged(String::new())),
            request(Server::Etcd, Failure::NoSpace),
            request(Server::Etcd, Failure::TooManyOperations),
            request(Server::Kubernetes, Failure::Unauthorized),
        ] {
            assert!(error.hint().is_some(), "{error:?}");
        }
    }
}
