//! Connection settings, from the configuration and the environment.

use std::collections::BTreeMap;
use std::time::Duration;

use calipam_datastore::settings::{KubernetesSettings, LocalFiles, Settings, Target, Timeouts};
use calipam_datastore::{Secret, SettingsError};

use super::Datastore;
use crate::protocol::CniError;

/// The time limit for connecting to one endpoint. It is short: a runtime is waiting, and another endpoint may answer.
const CONNECT: Duration = Duration::from_secs(3);
/// The time limit of one request.
const REQUEST: Duration = Duration::from_secs(10);

impl Datastore {
    /// The settings of the datastore connection. As in Calico, the fields override environment variables, except those
    /// with the prefix `CALICO_`, which override the fields.
    pub fn settings(&self, environment: &BTreeMap<String, String>) -> Result<Settings, CniError> {
        let mut variables = environment.clone();
        let fields = [
            ("DATASTORE_TYPE", &self.kind),
            ("ETCD_ENDPOINTS", &self.etcd_endpoints),
            ("ETCD_DISCOVERY_SRV", &self.etcd_discovery_srv),
            ("ETCD_KEY_FILE", &self.etcd_key_file),
            ("ETCD_CERT_FILE", &self.etcd_cert_file),
            ("ETCD_CA_CERT_FILE", &self.etcd_ca_cert_file),
            ("KUBECONFIG", &self.kubeconfig),
            ("K8S_API_ENDPOINT", &self.api_root),
            ("CALICO_API_GROUP", &self.api_group),
        ];
        for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
            variables.insert(name.to_owned(), value.clone());
        }
        let mut settings = Settings::from_environment(&variables, &LocalFiles)
            .map_err(|error| CniError::internal(text(&error)))?;
        settings.kubernetes.timeouts = Timeouts { connect: CONNECT, request: REQUEST };
        if let Target::Etcd(etcd) = &mut settings.target {
            etcd.timeouts = settings.kubernetes.timeouts;
        }
        Ok(settings)
    }

    /// The settings for looking up namespaces, pods and machines: the datastore's settings, overridden by `policy`.
    pub fn lookups(&self, datastore: &Settings) -> KubernetesSettings {
        let mut settings = datastore.kubernetes.clone();
        let policy = &self.policy;
        if !policy.api_root.is_empty() && self.api_root.is_empty() {
            settings.api_endpoint = policy.api_root.split("/api/").next().unwrap_or_default().to_owned();
        }
        if !policy.token.is_empty() {
            settings.token = Secret::new(policy.token.clone());
        }
        let files = [
            (&mut settings.cert_file, &policy.client_certificate),
            (&mut settings.key_file, &policy.client_key),
            (&mut settings.ca_file, &policy.certificate_authority),
        ];
        for (setting, value) in files.into_iter().filter(|(_, value)| !value.is_empty()) {
            setting.clone_from(value);
        }
        settings
    }
}

/// The message of an error, in the words of Calico's plugin if it has the same error.
fn text(error: &SettingsError) -> String {
    match error {
        SettingsError::UnknownDatastore(kind) => format!("unknown datastore type: {kind}"),
        SettingsError::NoEndpoints => "no etcd endpoints specified".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Policy;
    use super::*;

    fn environment(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn etcd(fields: &Datastore, variables: &[(&str, &str)]) -> Result<Vec<String>, CniError> {
        match fields.settings(&environment(variables))?.target {
            Target::Etcd(etcd) => Ok(etcd.endpoints),
            other => Err(CniError::internal(format!("{other:?}"))),
        }
    }

    #[test]
    fn prefixed_variables_override_fields_and_fields_override_others() {
        let fields = Datastore { etcd_endpoints: "http://a:1,http://b:2".into(), ..Default::default() };
        assert_eq!(etcd(&fields, &[]).unwrap(), ["http://a:1", "http://b:2"]);
        assert_eq!(etcd(&fields, &[("ETCD_ENDPOINTS", "http://c:1")]).unwrap().len(), 2);
        assert_eq!(etcd(&fields, &[("CALICO_ETCD_ENDPOINTS", "http://c:1")]).unwrap(), ["http://c:1"]);
        assert!(etcd(&fields, &[("CALICO_DATASTORE_TYPE", "kubernetes")]).is_err());
        let none = Datastore { kind: "etcdv3".into(), ..Default::default() };
        assert_eq!(etcd(&none, &[("ETCD_ENDPOINTS", "http://c:1")]).unwrap(), ["http://c:1"]);
        assert_eq!(etcd(&none, &[]).unwrap_err().code.number(), 999);
        let unknown = Datastore { kind: "consul".into(), ..Default::default() };
        assert_eq!(unknown.settings(&environment(&[])).unwrap_err().msg, "unknown datastore type: consul");
        let discovered = Datastore { etcd_discovery_srv: "example.org".into(), ..none };
        let refused = discovered.settings(&environment(&[])).unwrap_err().msg;
        assert!(
            refused.contains("example.org") && refused.contains("SRV records are not looked up"),
            "{refused}"
        );
    }

    #[test]
    fn lookups_have_settings_of_their_own() {
        let policy = Policy {
            api_root: "https://k:6443/api/v1/".into(),
            token: "t".into(),
            certificate_authority: "/ca".into(),
            ..Default::default()
        };
        let fields = Datastore { kind: "kubernetes".into(), policy, ..Default::default() };
        let datastore = fields.settings(&environment(&[])).unwrap();
        let found = fields.lookups(&datastore);
        assert_eq!((found.api_endpoint.as_str(), found.ca_file.as_str()), ("https://k:6443", "/ca"));
        assert!(found.token == Secret::new("t") && datastore.kubernetes.token.is_empty());
    }
}
