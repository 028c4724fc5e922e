//! `show` of many clusters: the pools of all, and ranges that none of them uses.

use calipam_check::fleet::{Ranges, free_ranges};
use calipam_check::views::{self, PoolList};
use calipam_model::snapshot::{Snapshot, Source};
use calipam_model::{IpNet, cidr};

use super::run::read;
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
/// If something else than pools is to be shown, or there is nothing that could be free.
pub(crate) fn run(args: &ShowArgs, fleet: &Fleet, console: &Console) -> Result<Outcome, Failure> {
    let is_narrowed = !args.in_pools.is_empty() || args.printing.watch.is_some();
    if args.subject() != Subject::Pools || is_narrowed {
        return Err(Failure::usage("with several clusters, `show` shows all pools and nothing else")
            .hint("for anything else, name one cluster"));
    }
    let found: Vec<Result<_, Failure>> =
        each(&fleet.clusters, &args.fleet, console, |cluster, console| find(cluster, args, console));

    let mut document = FleetPools::default();
    let mut taken = fleet.taken.clone();
    for (Named { name, group, services, .. }, found) in fleet.clusters.iter().zip(found) {
        taken.extend(services);
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

/// Reads of a cluster what is needed; the reason where it cannot be read.
fn find(cluster: &Named, args: &ShowArgs, console: &Console) -> Result<Result<Found, String>, Failure> {
    read(cluster, &args.fleet, console, async |datastore| {
        let mut sources = views::sources::POOLS.to_vec();
        if args.find_range.is_some() {
            sources.push(Source::Services);
        }
        let read = calipam_workflow::read_sources(datastore, &sources, &Person::watching(console)).await?;
        Ok(Found::of(&read))
    })
}

fn propose(prefix: u8, taken: Vec<IpNet>) -> Vec<IpNet> {
    let private: &[&str] = if prefix <= 32 { &PRIVATE_V4 } else { &PRIVATE_V6 };
    let within: Vec<IpNet> = private.iter().filter_map(|cidr| cidr::parse_cidr(cidr)).collect();
    free_ranges(prefix, &within, taken, PROPOSED)
}

impl Found {
    fn of(snapshot: &Snapshot) -> Self {
        let (pools, ranges) = (views::pools(snapshot), Ranges::of(snapshot));
        let of_pools = pools.pools.iter().map(|pool| pool.cidr);
        let points = ranges.points.iter().map(|point| point.address.into());
        let blocks = snapshot.blocks.iter().map(|block| block.value.key);
        let taken = of_pools.chain(points).chain(ranges.reserved).chain(blocks).collect();
        Self { pools, taken }
    }
}
