//! Virtual machines of KubeVirt. The addresses of their pods belong to the machine (facts of the plugin, section 15).

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use calipam_model::digest::sha256;
use calipam_model::handle::{MAX_MACHINE_HANDLE, OF_MACHINE};

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
        let prefix = format!("{network}{OF_MACHINE}");
        let suffix = format!("{}.{}", self.namespace, self.name);
        if prefix.len() + suffix.len() <= MAX_MACHINE_HANDLE {
            return prefix + &suffix;
        }
        let hash = URL_SAFE_NO_PAD.encode(sha256(suffix));
        let mut handle = format!("{prefix}_{hash}");
        handle.truncate(MAX_MACHINE_HANDLE);
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
        assert!(
            long.starts_with("net.vmi._") && long.len() == "net.vmi._".len() + 43,
            "{long}"
        );
        let cut = machine("vm").handle(&"n".repeat(120));
        assert_eq!(cut.len(), MAX_MACHINE_HANDLE);
        let fits = machine(&"v".repeat(MAX_MACHINE_HANDLE - "net.vmi.ns.".len())).handle("net");
        assert!(fits.len() == MAX_MACHINE_HANDLE && fits.ends_with('v'));
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
