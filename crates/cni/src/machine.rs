//! Virtual machines of KubeVirt. The addresses of their pods belong to the machine (facts of the plugin, section 15).

use std::collections::BTreeMap;

use calipam_model::handle::{check_machine_names, machine_handle};

use crate::protocol::CniError;

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
        machine_handle(network, &self.namespace, &self.name)
    }

    /// Checks that the machine's names are not too long for its handle in a network.
    pub(crate) fn check_handle(&self, network: &str) -> Result<(), CniError> {
        check_machine_names(network, &self.namespace, &self.name).map_err(|too_long| {
            CniError::internal(too_long.to_string()).with_details(
                "give it a shorter name, or set kubeVirtVMAddressPersistence in the IPAM configuration to Disabled",
            )
        })
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

#[cfg(test)]
mod tests {
    use calipam_model::handle::MAX_MACHINE_HANDLE;

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
    fn names_at_which_calico_crashes_are_refused() {
        let longest = MAX_MACHINE_HANDLE - "net.vmi.ns.".len();
        assert_eq!(machine(&"v".repeat(longest)).check_handle("net"), Ok(()));
        let refusal = machine(&"v".repeat(longest + 1)).check_handle("net").unwrap_err();
        assert!(
            refusal.msg.contains("its handle would have 129 characters"),
            "{refusal}"
        );
    }

    #[test]
    fn attributes_identify_the_machine() {
        let mut attributes = BTreeMap::new();
        let machine = Machine {
            machine_uid: Some("m".into()),
            migration: Some("j".into()),
            ..machine("vm")
        };
        machine.describe(&mut attributes);
        let found: Vec<(&str, &str)> = attributes
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("vm-uid", "m"),
                ("vmi-name", "vm"),
                ("vmi-uid", "u"),
                ("vmim-uid", "j")
            ]
        );
    }
}
