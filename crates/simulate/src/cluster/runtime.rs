//! The container runtimes, which call the plugin until a pod has its addresses or has released them.

use std::net::IpAddr;
use std::rc::Rc;

use super::World;
use super::plugin;
use crate::engine::within;
use crate::time::Micros;

/// The time until a runtime tries again to start a pod, or the scheduler to place one.
const RETRY: Micros = Micros::from_secs(10);
/// The time until a runtime repeats a failed DEL.
const RETRY_DEL: Micros = Micros::from_secs(15);
/// A runtime's time limit for an ADD or DEL.
const CALL: Micros = Micros::from_secs(220);
/// The largest difference of a lifetime from the mean, in thousandths of the mean.
const LIFETIME_SPREAD: u64 = 900;

impl World {
    /// Takes over the running pods of the cluster with which the scenario begins. Leaves out those whose node is
    /// unknown.
    pub(super) fn adopt_running_pods(self: &Rc<Self>) {
        let Some(start) = self.scenario.start.clone() else {
            return;
        };
        for pod in &start.pods {
            let Some(node) = self.scenario.node_index(&pod.node) else {
                continue;
            };
            let handle: Rc<str> = pod.handle.as_str().into();
            let id = self.create_pod(node, Some(Rc::clone(&handle)));
            self.pods.borrow_mut().adopted.insert(handle, id);
            self.set_started(id, pod.addresses.clone());
            self.plan_leaving(id);
        }
    }

    /// Adds a pod on some node that has room. If all nodes are full or closed, tries again later.
    pub(super) fn arrive(self: &Rc<Self>) {
        let node = self.nodes.borrow().choose(&mut self.random.borrow_mut());
        if let Some(node) = node {
            let no_shared_handle = None;
            self.start_on(node, no_shared_handle);
            return;
        }

        self.measured.borrow_mut().unschedulable += 1;
        let world = Rc::clone(self);
        self.engine.at(self.engine.now() + RETRY, move || {
            world.measured.borrow_mut().unschedulable -= 1;
            world.arrive();
        });
    }

    /// Adds a pod on a given node, and returns its ID. The node starts the pod if it is alive. Without `handle`, the
    /// pod's handle is derived from its container.
    pub(super) fn start_on(self: &Rc<Self>, node: u32, handle: Option<Rc<str>>) -> u32 {
        let id = self.create_pod(node, handle);
        if self.nodes.borrow().get(node).is_alive {
            let task = self.engine.spawn(start(Rc::clone(self), id));
            self.nodes.borrow_mut().set_task(node, id, Some(task));
        }
        id
    }

    /// Adds a pod to a node's pods and to the API server, and returns its ID. The pod waits for addresses.
    fn create_pod(&self, node: u32, handle: Option<Rc<str>>) -> u32 {
        let id = self
            .pods
            .borrow_mut()
            .add_waiting(node, handle, self.engine.now());
        self.nodes.borrow_mut().add_pod(node, id);
        id
    }

    fn set_started(&self, id: u32, addresses: Vec<IpAddr>) {
        let now = self.engine.now();
        for address in &addresses {
            self.ledger.borrow_mut().take(*address, id, now);
        }
        self.pods.borrow_mut().set_started(id, addresses, now);
    }

    /// Plans the end of a pod's life, after which another pod replaces it. Does nothing if pods have no lifetime.
    fn plan_leaving(self: &Rc<Self>, id: u32) {
        let Some(lifetime) = self.scenario.lifetime else {
            return;
        };
        let age = self.random.borrow_mut().around(lifetime, LIFETIME_SPREAD);
        let world = Rc::clone(self);
        self.engine.at(self.engine.now() + age, move || {
            if world.delete(id) {
                world.replace(id);
            }
        });
    }

    /// Deletes a pod: its node stops it and releases its addresses. Returns false if it is not running or its node is
    /// down.
    pub(super) fn delete(self: &Rc<Self>, id: u32) -> bool {
        let is_running = self.pods.borrow().get(id).runs;
        let node = self.pods.borrow().get(id).node;
        if !is_running || !self.nodes.borrow().get(node).is_alive {
            return false;
        }
        self.stop(id);
        let task = self.engine.spawn(leave(Rc::clone(self), id));
        self.nodes.borrow_mut().set_task(node, id, Some(task));
        true
    }

    /// Ends a pod's containers. From now on, the pod no longer uses its addresses, although they stay recorded until
    /// DEL.
    pub(super) fn stop(&self, id: u32) {
        let mut pods = self.pods.borrow_mut();
        let pod = pods.get_mut(id);
        pod.runs = false;
        for address in &pod.addresses {
            self.ledger.borrow_mut().leave(*address, id);
        }
    }

    /// Replaces a pod with another one, unless it was already replaced.
    pub(super) fn replace(self: &Rc<Self>, id: u32) {
        let is_first = self.pods.borrow_mut().replace(id);
        if is_first {
            self.arrive();
        }
    }

    /// Removes a pod from the API server.
    pub(super) fn forget(&self, id: u32) {
        let node = self.pods.borrow().get(id).node;
        self.pods.borrow_mut().forget(id, self.engine.now());
        self.nodes.borrow_mut().remove_pod(node, id);
    }
}

/// Starts a pod: the runtime calls the plugin until it assigns addresses. Each attempt has a sandbox of its own.
async fn start(world: Rc<World>, id: u32) {
    loop {
        // Boxed so that waiting pods take little memory.
        let adding = Box::pin(plugin::add(&world, id));
        match within(&world.engine, CALL, adding).await {
            Some(Some(addresses)) => {
                world.set_started(id, addresses);
                let node = world.pods.borrow().get(id).node;
                world.nodes.borrow_mut().set_task(node, id, None);
                world.plan_leaving(id);
                return;
            }
            // The ADD failed, which is already counted.
            Some(None) => {}
            // The runtime has given up on the ADD, which could not count itself.
            None => world.measured.borrow_mut().too_long += 1,
        }

        // After a failed ADD, the runtime removes the sandbox, which includes a DEL.
        let deleting = Box::pin(plugin::del(&world, id));
        // Its result does not matter: the next DEL of the pod releases what this one leaves.
        let _ = within(&world.engine, CALL, deleting).await;
        world.engine.sleep(world.server.varied(RETRY)).await;
        world.pods.borrow_mut().get_mut(id).attempt += 1;
    }
}

/// Stops a pod: the runtime calls the plugin until its addresses are released, and only then the pod's object goes.
async fn leave(world: Rc<World>, id: u32) {
    world.pods.borrow_mut().get_mut(id).has_endpoint = false;
    loop {
        let call = Box::pin(plugin::del(&world, id));
        if within(&world.engine, CALL, call).await == Some(true) {
            break;
        }
        world.engine.sleep(RETRY_DEL).await;
    }
    world.forget(id);
}
