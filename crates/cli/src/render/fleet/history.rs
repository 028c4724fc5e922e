//! What the clusters of a fleet know of an address.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_history::timeline::Event;
use calipam_workflow::{History, Reach};
use serde::Serialize;

use super::InCluster;
use super::list::{OneUnreadable, unreadable};
use crate::render::document::Document;
use crate::render::history::{event_columns, reach};
use crate::render::page::Text;
use crate::render::table::Grid;
use crate::render::text::count;

/// Who had an address, cluster by cluster.
pub(crate) struct FleetHistory {
    pub address: IpAddr,
    pub clusters: Vec<HistoryOfCluster>,
    /// Clusters that could not be read, and why.
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

/// The reach of a cluster.
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
struct Written<'a> {
    /// `ip`, as in the history of one cluster.
    about: &'static str,
    name: IpAddr,
    unreadable: Vec<OneUnreadable<'a>>,
    clusters: Vec<OneCluster<'a>>,
    events: Vec<InCluster<'a, &'a Event>>,
}

impl FleetHistory {
    fn events(&self) -> impl Iterator<Item = InCluster<'_, &Event>> {
        let of_each = self.clusters.iter();
        of_each.flat_map(|of| {
            of.found.events.iter().map(|event| InCluster { cluster: &of.cluster, group: None, it: event })
        })
    }

    /// How many clusters know something.
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
        // That a cluster does not know it means little where it does not reach back far; of a thousand that is too much to say.
        let shown = self.clusters.iter().filter(|of| wide || !of.found.events.is_empty());
        text.lines(shown.map(|of| format!("{}: {}", of.cluster, reach(&of.found.reach))));
        if self.known_in() == 0 {
            text.line("Nothing is known about it");
        }
    }

    fn schema(&self) -> impl Serialize {
        Written {
            about: "ip",
            name: self.address,
            unreadable: unreadable(&self.unreadable),
            clusters: self.clusters.iter().map(HistoryOfCluster::written).collect(),
            events: self.events().collect(),
        }
    }
}
