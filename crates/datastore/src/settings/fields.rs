//! The fields of calicoctl's configuration and their sources (facts 7.2).

use std::collections::BTreeMap;

use calipam_model::config::parse_go_bool;

use crate::error::SettingsError;

/// The kind of value in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Bool,
    Number,
}

/// A field: its name in the file, its name in the environment, and its kind. In the environment, the name with the
/// prefix `CALICO_` wins over the one without.
pub(super) struct Field {
    pub name: &'static str,
    pub variable: Option<&'static str>,
    pub kind: Kind,
}

const fn text(name: &'static str, variable: &'static str) -> Field {
    Field {
        name,
        variable: Some(variable),
        kind: Kind::Text,
    }
}

const fn inline(name: &'static str) -> Field {
    Field {
        name,
        variable: None,
        kind: Kind::Text,
    }
}

const fn typed(name: &'static str, variable: &'static str, kind: Kind) -> Field {
    Field {
        name,
        variable: Some(variable),
        kind,
    }
}

/// The environment variable with the API server's token. The unusual name comes from a mistake in Calico's source. The
/// variable works only with the prefix `CALICO_`.
const API_TOKEN_VARIABLE: &str = "K8SAPITOKEN";

pub(super) const FIELDS: [Field; 25] = [
    text("datastoreType", "DATASTORE_TYPE"),
    text("etcdEndpoints", "ETCD_ENDPOINTS"),
    text("etcdDiscoverySrv", "ETCD_DISCOVERY_SRV"),
    text("etcdUsername", "ETCD_USERNAME"),
    text("etcdPassword", "ETCD_PASSWORD"),
    text("etcdKeyFile", "ETCD_KEY_FILE"),
    text("etcdCertFile", "ETCD_CERT_FILE"),
    text("etcdCACertFile", "ETCD_CA_CERT_FILE"),
    inline("etcdKey"),
    inline("etcdCert"),
    inline("etcdCACert"),
    text("kubeconfig", "KUBECONFIG"),
    inline("kubeconfigInline"),
    text("k8sAPIEndpoint", "K8S_API_ENDPOINT"),
    text("k8sKeyFile", "K8S_KEY_FILE"),
    text("k8sCertFile", "K8S_CERT_FILE"),
    text("k8sCAFile", "K8S_CA_FILE"),
    text("k8sAPIToken", API_TOKEN_VARIABLE),
    typed(
        "k8sInsecureSkipTLSVerify",
        "K8S_INSECURE_SKIP_TLS_VERIFY",
        Kind::Bool,
    ),
    typed("k8sDisableNodePoll", "K8S_DISABLE_NODE_POLL", Kind::Bool),
    typed("usePodCIDR", "USE_POD_CIDR", Kind::Bool),
    typed("k8sClientQPS", "K8S_CLIENT_QPS", Kind::Number),
    typed("k8sClientBurst", "K8S_CLIENT_BURST", Kind::Number),
    text("k8sCurrentContext", "K8S_CURRENT_CONTEXT"),
    text("calicoAPIGroup", "CALICO_API_GROUP"),
];

/// The fields that are set, by name.
#[derive(Default)]
pub(super) struct Values(BTreeMap<&'static str, String>);

impl Values {
    /// The text of a field; `None` if it is not set or empty, since Calico treats both alike.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|text| !text.is_empty())
    }

    /// The text of a field; empty if it is not set.
    pub(super) fn owned(&self, name: &str) -> String {
        self.text(name).unwrap_or_default().to_owned()
    }

    /// The value of a switch; false if it is not set.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.text(name).and_then(parse_go_bool).unwrap_or(false)
    }

    pub(super) fn set(&mut self, field: &Field, value: String) {
        self.0.insert(field.name, value);
    }

    /// Reads the environment. The variable with the prefix `CALICO_` wins over the one without, even if it is
    /// empty.
    ///
    /// # Errors
    /// If a variable for a number or a switch is empty or has an invalid value.
    pub(super) fn from_environment(environment: &BTreeMap<String, String>) -> Result<Self, SettingsError> {
        let mut values = Self::default();
        for field in &FIELDS {
            let Some(variable) = field.variable else { continue };
            let mut names = vec![format!("CALICO_{variable}")];
            if variable != API_TOKEN_VARIABLE {
                names.push(variable.to_owned());
            }
            for name in names {
                let Some(value) = environment.get(&name) else {
                    continue;
                };
                if let Err(expected) = check(field, value) {
                    return Err(SettingsError::invalid(
                        format!("the environment variable {name} must be {expected}"),
                        "unset it, or set a value that calicoctl accepts",
                    ));
                }
                values.set(field, value.clone());
                break;
            }
        }
        Ok(values)
    }
}

/// Checks a value; the error describes the valid ones.
pub(super) fn check(field: &Field, value: &str) -> Result<(), &'static str> {
    match field.kind {
        Kind::Bool if parse_go_bool(value).is_none() => Err("true or false"),
        Kind::Number if value.trim().parse::<f64>().is_err() => Err("a number"),
        _ => Ok(()),
    }
}

/// The field with the most similar name, if only a few letters differ.
pub(super) fn similar(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let mut distances: Vec<(usize, &str)> = Vec::new();
    for field in &FIELDS {
        let distance = strsim::levenshtein(&name, &field.name.to_ascii_lowercase());
        distances.push((distance, field.name));
    }
    let (distance, nearest) = distances.into_iter().min()?;
    if distance > nearest.len() / 4 {
        return None;
    }
    Some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn the_prefixed_variable_wins_even_when_empty() {
        let read = |entries| Values::from_environment(&environment(entries)).unwrap();
        let both = [
            ("ETCD_ENDPOINTS", "http://a:1"),
            ("CALICO_ETCD_ENDPOINTS", "http://b:1"),
        ];
        assert_eq!(read(&both).text("etcdEndpoints"), Some("http://b:1"));
        let empty = [("ETCD_ENDPOINTS", "http://a:1"), ("CALICO_ETCD_ENDPOINTS", "")];
        assert_eq!(read(&empty).text("etcdEndpoints"), None);
        assert_eq!(
            read(&[("K8SAPITOKEN", "x"), ("K8S_API_TOKEN", "x")]).text("k8sAPIToken"),
            None
        );
        assert_eq!(
            read(&[("CALICO_K8SAPITOKEN", "x")]).text("k8sAPIToken"),
            Some("x")
        );
        assert_eq!(
            read(&[("CALICO_CALICO_API_GROUP", "g")]).text("calicoAPIGroup"),
            Some("g")
        );
        assert_eq!(
            read(&[("CALICO_API_GROUP", "g")]).text("calicoAPIGroup"),
            Some("g")
        );
    }

    #[test]
    fn an_empty_switch_or_number_is_an_error() {
        for (name, value) in [
            ("USE_POD_CIDR", ""),
            ("CALICO_K8S_CLIENT_QPS", ""),
            ("USE_POD_CIDR", "yes"),
        ] {
            let error = Values::from_environment(&environment(&[(name, value)]))
                .err()
                .unwrap();
            assert!(
                error.to_string().contains(&format!("variable {name} must be")),
                "{error}"
            );
        }
        let values = Values::from_environment(&environment(&[("USE_POD_CIDR", "T")])).unwrap();
        assert!(values.flag("usePodCIDR") && !values.flag("k8sDisableNodePoll"));
    }

    #[test]
    fn similar_fields() {
        assert_eq!(similar("etcdEndpoint"), Some("etcdEndpoints"));
        assert_eq!(similar("etcdCaCertFiles"), Some("etcdCACertFile"));
        assert_eq!(similar("colour"), None);
    }
}
