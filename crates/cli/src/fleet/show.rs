//! `show` of many clusters: the pools of all, how fast they fill, and ranges that none of them uses.

use calipam_check::fleet::{Growth, Ranges, Summary, free_ranges};
use calipam_check::views::{self, PoolList, PoolView};
use calipam_model::snapshot::{Snapshot, Source};
use calipam_model::{IpNet, cidr};
use jiff::Timestamp;

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
    /// The GUID; empty if it has none.
    guid: String,
    /// When it was read, if that is known.
    taken_at: Option<Timestamp>,
}

/// Prints the pools of the clusters.
///
/// # Errors
/// If something else than pools is to be shown, or there is nothing that could be free.
pub(crate) fn run(args: &ShowArgs, fleet: &Fleet, console: &Console) -> Result<Outcome, Failure> {
    let is_narrowed = !args.in_pools.is_empty() || args.printing.watch.is_some();
    if args.subject() != Subject::Pools || is_narrowed {
        return Err(Failure::Usage {
            message: "with several clusters, `show` shows all pools and nothing else".into(),
            hint: Some("for anything else, name one cluster".into()),
        });
    }
    let earlier = args.earlier.as_deref().map(Fleet::earlier).transpose()?;
    let found: Vec<Result<_, Failure>> = each(&fleet.clusters, &args.fleet, console, |cluster, console| {
        let found = find(cluster, args, console)?;
        let earlier = earlier.as_ref().and_then(|earlier| earlier.of(cluster));
        let growths = match (&found, earlier) {
            (Ok(found), Some(earlier)) => growths(found, earlier, args, console)?,
            _ => Vec::new(),
        };
        Ok(found.map(|found| (found, growths)))
    });

    let mut document = FleetPools::default();
    let mut taken = fleet.taken.clone();
    document.shows_growth = earlier.is_some();
    for (Named { name, group, services, .. }, found) in fleet.clusters.iter().zip(found) {
        taken.extend(services);
        match found? {
            Ok((found, growths)) => {
                taken.extend(found.taken);
                let (cluster, group) = (name.clone(), group.clone());
                document.clusters.push(PoolsOfCluster { cluster, group, pools: found.pools.pools, growths });
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
    let found = read(cluster, &args.fleet, console, async |datastore| {
        let mut sources = views::sources::POOLS.to_vec();
        if args.find_range.is_some() {
            sources.push(Source::Services);
        }
        let read = calipam_workflow::read_sources(datastore, &sources, &Person::watching(console)).await?;
        Ok(Found::of(&read, datastore.knows_its_time()))
    });
    Ok(found?.map(|read| match read {
        Read::Datastore(found) => found,
        Read::Summary(summary) => Found::of_summary(*summary),
    }))
}

/// How each pool of a cluster has grown since an earlier state, in their order.
fn growths(
    now: &Found,
    earlier: &Named,
    args: &ShowArgs,
    console: &Console,
) -> Result<Vec<Option<Growth>>, Failure> {
    let before = match find(earlier, args, console)? {
        Ok(before) => before,
        Err(reason) => {
            console.warn(&format!("its earlier state cannot be read: {reason}"));
            return Ok(Vec::new());
        }
    };
    if before.guid != now.guid {
        console.warn("its earlier state is of another cluster");
        return Ok(Vec::new());
    }
    let (Some(since), Some(at)) = (before.taken_at, now.taken_at) else {
        console.warn("it is not known when its states were read");
        return Ok(Vec::new());
    };
    let growth = |pool: &PoolView| {
        let earlier = before.pools.pools.iter().find(|earlier| earlier.cidr == pool.cidr)?;
        Growth::between((earlier, since), (pool, at))
    };
    Ok(now.pools.pools.iter().map(growth).collect())
}

fn propose(prefix: u8, taken: Vec<IpNet>) -> Vec<IpNet> {
    let private: &[&str] = if prefix <= 32 { &PRIVATE_V4 } else { &PRIVATE_V6 };
    let within: Vec<IpNet> = private.iter().filter_map(|cidr| cidr::parse_cidr(cidr)).collect();
    free_ranges(prefix, &within, taken, PROPOSED)
}

impl Found {
    fn of(snapshot: &Snapshot, knows_its_time: bool) -> Self {
        let blocks = snapshot.blocks.iter().map(|block| block.value.key);
        let pools = views::pools(snapshot);
        let taken = taken(&pools, &Ranges::of(snapshot), blocks);
        let taken_at = knows_its_time.then_some(snapshot.taken_at);
        Self { pools, taken, guid: snapshot.guid().to_owned(), taken_at }
    }

    fn of_summary(summary: Summary) -> Self {
        let Summary { report, pools, ranges } = summary;
        let taken = taken(&pools, &ranges, ranges.used.blocks().iter().map(|block| block.cidr));
        Self { pools, taken, guid: report.cluster.guid, taken_at: Some(report.cluster.taken_at) }
    }
}

fn taken(pools: &PoolList, ranges: &Ranges, blocks: impl Iterator<Item = IpNet>) -> Vec<IpNet> {
    let of_pools = pools.pools.iter().map(|pool| pool.cidr);
    let points = ranges.points.iter().map(|point| point.address.into());
    of_pools.chain(points).chain(ranges.reserved.iter().copied()).chain(blocks).collect()
}
