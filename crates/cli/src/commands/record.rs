//! `record`, and the recorder of `serve`.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use calipam_history::keep::Keep;
use calipam_workflow::{Access, record};

use crate::args::{Global, RecordArgs};
use crate::connect;
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::operator::Person;

/// The pause before recording starts again after a failure.
const PAUSE: Duration = Duration::from_secs(10);

/// Records until a signal arrives.
///
/// # Errors
/// If recording cannot start.
pub(super) fn run(args: &RecordArgs, global: &Global, console: &Console) -> Result<Outcome> {
    connect::threads()?.block_on(async {
        let signal = connect::signal().map_err(Failure::io("wait for signals"))?;
        tokio::select! {
            () = signal => Ok(Outcome::Clean),
            failure = record_again(&args.folder, args.keep.as_ref(), global, console) => Err(failure),
        }
    })
}

/// Records on a separate thread until the process ends. Prints failures, and starts again after each of them.
pub(super) fn start(folder: &Path, keep: Option<&Keep>, global: &Global, console: &Console) -> Result<()> {
    let folder = folder.to_owned();
    let keep = keep.cloned();
    let global = global.clone();
    let console = Console {
        progress: false,
        ..console.clone()
    };
    let record = async move || -> () {
        loop {
            let failure = record_again(&folder, keep.as_ref(), &global, &console).await;
            pause(&failure, &console).await;
        }
    };
    connect::on_thread("recorder", record).map(drop)
}

/// Records. After a failure, prints the failure and starts again. Returns only if recording fails before it has begun.
async fn record_again(folder: &Path, keep: Option<&Keep>, global: &Global, console: &Console) -> Failure {
    // A recording that cannot even begin has wrong options or settings, which a retry does not mend.
    let has_begun = Cell::new(false);
    loop {
        let once = async {
            let datastore = connect::open(global, console).await?;
            let person = Person::never_asked(console);
            record(Access::new(&datastore, &person), folder, keep, &has_begun).await
        };
        let Err(failure) = once.await;
        if !has_begun.get() {
            return failure;
        }
        pause(&failure, console).await;
    }
}

/// Prints a failure, and waits before the next attempt.
async fn pause(failure: &Failure, console: &Console) {
    console.failure(failure);
    console.warn(&format!(
        "nothing is recorded; trying again in {} s",
        PAUSE.as_secs()
    ));
    tokio::time::sleep(PAUSE).await;
}
