//! KubeVirt's virtual machines (facts 2.14, 4.1): the address belongs to the machine, not to its pod.

use ipnet::IpNet;
use serde_json::json;

use super::pods::Holder;
use crate::cluster::Cluster;
use crate::cluster::layout::{PodName, hash};
use crate::cluster::wire::Attribute;

impl Cluster {
    /// Adds a running, a migrating and a stopped machine.
    pub(super) fn add_machines(&mut self) {
        let (node, block) = (self.nodes[1].name.clone(), self.nodes[1].blocks[0]);
        let target = self.nodes[2].name.clone();
        self.start_machine("vm-1", &node, &[block]);

        let (source, destination) = (self.machine_pod("vm-2", &node), self.machine_pod("vm-2", &target));
        let mut attribute = self.machine_record("vm-2", &source);
        let mut other = self.machine_record("vm-2", &destination).owner.unwrap_or_default();
        let migration = self.spec.rng(9).uuid();
        other.insert("vmim-uid".to_owned(), migration.clone());
        attribute.alternate = Some(other);
        let address = self.take_as(block, attribute);
        for pod in [&source, &destination] {
            self.put_endpoint(pod, &[address]);
        }
        let target = json!({"metadata": {"labels": {"kubevirt.io/migrationJobUID": migration}}});
        self.patch_object(&destination.endpoint_key(), target);
        self.put_machine("vm-2", true);

        self.take_as(block, Attribute::bare(&machine_handle("vm-3")));
        self.put_machine("vm-3", false);
    }

    /// Adds a running machine with one address from each block.
    pub(super) fn start_machine(&mut self, machine: &str, node: &str, blocks: &[IpNet]) {
        let pod = self.machine_pod(machine, node);
        self.start(&pod, &self.machine_record(machine, &pod), blocks);
        self.put_machine(machine, true);
    }

    pub(super) fn machine_pod(&mut self, machine: &str, node: &str) -> Holder {
        let holder = self.holder(node);
        let pod = format!("virt-launcher-{machine}-{}", &holder.container[..5]);
        let generate = String::new();
        Holder { name: PodName { namespace: "vms", pod, generate, app: "virt-launcher" }, ..holder }
    }

    pub(super) fn machine_record(&self, machine: &str, pod: &Holder) -> Attribute {
        let mut attribute = Attribute { handle: Some(machine_handle(machine)), ..pod.attribute() };
        let mut rng = self.spec.rng(hash(0, machine));
        attribute.set("vmi-name", machine);
        attribute.set("vm-uid", &rng.uuid());
        attribute.set("vmi-uid", &rng.uuid());
        attribute
    }
}

pub(in crate::cluster) fn machine_handle(machine: &str) -> String {
    format!("k8s-pod-network.vmi.vms.{machine}")
}
