//! Names with several parts: `NAMESPACE/NAME`, and workload endpoints with node, orchestrator, pod and interface in one
//! string (facts 1.10).

use std::mem::take;

/// The longest name of an object in Kubernetes, as of any DNS name.
pub const MAX_OBJECT_NAME: usize = 253;

/// The number of random characters at the end of a name that Kubernetes generates, as of a Deployment's pod.
pub const RANDOM_SUFFIX: usize = 5;

/// The orchestrator of the endpoints of Kubernetes pods, and in the references of nodes to Kubernetes.
pub const KUBERNETES: &str = "k8s";

/// The interface in the names of Kubernetes pods' endpoints.
pub const POD_INTERFACE: &str = "eth0";

/// Splits `NAMESPACE/NAME`; `None` for a text of another form.
pub fn namespaced(text: &str) -> Option<(&str, &str)> {
    let (namespace, name) = text.split_once('/')?;
    if namespace.is_empty() || name.is_empty() || name.contains('/') {
        return None;
    }
    Some((namespace, name))
}

/// The parts of a workload endpoint's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointName {
    pub node: String,
    /// `k8s`, `cni`, `libnetwork` or another orchestrator.
    pub orchestrator: String,
    /// The pod (`k8s`), the container ID (`cni`) or the workload.
    pub workload: String,
    /// The interface, usually `eth0`.
    pub endpoint: String,
}

impl EndpointName {
    /// Splits a name into its parts; `None` unless there are exactly four, none of them empty.
    pub fn parse(name: &str) -> Option<Self> {
        let parts = split_at_dashes(name);
        if parts.iter().any(|part| part.is_empty()) {
            return None;
        }
        let [node, orchestrator, workload, endpoint] = parts.try_into().ok()?;
        Some(Self {
            node,
            orchestrator,
            workload,
            endpoint,
        })
    }
}

/// Splits at single dashes, and replaces double dashes with single ones.
fn split_at_dashes(name: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut rest = name.chars().peekable();
    while let Some(character) = rest.next() {
        if character != '-' {
            part.push(character);
        } else if rest.next_if_eq(&'-').is_some() {
            part.push('-');
        } else {
            parts.push(take(&mut part));
        }
    }
    parts.push(part);
    parts
}

/// Builds a workload endpoint's name: doubles the dashes in its parts, and joins them with single ones.
pub fn endpoint_name(node: &str, orchestrator: &str, workload: &str, endpoint: &str) -> String {
    let parts = [node, orchestrator, workload, endpoint];
    let mut name = String::with_capacity(parts.iter().map(|part| part.len()).sum::<usize>() + 8);
    push_endpoint_name(&mut name, parts);
    name
}

/// Builds the name of the endpoint of a Kubernetes pod.
pub fn pod_endpoint_name(node: &str, pod: &str) -> String {
    endpoint_name(node, KUBERNETES, pod, POD_INTERFACE)
}

/// Appends the name that [`endpoint_name`] builds.
pub(crate) fn push_endpoint_name(name: &mut String, parts: [&str; 4]) {
    for (index, part) in parts.into_iter().enumerate() {
        if index > 0 {
            name.push('-');
        }
        for piece in part.split_inclusive('-') {
            name.push_str(piece);
            if piece.ends_with('-') {
                name.push('-');
            }
        }
    }
}

/// True if `name` is the [`endpoint_name`] of these parts. Does not build the name.
pub(crate) fn is_endpoint_name(name: &str, parts: [&str; 4]) -> bool {
    let mut rest = name.as_bytes().iter();
    for (index, part) in parts.into_iter().enumerate() {
        if index > 0 && rest.next() != Some(&b'-') {
            return false;
        }
        for byte in part.as_bytes() {
            if rest.next() != Some(byte) {
                return false;
            }
            // A dash in a part is doubled.
            if *byte == b'-' && rest.next() != Some(byte) {
                return false;
            }
        }
    }
    rest.next().is_none()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_the_facts() {
        let name = "node--1-k8s-nginx--6799fc88d8--abcde-eth0";
        let parsed = EndpointName::parse(name).unwrap();
        assert_eq!(parsed.node, "node-1");
        assert_eq!(parsed.workload, "nginx-6799fc88d8-abcde");
        assert_eq!(
            endpoint_name("node-1", "k8s", "nginx-6799fc88d8-abcde", "eth0"),
            name
        );
        assert_eq!(EndpointName::parse("node--1-k8s-nginx"), None);
        assert_eq!(EndpointName::parse(""), None);
    }

    proptest! {
        #[test]
        fn building_then_parsing_gives_the_parts(parts in prop::collection::vec("[a-z0-9.]([a-z0-9.-]{0,12}[a-z0-9.])?", 4)) {
            let name = endpoint_name(&parts[0], &parts[1], &parts[2], &parts[3]);
            prop_assert!(is_endpoint_name(&name, [&parts[0], &parts[1], &parts[2], &parts[3]]));
            let other = format!("{name}x");
            prop_assert!(!is_endpoint_name(&other, [&parts[0], &parts[1], &parts[2], &parts[3]]));
            prop_assert!(!is_endpoint_name(&name[1..], [&parts[0], &parts[1], &parts[2], &parts[3]]));
            let parsed = EndpointName::parse(&name).unwrap();
            prop_assert_eq!(vec![parsed.node, parsed.orchestrator, parsed.workload, parsed.endpoint], parts);
        }
    }
}
