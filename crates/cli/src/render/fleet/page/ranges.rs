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
        for pool in &cluster.pools.pools {
            let usual_length = if cidr::is_v4(pool.cidr) {
                STRIP_V4
            } else {
                STRIP_V6
            };
            // A pool that is larger than the usual range has a strip of its own size.
            let length = usual_length.min(pool.cidr.prefix_len());
            let Some(range) = cidr::block_around(pool.cidr.network(), length) else {
                continue;
            };
            strips
                .entry((cluster.group.as_deref(), range))
                .or_default()
                .push((pool, cluster));
        }
    }
    html! {
        section #ranges {
            h2 { "Ranges" }
            p.dim { "Pools of all clusters: darker where enabled, lighter where disabled, red where pools of clusters that route to each other overlap." }
            @for ((group, range), mut pools) in strips {
                h3 { (range) @if let Some(group) = group { " in " (escape(group)) } }
                (strip(range, &mut pools))
            }
        }
    }
}

/// Draws the pools of a range, on as many lines as overlaps need.
fn strip(range: IpNet, pools: &mut Pools<'_>) -> Markup {
    // Many clusters have the same disabled pools, which represent the ranges of other clusters. Only one of several
    // such pools is drawn.
    pools.sort_by_key(|(pool, cluster)| (pool.cidr, !pool.enabled, &cluster.name));
    pools.dedup_by(|(later, _), (first, _)| later.cidr == first.cidr && !later.enabled);

    let mut lines: Vec<(Option<IpNet>, Vec<Markup>)> = Vec::new();
    let mut left_out = 0;
    for (pool, cluster) in pools.iter() {
        // The pools are sorted, so a pool can overlap only the last one of a line.
        let has_room = |last: &Option<IpNet>| match last {
            Some(last) => !cidr::overlap(*last, pool.cidr),
            None => true,
        };
        if !lines.iter().any(|(last, _)| has_room(last)) && lines.len() < LINES {
            lines.push((None, Vec::new()));
        }
        match lines.iter_mut().find(|(last, _)| has_room(last)) {
            Some((last, segments)) => {
                *last = Some(pool.cidr);
                segments.push(segment(range, pool, cluster));
            }
            None => left_out += 1,
        }
    }
    html! {
        @for (_, segments) in lines { div.strip { @for segment in segments { (segment) } } }
        @if left_out > 0 { p.dim { (left_out) " more pools overlap these." } }
    }
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
        _ => 0,
    }
}
