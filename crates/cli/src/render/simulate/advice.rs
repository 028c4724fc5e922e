//! The recommended block size, pool size and block limit for a cluster.

use calipam_simulate::answer::{Advice, Candidate, Drawback};

use super::{percentage, runs, write_heading};
use crate::render::output::Text;
use crate::render::text::{joined, thousands};

/// Writes the advice, and a table of the block sizes that were tried.
pub(super) fn write(advice: &Advice, text: &mut Text) {
    write_heading(text, "Advice");
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
    joined(candidate.drawbacks.iter().map(words_of_drawback), "; ")
}

/// Formats the advice in sentences.
pub(super) fn lines(advice: &Advice) -> Vec<String> {
    let Some(size) = advice.block_size else {
        return vec!["No block size fits; the drawbacks of each are listed below.".to_owned()];
    };
    let mut lines = vec![line_of_size(advice, size)];
    lines.extend(lead_over_second(advice));
    lines.extend(line_of_pool(advice));
    if let Some(limit) = advice.block_limit {
        lines.push(format!(
            "Block limit (maxBlocksPerHost, with strict affinity): {limit}, one more than a full node needs."
        ));
    }
    lines
}

/// Formats the advised block size, with the reason for it.
fn line_of_size(advice: &Advice, size: u8) -> String {
    let mut candidates = advice.candidates.iter();
    let fits = candidates.any(|candidate| candidate.row.block_size == size && candidate.drawbacks.is_empty());
    if fits {
        return format!(
            "Block size: /{size}. Of the sizes without drawbacks, it costs the least in wasted addresses and routes."
        );
    }
    // The advised size can have drawbacks only if it was found in a larger pool.
    format!(
        "Block size: /{size}, in a pool that is large enough; the drawbacks in the existing pools are listed below."
    )
}

/// Formats the advised size of the pool; `None` if there is no advice about it.
fn line_of_pool(advice: &Advice) -> Option<String> {
    let prefix = advice.pool_prefix?;
    let addresses = thousands(advice.pool_addresses?);
    let nodes = thousands(advice.nodes);
    let pods = thousands(advice.max_pods_per_node);
    let suffices = match advice.pools_suffice {
        Some(true) => "; the existing pools are large enough",
        Some(false) => "; the existing pools are smaller",
        None => "",
    };
    Some(format!(
        "Pool: /{prefix} or larger. The blocks of {nodes} full nodes, with {pods} pods each, and a quarter to spare are {addresses} addresses{suffices}."
    ))
}

/// Formats the lead of the advised block size over the second-best size; `None` if no other size is without drawbacks.
fn lead_over_second(advice: &Advice) -> Option<String> {
    let tipping = advice.tipping?;
    let mut line = String::new();
    if advice.runs != 1 {
        line.push_str(&format!(
            "It is the best in {} of {} runs. ",
            advice.wins, advice.runs
        ));
    }
    line.push_str(&format!(
        "The second best, /{}, costs {} % more in wasted addresses and routes",
        tipping.second,
        percentage(tipping.costs_more_percent)
    ));
    // If the advised size is the best in every run, both are missing.
    if let Some(pods) = tipping.pods_per_node
        && let Some(size) = tipping.block_size
    {
        line.push_str(&format!(
            "; in a run with {pods} pods per node, /{size} is better"
        ));
    }
    line.push('.');
    Some(line)
}

/// Describes a drawback of a block size.
fn words_of_drawback(drawback: &Drawback) -> &'static str {
    match drawback {
        Drawback::WaitingPods => "pods do not start",
        Drawback::StrandedNodes => "nodes are stranded",
        Drawback::Borrows => "addresses are borrowed",
        Drawback::Slow => "slow",
        Drawback::BlockLimit => "a full node needs more blocks than it may hold",
    }
}
