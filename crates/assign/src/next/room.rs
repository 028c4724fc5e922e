//! The addresses that many users get, one after the other.

use calipam_model::pool::PoolUse;

use super::{NextAddress, Outlook};
use crate::event::Event;
use crate::family::Family;
use crate::on_snapshot::without_waiting;

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
        self.run(|allocator, events| {
            let mut rooms = Vec::new();
            for (node, need) in needs {
                let mut room = NodeRoom::default();
                let request = NextAddress::new(node, family, &[]);
                for (number, intended_use) in [
                    (need.workloads, PoolUse::Workload),
                    (need.tunnels, PoolUse::Tunnel),
                ] {
                    let (mut asked, _) = self.of_node(&request, intended_use);
                    (asked.v4, asked.v6) = if family == Family::V4 {
                        (number, 0)
                    } else {
                        (0, number)
                    };
                    let (done, error) = match without_waiting(allocator.auto_assign(&asked)) {
                        Ok(done) => (done, None),
                        Err(partly) => (partly.done, Some(partly.error.to_string())),
                    };
                    room.found += u32::try_from(done.addresses().count()).unwrap_or(u32::MAX);
                    let messages = done
                        .v4
                        .iter()
                        .chain(&done.v6)
                        .flat_map(|assigned| &assigned.messages);
                    let why = error.or_else(|| messages.map(ToString::to_string).next());
                    room.reason = room.reason.or(why).map(|reason| reason.trim().to_owned());
                }
                let is_claim = |event: &Event| matches!(event, Event::Claimed(_) | Event::Reclaimed(_));
                room.new_blocks = events().iter().filter(|event| is_claim(event)).count();
                rooms.push(room);
            }
            rooms
        })
    }
}
