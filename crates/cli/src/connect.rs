//! Opening the datastore, reading it, and ending cleanly on ctrl-c.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use calipam_check::ClusterIdentity;
use calipam_datastore::Datastore;
use calipam_datastore::settings::{LocalFiles, Settings};
use calipam_model::snapshot::{Coverage, Snapshot, Source};
use tokio::runtime::Builder;

use crate::args::Global;
use crate::exit::{Failure, INTERRUPTED};
use crate::output::Console;
use crate::progress::Reading;

/// So long may the ends of things take after ctrl-c.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// True while a repair writes: then ctrl-c is its own business.
static WRITING: AtomicBool = AtomicBool::new(false);

/// While it lives, ctrl-c does not end the process: what is written comes to an end in order, and a lock is
/// restored.
#[derive(Debug)]
pub struct Writing(());

impl Writing {
    /// From now on.
    pub fn begin() -> Self {
        WRITING.store(true, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        WRITING.store(false, Ordering::SeqCst);
    }
}

/// Runs what waits for a datastore. Ctrl-c ends it: what is half done is dropped, a file that is being
/// written is taken away.
///
/// # Errors
/// What `work` gives, or that it was interrupted.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Io { doing: "start threads".into(), error })?;
    let result = runtime.block_on(async {
        let (tell, interrupted) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            while tokio::signal::ctrl_c().await.is_ok() {
                if WRITING.load(Ordering::SeqCst) {
                    continue;
                }
                // Nobody listens any more while results are printed.
                let _ = tell.send(());
                tokio::time::sleep(LAST_WORDS).await;
                std::process::exit(INTERRUPTED.into());
            }
        });
        tokio::select! {
            result = work => result,
            Ok(()) = interrupted => Err(Failure::Interrupted),
        }
    });
    // The thread that waits for ctrl-c stays until the process ends.
    std::mem::forget(runtime);
    result
}

/// Finds out where the data is and opens it.
///
/// # Errors
/// Where the settings make no sense or the datastore cannot be reached.
pub async fn open(global: &Global, console: &Console) -> Result<Datastore, Failure> {
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let settings = Settings::resolve(&global.overrides(), &environment, &LocalFiles)
        .map_err(calipam_datastore::Error::from)?;
    let datastore = Datastore::open(&settings).await?;
    console.verbose(&format!("reading {}", datastore.location()));
    Ok(datastore)
}

/// Reads everything that a check needs.
///
/// # Errors
/// Where the datastore cannot be read.
pub async fn observe(datastore: &Datastore, console: &Console) -> Result<Snapshot, Failure> {
    let reading = Reading::start(console, "reading");
    let result = datastore.observe(&reading.callback()).await;
    reading.end();
    let mut snapshot = result?;
    name_unread(&mut snapshot);
    tell(&snapshot, console);
    Ok(snapshot)
}

/// Says which cluster was read.
fn tell(snapshot: &Snapshot, console: &Console) {
    let identity = ClusterIdentity::of(snapshot);
    let or_unknown = |text: String| if text.is_empty() { "unknown".to_owned() } else { text };
    console.verbose(&format!(
        "cluster {}, Calico {}, revision {}, at {}",
        or_unknown(identity.guid),
        or_unknown(identity.calico_version),
        or_unknown(identity.revision),
        identity.taken_at
    ));
}

/// Names the sources that could have been read, so that a report says that they were not.
pub fn name_unread(snapshot: &mut Snapshot) {
    for source in [Source::Pods, Source::Services, Source::Machines] {
        let unread = || Coverage::Skipped("no kubeconfig".into());
        snapshot.coverage.entry(source).or_insert_with(unread);
    }
}
