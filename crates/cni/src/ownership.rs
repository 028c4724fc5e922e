//! Finds out who owns the addresses of a call's pod: its container, or its KubeVirt virtual machine (facts of the
//! plugin, section 15).

use std::time::Duration;

use calipam_datastore::KubeClient;
use calipam_datastore::plugin::{LauncherLookup, LauncherPod};
use tokio::time::timeout;

use crate::call::{Call, CallAllocator};
use crate::failure;
use crate::machine::{Machine, Owner};
use crate::protocol::CniError;

/// The prefix of the names of virtual machines' pods, which KubeVirt calls launchers. Nothing is looked up for other
/// pods.
const LAUNCHER_PREFIX: &str = "virt-launcher-";
/// The time limit for reading the setting that lets virtual machines keep their addresses.
const SETTING_LIMIT: Duration = Duration::from_secs(10);

/// The error from client-go if access to Kubernetes is not configured.
const NO_CLUSTER: &str = "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER \
                          environment variable";

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

/// Finds the owner of the addresses of the call's pod: its virtual machine if it has one that keeps its addresses,
/// otherwise its container.
pub(crate) async fn find_owner(call: &Call, allocator: &CallAllocator) -> Result<Ownership, CniError> {
    let Some((namespace, pod_name)) = &call.identity.pod else {
        return Ok(Owner::Container.into());
    };
    if !pod_name.starts_with(LAUNCHER_PREFIX) {
        return Ok(Owner::Container.into());
    }

    let client = call.lookup(allocator).await.map_err(lookup_failed)?;
    let lookup = client.launcher(namespace, pod_name).await;
    let launcher = match lookup.map_err(lookup_failed)? {
        LauncherLookup::Launcher(launcher) => launcher,
        LauncherLookup::OtherPod => return Ok(Owner::Container.into()),
        LauncherLookup::NoPod => {
            return Ok(Ownership {
                owner: Owner::PodIsGone,
                refusal: Some(no_machine("pod not found")),
            });
        }
    };

    let found = find_machine(&client, namespace, &launcher).await;
    let (machine, mut refusal) = found.map_err(lookup_failed)?;
    if keeps_addresses(allocator).await {
        return Ok(Ownership {
            owner: Owner::Machine(machine),
            refusal,
        });
    }

    // A migration needs the address on both nodes, which only a machine that keeps its addresses has.
    let is_migration_target = machine.migration.is_some();
    if refusal.is_none() && is_migration_target {
        let message =
            "live migration target pod is not allowed when KubeVirtVMAddressPersistence is disabled";
        refusal = Some(CniError::internal(message));
    }
    Ok(Ownership {
        owner: Owner::Container,
        refusal,
    })
}

/// Converts an error of a lookup in Kubernetes to the message of Calico's plugin.
fn lookup_failed(error: calipam_datastore::Error) -> CniError {
    let CniError { code, msg, .. } = failure::from_datastore(&error);
    let reason = match error {
        calipam_datastore::Error::NoCluster(_) => NO_CLUSTER,
        _ => &msg,
    };
    CniError::new(code, format!("failed to get VMI info: {reason}"))
}

/// The error for a pod whose virtual machine was not found.
fn no_machine(reason: &str) -> CniError {
    CniError::internal(format!("failed to get VMI info: {reason}"))
}

/// Returns the virtual machine of a launcher pod and, if the pod may not use the machine's addresses, the reason. The
/// addresses of a deleted instance stay allocated if a machine with its name could start it again. A pod whose instance
/// was deleted or replaced must not share the addresses with the next instance's pod.
async fn find_machine(
    client: &KubeClient,
    namespace: &str,
    pod: &LauncherPod,
) -> calipam_datastore::Result<(Machine, Option<CniError>)> {
    let instance = client.instance(namespace, &pod.instance_name).await?;
    // An instance that was created without a machine names none. A deleted instance had its machine's name.
    let machine_name = match &instance {
        Some(instance) => instance.machine.clone(),
        None => Some(pod.instance_name.clone()),
    };
    let machine = match &machine_name {
        Some(name) => client.machine(namespace, name).await?,
        None => None,
    };
    let is_being_deleted = match (&machine, &instance) {
        (Some(machine), _) => machine.is_being_deleted,
        // An instance whose machine is gone cannot be started again.
        (None, Some(instance)) => instance.is_being_deleted || instance.machine.is_some(),
        (None, None) => true,
    };
    let missing = |plural: &str, name: &str| {
        let full_name = format!("{namespace}/{}", pod.instance_name);
        format!("failed to query VMI resource {full_name}: {plural}.kubevirt.io \"{name}\" not found")
    };
    // The first reason is the one that Calico's plugin finds first.
    let refusal = match (&instance, &machine_name) {
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

/// True if the IPAM setting lets virtual machines keep their addresses. This is the default, which also counts if the
/// setting cannot be read within [`SETTING_LIMIT`].
async fn keeps_addresses(allocator: &CallAllocator) -> bool {
    match timeout(SETTING_LIMIT, allocator.store().keeps_machine_addresses()).await {
        Ok(Ok(keeps)) => keeps,
        Ok(Err(error)) => {
            tracing::warn!("cannot read whether virtual machines keep their addresses: {error}");
            true
        }
        Err(_) => true,
    }
}
