//! `show` of many clusters: the pools of all, and ranges that none of them uses.

use calipam_check::fleet::{Ranges, Summary, free_ranges};
use calipam_check::views::{self, PoolList};
use calipam_model::snapshot::{Snapshot, Source};
use calipam_model::{IpNet, cidr};

use super::run::{Read, read};
use super::{Fleet, Named, each};
use crate::args::{ShowArgs, Subject};
use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::operator::Person;
use crate::render::fleet::{FleetPools, PoolsOfCluster};

/// Where ranges are looked for: addresses of private networks, and those that carriers share.
const PRIVATE_V4: [&str; 4] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"];
const PRIVATE_V6: [&str; 1] = ["fd00::/8"];

/// So many ranges are proposed.
const PROPOSED: usize = 5;

/// What is needed of a cluster.
struct Found {
    pools: PoolList,
    /// Everything at which something lies.
    taken: Vec<IpNet>,
}

/// Prints the pools of the clusters.
///
/// # Errors
/// Where something else than pools is to be shown, or there is nothing that could be free.
pub(crate) fn run(args: &ShowArgs, fleet: &Fleet, console: &Console) -> Result<Outcome, Failure> {
    let is_narrowed = !args.in_pools.is_empty() || args.printing.watch.is_some();
    if args.subject() != Subject::Pools || is_narrowed {
        return Err(Failure::Usage {
            message: "of several clusters, `show` shows the pools, and all of them".into(),
            hint: Some("everything else is about one cluster: name it alone".into()),
        });
    }
    let found: Vec<Result<_, Failure>> = each(&fleet.clusters, &args.fleet, console, |cluster, console| {
        let result = read(cluster, &args.fleet, console, async |datastore| {
            let mut sources = views::sources::POOLS.to_vec();
            if args.find_range.is_some() {
                sources.push(Source::Services);
            }
            let read =
                calipam_workflow::read_sources(datastore, &sources, &Person::watching(console)).await?;
            Ok(Found::of(&read))
        });
        let found = |read| match read {
            Read::Datastore(found) => found,
            Read::Summary(summary) => Found::of_summary(*summary),
        };
        Ok(result?.map(found))
    });

    let mut document = FleetPools::default();
    let mut taken = fleet.taken.clone();
    for (Named { name, group, .. }, found) in fleet.clusters.iter().zip(found) {
        match found? {
            Ok(found) => {
                taken.extend(found.taken);
                let (cluster, group) = (name.clone(), group.clone());
                document.clusters.push(PoolsOfCluster { cluster, group, pools: found.pools.pools });
            }
            Err(reason) => {
                console.warn(&format!("{name} cannot be read: {reason}"));
                document.unreadable.insert(name.clone(), reason);
            }
        }
    }
    if let Some(prefix) = args.find_range {
        document.free = Some(propose(prefix, taken));
        if !document.unreadable.is_empty() {
            document.notes.push("Ranges that look free may be used by clusters that were not read".into());
        }
    }
    console.print(&document)?;
    let outcome = if document.unreadable.is_empty() { Outcome::Clean } else { Outcome::PartlyRead };
    match document.free.as_deref() {
        Some([]) if outcome == Outcome::Clean => Ok(Outcome::Refused),
        _ => Ok(outcome),
    }
}

fn propose(prefix: u8, taken: Vec<IpNet>) -> Vec<IpNet> {
    let private: &[&str] = if prefix <= 32 { &PRIVATE_V4 } else { &PRIVATE_V6 };
    let within: Vec<IpNet> = private.iter().filter_map(|cidr| cidr::parse_cidr(cidr)).collect();
    free_ranges(prefix, &within, taken, PROPOSED)
}

impl Found {
    fn of(snapshot: &Snapshot) -> Self {
        let blocks = snapshot.blocks.iter().map(|block| block.value.key);
        let ranges = Ranges::of(snapshot);
        Self::new(views::pools(snapshot), &ranges, blocks)
    }

    fn of_summary(summary: Summary) -> Self {
        let Summary { pools, ranges, .. } = summary;
        let blocks: Vec<IpNet> = ranges.used.blocks().iter().map(|block| block.cidr).collect();
        Self::new(pools, &ranges, blocks.into_iter())
    }

    fn new(pools: PoolList, ranges: &Ranges, blocks: impl Iterator<Item = IpNet>) -> Self {
        let of_pools = pools.pools.iter().map(|pool| pool.cidr);
        let points = ranges.points.iter().map(|point| point.address.into());
        let taken = of_pools.chain(points).chain(ranges.reserved.iter().copied()).chain(blocks).collect();
        Self { pools, taken }
    }
}
