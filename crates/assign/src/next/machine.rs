//! Addresses of KubeVirt virtual machines, which outlive the pods that run them (facts of the plugin, section 15).

use std::net::IpAddr;

use calipam_model::handle::{
    MACHINE_HASH, MACHINE_SEPARATOR, MachineNameTooLong, check_machine_names, machine_handle,
};
use calipam_model::plugin::Plugin;
use calipam_model::service::Machine;
use calipam_model::snapshot::{DatastoreKind, Source};

use super::Outlook;
use super::answer::{Answer, Refused};
use super::reason::Reason;
use super::request::PodAdd;
use crate::error::Error;
use crate::on_snapshot::without_waiting;
use crate::owners::{NewOwner, OwnerAttributes, OwnerConditions, OwnerUpdates};

/// The network of Calico's usual CNI configuration.
const NETWORK: &str = "k8s-pod-network";

/// The handle of a pod's virtual machine, and the addresses that it has already.
pub(super) struct MachineAddresses {
    pub handle: String,
    pub addresses: Vec<IpAddr>,
}

impl Outlook<'_> {
    /// Returns the virtual machine whose addresses a pod gets; `None` for a pod that gets its own.
    ///
    /// # Errors
    /// If Calico's plugin refuses the pod because of its virtual machine.
    pub(super) fn machine_of(&self, pod: &PodAdd<'_>) -> Result<Option<MachineAddresses>, Refused> {
        let snapshot = self.indexed.snapshot;
        let Some(reference) = pod.request.and_then(|request| request.machine.as_ref()) else {
            return Ok(None);
        };
        if snapshot.knows_machines() == Some(false) || !snapshot.has_read(Source::Machines) {
            return Ok(None);
        }
        let namespace = pod.namespace;
        let name = reference.name.as_str();
        let full_name = format!("{namespace}/{name}");
        let missing = |plural: &str| {
            let calico_message = format!(
                "failed to get VMI info: failed to query VMI resource {full_name}: {plural}.kubevirt.io \"{name}\" not found"
            );
            Refused::new(Reason::NoMachine(full_name.clone()), calico_message)
        };
        let objects = self.machine_objects(namespace, name);
        let Some(instance) = objects.iter().find(|object| object.is_instance) else {
            return Err(missing("virtualmachineinstances"));
        };
        let has_machine = objects.iter().any(|object| !object.is_instance);
        if instance.is_owned && !has_machine {
            return Err(missing("virtualmachines"));
        }
        if instance.uid != reference.uid {
            let calico_message = format!(
                "failed to get VMI info: VMI UID mismatch: pod ownerReference has {} but VMI resource has {}",
                reference.uid, instance.uid
            );
            return Err(Refused::new(Reason::MachineReplaced(full_name), calico_message));
        }

        let is_target = pod.request.is_some_and(|request| !request.migration.is_empty());
        if !self.keeps_machine_addresses() {
            if is_target {
                let calico_message =
                    "live migration target pod is not allowed when KubeVirtVMAddressPersistence is disabled";
                return Err(Refused::new(Reason::MigrationOff, calico_message));
            }
            return Ok(None);
        }
        let plugin = self.plugin_on(pod.node);
        check_machine_names(NETWORK, namespace, name).map_err(|too_long| refused_name(too_long, plugin))?;
        let handle = self.find_machine_handle(namespace, name);
        let addresses = self.machine_addresses(plugin, &handle)?;
        if addresses.is_empty() && is_target {
            let calico_message = format!("migration target pod but no IP allocated to VM handle {handle}");
            return Err(Refused::new(Reason::NothingToMigrate, calico_message));
        }
        Ok(Some(MachineAddresses { handle, addresses }))
    }

    /// The VirtualMachineInstance and the VirtualMachine with this name, as far as they exist.
    fn machine_objects(&self, namespace: &str, name: &str) -> Vec<&Machine> {
        let machines = self.indexed.snapshot.machines.iter().map(|stored| &stored.value);
        machines
            .filter(|machine| machine.namespace == namespace && machine.name == name)
            .collect()
    }

    /// True unless the resource IPAMConfiguration says that virtual machines lose their addresses. On Kubernetes, it is
    /// the object that the allocator reads.
    fn keeps_machine_addresses(&self) -> bool {
        let snapshot = self.indexed.snapshot;
        let config = match snapshot.datastore {
            DatastoreKind::Kubernetes => snapshot.ipam_config,
            _ => snapshot.ipam_configuration,
        };
        match config {
            Some(config) => config.keeps_addresses_of_machines(),
            None => true,
        }
    }

    /// The handle of a virtual machine: the one that exists, or else one in Calico's usual network.
    fn find_machine_handle(&self, namespace: &str, name: &str) -> String {
        for stored in &self.indexed.snapshot.handles {
            let id = stored.value.id().to_string();
            if is_of_machine(&id, namespace, name) {
                return id;
            }
        }
        machine_handle(NETWORK, namespace, name)
    }

    /// Makes the pod an owner of all addresses that the virtual machine has already, and returns these addresses.
    ///
    /// # Errors
    /// If Calico's plugin could not read the addresses, or not make the pod an owner of one.
    fn machine_addresses(&self, plugin: Plugin, handle: &str) -> Result<Vec<IpAddr>, Refused> {
        let store = self.store(plugin);
        let allocator = self.allocator(plugin, &store);
        let addresses = match without_waiting(allocator.ips_by_handle(handle)) {
            Ok(addresses) => addresses,
            Err(Error::NoHandle(_)) => Vec::new(),
            Err(error) => {
                let calico_message = format!("failed to get existing IPs for VM handle {handle}: {error}");
                return Err(Refused::new(Reason::Other, calico_message));
            }
        };

        // The pod's attributes do not matter for the answer, so they stay empty.
        let pod_as_owner = OwnerUpdates {
            active: NewOwner::Set(OwnerAttributes::new()),
            ..OwnerUpdates::default()
        };
        for address in &addresses {
            let no_conditions = OwnerConditions::default();
            let written = allocator.set_owner_attributes(*address, handle, &pod_as_owner, &no_conditions);
            if let Err(error) = without_waiting(written) {
                let cause = self.calico_text(&error);
                let calico_message = format!("failed to set owner attributes for IP {address}: {cause}");
                let reason = self.reason_of_address(*address, &error);
                return Err(Refused::new(reason, calico_message));
            }
        }
        Ok(addresses)
    }

    /// The answer for an address that a virtual machine has already, or that bypasses IPAM.
    pub(super) fn answer_held(&self, address: IpAddr) -> Answer {
        Answer {
            outcome: Ok(self.given_already(address)),
            events: Vec::new(),
            first: None,
        }
    }
}

/// True if this is the handle of a virtual machine in any network.
fn is_of_machine(id: &str, namespace: &str, name: &str) -> bool {
    for (end_of_network, _) in id.match_indices(MACHINE_SEPARATOR) {
        if id == machine_handle(&id[..end_of_network], namespace, name) {
            return true;
        }
    }
    false
}

/// The refusal of a virtual machine whose names are too long for its handle. Calico's plugin crashes.
fn refused_name(too_long: MachineNameTooLong, plugin: Plugin) -> Refused {
    let message = if plugin == Plugin::Calico {
        format!(
            "netplugin failed: \"panic: runtime error: slice bounds out of range [:{}] with length {MACHINE_HASH}…",
            too_long.left_for_hash
        )
    } else {
        too_long.to_string()
    };
    Refused::new(Reason::MachineNameTooLong(too_long.machine), message)
}
