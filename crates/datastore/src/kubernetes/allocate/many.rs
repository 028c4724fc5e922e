//! Reads many blocks from the list of all blocks, in pages that each start at the name of a wanted block. Per second,
//! an API server answers a few hundred requests for single objects, but lists a few thousand objects.

use std::collections::HashMap;
use std::sync::Arc;

use calipam_assign::Query;
use calipam_files::objects::{Accept, Encoding, meta};
use calipam_model::IpNet;
use calipam_model::cidr;
use calipam_model::key::Key;
use calipam_model::snapshot::{Revision, Snapshot, Source};
use serde_json::value::RawValue;

use super::read::{Answer, get, object_entries, unless_refused};
use crate::error::Result;
use crate::kubernetes::client::KubeClient;
use crate::kubernetes::client::kinds::{self, Kind};
use crate::kubernetes::client::object::List;
use crate::kubernetes::client::page::token_from;
use crate::tasks;

/// Fewer blocks than this are read one by one.
const MIN_BLOCKS: usize = 64;
/// Maximum number of blocks on a page. This many full blocks of Calico's usual size take two megabytes.
const PAGE: usize = 128;
/// Maximum number of parallel reads of pages.
const PAGES: usize = 2;
/// Maximum number of parallel reads of single blocks in each [`Part`].
const IN_FLIGHT: usize = 32;

/// The blocks that the queries ask for; `None` if they are few, or if a query asks for anything else.
pub(super) fn asked_for(queries: &[Query]) -> Option<Vec<IpNet>> {
    if queries.len() < MIN_BLOCKS {
        return None;
    }
    let mut blocks = Vec::with_capacity(queries.len());
    for query in queries {
        let Query::Get(Key::Block(cidr)) = query else {
            return None;
        };
        blocks.push(*cidr);
    }
    Some(blocks)
}

/// Reads the blocks with these CIDRs. The answers are in the same order as the CIDRs.
pub(super) async fn blocks(client: &Arc<KubeClient>, cidrs: Vec<IpNet>) -> Result<Vec<Answer>> {
    let mut by_name: Vec<(String, IpNet)> = cidrs
        .iter()
        .map(|cidr| (cidr::resource_name(*cidr), *cidr))
        .collect();
    by_name.sort();
    let mut reads = Vec::new();
    for blocks in by_name.chunks(PAGE) {
        let client = Arc::clone(client);
        let blocks = blocks.to_vec();
        reads.push(async move {
            let part = Part {
                client: &client,
                found: Vec::new(),
            };
            part.read(&blocks).await
        });
    }
    let parts = tasks::all(PAGES, reads).await?;

    let mut answer_by_cidr: HashMap<IpNet, Answer> = parts.into_iter().flatten().collect();
    let mut answers = Vec::with_capacity(cidrs.len());
    for cidr in &cidrs {
        answers.push(answer_by_cidr.remove(cidr).unwrap_or_default());
    }
    Ok(answers)
}

/// A read of up to [`PAGE`] blocks, in the order of their names.
struct Part<'c> {
    client: &'c Arc<KubeClient>,
    found: Vec<(IpNet, Answer)>,
}

impl Part<'_> {
    /// Reads the wanted blocks by pages, as long as most blocks on a page are wanted, and the rest one by one.
    async fn read(mut self, mut wanted: &[(String, IpNet)]) -> Result<Vec<(IpNet, Answer)>> {
        let Ok(kind) = kinds::find(self.client.api(), Source::Blocks) else {
            return Ok(self.found);
        };
        while !wanted.is_empty() {
            let Some(page) = self.page(&kind, wanted).await? else {
                break;
            };
            wanted = &wanted[page.covered..];
            let is_mostly_wanted = page.items > 0 && page.blocks.len() * 2 >= page.items;
            self.add_page(page).await?;
            if !is_mostly_wanted {
                // Pages with so many other blocks cost more than reading blocks one by one.
                break;
            }
        }
        self.one_by_one(wanted).await?;
        Ok(self.found)
    }

    /// Adds the wanted blocks on a page, after reading those that the page does not answer.
    async fn add_page(&mut self, page: Page) -> Result<()> {
        for (cidr, answer) in page.blocks {
            let answer = match answer {
                Some(answer) => answer,
                None => get(self.client, &Key::Block(cidr)).await?,
            };
            self.found.push((cidr, answer));
        }
        Ok(())
    }

    /// Reads a page from the first wanted name on; `None` if the server cannot start a page there.
    async fn page(&self, kind: &Kind, wanted: &[(String, IpNet)]) -> Result<Option<Page>> {
        let Some((first, cidr)) = wanted.first() else {
            return Ok(None);
        };
        let path = format!(
            "{}?limit={}&continue={}",
            kind.path,
            wanted.len(),
            token_from(first)
        );
        let plural = kind.known.plural;
        let read = self.client.get_whole(&path, Accept::Json, plural).await;
        let Some(read) = unless_refused(read)? else {
            return Ok(None);
        };
        let Some((body, _)) = read else {
            // The kind does not exist, and therefore none of the wanted blocks. One answer is enough to say so.
            let blocks = vec![(*cidr, Some(Answer::missing()))];
            return Ok(Some(Page {
                blocks,
                covered: wanted.len(),
                items: 1,
            }));
        };
        let list = self.client.decode(&body, plural)?;
        Ok(Page::read(list, kind, wanted))
    }

    /// Reads blocks by their names, several at a time.
    async fn one_by_one(&mut self, wanted: &[(String, IpNet)]) -> Result<()> {
        let mut reads = Vec::new();
        for (_, cidr) in wanted {
            let client = Arc::clone(self.client);
            let cidr = *cidr;
            reads.push(async move { get(&client, &Key::Block(cidr)).await.map(|answer| (cidr, answer)) });
        }
        self.found.extend(tasks::all(IN_FLIGHT, reads).await?);
        Ok(())
    }
}

/// The wanted blocks on a page.
struct Page {
    /// Answers for wanted blocks; `None` for a block that must be read by itself.
    blocks: Vec<(IpNet, Option<Answer>)>,
    /// The number of wanted blocks whose names are not after the last one on the page, or of all wanted blocks if there
    /// is no next page.
    covered: usize,
    /// The number of blocks on the page.
    items: usize,
}

impl Page {
    /// Reads a page; `None` if it starts before the first wanted block, or the metadata of an object is malformed.
    fn read(list: List<&RawValue>, kind: &Kind, wanted: &[(String, IpNet)]) -> Option<Self> {
        let mut remaining = wanted.iter().peekable();
        let mut blocks = Vec::new();
        let mut items = 0;
        for item in list.items {
            let json = item.get().as_bytes();
            let metadata = meta::metadata(json, Encoding::Json)?;
            let name: &str = &metadata.name;
            let is_first_item = items == 0;
            if is_first_item
                && wanted
                    .first()
                    .is_some_and(|(first_wanted, _)| name < first_wanted.as_str())
            {
                return None;
            }
            items += 1;

            // Wanted blocks that sort before this item do not exist.
            while remaining
                .next_if(|(wanted_name, _)| wanted_name.as_str() < name)
                .is_some()
            {}
            if let Some((_, cidr)) = remaining.next_if(|(wanted_name, _)| wanted_name == name) {
                blocks.push((*cidr, block_answer(kind, *cidr, json, &metadata.revision())));
            }
        }

        let is_last_page = list.metadata.next.is_empty();
        let uncovered = if is_last_page { 0 } else { remaining.len() };
        Some(Self {
            blocks,
            covered: wanted.len() - uncovered,
            items,
        })
    }
}

/// The answer for a block on a page; `None` if the block is being deleted, since only a read of its own completes that.
fn block_answer(kind: &Kind, cidr: IpNet, json: &[u8], revision: &Revision) -> Option<Answer> {
    let mut snapshot = Snapshot::default();
    kind.known.add(&mut snapshot, json, Encoding::Json);
    let is_being_deleted = snapshot
        .blocks
        .iter()
        .any(|block| block.value.content.is_deleted());
    if is_being_deleted {
        return None;
    }
    Some(Answer::found(object_entries(
        &Key::Block(cidr),
        snapshot,
        revision,
    )))
}
