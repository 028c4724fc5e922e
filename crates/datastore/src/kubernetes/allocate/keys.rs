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

use super::read::{Answer, unless_refused};
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
    let block: Option<Object> = client
        .get_json(&path, Accept::OneMetadata, kind.known.plural)
        .await?;
    Ok(match block {
        Some(block) => Answer::found(vec![entry(cidr, block.metadata)]),
        None => Answer::missing(),
    })
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
    Answer::from_list(page.map(|page| wanted_keys(page, query)))
}

/// The keys of the blocks on a page that a query asks for.
fn wanted_keys(page: Page, query: &Query) -> Vec<Entry> {
    let mut entries = Vec::new();
    for metadata in page.all() {
        if let Some(cidr) = cidr_of_block(&metadata.name)
            && query.asks_for(&Key::Block(cidr))
        {
            entries.push(entry(cidr, metadata));
        }
    }
    entries
}

/// The keys of the blocks that share addresses with a CIDR. Larger blocks are looked up by name. All others are found
/// among the names that sort close to the CIDR.
pub(super) async fn overlapping(client: &Arc<KubeClient>, net: IpNet) -> Result<Answer> {
    let Ok(kind) = kinds::find(client.api(), Source::Blocks) else {
        return Ok(Answer::default());
    };
    let (larger_blocks, close_names) = tokio::try_join!(
        read_larger_blocks(client, net),
        read_names_close_to(client, &kind, net)
    )?;
    let Some(close_names) = close_names else {
        // The list of all names also contains the larger blocks.
        return block_keys(client, NAMES, &Query::Overlapping(net)).await;
    };

    let mut entries = larger_blocks;
    for name in close_names {
        if let Some(block) = cidr_of_block(&name)
            && cidr::overlap(block, net)
        {
            entries.push(entry(block, Metadata::default()));
        }
    }
    Ok(Answer::found(entries))
}

/// Looks up the blocks that hold a CIDR but whose names do not sort close to it.
async fn read_larger_blocks(client: &Arc<KubeClient>, net: IpNet) -> Result<Vec<Entry>> {
    let mut reads = Vec::new();
    for block in blocks_holding_elsewhere(net) {
        let client = Arc::clone(client);
        reads.push(async move { block_key(&client, block).await });
    }
    let answers = tasks::all(IN_FLIGHT, reads).await?;
    Ok(answers.into_iter().flat_map(|answer| answer.entries).collect())
}

/// Reads the names of blocks that sort close to a CIDR; `None` if only a list of all names can contain them.
async fn read_names_close_to(
    client: &Arc<KubeClient>,
    kind: &Kind,
    net: IpNet,
) -> Result<Option<Vec<String>>> {
    let mut reads = Vec::new();
    for span in spans(net) {
        let client = Arc::clone(client);
        let kind = kind.clone();
        reads.push(async move { names_in_span(&client, &kind, &span).await });
    }
    let mut names = Vec::new();
    for names_of_span in tasks::all(IN_FLIGHT, reads).await? {
        let Some(names_of_span) = names_of_span else {
            return Ok(None);
        };
        names.extend(names_of_span);
    }
    Ok(Some(names))
}

/// The names in a span, and perhaps some names after it. The API can start a list at a name only with a token from an
/// earlier page, so this function constructs such a token. `None` if the server does not understand it, or there are
/// too many names.
async fn names_in_span(client: &Arc<KubeClient>, kind: &Kind, span: &Span) -> Result<Option<Vec<String>>> {
    // Names have dashes in place of dots and colons.
    let first = span.first.replace(['.', ':'], "-");
    let last = span.last.replace(['.', ':'], "-");
    let end = prefix_end(last.as_bytes());
    let mut token = token_from(&first);
    let mut names = Vec::new();
    for limit in PAGES {
        let query = format!("?includeObject=None&limit={limit}&continue={token}");
        let Some(page) = unless_refused(page(client, kind, &query, Accept::Table).await)? else {
            return Ok(None);
        };
        token = page.next();
        let is_last_page = token.is_empty();
        let names_on_page: Vec<String> = page.names().collect();
        // A server that does not understand the token may start the list elsewhere.
        if names_on_page.iter().any(|name| *name < first) {
            return Ok(None);
        }
        let is_past_span = names_on_page
            .last()
            .is_none_or(|last_name| last_name.as_bytes() >= end.as_slice());
        names.extend(names_on_page);
        if is_last_page || is_past_span {
            return Ok(Some(names));
        }
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
