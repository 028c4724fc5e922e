//! Hints for errors of a datastore and its settings.

mod etcd;
mod file;
mod kubernetes;
mod settings;

use calipam_datastore::{Cause, Error, Failure, Permission, Rule, Server};
use calipam_files::FileError;

use self::etcd::{etcd, read_snapshot};
use self::file::file;
use self::kubernetes::kubernetes;
use self::settings::settings;
use super::{connected, dry_run};

/// What to do about an error; `None` if there is nothing to say.
pub(super) fn hint(error: &Error) -> Option<String> {
    let text = match error {
        Error::Settings(error) => return settings(error),
        Error::NoCluster(_) => {
            return Some(format!(
                "say where Calico keeps its data: give a kubeconfig with KUBECONFIG or {}; etcd with ETCD_ENDPOINTS or {}; or an export with {}",
                connected(&["--kubeconfig", "FILE"], &["context"]),
                connected(&["--etcd-endpoints", "URL"], &["datastore"]),
                connected(&["--datastore", "FILE"], &["datastore"])
            ));
        }
        Error::Kubeconfig { .. } | Error::KubeconfigFile { .. } => {
            return Some(format!(
                "name a kubeconfig with KUBECONFIG or {}, and a context in it with --context",
                connected(&["--kubeconfig", "FILE"], &["context"])
            ));
        }
        Error::Connect(tried) => {
            let failures = tried.iter().map(|tried| &tried.failure);
            return failures.max_by_key(|failure| weight(failure)).and_then(etcd);
        }

        Error::Write { server: Server::Etcd, failure: Failure::PermissionDenied(_), .. } => {
            "the user needs to write /calico/: `etcdctl role grant-permission ROLE --prefix=true readwrite /calico/`"
        }
        Error::Request { server, failure, .. } | Error::Write { server, failure, .. } => {
            return match server {
                Server::Etcd => etcd(failure),
                Server::Kubernetes => kubernetes(failure),
            };
        }

        Error::Permission { missing, .. } => {
            return Some(format!(
                "add this to a ClusterRole of the user (docs/kubernetes/rbac.yaml has all that is needed):\n{}",
                rules(missing)
            ));
        }
        Error::NotWritable { .. } => {
            return Some(format!(
                "on a file, repairs are only planned and simulated, {}; to carry them out, connect to the datastore",
                dry_run()
            ));
        }
        Error::NotForCalico2 { .. } => {
            "`release`, `rebuild` and `undo` repair it; for everything else use calicoctl 1.x"
        }
        Error::Compacted { .. } => {
            return Some(format!("something compacts this etcd every few seconds; {}", read_snapshot()));
        }
        Error::RevisionCompacted { oldest: Some(oldest), .. } => {
            return Some(format!(
                "`etcd@{oldest}` can be read; earlier states can only come from a snapshot or an export"
            ));
        }
        Error::RevisionCompacted { .. } => {
            "etcd drops what is older than its last compaction: take a newer revision, or a snapshot or export of that time"
        }
        Error::RevisionAhead { .. } => {
            "is it a revision of this etcd? A restored etcd continues from the revision of its snapshot"
        }
        Error::NoRevisions { .. } => {
            "only etcd keeps past revisions: give its endpoints with `--etcd-endpoints`; for Kubernetes, keep an archive of exports (`export --archive`, `history --archive`)"
        }
        Error::NoCalico { .. } => return file(&FileError::NoCalico),
        Error::NoCalicoKinds { .. } => {
            return Some(format!(
                "is this the right cluster? To use another one: {}. If Calico keeps its data in etcd: {}",
                connected(&CONTEXT, &[]),
                connected(&ENDPOINTS, &["datastore", "kubeconfig", "context"])
            ));
        }
        Error::HostLocal => {
            "there is nothing to check then: each node assigns addresses from its own pod CIDR. If that is \
             not so, unset USE_POD_CIDR (field usePodCIDR)"
        }
        Error::OtherCluster { .. } => {
            "name the kubeconfig or context of the cluster that uses this etcd, or none to read etcd alone"
        }
        Error::File(error) => return file(&error.kind),
    };
    Some(text.to_owned())
}

/// The options of a hint, with what stands for their values.
const ENDPOINTS: [&str; 2] = ["--etcd-endpoints", "https://HOST:2379"];
const CONTEXT: [&str; 2] = ["--context", "NAME"];

/// Of several endpoints that failed, the failure with the highest weight says most about what to do.
fn weight(failure: &Failure) -> u8 {
    match failure {
        Failure::Connection(cause) => match cause {
            Cause::NameNotResolved | Cause::Network(_) | Cause::TimedOut(_) | Cause::Refused => 0,
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

/// The rules of a ClusterRole that grant the permissions, as YAML: a line for each API group and its verbs.
fn rules(permissions: &[Permission]) -> String {
    let line = |Rule { group, resources, verbs }: &Rule<'_>| {
        format!("- {{apiGroups: [{group:?}], resources: {resources:?}, verbs: [{}]}}", verbs.join(", "))
    };
    Permission::rules(permissions).iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use calipam_datastore::{SettingsError, Tried};

    use super::*;

    fn connect(failures: &[Failure]) -> Error {
        let tried = |failure: &Failure| Tried { endpoint: "https://a:2379".into(), failure: failure.clone() };
        Error::Connect(failures.iter().map(tried).collect())
    }

    fn request(server: Server, failure: Failure) -> Error {
        Error::Request { server, endpoint: String::new(), what: String::new(), failure }
    }

    #[test]
    fn the_hint_is_that_of_the_most_telling_failure() {
        let both = connect(&[Cause::Refused.into(), Failure::WrongPassword]);
        assert_eq!(hint(&both), etcd(&Failure::WrongPassword));
        assert!(hint(&connect(&[Cause::Refused.into()])).is_some());
    }

    #[test]
    fn the_same_cause_has_another_hint_for_each_server() {
        let hint = |server| hint(&request(server, Cause::CertificateNotTrusted.into())).unwrap();
        assert!(hint(Server::Etcd).contains("ETCD_CA_CERT_FILE"));
        assert!(hint(Server::Kubernetes).contains("certificate-authority"));
    }

    #[test]
    fn a_write_that_is_denied_needs_another_permission_than_a_read() {
        let denied = || Failure::PermissionDenied(String::new());
        let (endpoint, what) = (String::new(), String::new());
        let write = Error::Write { server: Server::Etcd, endpoint, what, failure: denied() };
        assert!(hint(&write).unwrap().contains("readwrite"));
        assert!(!hint(&request(Server::Etcd, denied())).unwrap().contains("readwrite"));
    }

    #[test]
    fn missing_permissions_become_rules_of_a_role() {
        let pods = |verb| Permission { group: String::new(), resource: "pods".into(), verb };
        let group = "crd.projectcalico.org";
        let blocks = |verb| Permission { group: group.into(), resource: "ipamblocks".into(), verb };
        let pools = Permission { group: group.into(), resource: "ippools".into(), verb: "list" };
        let handles = Permission { group: group.into(), resource: "ipamhandles".into(), verb: "list" };
        let missing = vec![pods("get"), pods("list"), blocks("get"), blocks("list"), handles, pools];
        let error = Error::Permission { endpoint: "e".into(), user: Some("jane".into()), missing };
        let said = "e: the user jane may not get, list pods; get, list ipamblocks (crd.projectcalico.org); \
            list ipamhandles, ippools (crd.projectcalico.org)";
        assert_eq!(error.to_string(), said);
        let rules = [
            r#"- {apiGroups: [""], resources: ["pods"], verbs: [get, list]}"#,
            r#"- {apiGroups: ["crd.projectcalico.org"], resources: ["ipamblocks"], verbs: [get, list]}"#,
            r#"- {apiGroups: ["crd.projectcalico.org"], resources: ["ipamhandles", "ippools"], verbs: [list]}"#,
        ];
        assert!(hint(&error).unwrap().ends_with(&rules.join("\n")));
    }

    #[test]
    fn errors_that_operators_meet_have_hints() {
        let file = |kind| Error::File(calipam_files::Error::new("backup.db", kind));
        for error in [
            Error::NoCalico { location: String::new() },
            Error::NoCalicoKinds { endpoint: String::new() },
            Error::Compacted { endpoint: String::new(), attempts: 4 },
            file(FileError::Empty),
            file(FileError::UnknownKind(String::new())),
            file(FileError::SnapshotCut(String::new())),
            file(FileError::SnapshotDamaged(String::new())),
            request(Server::Etcd, Failure::NoSpace),
            request(Server::Etcd, Failure::TooManyOperations),
            request(Server::Kubernetes, Failure::Unauthorized),
        ] {
            assert!(hint(&error).is_some(), "{error:?}");
        }
    }

    #[test]
    fn options_are_named_in_a_command_that_can_be_run() {
        let connection = [
            connect(&[Cause::Refused.into()]),
            connect(&[Cause::NameNotResolved.into()]),
            connect(&[Cause::ServerWantsTls.into()]),
            connect(&[Cause::CertificateNotTrusted.into()]),
            connect(&[Cause::ClientCertificateRequired.into()]),
            request(Server::Etcd, Failure::NoQuorum(String::new())),
            request(Server::Kubernetes, Cause::Refused.into()),
            Error::NoCalicoKinds { endpoint: String::new() },
            Error::Kubeconfig { what: String::new(), reason: String::new() },
            SettingsError::NoEndpoints.into(),
            SettingsError::ContextAlone("prod".into()).into(),
        ];
        for error in connection {
            let hint = hint(&error).unwrap();
            let commands: Vec<&str> = hint.split('`').skip(1).step_by(2).collect();
            assert!(commands.iter().any(|command| command.starts_with("calipam check --")), "{hint}");
            assert!(commands.iter().all(|command| !command.starts_with('-')), "{hint}");
        }
    }

    #[test]
    fn settings_name_what_is_meant() {
        let (path, field) = ("calicoctl.cfg".into(), "etcdEndpoint".to_owned());
        let error = SettingsError::UnknownField { path, field, similar: Some("etcdEndpoints") };
        assert_eq!(hint(&error.into()).as_deref(), Some("did you mean `etcdEndpoints`?"));
        let srv = hint(&SettingsError::SrvUnsupported("example.org".into()).into()).unwrap();
        assert!(srv.contains("_etcd-client-ssl._tcp.example.org"));
    }
}
