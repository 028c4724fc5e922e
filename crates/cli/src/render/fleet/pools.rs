//! The pools of a fleet, and ranges that no cluster of it uses.

use std::collections::BTreeMap;
use std::io::{self, Write};

use calipam_check::views::{Count, PoolView};
use calipam_model::IpNet;
use serde::Serialize;

use super::InCluster;
use crate::format::Format;
use crate::render::document::{Document, unsupported};
use crate::render::page::Text;
use crate::render::show::{PoolRow, percent, pool_columns};
use crate::render::table::Grid;
use crate::render::text::{count, escape, thousands};

/// What `show` prints of several clusters.
#[derive(Default)]
pub(crate) struct FleetPools {
    pub clusters: Vec<PoolsOfCluster>,
    /// Clusters that could not be read, and why.
    pub unreadable: BTreeMap<String, String>,
    /// Ranges that no cluster uses, if they were asked for.
    pub free: Option<Vec<IpNet>>,
    pub notes: Vec<String>,
}

pub(crate) struct PoolsOfCluster {
    pub cluster: String,
    pub group: Option<String>,
    pub pools: Vec<PoolView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    notes: &'a [String],
    unreadable: Vec<OneUnreadable<'a>>,
    pools: Vec<InCluster<'a, &'a PoolView>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    free_ranges: Option<&'a [IpNet]>,
}

/// A cluster that could not be read, and why.
#[derive(Serialize)]
pub(super) struct OneUnreadable<'a> {
    cluster: &'a str,
    reason: &'a str,
}

pub(super) fn unreadable(reasons: &BTreeMap<String, String>) -> Vec<OneUnreadable<'_>> {
    reasons.iter().map(|(cluster, reason)| OneUnreadable { cluster, reason }).collect()
}

impl FleetPools {
    fn pools(&self) -> impl Iterator<Item = InCluster<'_, &PoolView>> {
        self.clusters.iter().flat_map(|of| {
            let (cluster, group) = (of.cluster.as_str(), of.group.as_deref());
            of.pools.iter().map(move |it| InCluster { cluster, group, it })
        })
    }

    /// `4 clusters, 12 pools: 1,234 of 262,144 addresses of enabled pools of IPv4 are in use (0 %)`.
    fn sum(&self) -> String {
        let enabled = || self.pools().filter(|of| of.it.enabled && calipam_model::cidr::is_v4(of.it.cidr));
        let sum = |number: fn(&PoolView) -> u128| {
            Count(enabled().map(|of| number(of.it)).fold(0, u128::saturating_add))
        };
        let (used, total) = (sum(|pool| pool.in_use.0), sum(|pool| pool.total.0));
        let clusters = count(self.clusters.len(), "cluster", "clusters");
        let pools = count(self.pools().count(), "pool", "pools");
        format!(
            "{clusters}, {pools}: {} of {} IPv4 addresses of enabled pools are in use ({} %)",
            thousands(used),
            thousands(total),
            percent(used, total)
        )
    }
}

impl Document for FleetPools {
    fn kind(&self) -> &'static str {
        "FleetPoolList"
    }

    fn text(&self, text: &mut Text) {
        let page = text.page;
        let list =
            |pools: &[PoolView]| Grid::new(page.wide, pools.iter().map(PoolRow::Pool), pool_columns(page));
        let lists = self.clusters.iter().map(|of| (of.cluster.as_str(), list(&of.pools)));
        let none = ("", list(&[]));
        text.grid(Grid::of_clusters([none].into_iter().chain(lists)));
        text.blank();
        text.line(self.sum());
        match self.free.as_deref() {
            None => {}
            Some([]) => text.line("No such range is free in all clusters"),
            Some(free) => {
                let free: Vec<String> = free.iter().map(ToString::to_string).collect();
                text.line(format!("Free in all clusters: {}", free.join(", ")));
            }
        }
        text.lines(&self.notes);
    }

    fn schema(&self) -> impl Serialize {
        Written {
            notes: &self.notes,
            unreadable: unreadable(&self.unreadable),
            pools: self.pools().collect(),
            free_ranges: self.free.as_deref(),
        }
    }

    fn report(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Name => self.pools().try_for_each(|of| {
                writeln!(out, "{}", escape(&format!("{}/pool/{}", of.cluster, of.it.name)))
            }),
            other => Err(unsupported(self.kind(), other)),
        }
    }
}
