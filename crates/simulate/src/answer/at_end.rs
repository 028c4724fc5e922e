//! Whether the datastore is sound when a run ends. Nothing of this asks the allocator, or the rules of checks.

use calipam_model::IpNet;
use calipam_model::affinity::AffinityState;
use calipam_model::cidr;
use calipam_model::handle::Handle;

use super::AtEnd;
use crate::cluster::World;
use crate::datastore::Data;

impl World {
    pub(crate) fn at_end(&self) -> AtEnd {
        let (data, pods) = (self.server.data(), self.pods.borrow());
        let mut found = AtEnd { blocks: faults(&data), ..AtEnd::default() };
        let (mut in_handles, mut used) = (0, 0);
        for (block, held) in
            data.blocks().flat_map(|block| block.allocations().map(|held| (block.cidr(), held)))
        {
            if held.attribute.is_cooling() {
                continue;
            }
            if let Some(handle) = held.attribute.handle() {
                match data.handle(&handle.to_string()).is_some_and(|handle| handle.count(block) > 0) {
                    true => in_handles += 1,
                    false => found.handles += 1,
                }
            }
            let Some(id) = pods.of_record(&held.attribute) else { continue };
            let uses = |id: u32| pods.get(id).runs && pods.get(id).addresses.contains(&held.address);
            if uses(id) || pods.alternate_of(&held.attribute).is_some_and(uses) {
                used += 1;
            } else if pods.is_leaked(id, held.address) {
                found.leaked += 1;
            }
        }
        let counted: i64 = data.handles().flat_map(Handle::blocks).map(|(_, count)| count).sum();
        found.handles += u64::try_from(counted).unwrap_or(0).abs_diff(in_handles);
        let running = pods.all().filter(|(_, pod)| pod.runs).map(|(_, pod)| pod.addresses.len() as u64);
        found.unallocated = running.sum::<u64>().saturating_sub(used);
        found
    }
}

/// Blocks that overlap, those whose owner has no affinity for them, and confirmed affinities for blocks of others.
fn faults(data: &Data) -> u64 {
    let owner = |cidr: IpNet| data.block(cidr).and_then(|block| block.owner()?.host().map(str::to_owned));
    let confirmed = data.affinities().filter(|(affinity, _)| affinity.state == AffinityState::Confirmed);
    let strayed =
        confirmed.filter(|(affinity, _)| owner(affinity.key.cidr).as_ref() != Some(&affinity.key.node));

    let blocks: Vec<(IpNet, Option<&str>)> =
        data.blocks().map(|block| (block.cidr(), block.owner().and_then(|owner| owner.host()))).collect();
    let overlapping = blocks.windows(2).filter(|pair| cidr::overlap(pair[0].0, pair[1].0)).count();
    let has_affinity = |cidr: IpNet, host: &str| data.affinity(cidr, host).is_some();
    let unowned = blocks.iter().filter(|(cidr, host)| host.is_some_and(|host| !has_affinity(*cidr, host)));
    (strayed.count() + overlapping + unowned.count()) as u64
}
