//! How the clusters of a fleet differ from an earlier state of each.

use std::collections::BTreeMap;
use std::io::{self, Write};

use calipam_history::diff::{Difference, Sum};
use serde::Serialize;
use serde_json::Value;

use super::pools::{OneUnreadable, unreadable};
use crate::format::Format;
use crate::render::diff::{DifferenceDocument, State, add_columns, cells, not_compared, rows, said};
use crate::render::document::{Detail, Document};
use crate::render::table::{Grid, Page};
use crate::render::text::{count, escape, thousands};
use crate::render::wrap::on_page;

/// How each cluster differs.
#[derive(Default)]
pub(crate) struct FleetDiff {
    pub clusters: Vec<DiffOfCluster>,
    /// Clusters of which one of the states could not be read, and why.
    pub unreadable: BTreeMap<String, String>,
    /// Clusters that have an earlier state only, or none.
    pub only_old: Vec<String>,
    pub only_new: Vec<String>,
}

/// What is left of a cluster when its two states are dropped: what is to be printed in one format.
pub(crate) struct DiffOfCluster {
    cluster: String,
    group: Option<String>,
    same: bool,
    total: Sum,
    /// When the two states were read.
    times: [String; 2],
    /// How many differences there are.
    number: usize,
    rows: Vec<Vec<String>>,
    not_compared: Vec<String>,
    /// What programs read; null for people.
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
        let all: Vec<_> = rows(difference).collect();
        let times = [&states[0], &states[1]].map(|state| format!("{:.0}", state.cluster.taken_at));
        let document = DifferenceDocument { states, difference };
        let value = match format.detail() {
            Some(_) => Value::Null,
            None => serde_json::to_value(document.schema())?,
        };
        Ok(Self {
            cluster,
            group,
            same: difference.same,
            total: difference.sums.total,
            times,
            number: all.len(),
            rows: format.detail().map(|detail| cells(&all, detail)).unwrap_or_default(),
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
struct Written<'a> {
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
    /// True if every cluster was read, and is as it was.
    pub(crate) fn is_same(&self) -> bool {
        let is_whole = self.unreadable.is_empty() && self.only_old.is_empty() && self.only_new.is_empty();
        is_whole && self.clusters.iter().all(|of| of.same)
    }

    /// Addresses of each cluster.
    fn sums(&self, detail: Detail, page: Page) -> Grid {
        let mut grid = Grid::new(
            page,
            detail,
            "CLUSTER  OLD AT  NEW AT  >IN OLD  >IN NEW  >ASSIGNED  >RELEASED  >MOVED  >DIFFERENCES",
        );
        grid.can_do_without(&["MOVED", "OLD AT", "NEW AT"]);
        for of in self.shown(detail) {
            let Sum { before, after, assigned, released, moved } = of.total;
            let [old, new] = of.times.clone();
            let numbers = [before, after, assigned, released, moved, of.number].map(thousands);
            grid.row([of.cluster.clone(), old, new].into_iter().chain(numbers));
        }
        grid
    }

    /// Those that differ, or all. Of a thousand, most are as they were.
    fn shown(&self, detail: Detail) -> impl Iterator<Item = &DiffOfCluster> {
        self.clusters.iter().filter(move |of| detail == Detail::Full || !of.same)
    }
}

impl Document for FleetDiff {
    fn kind(&self) -> &'static str {
        "FleetDifference"
    }

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        if self.shown(detail).next().is_some() {
            self.sums(detail, page).write(out)?;
            writeln!(out)?;
        }
        let number: usize = self.clusters.iter().map(|of| of.number).sum();
        if number > 0 {
            let mut grid = Grid::new(page, detail, "CLUSTER  WHAT  DIFFERENCE");
            add_columns(&mut grid, detail);
            for of in &self.clusters {
                of.rows.iter().for_each(|row| grid.row([&of.cluster].into_iter().chain(row)));
            }
            grid.write(out)?;
            writeln!(out)?;
        }
        let left_out = self
            .clusters
            .iter()
            .flat_map(|of| of.not_compared.iter().map(|left_out| format!("{}: {left_out}", of.cluster)));
        let only = |names: &[String], place: &str| match names {
            [] => None,
            names => Some(format!("Only in {place}: {}", names.join(", "))),
        };
        let lines = left_out.chain(only(&self.only_old, "OLD")).chain(only(&self.only_new, "NEW"));
        lines.into_iter().try_for_each(|line| writeln!(out, "{}", on_page(&escape(&line), 0, page)))?;
        let differ = self.clusters.iter().filter(|of| !of.same).count();
        let compared = count(self.clusters.len(), "cluster", "clusters");
        match differ {
            0 => writeln!(out, "{} in {compared}", said(number, true)),
            _ => writeln!(out, "{} in {differ} of {compared}", said(number, false)),
        }
    }

    fn schema(&self) -> impl Serialize {
        Written {
            same: self.is_same(),
            unreadable: unreadable(&self.unreadable),
            only_old: &self.only_old,
            only_new: &self.only_new,
            clusters: self.clusters.iter().map(DiffOfCluster::written).collect(),
        }
    }
}
