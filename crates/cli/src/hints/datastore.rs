//! Hints for errors of a datastore and its settings.

use calipam_datastore::{Cause, Error, Failure, FileError, Permission, Server, SettingsError};

use super::{command_elsewhere, connected, dry_run};

/// What to do about an error; `None` where there is nothing to say.
pub fn hint(error: &Error) -> Option<String> {
    let text = match error {
        Error::Settings(error) => return settings(error),
        Error::Kubeconfig { .. } | Error::KubeconfigFile { .. } => {
            return Some(format!(
                "name a kubeconfig by KUBECONFIG or {}, and a context in it by --context",
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
                "repairs of a file are planned and simulated, {}; to make them, connect to the datastore",
                dry_run()
            ));
        }
        Error::NotForCalico2 { .. } => {
            "`release`, `rebuild` and `undo` repair it; for all else use calicoctl 1.x"
        }
        Error::Compacted { .. } => {
            return Some(format!("something compacts this etcd every few seconds; {}", read_snapshot()));
        }
        Error::RevisionCompacted { oldest: Some(oldest), .. } => {
            return Some(format!(
                "`etcd@{oldest}` can be read; what was before it is in a snapshot or an export, if anywhere"
            ));
        }
        Error::RevisionCompacted { .. } => {
            "etcd forgets what is older than its compaction: take a newer revision, or a snapshot or export of that time"
        }
        Error::RevisionAhead { .. } => {
            "is it a revision of this etcd? One that was restored counts from its snapshot on"
        }
        Error::NoRevisions { .. } => {
            "only etcd keeps past revisions: give its endpoints by `--etcd-endpoints`; what Kubernetes forgets, an archive of \
             exports keeps (`export --archive`, `history --archive`)"
        }
        Error::NoCalico { .. } => {
            "is this the etcd that Calico uses? A cluster often has another one for the Kubernetes API; \
             with the Kubernetes datastore, Calico uses no etcd of its own. That of Calico 2.x is read with \
             DATASTORE_TYPE=etcdv2"
        }
        Error::NoCalicoKinds { .. } => {
            return Some(format!(
                "is this the right cluster? Name another: {}. Where Calico keeps its data in etcd: {}",
                connected(&CONTEXT, &[]),
                connected(&ENDPOINTS, &["datastore", "kubeconfig", "context"])
            ));
        }
        Error::HostLocal => {
            "there is nothing to check then: each node gives out the addresses of its own pod CIDR. If that is \
             not so, unset USE_POD_CIDR (field usePodCIDR)"
        }
        Error::OtherCluster { .. } => {
            "name the kubeconfig or context of the cluster that uses this etcd, or none to read etcd alone"
        }
        Error::File { kind, .. } => return file(kind),
    };
    Some(text.to_owned())
}

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

/// The options of a hint, with what stands for their values.
const ENDPOINTS: [&str; 2] = ["--etcd-endpoints", "https://HOST:2379"];
const CONTEXT: [&str; 2] = ["--context", "NAME"];
const CA: [&str; 2] = ["--etcd-cacert", "FILE"];

/// What an etcd that cannot be read as it is can give all the same.
fn read_snapshot() -> String {
    let check = connected(&["--datastore", "FILE"], &CONNECTION_OF_ETCD);
    format!("read a snapshot of one member: `etcdctl snapshot save FILE`, then {check}")
}

/// The IDs of options that mean nothing where the data is in a file.
const CONNECTION_OF_ETCD: [&str; 4] = ["etcd_endpoints", "etcd_cacert", "etcd_cert", "etcd_key"];

fn etcd(failure: &Failure) -> Option<String> {
    let text = match failure {
        Failure::Connection(cause) => return etcd_connection(cause),
        Failure::AuthNeeded => {
            "give them by ETCD_USERNAME and ETCD_PASSWORD (fields etcdUsername, etcdPassword)"
        }
        Failure::WrongPassword => "check ETCD_USERNAME and ETCD_PASSWORD (fields etcdUsername, etcdPassword)",
        Failure::PermissionDenied(_) => {
            "the user needs to read /calico/: `etcdctl role grant-permission ROLE --prefix=true read /calico/`"
        }
        Failure::NoQuorum(_) => {
            return Some(format!("look at `etcdctl endpoint status --cluster`; or {}", read_snapshot()));
        }
        Failure::NoV2Api => {
            "etcd 3.4 and 3.5 serve it with `--enable-v2`, older ones always, 3.6 not at all. Calico 3 uses etcd v3, \
             DATASTORE_TYPE=etcdv3"
        }
        Failure::NotEtcd(_) => "etcd listens for clients at port 2379, for its peers at 2380",
        _ => return None,
    };
    Some(text.to_owned())
}

fn etcd_connection(cause: &Cause) -> Option<String> {
    let text = match cause {
        Cause::Refused | Cause::TimedOut(_) | Cause::Network(_) => {
            return Some(format!(
                "is etcd running there, and is the port right (usually 2379)? Set the endpoints by ETCD_ENDPOINTS or {}",
                connected(&ENDPOINTS, &[])
            ));
        }
        Cause::NameNotResolved => {
            return Some(format!("check the host names in ETCD_ENDPOINTS or {}", connected(&ENDPOINTS, &[])));
        }
        Cause::Broken(_) => "run it again; if it stays, look at the log of etcd",
        Cause::ServerWantsTls => {
            return Some(format!(
                "write the endpoint as https://…, and give the CA certificate by ETCD_CA_CERT_FILE (field \
                 etcdCACertFile) or {}",
                connected(&[ENDPOINTS, CA].concat(), &[])
            ));
        }
        Cause::ServerIsPlain => "write the endpoint as http://…",
        Cause::CertificateNotTrusted => {
            return Some(format!(
                "give the CA certificate that signed it by ETCD_CA_CERT_FILE (field etcdCACertFile) or {}",
                connected(&CA, &[])
            ));
        }
        Cause::CertificateExpired => "renew the server's certificate, or set this machine's clock right",
        Cause::CertificateWrongName => "write the endpoint with a name or address that the certificate lists",
        Cause::ClientCertificateRequired => {
            return Some(format!(
                "give certificate and key by ETCD_CERT_FILE and ETCD_KEY_FILE (fields etcdCertFile, etcdKeyFile) or {}",
                connected(&["--etcd-cert", "FILE", "--etcd-key", "FILE"], &[])
            ));
        }
        Cause::ClientCertificateRefused => {
            "check that the certificate in ETCD_CERT_FILE is signed by the CA that this etcd trusts, and has \
             not expired"
        }
        Cause::CertificateBad(_) | Cause::Tls(_) => return None,
    };
    Some(text.to_owned())
}

fn kubernetes(failure: &Failure) -> Option<String> {
    let text = match failure {
        Failure::Connection(cause) => return kubernetes_connection(cause),
        Failure::Login(_) | Failure::Unauthorized => LOG_IN_AGAIN,
        Failure::PermissionDenied(_) => "docs/kubernetes/rbac.yaml has the ClusterRole that is needed",
        Failure::Compacted => {
            "the etcd of the API server is compacted faster than a list can be read: run it again when there is \
             less load"
        }
        Failure::TooManyRequests => "run it again when the API server has less to do",
        Failure::Server { .. } | Failure::Incomplete(_) => LOOK_AT_LOG,
        Failure::NotKubernetes(_) => "check the field `server` of the cluster in the kubeconfig",
        _ => return None,
    };
    Some(text.to_owned())
}

const LOG_IN_AGAIN: &str =
    "does `kubectl get nodes` work with this kubeconfig? Tokens and certificates expire: log in again";
const LOOK_AT_LOG: &str =
    "run it again; if it stays, look at the log of the API server and of a proxy before it";

fn kubernetes_connection(cause: &Cause) -> Option<String> {
    let text = match cause {
        Cause::Refused | Cause::TimedOut(_) | Cause::Network(_) => {
            return Some(format!(
                "is the API server running, and is this its address? Another cluster of the kubeconfig: {}",
                connected(&CONTEXT, &[])
            ));
        }
        Cause::NameNotResolved => "check the field `server` of the cluster in the kubeconfig",
        Cause::Broken(_) => LOOK_AT_LOG,
        Cause::ServerWantsTls => "write the server as https://… in the kubeconfig",
        Cause::ServerIsPlain => "write the server as http://… in the kubeconfig",
        Cause::CertificateNotTrusted => {
            "give the CA certificate that signed it: `certificate-authority` in the kubeconfig, or K8S_CA_FILE"
        }
        Cause::CertificateExpired => "renew the server's certificate, or set this machine's clock right",
        Cause::CertificateWrongName => {
            "write the server with a name or address that the certificate lists, or set `tls-server-name`"
        }
        Cause::ClientCertificateRequired | Cause::ClientCertificateRefused => LOG_IN_AGAIN,
        Cause::CertificateBad(_) | Cause::Tls(_) => return None,
    };
    Some(text.to_owned())
}

fn file(error: &FileError) -> Option<String> {
    let text = match error {
        FileError::Empty | FileError::UnknownKind(_) => {
            return Some(format!(
                "a file is what {}, `etcdctl snapshot save FILE` or `kubectl get … -o json` has written",
                command_elsewhere(&["export", "FILE"])
            ));
        }
        FileError::EtcdFolder => {
            "serve a copy of it: `etcd --data-dir COPY --force-new-cluster --enable-v2 --listen-client-urls \
             http://127.0.0.1:2399 --advertise-client-urls http://127.0.0.1:2399` (etcd 3.4 or older), and read that with \
             DATASTORE_TYPE=etcdv2. The data of Calico 3 lies in its file member/snap/db"
        }
        FileError::Objects(_) | FileError::NoObjects => {
            "write it again: `kubectl get ipamblocks,ipamhandles,blockaffinities,ipamconfigs,ippools,\
             ipreservations,clusterinformations,kubecontrollersconfigurations,nodes,pods,services -A -o json`"
        }
        FileError::ExportVersion(_) => "use the calipam that wrote it, or a later one",
        FileError::ExportLine { .. } | FileError::ExportCut { .. } | FileError::Unpack(_) => {
            let export = command_elsewhere(&["export", "FILE"]);
            return Some(format!("write it again by {export}, or copy it again"));
        }
        FileError::SnapshotCut(_) | FileError::SnapshotChecksum | FileError::SnapshotDamaged(_) => {
            "take it again by `etcdctl snapshot save FILE`; a copy of the file `member/snap/db` of an etcd that \
             runs is not consistent"
        }
        FileError::OtherCluster { .. } => "each cluster has an archive of its own: name another folder",
        FileError::ArchiveBusy => {
            "wait until it has ended; what a killed run leaves does not hinder the next one"
        }
        FileError::NoTime(_) => "take the file out of the folder: its header was changed",
        FileError::Io(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "is the path right, and does its folder exist?"
        }
        FileError::Io(_) => return None,
    };
    Some(text.to_owned())
}

fn settings(error: &SettingsError) -> Option<String> {
    let text = match error {
        SettingsError::Unreadable { .. } => {
            return Some(format!(
                "give another file, {}, or none to use the environment",
                connected(&["--config", "FILE"], &[])
            ));
        }
        SettingsError::BadFile { .. } => {
            "the file is that of calicoctl: apiVersion projectcalico.org/v3, kind CalicoAPIConfig, spec"
        }
        SettingsError::UnknownField { similar: Some(similar), .. } => {
            return Some(format!("did you mean `{similar}`?"));
        }
        SettingsError::UnknownField { similar: None, .. } => {
            "fields are those of calicoctl's configuration file"
        }
        SettingsError::BadVariable { .. } => "unset it, or set it as calicoctl reads it",
        SettingsError::UnknownDatastore(_) => {
            "DATASTORE_TYPE (field datastoreType) is `etcdv3` or `kubernetes`; `etcdv2` for Calico 2.x"
        }
        SettingsError::NoEndpoints => {
            return Some(format!(
                "set them by ETCD_ENDPOINTS, the field etcdEndpoints of the settings file or {}",
                connected(&ENDPOINTS, &[])
            ));
        }
        SettingsError::BadEndpoint { .. } => "an endpoint looks like https://10.0.0.5:2379",
        SettingsError::EndpointsAndSrv => "keep one of ETCD_ENDPOINTS and ETCD_DISCOVERY_SRV",
        SettingsError::SrvUnsupported(domain) => {
            return Some(format!(
                "`dig +short SRV _etcd-client-ssl._tcp.{domain}` (or _etcd-client._tcp) lists the endpoints; \
                 give them by {}",
                connected(&ENDPOINTS, &[])
            ));
        }
        SettingsError::MixedTls => {
            "keep either etcdCACert, etcdCert and etcdKey, or etcdCACertFile, etcdCertFile and etcdKeyFile"
        }
        SettingsError::HalfKeyPair(_) => "set both ETCD_CERT_FILE and ETCD_KEY_FILE, or none of them",
        SettingsError::UnreadablePem { .. } | SettingsError::BadPem { .. } => {
            "certificates and keys are PEM files"
        }
        SettingsError::ContextAlone(_) => {
            return Some(format!(
                "name the kubeconfig that has it by KUBECONFIG or {}",
                connected(&["--kubeconfig", "FILE"], &[])
            ));
        }
        SettingsError::NoSuchDatastore(_) => {
            "a datastore is `etcd`, `etcdv2` (Calico 2.x), `kubernetes` or the path of a file"
        }
    };
    Some(text.to_owned())
}

/// The rules of a ClusterRole that grant the permissions, as YAML.
fn rules(permissions: &[Permission]) -> String {
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

#[cfg(test)]
mod tests {
    use calipam_datastore::Tried;

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
        let error = Error::Permission { endpoint: String::new(), missing: vec![pods("get"), pods("list")] };
        let rule = r#"- {apiGroups: [""], resources: ["pods"], verbs: [get, list]}"#;
        assert!(hint(&error).unwrap().ends_with(rule));
    }

    #[test]
    fn errors_that_operators_meet_have_hints() {
        let file = |kind| Error::File { path: "backup.db".into(), kind };
        for error in [
            Error::NoCalico { location: String::new() },
            Error::NoCalicoKinds { endpoint: String::new() },
            Error::Compacted { endpoint: String::new(), attempts: 4 },
            file(FileError::Empty),
            file(FileError::UnknownKind(String::new())),
            file(FileError::SnapshotCut(String::new())),
            file(FileError::SnapshotDamaged(String::new())),
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
