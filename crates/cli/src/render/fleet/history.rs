//! The history of an address in the clusters of a fleet.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_history::timeline::Event;
use calipam_workflow::{History, Reach};
use serde::Serialize;

use super::list::{OneUnreadable, unreadable};
use crate::render::document::Document;
use crate::render::history::{event_columns, reach};
use crate::render::page::Text;
use crate::render::table::Grid;
use crate::render::text::count;

/// The history of an address in each cluster.
pub(crate) struct FleetHistory {
    pub address: IpAddr,
    pub clusters: Vec<HistoryOfCluster>,
    /// The errors of clusters that could not be read.
    pub unreadable: BTreeMap<String, String>,
}

/// The history of a cluster.
pub(crate) struct HistoryOfCluster {
    pub cluster: String,
    pub group: Option<String>,
    pub found: History,
}

impl HistoryOfCluster {
    fn written(&self) -> OneCluster<'_> {
        let Self { cluster, group, found: History { guid, location, reach, .. } } = self;
        OneCluster { name: cluster, group: group.as_deref(), guid, location, reach }
    }
}

/// A cluster, and the times that its history covers.
#[derive(Serialize)]
struct OneCluster<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    guid: &'a str,
    location: &'a str,
    #[serde(flatten)]
    reach: &'a Reach,
}

#[derive(Serialize)]
struct FleetHistoryJson<'a> {
    /// `ip`, as in the history of one cluster.
    about: &'static str,
    name: IpAddr,
    unreadable: Vec<OneUnreadable<'a>>,
    clusters: Vec<OneCluster<'a>>,
    events: Vec<EventInCluster<'a>>,
}

#[derive(Serialize)]
struct EventInCluster<'a> {
    cluster: &'a str,
    #[serde(flatten)]
    event: &'a Event,
}

impl FleetHistory {
    fn events(&self) -> impl Iterator<Item = EventInCluster<'_>> {
        let of_each = self.clusters.iter();
        of_each
            .flat_map(|of| of.found.events.iter().map(|event| EventInCluster { cluster: &of.cluster, event }))
    }

    /// The number of clusters with events.
    pub(crate) fn known_in(&self) -> usize {
        self.clusters.iter().filter(|of| !of.found.events.is_empty()).count()
    }
}

impl Document for FleetHistory {
    fn kind(&self) -> &'static str {
        "FleetHistory"
    }

    fn text(&self, text: &mut Text) {
        let all = count(self.clusters.len() + self.unreadable.len(), "cluster", "clusters");
        let unread = match self.unreadable.len() {
            0 => String::new(),
            number => format!(" · {number} not read"),
        };
        text.line(format!("ip {} · {all}{unread} · known in {}", self.address, self.known_in()));
        text.blank();
        let wide = text.page.wide;
        let list = |of: &HistoryOfCluster| Grid::new(wide, &of.found.events, event_columns(wide));
        text.section(Grid::of_clusters(self.clusters.iter().map(|of| (of.cluster.as_str(), list(of)))));
        // A wide table lists clusters without events, too: a short history can be the reason that they have none.
        let shown = self.clusters.iter().filter(|of| wide || !of.found.events.is_empty());
        text.lines(shown.map(|of| format!("{}: {}", of.cluster, reach(&of.found.reach))));
        if self.known_in() == 0 {
            text.line("Nothing is known about it");
        }
    }

    fn schema(&self) -> impl Serialize {
        FleetHistoryJson {
            about: "ip",
            name: self.address,
            unreadable: unreadable(&self.unreadable),
            clusters: self.clusters.iter().map(HistoryOfCluster::written).collect(),
            events: self.events().collect(),
        }
    }
}
