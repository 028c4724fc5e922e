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
        .map(|candidate| (&candidate.row, Some(against(candidate))));
    text.grid(runs::size_table(rows));
}

/// Formats the drawbacks of a size.
pub(super) fn against(candidate: &Candidate) -> String {
    joined(candidate.drawbacks.iter().map(|drawback| words(*drawback)), "; ")
}

/// The advice in sentences.
pub(super) fn lines(advice: &Advice) -> Vec<String> {
    let Some(size) = advice.block_size else {
        return vec!["No block size fits; the drawbacks of each are listed below.".to_owned()];
    };
    let chosen = advice
        .candidates
        .iter()
        .find(|candidate| candidate.row.block_size == size);
    let fits = chosen.is_some_and(|candidate| candidate.drawbacks.is_empty());
    let mut lines = vec![if fits {
        format!(
            "Block size: /{size}. Of the sizes without drawbacks, it costs the least in wasted addresses and routes."
        )
    } else {
        format!(
            "Block size: /{size}, in a pool that is large enough; the drawbacks in the existing pools are listed below."
        )
    }];
    lines.extend(tipping(advice));
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

/// Formats the lead of the recommended block size over the second-best size.
fn tipping(advice: &Advice) -> Option<String> {
    let found = advice.tipping?;
    let wins = match advice.runs {
        1 => String::new(),
        runs => format!("It is the best in {} of {runs} runs. ", advice.wins),
    };
    let other = match (found.pods_per_node, found.block_size) {
        (Some(pods), Some(size)) => format!("; in a run with {pods} pods per node, /{size} is better"),
        _ => String::new(),
    };
    Some(format!(
        "{wins}The second best, /{}, costs {} % more in wasted addresses and routes{other}.",
        found.second,
        share(found.costs_more_percent)
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
