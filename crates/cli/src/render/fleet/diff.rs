//! The differences between the clusters of a fleet and their earlier states.

use std::collections::BTreeMap;

use calipam_history::diff::{Difference, Sum};
use serde::Serialize;
use serde_json::Value;

use super::list::{OneUnreadable, unreadable};
use crate::format::Format;
use crate::render::column::{left, right};
use crate::render::diff::{DifferenceDocument, State, not_compared, rows, said, table};
use crate::render::document::Document;
use crate::render::page::Text;
use crate::render::table::Grid;
use crate::render::text::{count, thousands};

/// The differences of each cluster.
#[derive(Default)]
pub(crate) struct FleetDiff {
    pub clusters: Vec<DiffOfCluster>,
    /// The errors of clusters with a state that could not be read.
    pub unreadable: BTreeMap<String, String>,
    /// Clusters with only an earlier state, or only a later one.
    pub only_old: Vec<String>,
    pub only_new: Vec<String>,
}

/// The output for a cluster in one format, which is kept after the cluster's states are dropped.
pub(crate) struct DiffOfCluster {
    cluster: String,
    group: Option<String>,
    same: bool,
    total: Sum,
    /// The times of the two states.
    times: [String; 2],
    /// The number of differences.
    number: usize,
    rows: Grid,
    not_compared: Vec<String>,
    /// The difference for programs; null in output for people.
    value: Value,
}

impl DiffOfCluster {
    /// # Errors
    /// If the difference cannot be written as JSON.
    pub(crate) fn of(
        (cluster, group): (String, Option<String>),
        states: [State; 2],
        difference: &Difference<'_>,
        format: Format,
    ) -> serde_json::Result<Self> {
        let times = [&states[0], &states[1]].map(|state| format!("{:.0}", state.cluster.taken_at));
        let document = DifferenceDocument { states, difference };
        let value =
            if format.is_for_people() { Value::Null } else { serde_json::to_value(document.schema())? };
        Ok(Self {
            cluster,
            group,
            same: difference.same,
            total: difference.sums.total,
            times,
            number: rows(difference).count(),
            rows: table(difference, format == Format::Wide),
            not_compared: difference.not_compared.iter().map(not_compared).collect(),
            value,
        })
    }

    fn written(&self) -> OneCluster<'_> {
        OneCluster { name: &self.cluster, group: self.group.as_deref(), difference: &self.value }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FleetDiffJson<'a> {
    same: bool,
    unreadable: Vec<OneUnreadable<'a>>,
    only_old: &'a [String],
    only_new: &'a [String],
    clusters: Vec<OneCluster<'a>>,
}

#[derive(Serialize)]
struct OneCluster<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    #[serde(flatten)]
    difference: &'a Value,
}

impl FleetDiff {
    /// True if every cluster was compared and has not changed.
    pub(crate) fn is_same(&self) -> bool {
        let is_whole = self.unreadable.is_empty() && self.only_old.is_empty() && self.only_new.is_empty();
        is_whole && self.clusters.iter().all(|of| of.same)
    }

    /// The numbers of addresses by cluster. A short table omits unchanged clusters, since these are most of a fleet.
    fn sums(&self, wide: bool) -> Grid {
        let sum = |title, number: fn(&Sum) -> usize| {
            right(title, move |of: &DiffOfCluster| thousands(number(&of.total)))
        };
        let columns = vec![
            left("CLUSTER", |of: &DiffOfCluster| &of.cluster),
            left("OLD AT", |of: &DiffOfCluster| &of.times[0]).hidden(2),
            left("NEW AT", |of: &DiffOfCluster| &of.times[1]).hidden(3),
            sum("IN OLD", |sum| sum.before),
            sum("IN NEW", |sum| sum.after),
            sum("ASSIGNED", |sum| sum.assigned),
            sum("RELEASED", |sum| sum.released),
            sum("MOVED", |sum| sum.moved).hidden(1),
            right("DIFFERENCES", |of: &DiffOfCluster| thousands(of.number)),
        ];
        Grid::new(wide, self.clusters.iter().filter(|of| wide || !of.same), columns)
    }
}

impl Document for FleetDiff {
    fn kind(&self) -> &'static str {
        "FleetDifference"
    }

    fn text(&self, text: &mut Text) {
        text.section(self.sums(text.page.wide));
        let differing = self.clusters.iter().filter(|of| of.number > 0);
        let rows = differing.map(|of| (of.cluster.as_str(), of.rows.clone()));
        text.section(Grid::of_clusters(rows));
        for of in &self.clusters {
            text.lines(of.not_compared.iter().map(|left_out| format!("{}: {left_out}", of.cluster)));
        }
        for (names, place) in [(&self.only_old, "OLD"), (&self.only_new, "NEW")] {
            if !names.is_empty() {
                text.line(format!("Only in {place}: {}", names.join(", ")));
            }
        }
        let number: usize = self.clusters.iter().map(|of| of.number).sum();
        let compared = count(self.clusters.len(), "cluster", "clusters");
        text.line(match self.clusters.iter().filter(|of| !of.same).count() {
            0 => format!("{} in {compared}", said(number, true)),
            differ => format!("{} in {differ} of {compared}", said(number, false)),
        });
    }

    fn schema(&self) -> impl Serialize {
        FleetDiffJson {
            same: self.is_same(),
            unreadable: unreadable(&self.unreadable),
            only_old: &self.only_old,
            only_new: &self.only_new,
            clusters: self.clusters.iter().map(DiffOfCluster::written).collect(),
        }
    }
}
