//! The addresses that many users get, one after the other.

use calipam_model::plugin::Plugin;
use calipam_model::pool::PoolUse;

use super::{NextAddress, Outlook};
use crate::allocator::Allocator;
use crate::event::Event;
use crate::family::Family;
use crate::on_snapshot::{SnapshotStore, without_waiting};
use crate::request::AutoAssign;

/// The numbers of addresses of one family that the users on a node need.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeNeed {
    pub workloads: u32,
    pub tunnels: u32,
}

/// The addresses that the users on a node get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRoom {
    pub found: u32,
    /// The number of blocks that the node claims for them.
    pub new_blocks: usize,
    /// The first reason why a request gets fewer addresses than it asks for.
    pub reason: Option<String>,
}

impl Outlook<'_> {
    /// Assigns addresses of a family to the users on nodes, one node after the other, as the cluster's Calico does.
    pub fn room_of_nodes<'r>(
        &self,
        family: Family,
        needs: impl IntoIterator<Item = (&'r str, NodeNeed)>,
    ) -> Vec<NodeRoom> {
        self.run(Plugin::Calico, |allocator, events| {
            let mut rooms = Vec::new();
            for (node, need) in needs {
                let request = NextAddress::new(node, family, &[]);
                let mut room = NodeRoom::default();
                let workloads = self.requested(&request, need.workloads, PoolUse::Workload);
                room.assign(allocator, &workloads);
                let tunnels = self.requested(&request, need.tunnels, PoolUse::Tunnel);
                room.assign(allocator, &tunnels);

                let is_claim = |event: &Event| matches!(event, Event::Claimed(_) | Event::Reclaimed(_));
                room.new_blocks = events().iter().filter(|event| is_claim(event)).count();
                rooms.push(room);
            }
            rooms
        })
    }

    /// Returns the allocator's request for `number` addresses for a use.
    fn requested(&self, request: &NextAddress<'_>, number: u32, intended_use: PoolUse) -> AutoAssign {
        let mut wanted = self.node_request(request, intended_use).request;
        match request.family {
            Family::V4 => wanted.v4 = number,
            Family::V6 => wanted.v6 = number,
        }
        wanted
    }
}

impl NodeRoom {
    /// Assigns addresses, and adds their number. Keeps the first reason why there are too few.
    fn assign(&mut self, allocator: &Allocator<&SnapshotStore<'_>>, wanted: &AutoAssign) {
        let (assigned, error) = match without_waiting(allocator.auto_assign(wanted)) {
            Ok(assigned) => (assigned, None),
            Err(partly) => (partly.done, Some(partly.error.to_string())),
        };
        self.found += u32::try_from(assigned.addresses().count()).unwrap_or(u32::MAX);

        if self.reason.is_none() {
            let families = assigned.v4.iter().chain(&assigned.v6);
            let mut messages = families.flat_map(|family| &family.messages);
            let reason = error.or_else(|| messages.next().map(ToString::to_string));
            self.reason = reason.map(|reason| reason.trim().to_owned());
        }
    }
}
