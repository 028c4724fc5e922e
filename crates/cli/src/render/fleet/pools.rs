//! The pools of a fleet, and ranges that no cluster of it uses.

use std::collections::BTreeMap;
use std::io::{self, Write};

use calipam_check::views::{Count, PoolView};
use calipam_model::IpNet;
use serde::Serialize;

use crate::format::Format;
use crate::render::document::{Detail, Document, unsupported};
use crate::render::show::{percent, pool_row};
use crate::render::table::{Grid, Page};
use crate::render::text::{count, escape, thousands};
use crate::render::wrap::on_page;

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
    pools: Vec<OnePool<'a>>,
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

#[derive(Serialize)]
struct OnePool<'a> {
    cluster: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    #[serde(flatten)]
    pool: &'a PoolView,
}

impl FleetPools {
    fn pools(&self) -> impl Iterator<Item = OnePool<'_>> {
        self.clusters.iter().flat_map(|of| {
            let (cluster, group) = (of.cluster.as_str(), of.group.as_deref());
            of.pools.iter().map(move |pool| OnePool { cluster, group, pool })
        })
    }

    /// `4 clusters, 12 pools: 1,234 of 262,144 addresses of enabled pools of IPv4 are in use (0 %)`.
    fn sum(&self) -> String {
        let enabled =
            || self.pools().filter(|of| of.pool.enabled && calipam_model::cidr::is_v4(of.pool.cidr));
        let sum = |number: fn(&PoolView) -> u128| {
            Count(enabled().map(|of| number(of.pool)).fold(0, u128::saturating_add))
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

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let wide = detail == Detail::Full;
        let mut grid = Grid::new(
            page,
            detail,
            "CLUSTER  POOL  CIDR  >TOTAL  >IN USE  >%  >COOLING  >RESERVED  >FREE  >ALLOCATABLE",
        );
        if wide {
            grid.columns("USE  >BLOCKS  >BLOCK SIZE  >WINDOWS  >UNKNOWN  USES  ASSIGNMENT  NODE SELECTOR");
        }
        grid.can_do_without(&["RESERVED", "COOLING", "IN USE", "TOTAL"]);
        for OnePool { cluster, pool, .. } in self.pools() {
            let mut cells = vec![cluster.to_owned()];
            cells.extend(pool_row(pool, wide.then_some(page)));
            grid.row(cells);
        }
        grid.write(out)?;
        if page.rows_only {
            return Ok(());
        }
        writeln!(out, "\n{}", on_page(&self.sum(), 0, page))?;
        let free = self.free.as_deref().map(|free| match free {
            [] => "No such range is free in all clusters".to_owned(),
            free => {
                let free: Vec<String> = free.iter().map(ToString::to_string).collect();
                format!("Free in all clusters: {}", free.join(", "))
            }
        });
        let lines = free.iter().chain(&self.notes);
        lines.into_iter().try_for_each(|line| writeln!(out, "{}", on_page(&escape(line), 0, page)))
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
                writeln!(out, "{}", escape(&format!("{}/pool/{}", of.cluster, of.pool.name)))
            }),
            other => Err(unsupported(self.kind(), other)),
        }
    }
}
