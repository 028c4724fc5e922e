//! Pods of KubeVirt virtual machines. Their addresses belong to the machine (facts of the plugin, section 15).

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use calipam_datastore::KubeClient;
use calipam_datastore::plugin::LauncherPod;
use calipam_model::digest::sha256;
use tokio::time::timeout;

use crate::call::{Call, CallAllocator};
use crate::failure;
use crate::protocol::CniError;

/// The prefix of the names of virtual machines' pods. Nothing is looked up for other pods.
const LAUNCHER: &str = "virt-launcher-";
/// The largest number of characters in a machine's handle.
const HANDLE: usize = 128;
/// The time limit for reading the setting that lets virtual machines keep their addresses.
const SETTING: Duration = Duration::from_secs(10);

/// The error from client-go if access to Kubernetes is not configured.
const NO_CLUSTER: &str = "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER \
                          environment variable";

/// The owner of a pod's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Container,
    /// The API server no longer has the pod, so it is unknown whether the pod belonged to a machine.
    PodIsGone,
    Machine(Machine),
}

/// The virtual machine of a launcher pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub namespace: String,
    /// The name of the machine's instance.
    pub name: String,
    pub instance_uid: String,
    /// The UID of the machine; `None` if no machine object exists.
    pub machine_uid: Option<String>,
    /// The UID of the migration whose target is the pod.
    pub migration: Option<String>,
    /// True if the machine is being deleted or no longer exists. If the instance has no machine, this is about the
    /// instance.
    pub is_being_deleted: bool,
}

impl Machine {
    /// The handle of the machine's addresses in a network.
    pub(crate) fn handle(&self, network: &str) -> String {
        let (prefix, suffix) = (format!("{network}.vmi."), format!("{}.{}", self.namespace, self.name));
        if prefix.len() + suffix.len() <= HANDLE {
            return prefix + &suffix;
        }
        let hash = URL_SAFE_NO_PAD.encode(sha256(suffix));
        let mut handle = format!("{prefix}_{hash}");
        handle.truncate(HANDLE);
        handle
    }

    /// Adds the instance's name, and the UIDs of instance, machine and migration, to an allocation's attributes.
    pub(crate) fn describe(&self, attributes: &mut BTreeMap<String, String>) {
        let mut add = |key: &str, value: &str| attributes.insert(key.to_owned(), value.to_owned());
        add("vmi-name", &self.name);
        add("vmi-uid", &self.instance_uid);
        if let Some(uid) = &self.machine_uid {
            add("vm-uid", uid);
        }
        if let Some(uid) = &self.migration {
            add("vmim-uid", uid);
        }
    }
}

/// The owner of a pod's addresses, and the reason if the pod may not use them now.
#[derive(Debug)]
pub(crate) struct Ownership {
    pub owner: Owner,
    /// The error that ADD returns. CHECK returns it as well, unless the pod is gone. DEL ignores it.
    pub refusal: Option<CniError>,
}

impl From<Owner> for Ownership {
    fn from(owner: Owner) -> Self {
        Self { owner, refusal: None }
    }
}

/// Finds the owner of the addresses of the call's pod.
pub(crate) async fn find(call: &Call, allocator: &CallAllocator) -> Result<Ownership, CniError> {
    let pod = call.identity.pod.as_ref().filter(|(_, name)| name.starts_with(LAUNCHER));
    let Some((namespace, name)) = pod else { return Ok(Owner::Container.into()) };
    let failed = |error: calipam_datastore::Error| {
        let CniError { code, msg, .. } = failure::from_datastore(&error);
        let msg = match error {
            // The message from Calico's plugin.
            calipam_datastore::Error::NoCluster(_) => NO_CLUSTER.to_owned(),
            _ => msg,
        };
        CniError::new(code, format!("failed to get VMI info: {msg}"))
    };
    let client = call.lookup(allocator).await.map_err(failed)?;
    let Some(pod) = client.launcher(namespace, name).await.map_err(failed)? else {
        return Ok(Ownership { owner: Owner::PodIsGone, refusal: Some(no_machine("pod not found")) });
    };
    let Some(pod) = pod else { return Ok(Owner::Container.into()) };
    let (machine, refusal) = machine(&client, namespace, &pod).await.map_err(failed)?;
    if keeps_addresses(allocator).await {
        return Ok(Ownership { owner: Owner::Machine(machine), refusal });
    }
    let target_refusal = || {
        let text = "live migration target pod is not allowed when KubeVirtVMAddressPersistence is disabled";
        machine.migration.as_ref().map(|_| CniError::internal(text))
    };
    Ok(Ownership { owner: Owner::Container, refusal: refusal.or_else(target_refusal) })
}

fn no_machine(reason: &str) -> CniError {
    CniError::internal(format!("failed to get VMI info: {reason}"))
}

/// Returns the virtual machine of a launcher pod and, if the pod may not use the machine's addresses, the reason. The
/// addresses of a deleted instance stay allocated if a machine with its name could start it again. A pod whose instance
/// was deleted or replaced must not share the addresses with the next instance's pod.
async fn machine(
    client: &KubeClient,
    namespace: &str,
    pod: &LauncherPod,
) -> calipam_datastore::Result<(Machine, Option<CniError>)> {
    let instance = client.instance(namespace, &pod.instance_name).await?;
    let name = match &instance {
        Some(instance) => instance.machine.clone(),
        None => Some(pod.instance_name.clone()),
    };
    let machine = match &name {
        Some(name) => client.machine(namespace, name).await?,
        None => None,
    };
    let is_being_deleted = match (&machine, &instance) {
        (Some(machine), _) => machine.is_being_deleted,
        (None, Some(instance)) => instance.is_being_deleted || instance.machine.is_some(),
        (None, None) => true,
    };
    let missing = |plural: &str, name: &str| {
        let instance = format!("{namespace}/{}", pod.instance_name);
        format!("failed to query VMI resource {instance}: {plural}.kubevirt.io \"{name}\" not found")
    };
    let refusal = match (&instance, &name) {
        (None, _) => Some(missing("virtualmachineinstances", &pod.instance_name)),
        (Some(_), Some(name)) if machine.is_none() => Some(missing("virtualmachines", name)),
        (Some(instance), _) if instance.uid != pod.instance_uid => Some(format!(
            "VMI UID mismatch: pod ownerReference has {} but VMI resource has {}",
            pod.instance_uid, instance.uid
        )),
        _ => None,
    };
    let machine = Machine {
        namespace: namespace.to_owned(),
        name: pod.instance_name.clone(),
        instance_uid: pod.instance_uid.clone(),
        machine_uid: machine.map(|machine| machine.uid),
        migration: pod.migration.clone(),
        is_being_deleted,
    };
    Ok((machine, refusal.as_deref().map(no_machine)))
}

/// True if the setting lets virtual machines keep their addresses, or if it cannot be read.
async fn keeps_addresses(allocator: &CallAllocator) -> bool {
    match timeout(SETTING, allocator.store().keeps_machine_addresses()).await {
        Ok(Ok(keeps)) => keeps,
        Ok(Err(error)) => {
            tracing::warn!("cannot read whether virtual machines keep their addresses: {error}");
            true
        }
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str) -> Machine {
        Machine {
            namespace: "ns".into(),
            name: name.into(),
            instance_uid: "u".into(),
            machine_uid: None,
            migration: None,
            is_being_deleted: false,
        }
    }

    #[test]
    fn handles_have_at_most_128_characters() {
        assert_eq!(machine("vm").handle("net"), "net.vmi.ns.vm");
        let long = machine(&"v".repeat(200)).handle("net");
        // 32 bytes without padding, as Calico writes them.
        assert!(long.starts_with("net.vmi._") && long.len() == "net.vmi._".len() + 43, "{long}");
        let cut = machine("vm").handle(&"n".repeat(120));
        assert_eq!(cut.len(), HANDLE);
        let fits = machine(&"v".repeat(HANDLE - "net.vmi.ns.".len())).handle("net");
        assert!(fits.len() == HANDLE && fits.ends_with('v'));
    }

    #[test]
    fn attributes_identify_the_machine() {
        let mut attributes = BTreeMap::new();
        let machine = Machine { machine_uid: Some("m".into()), migration: Some("j".into()), ..machine("vm") };
        machine.describe(&mut attributes);
        let found: Vec<(&str, &str)> =
            attributes.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(found, [("vm-uid", "m"), ("vmi-name", "vm"), ("vmi-uid", "u"), ("vmim-uid", "j")]);
    }
}
