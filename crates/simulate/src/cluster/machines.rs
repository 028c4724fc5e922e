//! Virtual machines of KubeVirt that keep their addresses (Calico 3.32 and later), and their live migrations.

use std::net::IpAddr;
use std::rc::Rc;

use calipam_assign::plugin::Machine;
use calipam_assign::{Allocator, NewOwner, OwnerUpdates, PodName};

use super::World;
use super::plugin::NAMESPACE;
use super::pods::{Pod, Pods};

/// What a pod is to its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It runs the machine: the addresses go when it is deleted.
    Runs,
    /// The target of a live migration from this pod.
    TakesOver(u32),
    /// The machine runs in another pod.
    HasLeft,
}

impl World {
    /// `count` running pods are machines from now on, and are migrated to other nodes.
    pub(super) fn migrate_machines(self: &Rc<Self>, count: u32) {
        for source in self.pick(self.running(), count) {
            let from = self.pods.borrow().get(source).node;
            // KubeVirt asks for another node.
            let other =
                |_| self.nodes.borrow().choose(&mut self.random.borrow_mut()).filter(|node| *node != from);
            let Some(node) = (0..ATTEMPTS).find_map(other) else { continue };
            let handle = self.pods.borrow_mut().make_machine(source);
            let target = self.make(node, Some(handle));
            self.pods.borrow_mut().get_mut(target).role = Some(Role::TakesOver(source));
            self.begin(node, target);
        }
    }

    /// A pod has its addresses. If it is the target of a migration, the machine runs in it from now on.
    pub(super) fn take_over(self: &Rc<Self>, target: u32, addresses: &[IpAddr]) {
        let Some(role) = self.pods.borrow().get(target).role else { return };
        self.pods.borrow_mut().get_mut(target).role = Some(Role::Runs);
        let Role::TakesOver(source) = role else { return };
        if !self.pods.borrow().get(source).runs {
            return;
        }
        {
            let mut pods = self.pods.borrow_mut();
            pods.get_mut(source).role = Some(Role::HasLeft);
            pods.replace(source);
        }
        self.stop(source);
        self.engine.spawn(hand_over(Rc::clone(self), source, addresses.to_vec()));
    }
}

/// Calico makes the target of a migration the owner of the addresses, and the pod that the machine has left goes.
async fn hand_over(world: Rc<World>, source: u32, addresses: Vec<IpAddr>) {
    let allocator = Allocator::new(world.operator());
    let handle = world.pods.borrow().get(source).handle.clone().unwrap_or_default();
    for address in addresses {
        let Ok(record) = allocator.assignment_attributes(address).await else { continue };
        if let (Some(owner), Some(target)) = (record.owner, record.alternate) {
            let updates = OwnerUpdates { active: NewOwner::Set(target), alternate: NewOwner::Set(owner) };
            // Where it fails the target is the other side until the pod is gone.
            let _ = allocator.set_owner_attributes(address, &handle, &updates, &Default::default()).await;
        }
    }
    let node = world.pods.borrow().get(source).node;
    if world.nodes.borrow().get(node).is_alive {
        world.begin_leaving(node, source);
    }
}

/// How often a node is looked for that is not the one of the machine.
const ATTEMPTS: u32 = 20;

impl Pods {
    /// The pod runs a machine, with the addresses that it has. Gives the handle of the machine.
    fn make_machine(&mut self, id: u32) -> Rc<str> {
        let pod = self.get_mut(id);
        let handle: Rc<str> = pod.handle(id).into();
        if pod.role.is_none() {
            // A pod of a machine has a handle of its own, under which it has nothing.
            pod.attempt += 1;
        }
        let handle = pod.handle.get_or_insert(handle);
        pod.role = Some(Role::Runs);
        Rc::clone(handle)
    }

    /// What the plugin is told of the machine of a pod.
    pub(super) fn machine(&self, id: u32) -> Option<Machine> {
        let role = self.get(id).role?;
        let is_migration_target = matches!(role, Role::TakesOver(source) if self.get(source).is_in_api);
        let handle = self.get(id).handle.as_ref()?.to_string();
        let pod = PodName { namespace: NAMESPACE.to_owned(), name: Pod::name(id) };
        Some(Machine { handle, pod, is_migration_target, is_being_deleted: role == Role::Runs })
    }
}
