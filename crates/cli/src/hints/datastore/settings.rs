//! Settings of the connection that cannot be used.

use calipam_datastore::SettingsError;

use super::ENDPOINTS;
use crate::hints::connected;

/// What to do about a setting of the connection.
pub(super) fn settings(error: &SettingsError) -> Option<String> {
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
                "set them with ETCD_ENDPOINTS, the field etcdEndpoints of the settings file or {}",
                connected(&ENDPOINTS, &[])
            ));
        }
        SettingsError::BadEndpoint { .. } => "expected an endpoint such as https://10.0.0.5:2379",
        SettingsError::EndpointsAndSrv => "keep one of ETCD_ENDPOINTS and ETCD_DISCOVERY_SRV",
        SettingsError::SrvUnsupported(domain) => {
            return Some(format!(
                "`dig +short SRV _etcd-client-ssl._tcp.{domain}` (or _etcd-client._tcp) lists the endpoints; give them with {}",
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
                "name the kubeconfig that has it with KUBECONFIG or {}",
                connected(&["--kubeconfig", "FILE"], &[])
            ));
        }
        SettingsError::NoSuchDatastore(_) => {
            "a datastore is `etcd`, `etcdv2` (Calico 2.x), `kubernetes` or the path of a file"
        }
    };
    Some(text.to_owned())
}
