//! `show` of many clusters: the document of each, and ranges that no cluster uses.

use calipam_check::fleet::{Ranges, free_ranges};
use calipam_check::views::{self, Count};
use calipam_model::snapshot::Snapshot;
use calipam_model::{IpNet, cidr};
use calipam_workflow::{Found, Object};

use super::address_of_fleet;
use super::of_cluster::show;
use crate::args::{ShowArgs, Subject};
use crate::console::Console;
use crate::exit::{Failure, Kind, Outcome, Result};
use crate::fleet::{Fleet, Named, ReadOfCluster, documents, read, refuse};
use crate::render::show::percent;
use crate::render::text::{count, thousands};

/// The ranges to search: private networks, and the shared address space for carrier-grade NAT.
const PRIVATE_V4: [&str; 4] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"];
const PRIVATE_V6: [&str; 1] = ["fd00::/8"];

/// The maximum number of proposed ranges.
const PROPOSED: usize = 5;

/// The results of a cluster.
#[derive(Default)]
struct ResultOfCluster {
    /// False if the cluster has none of the objects that the options name.
    is_shown: bool,
    /// An error for each name that was not found.
    not_found: Vec<Failure>,
    pools: Pools,
}

/// The pools of a cluster, or of all clusters together.
#[derive(Default)]
struct Pools {
    number: usize,
    /// The numbers of addresses in enabled IPv4 pools: in use, and in total.
    v4: [u128; 2],
    /// The ranges in use.
    taken: Vec<IpNet>,
}

/// Prints the document of each cluster. Clusters without any of the named objects are left out.
///
/// # Errors
/// If an option only makes sense for one cluster, or no cluster has the named objects.
pub(crate) fn run(args: &ShowArgs, fleet: &Fleet, console: &Console) -> Result<Outcome> {
    let options_of_one_cluster = [
        ("--watch", args.printing.watch.is_some()),
        ("--archive", args.archive.is_some()),
    ];
    refuse(&options_of_one_cluster, "name one cluster")?;
    if args.find_range.is_some() && !lists_pools(args) {
        return Err(Failure::usage("--find-range works only with the list of pools"));
    }

    let (mut document, results) = match args.address() {
        Some(address) if !args.quick => {
            let document = address_of_fleet::run(address, &args.fleet, fleet, console)?;
            (document, Vec::new())
        }
        _ => documents(
            fleet,
            &args.fleet,
            console,
            "cannot be read",
            |cluster, console| show_cluster(cluster, args, console),
        )?,
    };
    document
        .clusters
        .retain(|cluster| cluster.outcome != Outcome::Refused);

    let services = fleet.clusters.iter().flat_map(|cluster| &cluster.services);
    let mut pools = Pools {
        taken: fleet.taken.iter().chain(services).copied().collect(),
        ..Pools::default()
    };
    let mut names = Vec::new();
    for result in results {
        pools.add(result.pools);
        names.push(NamesOfCluster {
            is_shown: result.is_shown,
            not_found: result.not_found,
        });
    }
    let mut missing = missing_everywhere(names);
    if document.clusters.is_empty() && document.unreadable.is_empty() && !missing.is_empty() {
        return Err(missing.swap_remove(0));
    }

    if lists_pools(args) {
        document.sums.push(pools.sum(document.clusters.len()));
    }
    if let Some(prefix) = args.find_range {
        let private: &[&str] = if prefix <= 32 { &PRIVATE_V4 } else { &PRIVATE_V6 };
        let within: Vec<IpNet> = private.iter().filter_map(|cidr| cidr::parse_cidr(cidr)).collect();
        document.free = Some(free_ranges(prefix, &within, pools.taken, PROPOSED));
        if !document.unreadable.is_empty() {
            document
                .notes
                .push("Ranges that look free can be in use in clusters that were not read".into());
        }
    }

    console.print(&document)?;
    for failure in &missing {
        console.failure(failure);
    }

    if !document.unreadable.is_empty() {
        return Ok(Outcome::PartlyRead);
    }
    let has_no_free_range = document.free == Some(Vec::new());
    if document.clusters.is_empty() || !missing.is_empty() || has_no_free_range {
        return Ok(Outcome::Refused);
    }
    let mut outcomes = document.clusters.iter().map(|cluster| cluster.outcome).rev();
    let last = outcomes.find(|outcome| *outcome != Outcome::Clean);
    Ok(last.unwrap_or(Outcome::Clean))
}

fn lists_pools(args: &ShowArgs) -> bool {
    args.subject() == Subject::Pools
}

/// Runs `show` on a cluster of the fleet. If the cluster has none of the named objects, which other clusters can have,
/// the result has the failure, and the outcome is [`Outcome::Refused`].
fn show_cluster(
    cluster: &Named,
    args: &ShowArgs,
    console: &Console,
) -> Result<ReadOfCluster<(Outcome, ResultOfCluster)>> {
    read(cluster, &args.fleet, console, async |access| {
        match show(access, args, console).await {
            Ok(Found {
                found: (snapshot, outcome),
                not_found,
            }) => {
                let result = ResultOfCluster {
                    is_shown: outcome != Outcome::Refused,
                    not_found,
                    pools: pools_to_sum(args, &snapshot),
                };
                Ok((outcome, result))
            }
            // The cluster has none of the named objects. Another cluster can have them.
            Err(failure) if failure.kind == Kind::Refused && names_objects(args) => {
                let result = ResultOfCluster {
                    not_found: vec![failure],
                    ..ResultOfCluster::default()
                };
                Ok((Outcome::Refused, result))
            }
            Err(failure) => Err(failure),
        }
    })
}

/// True if the options name objects that only some clusters have. Every cluster can tell something about an address.
fn names_objects(args: &ShowArgs) -> bool {
    if args.selection.names_nodes() || !args.selection.pools.is_empty() {
        return true;
    }
    match args.subject() {
        Subject::Object(object) => !matches!(object.by_form(), Object::Address(_)),
        _ => false,
    }
}

/// Returns the pools of a cluster that the sum and the search for free ranges need.
fn pools_to_sum(args: &ShowArgs, snapshot: &Snapshot) -> Pools {
    let mut pools = Pools::default();
    if lists_pools(args) {
        pools = Pools::of(snapshot);
    }
    if args.find_range.is_some() {
        pools.taken = taken(snapshot);
    }
    pools
}

/// The names that a cluster does not have.
struct NamesOfCluster {
    /// True if the cluster has a document, since it has at least one of the named objects.
    is_shown: bool,
    /// An error for each name that was not found.
    not_found: Vec<Failure>,
}

/// Returns the errors about names that no cluster has: those that all clusters with a document report. If no cluster
/// has a document, returns the errors of the first cluster, which stand for those of all.
fn missing_everywhere(mut clusters: Vec<NamesOfCluster>) -> Vec<Failure> {
    // Clusters with a document have an error for each name that they lack.
    clusters.sort_by_key(|cluster| !cluster.is_shown);
    let mut clusters = clusters.into_iter();
    let Some(first) = clusters.next() else {
        return Vec::new();
    };
    let mut missing = first.not_found;
    for cluster in clusters.take_while(|cluster| cluster.is_shown) {
        let is_missing = |failure: &Failure| {
            cluster
                .not_found
                .iter()
                .any(|other| other.message == failure.message)
        };
        missing.retain(is_missing);
    }
    missing
}

/// Returns the ranges that a cluster uses.
fn taken(snapshot: &Snapshot) -> Vec<IpNet> {
    let ranges = Ranges::of(snapshot);
    let pools = snapshot.pools.iter().map(|pool| pool.value.cidr);
    let points = ranges.points.iter().map(|point| point.address.into());
    let blocks = snapshot.blocks.iter().map(|block| block.value.key);
    pools.chain(points).chain(ranges.reserved).chain(blocks).collect()
}

impl Pools {
    /// Counts the pools, and the addresses of the enabled pools for IPv4. Those for IPv6 are left out, since next to
    /// their sizes all other numbers vanish.
    fn of(snapshot: &Snapshot) -> Self {
        let pools = views::pools(snapshot).pools;
        let mut in_use: u128 = 0;
        let mut total: u128 = 0;
        for pool in &pools {
            if pool.enabled && cidr::is_v4(pool.cidr) {
                in_use = in_use.saturating_add(pool.in_use.0);
                total = total.saturating_add(pool.total.0);
            }
        }
        Self {
            number: pools.len(),
            v4: [in_use, total],
            taken: Vec::new(),
        }
    }

    /// Adds the numbers of another cluster.
    fn add(&mut self, other: Self) {
        self.number += other.number;
        for (sum, number) in self.v4.iter_mut().zip(other.v4) {
            *sum = sum.saturating_add(number);
        }
        self.taken.extend(other.taken);
    }

    /// Formats `4 clusters, 12 pools: 1,234 of 262,144 IPv4 addresses of enabled pools are in use (0 %)`.
    fn sum(&self, clusters: usize) -> String {
        let [used, total] = self.v4.map(Count);
        format!(
            "{}, {}: {} of {} IPv4 addresses of enabled pools are in use ({} %)",
            count(clusters, "cluster", "clusters"),
            count(self.number, "pool", "pools"),
            thousands(used),
            thousands(total),
            percent(used, total)
        )
    }
}
