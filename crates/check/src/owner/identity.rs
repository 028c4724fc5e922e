//! Identities of pods and containers, as byte strings: those of an endpoint or pod, and those that a record claims.

use calipam_model::endpoint::EndpointTexts;
use calipam_model::text::{Text, TextRef};

use crate::claim::{Claim, container_ids};

/// The namespace in a container's identity: containers have none.
const NO_NAMESPACE: TextRef<'static> = TextRef::EMPTY;

/// Writes the bytes that identify a pod or a container into `key`.
fn write_identity(key: &mut Vec<u8>, namespace: TextRef<'_>, name: TextRef<'_>) {
    key.clear();
    key.extend_from_slice(&namespace.packed().len().to_be_bytes());
    key.extend_from_slice(namespace.packed());
    key.extend_from_slice(name.packed());
}

/// Visits the identities of an endpoint or pod. `key` is a reusable buffer.
pub(super) fn each_identity(key: &mut Vec<u8>, workload: &EndpointTexts<'_>, mut visit: impl FnMut(&[u8])) {
    write_identity(key, workload.namespace, workload.pod);
    visit(key);
    write_identity(key, NO_NAMESPACE, workload.container_id);
    visit(key);

    // Other orchestrators name handles after the workload.
    if !workload.workload.is_empty()
        && let Some((namespace, name)) = workload.workload.to_string().split_once('.')
    {
        write_identity(key, Text::new(namespace).as_ref(), Text::new(name).as_ref());
        visit(key);
    }
}

/// Returns the identities under which a claim's workload could be found.
pub(super) fn claimed_identities(claim: &Claim<'_>) -> Vec<Vec<u8>> {
    match claim {
        Claim::Pod { namespace, pod, .. } => vec![pod_identity(*namespace, *pod)],
        Claim::Container(id) => vec![container_identity(id)],
        // The handle could also be from bare CNI. It then consists of a network and a container ID that is not
        // hexadecimal.
        Claim::LegacyPod { namespace, pod } => {
            let handle = format!("{namespace}.{pod}");
            let mut identities = vec![pod_identity(
                Text::new(namespace).as_ref(),
                Text::new(pod).as_ref(),
            )];
            identities.extend(container_ids(&handle).map(container_identity));
            identities
        }
        Claim::Foreign { handle } => container_ids(handle).map(container_identity).collect(),
        _ => Vec::new(),
    }
}

fn pod_identity(namespace: TextRef<'_>, name: TextRef<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    write_identity(&mut key, namespace, name);
    key
}

fn container_identity(id: &str) -> Vec<u8> {
    let mut key = Vec::new();
    write_identity(&mut key, NO_NAMESPACE, Text::new(id).as_ref());
    key
}
