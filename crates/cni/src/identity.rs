//! The identity of a call: node, container, pod, and the handle of its addresses (facts of the plugin, section 6).

use calipam_files::regular;
use calipam_model::plugin;
use jiff::Timestamp;

use crate::config::{Configuration, NodeName};
use crate::protocol::{Arguments, CniError, Environment};

/// The namespace of containers without a pod.
const DEFAULT_NAMESPACE: &str = "default";

/// The node, container and pod of a call, and the handle of their addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub node: String,
    pub container: String,
    /// The pod's namespace and name, if the orchestrator is Kubernetes.
    pub pod: Option<(String, String)>,
    /// The namespace of the pod; without a pod, the one that Calico's tests set, or `default`.
    pub namespace: String,
    pub handle: String,
}

impl Identity {
    /// Determines the identity of a call: the node, the container and the pod for which it is, and their handle.
    ///
    /// # Errors
    /// If a name cannot be part of a workload endpoint's name, as in Calico.
    pub(crate) fn new(
        configuration: &Configuration,
        environment: &Environment,
        arguments: &Arguments,
    ) -> Result<Self, CniError> {
        let node = node_name(&configuration.node);
        check_segment("node", &node)?;
        match &arguments.pod {
            Some((_, name)) => check_segment("pod", name)?,
            None => check_segment("containerID", &environment.container)?,
        }
        check_segment("endpoint", &environment.interface)?;

        // Calico's tests name a namespace without a pod.
        let namespace = if let Some((namespace, _)) = &arguments.pod {
            namespace.clone()
        } else if let Some(namespace) = &arguments.test_namespace {
            namespace.clone()
        } else {
            DEFAULT_NAMESPACE.to_owned()
        };
        Ok(Self {
            node,
            container: environment.container.clone(),
            pod: arguments.pod.clone(),
            namespace,
            handle: format!("{}.{}", configuration.name, environment.container),
        })
    }

    /// The identity of a node, for calls that concern all its containers.
    pub(crate) fn for_node(configuration: &Configuration) -> Self {
        Self {
            node: node_name(&configuration.node),
            container: String::new(),
            pod: None,
            namespace: DEFAULT_NAMESPACE.to_owned(),
            handle: String::new(),
        }
    }

    /// The handle that the oldest plugins (Calico 2) used.
    pub(crate) fn old_handle(&self) -> String {
        match &self.pod {
            Some((namespace, name)) => format!("{namespace}.{name}"),
            None => self.container.clone(),
        }
    }

    /// The attributes of an allocation.
    pub(crate) fn attributes(&self, now: Timestamp) -> Vec<(String, String)> {
        let mut attributes = vec![
            ("node".to_owned(), self.node.clone()),
            ("timestamp".to_owned(), plugin::timestamp(now)),
        ];
        if let Some((namespace, name)) = &self.pod {
            attributes.push(("pod".to_owned(), name.clone()));
            attributes.push(("namespace".to_owned(), namespace.clone()));
        }
        attributes
    }
}

/// Returns the node's name: the first that is not empty of the configured name, the file's content, the configured host
/// name, and the system's. Trims the file's content, because Calico finds no node whose name ends in a line break.
pub(crate) fn node_name(sources: &NodeName) -> String {
    if !sources.stated.is_empty() {
        return sources.stated.clone();
    }
    let content = regular::read(&sources.file).unwrap_or_default();
    let name_in_file = String::from_utf8_lossy(&content).trim().to_owned();
    if !name_in_file.is_empty() {
        return name_in_file;
    }
    if !sources.host.is_empty() {
        return sources.host.clone();
    }
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .trim()
        .to_lowercase()
}

/// Refuses a value that cannot be part of a workload endpoint's name: an empty one, and one that begins or ends with
/// `-`, which joins the parts. `field` is the part's name in the error, whose text is that of Calico's plugin.
fn check_segment(field: &str, value: &str) -> Result<(), CniError> {
    let reason = if value.is_empty() {
        "field should be assigned"
    } else if value.starts_with('-') {
        "field must not begin with a '-'"
    } else if value.ends_with('-') {
        "field must not end with a '-'"
    } else {
        return Ok(());
    };
    let assignment = if value.is_empty() {
        String::new()
    } else {
        format!(" = '{value}'")
    };
    Err(CniError::internal(format!(
        "error constructing WorkloadEndpoint name: error with field {field}{assignment} ({reason})"
    )))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::config::Document;

    fn identity(json: &str, container: &str, args: &str) -> Result<Identity, CniError> {
        let configuration = Document::read(json.as_bytes(), None)?.configuration()?;
        let environment = Environment {
            container: container.into(),
            interface: "eth0".into(),
            ..Environment::default()
        };
        Identity::new(&configuration, &environment, &Arguments::read(args)?)
    }

    #[test]
    fn handles_and_attributes() {
        let pod = "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0";
        let found = identity(r#"{"name":"net","nodename":"a"}"#, "c1", pod).unwrap();
        assert_eq!(
            (found.handle.as_str(), found.old_handle().as_str()),
            ("net.c1", "ns.web-0")
        );
        let attributes = found.attributes("2026-05-01T10:12:00.12Z".parse().unwrap());
        let expected = [
            ("node", "a"),
            ("timestamp", "2026-05-01 10:12:00.120225472 +0000 UTC"),
            ("pod", "web-0"),
            ("namespace", "ns"),
        ];
        assert_eq!(
            attributes,
            expected.map(|(key, value)| (key.to_owned(), value.to_owned()))
        );
        let bare = identity(r#"{"name":"net","nodename":"a"}"#, "c1", "").unwrap();
        assert_eq!(
            (bare.namespace.as_str(), bare.old_handle().as_str()),
            ("default", "c1")
        );
        assert_eq!(bare.attributes(Timestamp::UNIX_EPOCH).len(), 2);
    }

    #[test]
    fn the_first_source_with_a_node_wins() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nodename");
        fs::write(&file, "in-file\n").unwrap();
        let name = |stated: &str, file: PathBuf, host: &str| {
            node_name(&NodeName {
                stated: stated.into(),
                file,
                host: host.into(),
            })
        };
        assert_eq!(name("stated", file.clone(), "host"), "stated");
        assert_eq!(name("", file, "host"), "in-file");
        assert_eq!(name("", folder.path().join("missing"), "host"), "host");
        // A folder cannot be read as a file.
        assert_eq!(name("", folder.path().to_owned(), "host"), "host");
        let system = name("", folder.path().join("missing"), "");
        assert!(!system.is_empty() && system == system.to_lowercase(), "{system}");
    }

    #[test]
    fn names_that_no_endpoint_can_have() {
        let net = r#"{"name":"net","nodename":"a"}"#;
        assert!(identity(r#"{"name":"net","nodename":"-a"}"#, "c", "").is_err());
        assert!(
            identity(net, "c-", "")
                .unwrap_err()
                .msg
                .contains("containerID = 'c-'")
        );
        assert!(identity(net, "c-", "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=w").is_ok());
        assert!(identity(net, "c", "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=w-").is_err());
    }
}
