//! `--watch`: repeats a command, and prints its result if something has changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use jiff::SignedDuration;

use crate::args::Global;
use crate::connect;
use crate::console::{Console, READER_IS_GONE};
use crate::exit::{Failure, Kind, Outcome, Result};
use crate::watched::Watched;

/// The time to wait after a change, so that the next read includes the changes that follow it.
pub(crate) const TOGETHER: Duration = Duration::from_secs(1);

/// Repeats a command until ctrl-c or until its output is closed. A round starts after each change, and at the latest
/// after `every`, since an address can become leaked although nothing has changed. A failure of the first round is
/// returned; later failures are printed.
pub(crate) fn repeat(
    every: SignedDuration,
    global: &Global,
    console: &Console,
    round: impl Fn(&Console) -> Result<Outcome>,
) -> Result<Outcome> {
    let watch = Arc::new(Watched::default());
    let mut console = Console {
        watch: Some(watch.clone()),
        ..console.clone()
    };
    let mut outcome = round(&console)?;
    // The first round has already printed the notes and hints.
    console = Console {
        quiet: true,
        progress: false,
        ..console
    };
    let every = Duration::try_from(every).unwrap_or(Duration::MAX);
    while !READER_IS_GONE.load(Ordering::SeqCst) {
        // A datastore that cannot be followed is read again after the whole time.
        let waited = connect::block_on(async {
            wait(every, watch.revision(), global, &console).await;
            Ok(())
        });
        match waited.and_then(|()| round(&console)) {
            Ok(outcome_of_round) => outcome = outcome_of_round,
            Err(failure) if failure.kind == Kind::Interrupted => return Err(failure),
            Err(failure) => console.failure(&failure),
        }
    }
    Ok(outcome)
}

/// Waits for a change after a revision, but not longer than `longest`. Without a revision, or if the datastore cannot
/// be reached, waits for the whole time.
pub(crate) async fn wait(longest: Duration, revision: Option<i64>, global: &Global, console: &Console) {
    let begin = Instant::now();
    let change = async {
        let datastore = connect::open(global, console).await?;
        match revision {
            Some(revision) => Ok(datastore.next_change(revision).await?),
            None => std::future::pending().await,
        }
    };
    let pause = match tokio::time::timeout(longest, change).await {
        Ok(Ok::<(), Failure>(())) => TOGETHER,
        Ok(Err(_)) | Err(_) => longest.saturating_sub(begin.elapsed()),
    };
    tokio::time::sleep(pause).await;
}
