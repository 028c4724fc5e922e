//! Connection settings, from the configuration and the environment.

use std::collections::BTreeMap;
use std::time::Duration;

use calipam_datastore::settings::{KubernetesSettings, LocalFiles, Settings, Target, Timeouts};
use calipam_datastore::{SettingsError, SettingsErrorKind};

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
        for (name, value) in &self.variables {
            variables.insert((*name).to_owned(), value.clone());
        }
        let mut settings = Settings::from_environment(&variables, &LocalFiles)
            .map_err(|error| CniError::internal(text(&error)))?;
        // A runtime waits for the plugin, so a server that does not answer must not hold it up.
        settings.kubernetes.timeouts = Timeouts {
            connect: CONNECT,
            request: REQUEST,
        };
        if let Target::Etcd(etcd) = &mut settings.target {
            etcd.timeouts = settings.kubernetes.timeouts;
        }
        Ok(settings)
    }

    /// Returns the settings for reading namespaces, pods and machines: those of the datastore, overridden by the
    /// configuration's `policy`. Only a `k8s_api_root` in its `kubernetes` takes precedence over `policy`.
    pub fn lookups(&self, datastore: &Settings) -> KubernetesSettings {
        let policy = &self.policy;
        let mut settings = datastore.kubernetes.clone();
        if !policy.api_endpoint.is_empty() && !self.variables.contains_key("K8S_API_ENDPOINT") {
            // Old configurations name the path of the API, too.
            let mut parts = policy.api_endpoint.split("/api/");
            settings.api_endpoint = parts.next().unwrap_or_default().to_owned();
        }
        if !policy.token.is_empty() {
            settings.token = policy.token.clone();
        }
        // Fields that are not set are empty, and override nothing.
        let files = [
            (&mut settings.cert_file, &policy.cert_file),
            (&mut settings.key_file, &policy.key_file),
            (&mut settings.ca_file, &policy.ca_file),
        ];
        for (setting, value) in files {
            if !value.is_empty() {
                setting.clone_from(value);
            }
        }
        settings
    }
}

/// The message of an error. If Calico's plugin has the same error, the message is in its words.
fn text(error: &SettingsError) -> String {
    match &error.kind {
        SettingsErrorKind::UnknownDatastore(name) => format!("unknown datastore type: {name}"),
        SettingsErrorKind::NoEndpoints => "no etcd endpoints specified".to_owned(),
        SettingsErrorKind::Invalid | SettingsErrorKind::Unreadable => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use calipam_datastore::Secret;

    use super::*;

    fn datastore(variables: &[(&'static str, &str)]) -> Datastore {
        let variables = variables
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        Datastore {
            variables,
            ..Default::default()
        }
    }

    fn environment(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn etcd(fields: &Datastore, variables: &[(&str, &str)]) -> Result<Vec<String>, CniError> {
        match fields.settings(&environment(variables))?.target {
            Target::Etcd(etcd) => Ok(etcd.endpoints),
            other => Err(CniError::internal(format!("{other:?}"))),
        }
    }

    #[test]
    fn prefixed_variables_override_fields_and_fields_override_others() {
        let fields = datastore(&[("ETCD_ENDPOINTS", "http://a:1,http://b:2")]);
        assert_eq!(etcd(&fields, &[]).unwrap(), ["http://a:1", "http://b:2"]);
        assert_eq!(
            etcd(&fields, &[("ETCD_ENDPOINTS", "http://c:1")]).unwrap().len(),
            2
        );
        assert_eq!(
            etcd(&fields, &[("CALICO_ETCD_ENDPOINTS", "http://c:1")]).unwrap(),
            ["http://c:1"]
        );
        assert!(etcd(&fields, &[("CALICO_DATASTORE_TYPE", "kubernetes")]).is_err());
        let none = datastore(&[("DATASTORE_TYPE", "etcdv3")]);
        assert_eq!(
            etcd(&none, &[("ETCD_ENDPOINTS", "http://c:1")]).unwrap(),
            ["http://c:1"]
        );
        assert_eq!(etcd(&none, &[]).unwrap_err().code.number(), 999);
        let unknown = datastore(&[("DATASTORE_TYPE", "consul")]);
        assert_eq!(
            unknown.settings(&environment(&[])).unwrap_err().msg,
            "unknown datastore type: consul"
        );
        let discovered = datastore(&[
            ("DATASTORE_TYPE", "etcdv3"),
            ("ETCD_DISCOVERY_SRV", "example.org"),
        ]);
        let refused = discovered.settings(&environment(&[])).unwrap_err().msg;
        assert!(refused.contains("example.org"), "{refused}");
        assert!(refused.contains("SRV records are not looked up"), "{refused}");
    }

    #[test]
    fn lookups_have_settings_of_their_own() {
        let policy = KubernetesSettings {
            api_endpoint: "https://k:6443/api/v1/".into(),
            token: Secret::new("t"),
            ca_file: "/ca".into(),
            ..Default::default()
        };
        let fields = Datastore {
            policy,
            ..datastore(&[("DATASTORE_TYPE", "kubernetes")])
        };
        let settings = fields.settings(&environment(&[])).unwrap();
        let found = fields.lookups(&settings);
        assert_eq!(
            (found.api_endpoint.as_str(), found.ca_file.as_str()),
            ("https://k:6443", "/ca")
        );
        assert!(found.token == Secret::new("t") && settings.kubernetes.token.is_empty());
    }
}
