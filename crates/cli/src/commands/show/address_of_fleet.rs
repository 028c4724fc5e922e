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
use crate::fleet::{Fleet, Named, documents, each, read};
use crate::render::fleet::FleetList;
use crate::render::show::{AddressDetails, Origin, ViewDocument};

/// A cluster's view of an address.
struct Known {
    origin: Origin,
    view: AddressView,
    events: Vec<Event>,
}

/// Reads an address in each cluster, compares the clusters, and returns the document of each. Clusters that have nothing
/// at the address have a document, too, whose outcome says so.
pub(super) fn run(address: IpAddr, args: &FleetArgs, fleet: &Fleet, console: &Console) -> Result<FleetList> {
    // Hints would be repeated for each cluster.
    let quiet = Console {
        quiet: true,
        ..console.clone()
    };
    let read_each = each(&fleet.clusters, args, &quiet, |named, console| {
        one(named, address, args, console)
    })?;

    let mut clusters: Vec<Cluster> = Vec::new();
    let mut known: BTreeMap<&str, Result<Known, String>> = BTreeMap::new();
    for (named, result) in fleet.clusters.iter().zip(read_each) {
        let result = result.map(|(of, cluster)| {
            clusters.extend(cluster);
            of
        });
        known.insert(&named.name, result);
    }
    let notes = fleet::remove_duplicates(&mut clusters, Timestamp::now());
    fleet::compare(&mut clusters);
    let between = fleet::between(&clusters, address);

    let (mut list, _) = documents(fleet, args, console, "cannot be read", |named, console| {
        let Known { origin, view, events } = match &known[named.name.as_str()] {
            Ok(known) => known,
            Err(reason) => return Ok(Err(reason.clone())),
        };
        let mut details = AddressDetails::new(view, events);
        if let Some(between) = between.get(named.name.as_str()) {
            details = details.with_between(between);
        }
        let origin = origin.clone();
        console.print(&ViewDocument {
            origin,
            view: &details,
        })?;
        Ok(Ok((outcome_of(view, console), ())))
    })?;
    list.notes.extend(notes);
    Ok(list)
}

/// Reads an address in a cluster, and what is compared with other clusters of its group.
fn one(
    named: &Named,
    address: IpAddr,
    args: &FleetArgs,
    console: &Console,
) -> Result<Result<(Known, Option<Cluster>), String>> {
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
        let known = Known {
            origin: Origin::of(&snapshot),
            view: views::address(&snapshot, address),
            events,
        };
        Ok((known, cluster))
    })
}
