//! `--watch`: repeats a command, and prints its result if something has changed.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use calipam_model::parallel::lock;
use jiff::SignedDuration;
use serde_json::Value;

use crate::args::Global;
use crate::connect;
use crate::console::Console;
use crate::exit::{Failure, Kind, Outcome, Result};
use crate::format::Format;
use crate::render::document::{self, Document};

/// The time to wait after a change, so that the next read includes the changes that follow it.
pub(crate) const TOGETHER: Duration = Duration::from_secs(1);

/// The last printed document.
#[derive(Debug, Default)]
pub(crate) struct Watch(Mutex<Printed>);

#[derive(Debug, Default)]
struct Printed {
    /// The document without the fields that differ with every read.
    content: Option<Value>,
    /// The revision that was read last.
    revision: Option<i64>,
    reader_is_gone: bool,
}

impl Watch {
    /// Returns the text to print between the last document and this one; `None` if both have the same content.
    pub(crate) fn separator(&self, document: &impl Document, format: Format) -> Option<&'static str> {
        let mut content = document::value(document).unwrap_or_default();
        let mut last = lock(&self.0);
        if let Some(cluster) = content.get_mut("cluster").and_then(Value::as_object_mut) {
            cluster.remove("takenAt");
            let revision = cluster.remove("revision");
            last.revision = revision.and_then(|revision| revision.as_str()?.parse().ok());
        }
        let separator = match &last.content {
            None => "",
            Some(same) if *same == content => return None,
            Some(_) if format == Format::Yaml => "---\n",
            Some(_) if format == Format::Json => "",
            Some(_) => "\n",
        };
        last.content = Some(content);
        Some(separator)
    }

    /// Records that the reader of stdout has closed the pipe.
    pub(crate) fn reader_is_gone(&self) {
        lock(&self.0).reader_is_gone = true;
    }
}

/// Repeats a command until ctrl-c or until its output is closed. A round starts after each change, and at the latest
/// after `every`, since an address can become leaked although nothing has changed. A failure of the first round is
/// returned; later failures are printed.
pub(crate) fn repeat(
    every: SignedDuration,
    global: &Global,
    console: &Console,
    round: impl Fn(&Console) -> Result<Outcome>,
) -> Result<Outcome> {
    let watch = std::sync::Arc::new(Watch::default());
    let mut console = Console { watch: Some(watch.clone()), ..console.clone() };
    let mut outcome = round(&console)?;
    // The first round has already printed the notes and hints.
    console = Console { quiet: true, progress: false, ..console };
    let every = Duration::try_from(every).unwrap_or(Duration::MAX);
    while !lock(&watch.0).reader_is_gone {
        let revision = lock(&watch.0).revision;
        let waited = connect::block_on(async {
            wait(every, revision, global, &console).await;
            Ok(())
        });
        match waited.and_then(|()| round(&console)) {
            Ok(ended) => outcome = ended,
            Err(failure) if failure.kind == Kind::Interrupted => return Err(failure),
            Err(failure) => console.failure(&failure),
        }
    }
    Ok(outcome)
}

/// Waits for a change after a revision, but not longer than `every`. Without a revision, or if the datastore cannot be
/// reached, waits for the whole time.
pub(crate) async fn wait(every: Duration, after: Option<i64>, global: &Global, console: &Console) {
    let begin = Instant::now();
    let change = async {
        let datastore = connect::open(global, console).await?;
        match after {
            Some(after) => Ok(datastore.next_change(after).await?),
            None => std::future::pending().await,
        }
    };
    let changed = tokio::time::timeout(every, change).await;
    let rest = match changed {
        Ok(Ok::<(), Failure>(())) => TOGETHER,
        Ok(Err(_)) | Err(_) => every.saturating_sub(begin.elapsed()),
    };
    tokio::time::sleep(rest).await;
}
