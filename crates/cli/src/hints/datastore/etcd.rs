//! Failures of an etcd.

use calipam_datastore::{Cause, Failure};

use super::ENDPOINTS;
use crate::hints::connected;

const CA: [&str; 2] = ["--etcd-cacert", "FILE"];

/// What an etcd that cannot be read as it is can give anyway.
pub(super) fn read_snapshot() -> String {
    let check = connected(&["--datastore", "FILE"], &CONNECTION_OF_ETCD);
    format!("read a snapshot of one member: `etcdctl snapshot save FILE`, then {check}")
}

/// The IDs of options that mean nothing if the data is in a file.
const CONNECTION_OF_ETCD: [&str; 4] = ["etcd_endpoints", "etcd_cacert", "etcd_cert", "etcd_key"];

/// What to do about a failure of an etcd; `None` if there is nothing to say.
pub(super) fn etcd(failure: &Failure) -> Option<String> {
    let text = match failure {
        Failure::Connection(cause) => return etcd_connection(cause),
        Failure::AuthNeeded => "set ETCD_USERNAME and ETCD_PASSWORD (fields etcdUsername, etcdPassword)",
        Failure::WrongPassword => "check ETCD_USERNAME and ETCD_PASSWORD (fields etcdUsername, etcdPassword)",
        Failure::PermissionDenied(_) => {
            "the user needs to read /calico/: `etcdctl role grant-permission ROLE --prefix=true read /calico/`"
        }
        Failure::NoQuorum(_) => {
            return Some(format!("see `etcdctl endpoint status --cluster`; or {}", read_snapshot()));
        }
        Failure::NoSpace => {
            "`etcdctl compact REVISION`, `etcdctl defrag` for each member, then `etcdctl alarm disarm`; or raise its \
             `--quota-backend-bytes`"
        }
        Failure::TooManyOperations => {
            "calipam sends up to 128: start etcd with `--max-txn-ops 128`, the usual limit"
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
                "is etcd running there, and is the port right (usually 2379)? Set the endpoints with ETCD_ENDPOINTS or {}",
                connected(&ENDPOINTS, &[])
            ));
        }
        Cause::NameNotResolved => {
            return Some(format!("check the host names in ETCD_ENDPOINTS or {}", connected(&ENDPOINTS, &[])));
        }
        Cause::Broken(_) => "retry; if it happens again, see the log of etcd",
        Cause::ServerWantsTls => {
            return Some(format!(
                "write the endpoint as https://…, and give the CA certificate with ETCD_CA_CERT_FILE (field \
                 etcdCACertFile) or {}",
                connected(&[ENDPOINTS, CA].concat(), &[])
            ));
        }
        Cause::ServerIsPlain => "write the endpoint as http://…",
        Cause::CertificateNotTrusted => {
            return Some(format!(
                "give the CA certificate that signed it with ETCD_CA_CERT_FILE (field etcdCACertFile) or {}",
                connected(&CA, &[])
            ));
        }
        Cause::CertificateExpired => "renew the server's certificate, or correct this machine's clock",
        Cause::CertificateWrongName => "write the endpoint with a name or address that the certificate lists",
        Cause::ClientCertificateRequired => {
            return Some(format!(
                "give certificate and key with ETCD_CERT_FILE and ETCD_KEY_FILE (fields etcdCertFile, etcdKeyFile) or {}",
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
