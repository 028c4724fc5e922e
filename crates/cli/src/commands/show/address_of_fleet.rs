//! `show --ip` of many clusters: an address in each, with the findings between clusters about it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_check::fleet::{self, Cluster};
use calipam_check::views::{self, AddressView};
use calipam_check::{Options, check};
use calipam_history::timeline::Event;
use jiff::Timestamp;

use super::of_cluster::events;
use super::subject::outcome_of;
use crate::args::FleetArgs;
use crate::console::Console;
use crate::exit::Result;
use crate::fleet::{Fleet, Named, ReadOfCluster, documents, each, read};
use crate::render::fleet::FleetList;
use crate::render::show::{AddressDetails, Origin, ViewDocument};

/// A cluster's view of an address.
struct ClusterView {
    origin: Origin,
    view: AddressView,
    events: Vec<Event>,
}

/// Reads an address in each cluster, compares the clusters, and returns the document of each. Clusters that have
/// nothing at the address have a document, too, whose outcome says so.
pub(super) fn run(address: IpAddr, args: &FleetArgs, fleet: &Fleet, console: &Console) -> Result<FleetList> {
    // Hints would be repeated for each cluster.
    let quiet = Console {
        quiet: true,
        ..console.clone()
    };
    let read_each = each(&fleet.clusters, args, &quiet, |named, console| {
        read_address(named, address, args, console)
    })?;

    let mut clusters: Vec<Cluster> = Vec::new();
    let mut views: BTreeMap<&str, ClusterView> = BTreeMap::new();
    let mut unreadable: BTreeMap<&str, String> = BTreeMap::new();
    for (named, result) in fleet.clusters.iter().zip(read_each) {
        match result {
            ReadOfCluster::Read((view, cluster)) => {
                views.insert(&named.name, view);
                clusters.extend(cluster);
            }
            ReadOfCluster::Unreadable(reason) => {
                unreadable.insert(&named.name, reason);
            }
        }
    }
    let notes = fleet::remove_duplicates(&mut clusters, Timestamp::now());
    fleet::compare(&mut clusters);
    let between = fleet::between(&clusters, address);

    let (mut list, _) = documents(fleet, args, console, "cannot be read", |named, console| {
        let name = named.name.as_str();
        if let Some(reason) = unreadable.get(name) {
            return Ok(ReadOfCluster::Unreadable(reason.clone()));
        }
        let ClusterView { origin, view, events } = &views[name];
        let mut details = AddressDetails::new(view, events);
        if let Some(between) = between.get(name) {
            details = details.with_between(between);
        }
        console.print(&ViewDocument {
            origin: origin.clone(),
            view: &details,
        })?;
        Ok(ReadOfCluster::Read((outcome_of(view, console), ())))
    })?;
    list.notes.extend(notes);
    Ok(list)
}

/// Reads what a cluster knows about an address. If the cluster has a group, also returns its report, for the comparison
/// with the other clusters of the group: they route to each other, and must not have the same addresses.
fn read_address(
    named: &Named,
    address: IpAddr,
    args: &FleetArgs,
    console: &Console,
) -> Result<ReadOfCluster<(ClusterView, Option<Cluster>)>> {
    read(named, args, console, async |access| {
        let snapshot = calipam_workflow::read(access).await?;
        let events = events(access, &snapshot, address).await;
        let mut cluster = None;
        if named.group.is_some() {
            let report = check(&snapshot, &Options::default());
            cluster = Some(Cluster {
                name: named.name.clone(),
                group: named.group.clone(),
                services: named.services.clone(),
                is_live: access.datastore.is_live(),
                ..Cluster::of(report, &snapshot)
            });
        }
        let view = ClusterView {
            origin: Origin::of(&snapshot),
            view: views::address(&snapshot, address),
            events,
        };
        Ok((view, cluster))
    })
}
