//! KubeVirt's virtual machines (facts 2.14, 4.1): the address belongs to the machine, not to its pod.

use std::net::IpAddr;

use ipnet::IpNet;

use super::pods::Holder;
use crate::cluster::Cluster;
use crate::cluster::layout::PodName;
use crate::cluster::wire::Attribute;

impl Cluster {
    /// Adds a running, a migrating and a stopped machine.
    pub(super) fn add_machines(&mut self) {
        let (node, block) = (self.nodes[1].name.clone(), self.nodes[1].blocks[0]);
        let target = self.nodes[2].name.clone();
        let pod = self.machine_pod("vm-1", &node);
        let attribute = self.machine_record("vm-1", &pod);
        let address = self.take_as(block, attribute);
        self.put_endpoint(&pod, [address]);
        self.put_machine("vms", "vm-1", true);

        let (source, destination) = (self.machine_pod("vm-2", &node), self.machine_pod("vm-2", &target));
        let mut attribute = self.machine_record("vm-2", &source);
        let mut other = self.machine_record("vm-2", &destination).owner.unwrap_or_default();
        let migration = self.spec.rng(9).uuid();
        other.insert("vmim-uid".to_owned(), migration.clone());
        attribute.alternate = Some(other);
        let address = self.take_as(block, attribute);
        for pod in [&source, &destination] {
            self.put_endpoint(pod, [address]);
        }
        self.mark_migration_target(&destination.endpoint_key(), &migration);
        self.put_machine("vms", "vm-2", true);

        self.take_as(block, Attribute::bare(&handle("vm-3")));
        self.put_machine("vms", "vm-3", false);
    }

    /// Assigns an address to a machine that no longer exists.
    pub(in crate::cluster) fn take_for_lost_machine(&mut self, block: IpNet) -> IpAddr {
        let machine = format!("vm-lost-{}", self.next_pod);
        self.next_pod += 1;
        self.take_as(block, Attribute::bare(&handle(&machine)))
    }

    pub(super) fn machine_pod(&mut self, machine: &str, node: &str) -> Holder {
        let holder = self.holder(node);
        let pod = format!("virt-launcher-{machine}-{}", &holder.container[..5]);
        let generate = String::new();
        Holder { name: PodName { namespace: "vms", pod, generate, app: "virt-launcher" }, ..holder }
    }

    pub(super) fn machine_record(&self, machine: &str, pod: &Holder) -> Attribute {
        let mut attribute = Attribute { handle: Some(handle(machine)), ..pod.attribute() };
        let seed = machine.bytes().fold(0, |sum: u64, byte| sum * 31 + u64::from(byte));
        let mut rng = self.spec.rng(seed);
        attribute.set("vmi-name", machine);
        attribute.set("vm-uid", &rng.uuid());
        attribute.set("vmi-uid", &rng.uuid());
        attribute
    }
}

fn handle(machine: &str) -> String {
    format!("k8s-pod-network.vmi.vms.{machine}")
}
