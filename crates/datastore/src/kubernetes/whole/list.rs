//! Reads all objects of a kind, in one piece or in pages, each object as it arrives.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use calipam_files::objects::{Encoding, ItemReader, ListMeta};
use calipam_files::{Progress, ProgressFn, quiet};
use calipam_model::snapshot::{Snapshot, Source};
use jiff::Timestamp;
use percent_encoding::utf8_percent_encode;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::error::{Cause, Failure, Result};
use crate::kubernetes::client::kinds::{Kind, UNRESERVED};
use crate::kubernetes::client::{Answer, KubeClient};
use crate::retries::{Retries, WHOLE_READS};

/// Number of items on one page. Pages of 500, which are common, take eight times as long for custom resources.
const PAGE: u64 = 5_000;

/// Most handles that are read in one piece. On two cores, a server sends as many in 20 seconds, and its time limit is a
/// minute.
const MOST_IN_ONE_PIECE: u64 = 300_000;

/// Receives the objects of a list.
pub(crate) trait Take: Default + Send + 'static {
    fn take(&mut self, kind: &Kind, object: &[u8], encoding: Encoding);
}

impl Take for Snapshot {
    fn take(&mut self, kind: &Kind, object: &[u8], encoding: Encoding) {
        kind.known.add(self, object, encoding);
    }
}

/// All objects of a kind.
#[derive(Default)]
pub(crate) struct Listed<T> {
    /// The receiver of the objects.
    pub taken: T,
    /// The revision of the list.
    pub resource_version: String,
    /// The server's time at the start of the list.
    pub date: Option<Timestamp>,
    /// Number of objects.
    pub items: u64,
    /// True if the list was restarted.
    pub is_restarted: bool,
}

/// Counts the objects of all lists.
pub(crate) struct Counter {
    /// All objects that were read.
    read: AtomicU64,
    /// The expected objects of lists with several pages; 0 if none is known.
    expected: AtomicU64,
    /// The objects that were read before the lists.
    read_before: u64,
    progress: ProgressFn,
}

impl Counter {
    pub(crate) fn new(progress: &ProgressFn) -> Arc<Self> {
        Self::after(0, progress)
    }

    /// Creates a counter for a read that begins after `read_before` other objects have been read.
    pub(crate) fn after(read_before: u64, progress: &ProgressFn) -> Arc<Self> {
        Arc::new(Self {
            read: AtomicU64::new(read_before),
            expected: AtomicU64::new(0),
            read_before,
            progress: Arc::clone(progress),
        })
    }

    /// Counts items that were read, and reports the progress.
    pub(crate) fn add(&self, items: u64) {
        let read = self.read.fetch_add(items, Ordering::Relaxed) + items;
        // Whole lists do not announce their length, and finding it out would take another request for each list.
        let expected = match self.expected.load(Ordering::Relaxed) {
            0 => 0,
            in_lists => read.max(self.read_before + in_lists),
        };
        (self.progress)(Progress { read, expected });
    }

    /// Adds to the number of objects that are expected.
    fn expect(&self, items: u64) {
        self.expected.fetch_add(items, Ordering::Relaxed);
    }

    /// Subtracts the objects of a list that is restarted.
    pub(crate) fn forget(&self, items: u64) {
        self.read.fetch_sub(items, Ordering::Relaxed);
    }
}

/// Signals that the revision of a list is fixed.
pub(crate) type Begun = oneshot::Sender<()>;

/// Reads all objects of a kind at one revision.
pub(crate) async fn list<T: Take>(client: &Arc<KubeClient>, kind: &Kind) -> Result<Listed<T>> {
    let uncounted = Counter::new(&quiet());
    list_counted(client, kind, &uncounted, None).await
}

/// Like [`list`], but counts the objects, and signals `begun` once the list begins to arrive, since its revision is
/// fixed then.
pub(crate) async fn list_counted<T: Take>(
    client: &Arc<KubeClient>,
    kind: &Kind,
    counter: &Arc<Counter>,
    mut begun: Option<Begun>,
) -> Result<Listed<T>> {
    let mut retries = Retries::new(&WHOLE_READS);
    let is_whole = client.api().whole_lists && !is_too_long(client, kind).await;
    let mut limit = if is_whole { 0 } else { PAGE };
    let mut is_restarted = false;
    loop {
        let mut attempt = Attempt {
            client,
            kind,
            counter,
            limit,
            listed: Listed {
                is_restarted,
                ..Listed::default()
            },
            is_length_known: false,
            begun: &mut begun,
        };
        let failure = match attempt.read_pages().await {
            Ok(()) => return Ok(attempt.listed),
            Err(failure) => failure,
        };
        let plural = kind.known.plural;
        if limit == 0 && is_cut_off(&failure) {
            tracing::info!("{plural}: the list was cut off, reading it in pages");
            limit = PAGE;
        } else if failure == Failure::Compacted && retries.pause().await {
            tracing::info!("{plural}: the revision was compacted, reading again from the start");
        } else {
            return Err(client.error(plural, failure));
        }
        counter.forget(attempt.listed.items);
        is_restarted = true;
    }
}

/// True if there are so many handles that the server may not send the list in one piece within its time limit. Only
/// handles pile up without limit, and a server that fails takes a minute to do so.
async fn is_too_long(client: &KubeClient, kind: &Kind) -> bool {
    if kind.known.source != Source::Handles {
        return false;
    }
    match remaining_after_one(client, kind).await {
        Ok(remaining) => remaining > MOST_IN_ONE_PIECE,
        // The list itself reports what is wrong.
        Err(_) => false,
    }
}

/// Returns the number of objects of a kind, except one.
async fn remaining_after_one(client: &KubeClient, kind: &Kind) -> Result<u64, Failure> {
    let first_page = path_of_page(&kind.path, 1, FIRST_PAGE);
    let mut answer = client.get(&first_page, kind.known.accept).await?;
    let mut reader = ItemReader::new(answer.encoding);
    while let Some(piece) = answer.piece().await? {
        let fed = reader.feed(&piece, &mut |_| {});
        fed.map_err(|error| Failure::NotKubernetes(error.to_string()))?;
    }
    let meta = reader
        .finish()
        .map_err(|error| Failure::Incomplete(error.to_string()))?;
    Ok(meta.remaining)
}

/// True if a list has ended too early. A server, or a proxy in front of it, may not have enough time for a long list.
fn is_cut_off(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Connection(Cause::Broken(_)) | Failure::Incomplete(_) | Failure::Server { code: 504, .. }
    )
}

/// One attempt at a list.
struct Attempt<'r, T> {
    client: &'r Arc<KubeClient>,
    kind: &'r Kind,
    counter: &'r Arc<Counter>,
    /// Items on one page; 0 for a list in one piece.
    limit: u64,
    listed: Listed<T>,
    /// True once the counter expects the items of this list.
    is_length_known: bool,
    /// Signals the beginning of the list, once.
    begun: &'r mut Option<Begun>,
}

/// The token of the first page.
const FIRST_PAGE: &str = "";

impl<T: Take> Attempt<'_, T> {
    /// Reads all pages of the list.
    async fn read_pages(&mut self) -> Result<(), Failure> {
        let accept = self.kind.known.accept;
        let mut answer = self.client.get(&self.path(FIRST_PAGE), accept).await?;
        self.listed.date = answer.date;
        loop {
            // The next page is requested as soon as its token arrives, so that the server prepares it in the meantime.
            let mut next_answer = JoinSet::new();
            let meta = self.read_page(answer, &mut next_answer).await?;
            self.listed.resource_version.clone_from(&meta.resource_version);
            if meta.is_last() {
                return Ok(());
            }
            if meta.next.is_empty() {
                let missing = format!(
                    "{} items are left, but the answer names no next page",
                    meta.remaining
                );
                return Err(Failure::Incomplete(missing));
            }
            answer = match next_answer.join_next().await {
                Some(Ok(answer)) => answer?,
                Some(Err(panicked)) => resume_unwind(panicked.into_panic()),
                None => self.client.get(&self.path(&meta.next), accept).await?,
            };
        }
    }

    /// Reads one page. Requests the next page, as the only task of `next_answer`, as soon as its token is known.
    async fn read_page(
        &mut self,
        mut answer: Answer,
        next_answer: &mut JoinSet<Result<Answer, Failure>>,
    ) -> Result<ListMeta, Failure> {
        let encoding = answer.encoding;
        let mut reader = ItemReader::new(encoding);
        while let Some(piece) = answer.piece().await? {
            if let Some(begun) = self.begun.take() {
                // The receiver has been dropped if another list has failed.
                let _ = begun.send(());
            }

            let taken = &mut self.listed.taken;
            let kind = self.kind;
            let mut items = 0;
            let fed = reader.feed(&piece, &mut |item| {
                taken.take(kind, item, encoding);
                items += 1;
            });
            fed.map_err(|error| Failure::NotKubernetes(error.to_string()))?;

            if let Some(meta) = reader.meta()
                && next_answer.is_empty()
                && !meta.next.is_empty()
            {
                self.expect(meta.remaining);
                self.request_page(&meta.next, next_answer);
            }
            self.listed.items += items;
            self.counter.add(items);
        }
        let meta = reader
            .finish()
            .map_err(|error| Failure::Incomplete(error.to_string()))?;
        if !meta.next.is_empty() {
            self.expect(meta.remaining);
        }
        Ok(meta)
    }

    /// Requests the page with the token `token`, as a task of `answers`.
    fn request_page(&self, token: &str, answers: &mut JoinSet<Result<Answer, Failure>>) {
        let client = Arc::clone(self.client);
        let path = self.path(token);
        let accept = self.kind.known.accept;
        answers.spawn(async move { client.get(&path, accept).await });
    }

    /// Adds the items of a list with several pages to the expected number, once.
    fn expect(&mut self, remaining: u64) {
        if !self.is_length_known {
            self.is_length_known = true;
            self.counter.expect(remaining + self.limit);
        }
    }

    /// The path of the page with the token `token`.
    fn path(&self, token: &str) -> String {
        let is_whole = self.limit == 0;
        if token == FIRST_PAGE && is_whole {
            return self.kind.path.clone();
        }
        path_of_page(&self.kind.path, self.limit, token)
    }
}

/// The path of a page with `limit` items of the list with the path `path`, which may already have a selector.
fn path_of_page(path: &str, limit: u64, token: &str) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    if token == FIRST_PAGE {
        return format!("{path}{separator}limit={limit}");
    }
    let token = utf8_percent_encode(token, UNRESERVED);
    format!("{path}{separator}limit={limit}&continue={token}")
}
