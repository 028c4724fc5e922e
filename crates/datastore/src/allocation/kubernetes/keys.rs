//! Which blocks there are, by the names of their objects: what they hold is not sent.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use calipam_assign::{Entry, Record, blocks_holding_elsewhere};
use calipam_files::objects::Accept;
use calipam_files::objects::names::cidr_of_block;
use calipam_files::raw::prefix_end;
use calipam_model::IpNet;
use calipam_model::cidr;
use calipam_model::key::Key;
use calipam_model::snapshot::{ObjectVersion, Revision, Source};
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinError;

use super::read::{Answer, missing};
use crate::allocation::spans::{Span, spans};
use crate::client::kubernetes::KubeClient;
use crate::client::kubernetes::kinds::{self, Kind};
use crate::error::{Failure, Result};
use crate::read::again::kubernetes::locate;
use crate::tasks;

/// Names of the first page and of the second: a span has few in nearly every cluster.
const PAGES: [usize; 2] = [8, 500];
/// Requests that are under way at the same time.
const IN_FLIGHT: usize = 16;

/// The key of one block, if it exists.
pub(super) async fn block_key(client: &Arc<KubeClient>, cidr: IpNet) -> Result<Answer> {
    let Some((kind, path)) = locate(client, &Key::Block(cidr)) else { return Ok(Answer::default()) };
    let Some((body, _)) = client.get_whole(&path, Accept::OneMetadata, kind.known.plural).await? else {
        return Ok(Answer { misses_kind: true, ..Answer::default() });
    };
    let item: Item = decode(client, &kind, &body)?;
    Ok(Answer { entries: vec![item.metadata.entry(cidr)], shows_group: true, ..Answer::default() })
}

/// What is asked for a list of objects: the query, and the form of the answer.
type Form = (&'static str, Accept);
pub(super) const WITH_REVISIONS: Form = ("", Accept::Names);
/// A tenth of the bytes.
pub(super) const NAMES: Form = ("?includeObject=None", Accept::Table);

/// The keys of all blocks.
pub(super) async fn block_keys(
    client: &Arc<KubeClient>,
    (query, accept): Form,
    is_wanted: impl Fn(IpNet) -> bool,
) -> Result<Answer> {
    let Ok(kind) = kinds::find(client.api(), Source::Blocks) else { return Ok(Answer::default()) };
    match page(client, &kind, query, accept).await {
        Ok(page) => {
            let blocks = page.blocks().filter(|(cidr, _)| is_wanted(*cidr));
            let entries = blocks.map(|(cidr, metadata)| metadata.entry(cidr)).collect();
            Ok(Answer { entries, shows_group: true, ..Answer::default() })
        }
        Err(error) => missing(error),
    }
}

/// The keys of the blocks that have addresses of a CIDR: larger ones by their names, the others by what names lie around.
pub(super) async fn overlapping(client: &Arc<KubeClient>, net: IpNet) -> Result<Answer> {
    let Ok(kind) = kinds::find(client.api(), Source::Blocks) else { return Ok(Answer::default()) };
    let larger = blocks_holding_elsewhere(net).map(|larger| {
        let client = Arc::clone(client);
        async move { block_key(&client, larger).await }
    });
    let around = spans(net).into_iter().map(|span| {
        let (client, kind) = (Arc::clone(client), kind.clone());
        async move { in_span(&client, &kind, &span).await }
    });
    let lost = |lost: JoinError| client.error(kind.known.plural, Failure::Other(lost.to_string()));
    let (larger, around) = tokio::try_join!(
        tasks::all(IN_FLIGHT, larger.collect(), lost),
        tasks::all(IN_FLIGHT, around.collect(), lost)
    )?;

    let mut entries: Vec<Entry> = larger.into_iter().flat_map(|answer| answer.entries).collect();
    for found in around {
        let Some(found) = found else {
            return block_keys(client, NAMES, |found| cidr::overlap(found, net)).await;
        };
        let blocks = found.into_iter().filter_map(|name| cidr_of_block(&name));
        let overlapping = blocks.filter(|found| cidr::overlap(*found, net));
        entries.extend(overlapping.map(|found| Metadata::default().entry(found)));
    }
    Ok(Answer { entries, shows_group: true, ..Answer::default() })
}

/// The names of a span and some that follow. The API lists from a name on only after a page; the token of such a page is made
/// here, in the form that API servers have understood since 1.11. `None` from a server that does not, and where there are
/// too many.
async fn in_span(client: &Arc<KubeClient>, kind: &Kind, span: &Span) -> Result<Option<Vec<String>>> {
    let form = |text: &str| text.replace(['.', ':'], "-");
    let (first, end) = (form(&span.first), prefix_end(form(&span.last).as_bytes()));
    let (mut token, mut names) = (token_from(&first), Vec::new());
    for most in PAGES {
        let query = format!("?includeObject=None&limit={most}&continue={token}");
        let page = match page(client, kind, &query, Accept::Table).await {
            Ok(page) => page,
            Err(error) if error.may_pass() => return Err(error),
            Err(_) => return Ok(None),
        };
        let next = page.metadata.next.clone().filter(|next| !next.is_empty());
        let found: Vec<String> = page.names().collect();
        if found.iter().any(|name| *name < first) {
            return Ok(None);
        }
        let is_end = found.last().is_none_or(|last| last.as_bytes() >= end.as_slice());
        names.extend(found);
        match next {
            Some(next) if !is_end => token = next,
            _ => return Ok(Some(names)),
        }
    }
    Ok(None)
}

/// A token of the page of a list that begins at a name.
pub(super) fn token_from(name: &str) -> String {
    // -1 is the newest state, as servers have it in the tokens that they give after a page was compacted.
    URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": -1, "start": name}).to_string())
}

async fn page(client: &Arc<KubeClient>, kind: &Kind, query: &str, accept: Accept) -> Result<Page> {
    let path = format!("{}{query}", kind.path);
    let read = client.get_whole(&path, accept, kind.known.plural).await?;
    let (body, _) = read.ok_or_else(|| client.error(kind.known.plural, Failure::NotFound))?;
    decode(client, kind, &body)
}

pub(super) fn decode<'b, T: Deserialize<'b>>(client: &KubeClient, kind: &Kind, body: &'b [u8]) -> Result<T> {
    serde_json::from_slice(body)
        .map_err(|error| client.error(kind.known.plural, Failure::NotKubernetes(error.to_string())))
}

/// A table, or a list of metadata.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: OfPage,
    rows: Option<Vec<Row>>,
    items: Option<Vec<Item>>,
}

#[derive(Default, Deserialize)]
struct OfPage {
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Row {
    cells: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    uid: String,
    resource_version: String,
}

impl Page {
    fn all(self) -> impl Iterator<Item = Metadata> {
        let of_row = |row: Row| {
            let name = row.cells.into_iter().next()?.as_str()?.to_owned();
            Some(Metadata { name, ..Metadata::default() })
        };
        let rows = self.rows.into_iter().flatten().filter_map(of_row);
        rows.chain(self.items.into_iter().flatten().map(|item| item.metadata))
    }

    fn names(self) -> impl Iterator<Item = String> {
        self.all().map(|metadata| metadata.name)
    }

    fn blocks(self) -> impl Iterator<Item = (IpNet, Metadata)> {
        self.all().filter_map(|metadata| Some((cidr_of_block(&metadata.name)?, metadata)))
    }
}

impl Metadata {
    fn entry(self, cidr: IpNet) -> Entry {
        let version = ObjectVersion {
            resource_version: self.resource_version,
            uid: self.uid,
            ..ObjectVersion::default()
        };
        Entry { record: Record::BlockKey(cidr), revision: Revision::Kubernetes(Box::new(version)) }
    }
}
