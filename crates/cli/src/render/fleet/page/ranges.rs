//! A fleet's ranges: a strip for each part of the address space in which a group has pools.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_check::fleet::Cluster;
use calipam_check::views::PoolView;
use calipam_model::{IpNet, cidr};
use maud::{Markup, html};

use super::super::FleetReport;
use crate::render::show::percent;
use crate::render::text::escape;

/// The prefix length of an IPv4 strip, such as 10.0.0.0/8.
const STRIP_V4: u8 = 8;
/// The prefix length of an IPv6 strip, such as fd00::/32.
const STRIP_V6: u8 = 32;
/// The maximum number of lines in a strip. Overlapping pools are drawn on separate lines.
const LINES: usize = 8;

type Pools<'a> = Vec<(&'a PoolView, &'a Cluster)>;

/// Creates the section with a strip for each range in which clusters have pools.
pub(super) fn section(report: &FleetReport) -> Markup {
    // Sorted by group and range. Clusters of different groups can have the same range without any conflict.
    let mut strips: BTreeMap<(Option<&str>, IpNet), Pools<'_>> = BTreeMap::new();
    for cluster in &report.clusters {
        let group = cluster.group.as_deref();
        for pool in &cluster.pools.pools {
            if let Some(range) = range_of_strip(pool.cidr) {
                strips.entry((group, range)).or_default().push((pool, cluster));
            }
        }
    }
    html! {
        section #ranges {
            h2 { "Ranges" }
            p.dim { "Pools of all clusters: darker where enabled, lighter where disabled, red where pools of clusters that route to each other overlap." }
            @for ((group, range), pools) in strips {
                h3 { (range) @if let Some(group) = group { " in " (escape(group)) } }
                (strip(range, pools))
            }
        }
    }
}

/// Returns the range of the strip on which a pool is drawn; `None` if there is no range of its length.
fn range_of_strip(pool: IpNet) -> Option<IpNet> {
    let usual_length = if cidr::is_v4(pool) { STRIP_V4 } else { STRIP_V6 };
    // A pool that is larger than the usual range has a strip of its own size.
    let length = usual_length.min(pool.prefix_len());
    cidr::block_around(pool.network(), length)
}

/// A line of a strip, with pools that do not overlap.
#[derive(Default)]
struct Line {
    last_pool: Option<IpNet>,
    segments: Vec<Markup>,
}

impl Line {
    /// True if a pool overlaps none of the line. Pools are added in their order, so it can overlap only the last one.
    fn has_room_for(&self, pool: IpNet) -> bool {
        !self.last_pool.is_some_and(|last| cidr::overlap(last, pool))
    }
}

/// Draws the pools of a range, on as many lines as overlaps need.
fn strip(range: IpNet, mut pools: Pools<'_>) -> Markup {
    // Many clusters have the same disabled pools, which represent the ranges of other clusters. Only one of several
    // such pools is drawn.
    pools.sort_by_key(|(pool, cluster)| (pool.cidr, !pool.enabled, &cluster.name));
    pools.dedup_by(|(later, _), (first, _)| later.cidr == first.cidr && !later.enabled);

    let mut lines: Vec<Line> = Vec::new();
    let mut left_out = 0;
    for (pool, cluster) in pools {
        let Some(line) = line_with_room(&mut lines, pool.cidr) else {
            left_out += 1;
            continue;
        };
        line.last_pool = Some(pool.cidr);
        line.segments.push(segment(range, pool, cluster));
    }
    html! {
        @for line in lines { div.strip { @for segment in line.segments { (segment) } } }
        @if left_out > 0 { p.dim { (left_out) " more pools overlap these." } }
    }
}

/// Returns the first line with room for a pool, which may be a new line. Returns `None` if the strip is full.
fn line_with_room(lines: &mut Vec<Line>, pool: IpNet) -> Option<&mut Line> {
    let has_room = lines.iter().any(|line| line.has_room_for(pool));
    if !has_room && lines.len() < LINES {
        lines.push(Line::default());
    }
    lines.iter_mut().find(|line| line.has_room_for(pool))
}

/// Draws a pool at its place in the range: red if it overlaps another cluster's, lighter if it is disabled.
fn segment(range: IpNet, pool: &PoolView, cluster: &Cluster) -> Markup {
    let class = if cluster.overlapping.contains(&pool.cidr) {
        Some("error")
    } else if pool.enabled {
        None
    } else {
        Some("info")
    };
    let percentage = |part: u128| format!("{:.4}", part as f64 * 100.0 / cidr::size(range) as f64);
    let left = percentage(offset(range, pool.cidr));
    let width = percentage(cidr::size(pool.cidr));
    let title = format!(
        "{}: {} {}, {} % taken",
        escape(&cluster.name),
        escape(&pool.name),
        pool.cidr,
        percent(pool.usable_taken, pool.usable)
    );
    html! { i class=[class] style={ "left:" (left) "%;width:" (width) "%" } title=(title) {} }
}

/// Returns the number of addresses in a range before another range in it; 0 for ranges of different families.
fn offset(range: IpNet, inner: IpNet) -> u128 {
    match (range.network(), inner.network()) {
        (IpAddr::V4(begin), IpAddr::V4(inner)) => u128::from(u32::from(inner).saturating_sub(begin.into())),
        (IpAddr::V6(begin), IpAddr::V6(inner)) => u128::from(inner).saturating_sub(begin.into()),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => 0,
    }
}
