//! The recommended block size, pool size and block limit for a cluster.

use calipam_simulate::answer::{Advice, Candidate, Drawback};

use super::{heading, runs, share};
use crate::render::output::Text;
use crate::render::text::{joined, thousands};

/// Writes the advice, and a table of the block sizes that were tried.
pub(super) fn write(advice: &Advice, text: &mut Text) {
    heading(text, "Advice");
    text.lines(lines(advice));
    text.blank();
    let rows = advice
        .candidates
        .iter()
        .map(|candidate| (&candidate.row, Some(drawbacks(candidate))));
    text.grid(runs::size_table(rows));
}

/// Formats the drawbacks of a size.
pub(super) fn drawbacks(candidate: &Candidate) -> String {
    joined(candidate.drawbacks.iter().map(|drawback| words(*drawback)), "; ")
}

/// Formats the advice in sentences.
pub(super) fn lines(advice: &Advice) -> Vec<String> {
    let Some(size) = advice.block_size else {
        return vec!["No block size fits; the drawbacks of each are listed below.".to_owned()];
    };
    let mut lines: Vec<String> = Vec::new();
    // The advised size can have drawbacks only if it was found in a larger pool.
    let fits = advice
        .candidates
        .iter()
        .any(|candidate| candidate.row.block_size == size && candidate.drawbacks.is_empty());
    if fits {
        lines.push(format!(
            "Block size: /{size}. Of the sizes without drawbacks, it costs the least in wasted addresses and routes."
        ));
    } else {
        lines.push(format!(
            "Block size: /{size}, in a pool that is large enough; the drawbacks in the existing pools are listed below."
        ));
    }
    lines.extend(lead_over_second(advice));

    if let (Some(prefix), Some(addresses)) = (advice.pool_prefix, advice.pool_addresses) {
        let suffices = match advice.pools_suffice {
            Some(true) => "; the existing pools are large enough",
            Some(false) => "; the existing pools are smaller",
            None => "",
        };
        lines.push(format!(
            "Pool: /{prefix} or larger. The blocks of {} full nodes, with {} pods each, and a quarter to spare are {} addresses{suffices}.",
            thousands(advice.nodes),
            thousands(advice.max_pods_per_node),
            thousands(addresses)
        ));
    }
    if let Some(limit) = advice.block_limit {
        lines.push(format!(
            "Block limit (maxBlocksPerHost, with strict affinity): {limit}, one more than a full node needs."
        ));
    }
    lines
}

/// Formats the lead of the advised block size over the second-best size; `None` if no other size is without drawbacks.
fn lead_over_second(advice: &Advice) -> Option<String> {
    let tipping = advice.tipping?;
    let wins = match advice.runs {
        1 => String::new(),
        runs => format!("It is the best in {} of {runs} runs. ", advice.wins),
    };
    // Without another winner, both are missing.
    let exception = match (tipping.pods_per_node, tipping.block_size) {
        (Some(pods), Some(size)) => format!("; in a run with {pods} pods per node, /{size} is better"),
        _ => String::new(),
    };
    Some(format!(
        "{wins}The second best, /{}, costs {} % more in wasted addresses and routes{exception}.",
        tipping.second,
        share(tipping.costs_more_percent)
    ))
}

/// Describes a drawback of a block size.
fn words(drawback: Drawback) -> &'static str {
    match drawback {
        Drawback::WaitingPods => "pods do not start",
        Drawback::StrandedNodes => "nodes are stranded",
        Drawback::Borrows => "addresses are borrowed",
        Drawback::Slow => "slow",
        Drawback::BlockLimit => "a full node needs more blocks than it may hold",
    }
}
