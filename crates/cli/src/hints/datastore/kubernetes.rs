//! Failures of an API server of Kubernetes.

use calipam_datastore::{Cause, Failure};

use super::CONTEXT;
use crate::hints::connected;

/// What to do about a failure of an API server; `None` if there is nothing to say.
pub(super) fn kubernetes(failure: &Failure) -> Option<String> {
    let text = match failure {
        Failure::Connection(cause) => return kubernetes_connection(cause),
        Failure::Login(_) | Failure::Unauthorized => LOG_IN_AGAIN,
        Failure::PermissionDenied(_) => "docs/kubernetes/rbac.yaml has the ClusterRole that is needed",
        Failure::Compacted => {
            "the etcd of the API server is compacted faster than a list can be read: run it again when there is \
             less load"
        }
        Failure::TooManyRequests => "run it again when the API server is less busy",
        Failure::Server { .. } | Failure::Incomplete(_) => LOOK_AT_LOG,
        Failure::NotKubernetes(_) => "check the field `server` of the cluster in the kubeconfig",
        _ => return None,
    };
    Some(text.to_owned())
}

const LOG_IN_AGAIN: &str =
    "does `kubectl get nodes` work with this kubeconfig? Tokens and certificates expire: log in again";
const LOOK_AT_LOG: &str =
    "retry; if it happens again, see the log of the API server and of any proxy in front of it";

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
        Cause::CertificateExpired => "renew the server's certificate, or correct this machine's clock",
        Cause::CertificateWrongName => {
            "write the server with a name or address that the certificate lists, or set `tls-server-name`"
        }
        Cause::ClientCertificateRequired | Cause::ClientCertificateRefused => LOG_IN_AGAIN,
        Cause::CertificateBad(_) | Cause::Tls(_) => return None,
    };
    Some(text.to_owned())
}
