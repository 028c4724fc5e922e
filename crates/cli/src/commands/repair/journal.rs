//! Where the journal of a run lies, and what runs that were killed have left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use calipam_datastore::Datastore;
use calipam_datastore::write::Question;
use calipam_repair::journal::{default_directory, default_path};
use calipam_repair::{LeftLock, left_locks};
use jiff::Timestamp;

use super::consent::agree;
use crate::args::WritingArgs;
use crate::exit::Failure;
use crate::output::Console;
use crate::render::text::quoted;

/// The file for the journal of this run.
///
/// # Errors
/// Where neither an option nor the environment says where.
pub fn place(args: &WritingArgs, cluster: &str) -> Result<PathBuf, Failure> {
    if let Some(path) = &args.journal {
        return Ok(path.clone());
    }
    let directory = directory().ok_or_else(|| Failure::Usage {
        message: "neither HOME nor XDG_STATE_HOME says where to keep the journal".into(),
        hint: Some("name a file with `--journal FILE`".into()),
    })?;
    Ok(default_path(&directory, cluster, Timestamp::now()))
}

fn directory() -> Option<PathBuf> {
    let names = ["XDG_STATE_HOME", "HOME"];
    let environment: BTreeMap<String, String> =
        names.into_iter().filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?))).collect();
    default_directory(&environment)
}

/// Names a lock of the datastore that a run left which was killed, and restores it if the operator agrees.
///
/// # Errors
/// Where the journals cannot be read, or the lock cannot be restored.
pub async fn restore_left_lock(
    datastore: &Datastore,
    cluster: &str,
    args: &WritingArgs,
    console: &Console,
) -> Result<(), Failure> {
    let own = args.journal.as_deref().and_then(Path::parent).map(Path::to_owned);
    let folders =
        [directory(), own.map(|folder| if folder.as_os_str().is_empty() { ".".into() } else { folder })];
    let mut left: Vec<LeftLock> = Vec::new();
    for folder in folders.into_iter().flatten() {
        left.extend(left_locks(&folder, cluster)?);
    }
    for lock in left {
        console.warn(&format!(
            "the run `{}` of {} was killed and has left the datastore locked: no pod starts or stops (journal {})",
            lock.command,
            lock.started_at,
            quoted(&lock.journal)
        ));
        console.say("This restores what `datastoreReady` was before that run.");
        let question = Question {
            cluster: cluster.to_owned(),
            location: datastore.location(),
            addresses: 0,
            blocks: 0,
            handles: 0,
            others: 1,
        };
        let consent = agree(question, args, console).await?;
        lock.restore(datastore, consent).await?;
        console.say("The lock is restored.");
    }
    Ok(())
}
