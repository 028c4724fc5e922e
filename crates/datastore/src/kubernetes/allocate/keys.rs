//! Finds blocks by their object names, without reading their content.

use std::sync::Arc;

use calipam_assign::{Entry, Query, Record, blocks_holding_elsewhere};
use calipam_files::objects::Accept;
use calipam_files::objects::names::cidr_of_block;
use calipam_files::raw::prefix_end;
use calipam_model::IpNet;
use calipam_model::cidr;
use calipam_model::key::Key;
use calipam_model::snapshot::Source;

use super::read::Answer;
use crate::allocation::spans::{Span, spans};
use crate::error::{Failure, Result};
use crate::kubernetes::again::locate;
use crate::kubernetes::client::KubeClient;
use crate::kubernetes::client::kinds::{self, Kind};
use crate::kubernetes::client::object::{Metadata, Object};
use crate::kubernetes::client::page::{Page, token_from};
use crate::tasks;

/// Maximum names on the first and the second page. In nearly every cluster, a span has only a few names.
const PAGES: [usize; 2] = [8, 500];
/// Maximum number of parallel requests for spans, and for larger blocks.
const IN_FLIGHT: usize = 16;

/// The key of one block, if it exists.
pub(super) async fn block_key(client: &Arc<KubeClient>, cidr: IpNet) -> Result<Answer> {
    let Some((kind, path)) = locate(client, &Key::Block(cidr)) else {
        return Ok(Answer::default());
    };
    let found = client
        .get_json::<Object>(&path, Accept::OneMetadata, kind.known.plural)
        .await?;
    Ok(found.map_or_else(Answer::missing, |object| {
        Answer::found(vec![entry(cidr, object.metadata)])
    }))
}

/// The form of a list request: its query string, and the format of the answer.
type Form = (&'static str, Accept);
pub(super) const WITH_REVISIONS: Form = ("", Accept::Names);
/// Requests names without revisions, in a tenth of the bytes of [`WITH_REVISIONS`].
pub(super) const NAMES: Form = ("?includeObject=None", Accept::Table);

/// The keys of all wanted blocks.
pub(super) async fn block_keys(
    client: &Arc<KubeClient>,
    (form, accept): Form,
    query: &Query,
) -> Result<Answer> {
    let Ok(kind) = kinds::find(client.api(), Source::Blocks) else {
        return Ok(Answer::default());
    };
    let page = page(client, &kind, form, accept).await;
    let block = |block: Metadata| {
        let cidr = cidr_of_block(&block.name).filter(|cidr| query.asks_for(&Key::Block(*cidr)))?;
        Some(entry(cidr, block))
    };
    Answer::to_list(page.map(|page| page.all().filter_map(block).collect()))
}

/// The keys of the blocks that share addresses with a CIDR. Larger blocks are looked up by name. All others are found
/// among the names that sort close to the CIDR.
pub(super) async fn overlapping(client: &Arc<KubeClient>, net: IpNet) -> Result<Answer> {
    let Ok(kind) = kinds::find(client.api(), Source::Blocks) else {
        return Ok(Answer::default());
    };
    let larger_blocks = blocks_holding_elsewhere(net).map(|block| {
        let client = Arc::clone(client);
        async move { block_key(&client, block).await }
    });
    let names_around = spans(net).into_iter().map(|span| {
        let client = Arc::clone(client);
        let kind = kind.clone();
        async move { in_span(&client, &kind, &span).await }
    });
    let (larger_blocks, names_around) = tokio::try_join!(
        tasks::all(IN_FLIGHT, larger_blocks),
        tasks::all(IN_FLIGHT, names_around)
    )?;

    let mut entries: Vec<Entry> = Vec::new();
    for answer in larger_blocks {
        entries.extend(answer.entries);
    }
    for names in names_around {
        let Some(names) = names else {
            return block_keys(client, NAMES, &Query::Overlapping(net)).await;
        };
        for block in names.iter().filter_map(|name| cidr_of_block(name)) {
            if cidr::overlap(block, net) {
                entries.push(entry(block, Metadata::default()));
            }
        }
    }
    Ok(Answer::found(entries))
}

/// The names in a span, and perhaps some names after it. The API can start a list at a name only with a token from an
/// earlier page, so this function constructs such a token. `None` if the server does not understand it, or there are
/// too many names.
async fn in_span(client: &Arc<KubeClient>, kind: &Kind, span: &Span) -> Result<Option<Vec<String>>> {
    let form = |text: &str| text.replace(['.', ':'], "-");
    let first = form(&span.first);
    let end = prefix_end(form(&span.last).as_bytes());
    let mut token = token_from(&first);
    let mut names = Vec::new();
    for most in PAGES {
        let query = format!("?includeObject=None&limit={most}&continue={token}");
        let page = match page(client, kind, &query, Accept::Table).await {
            Ok(page) => page,
            Err(error) if error.may_pass() => return Err(error),
            Err(_) => return Ok(None),
        };
        let next = page.next();
        let found: Vec<String> = page.names().collect();
        if found.iter().any(|name| *name < first) {
            return Ok(None);
        }
        let is_end = found.last().is_none_or(|last| last.as_bytes() >= end.as_slice());
        names.extend(found);
        if next.is_empty() || is_end {
            return Ok(Some(names));
        }
        token = next;
    }
    Ok(None)
}

/// Reads one page of a list.
async fn page(client: &Arc<KubeClient>, kind: &Kind, query: &str, accept: Accept) -> Result<Page> {
    let path = format!("{}{query}", kind.path);
    let what = kind.known.plural;
    client
        .get_json(&path, accept, what)
        .await?
        .ok_or_else(|| client.error(what, Failure::NotFound))
}

fn entry(cidr: IpNet, metadata: Metadata) -> Entry {
    Entry {
        record: Record::BlockKey(cidr),
        revision: metadata.revision(),
    }
}
