//! Lists the journals in a folder.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use calipam_model::words::thousands;
use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::append::{headers, is_over, journals, unfinished};
use super::disk::{is_alive, open_own};
use super::entry::{Entry, Header, LockMark};
use super::error::JournalError;
use super::line::Lines;
use super::read::{Recorded, header};

/// The state of the run that wrote a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum JournalState {
    /// The run ended normally.
    Ended,
    /// The run was killed, a signal stopped it, or a failure ended it.
    Interrupted,
    /// The run is over, but may have left the datastore locked.
    LockLeft,
    Running,
    /// The journal was changed after it was written.
    Damaged,
}

/// A journal in a list. Of its intents, only the objects are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub path: PathBuf,
    pub header: Header,
    /// The number of written objects. An object is counted once for each write.
    pub objects: usize,
    /// The number of objects in writes without a recorded outcome. They may have been written.
    pub unanswered: usize,
    pub state: JournalState,
    /// True if the journal has its last line: each step that the run began was finished, or left unchanged.
    pub ended: bool,
    /// True if a later run has undone it, and that run was not undone itself.
    pub undone: bool,
}

/// Returns the command that undoes `journal`, in the form that the undo writes into its own journal.
pub fn undo_command(journal: &Path) -> String {
    format!(
        "undo {}",
        journal.file_name().unwrap_or_default().to_string_lossy()
    )
}

/// Returns the journals of this user in a folder, newest first. Files without a sound first line are left out.
pub fn list(folder: &Path) -> Result<Vec<Listed>, JournalError> {
    Ok(newest_first(&journals(folder)?))
}

/// Reads journals, and finds out which of them other ones have undone.
fn newest_first(paths: &[PathBuf]) -> Vec<Listed> {
    let mut journals: Vec<Listed> = paths
        .iter()
        .filter_map(|path| listed(path).ok().flatten())
        .collect();
    journals.sort_by(|a, b| {
        let newest_first = b.header.started_at.cmp(&a.header.started_at);
        newest_first.then_with(|| b.path.cmp(&a.path))
    });

    // An undo has no effect any more if it was undone by a later one.
    let mut undone_commands = HashSet::new();
    for journal in &mut journals {
        journal.undone = undone_commands.contains(&undo_command(&journal.path));
        if journal.is_undo() && journal.objects > 0 && !journal.undone {
            undone_commands.insert(journal.header.command.clone());
        }
    }
    journals
}

/// Returns the runs on some clusters, given by their GUIDs, that may have left a step half-done, newest first: a kill or
/// a failure ended them while they wrote. Leaves out runs that were undone, that left a lock
/// ([`stale_locks`](crate::stale_locks)), and after which a run of the same command, or a rebuild, has ended on the same
/// cluster.
pub fn unfinished_runs(folder: &Path, clusters: &BTreeSet<&str>) -> Result<Vec<Listed>, JournalError> {
    let broken_off: HashSet<PathBuf> = unfinished(folder)?.into_iter().collect();
    if broken_off.is_empty() {
        return Ok(Vec::new());
    }

    // Only the journals of broken-off runs and of undos are read whole: others can be long.
    let mut paths = Vec::new();
    let mut ended_runs = Vec::new();
    for (path, header) in headers(folder) {
        if !clusters.contains(header.cluster.as_str()) {
            continue;
        }
        let is_broken_off = broken_off.contains(&path);
        if is_broken_off || is_undo(&header.command) {
            paths.push(path.clone());
        }
        if !is_broken_off && is_over(&path) {
            ended_runs.push(header);
        }
    }

    let mut runs = newest_first(&paths);
    runs.retain(|run| {
        let may_have_written = run.objects > 0 || run.unanswered > 0;
        run.state == JournalState::Interrupted
            && !run.ended
            && !run.undone
            && may_have_written
            && !ended_runs.iter().any(|later| has_gone_on(later, &run.header))
    });
    Ok(runs)
}

/// Returns true if an ended run has dealt with what a broken-off run left: it is a later one of the same command, or a
/// rebuild, on the same cluster.
fn has_gone_on(ended: &Header, broken_off: &Header) -> bool {
    let command = first_word(ended);
    let deals_with_it = command == first_word(broken_off) || command == "rebuild";
    deals_with_it && ended.cluster == broken_off.cluster && began(ended) > began(broken_off)
}

fn first_word(header: &Header) -> &str {
    header.command.split(' ').next().unwrap_or_default()
}

/// Returns the start of a run; `None` if the header has no time.
fn began(header: &Header) -> Option<Timestamp> {
    header.started_at.parse().ok()
}

/// Returns the files in a folder that begin like journals, but whose first line is damaged.
pub fn unreadable(folder: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let mut paths = journals(folder)?;
    paths.retain(|path| !matches!(listed(path), Ok(Some(_))));
    Ok(paths)
}

/// Returns the journals of later runs for the same cluster in some folders, oldest first. Unreadable journals are left
/// out.
pub fn later(folders: &[PathBuf], than: &Recorded) -> Vec<Recorded> {
    let mut later_runs: Vec<Recorded> = Vec::new();
    for (path, header) in folders.iter().flat_map(|folder| headers(folder)) {
        let is_of_cluster = header.cluster == than.header.cluster;
        let is_later = began(&header) >= began(&than.header) && path != than.path;
        if is_of_cluster && is_later {
            later_runs.extend(Recorded::read_own(&path).ok());
        }
    }
    later_runs.sort_by_key(|run| began(&run.header));
    later_runs
}

fn is_undo(command: &str) -> bool {
    command == "undo" || command.starts_with("undo ")
}

impl Listed {
    pub fn is_undo(&self) -> bool {
        is_undo(&self.header.command)
    }

    /// Returns the journal that an undo has to name to restore what was there before this run. For an undo that did not
    /// finish, that is the journal of the run that it was undoing.
    pub fn to_undo(&self) -> PathBuf {
        if let Some(name) = self.header.command.strip_prefix("undo ") {
            let undone_journal = self.path.with_file_name(name);
            if undone_journal.exists() {
                return undone_journal;
            }
        }
        self.path.clone()
    }

    /// The number of written objects, such as `5`, or `5 to 65` if writes of 60 more were not answered.
    pub fn objects_in_words(&self) -> String {
        let least = thousands(self.objects);
        if self.unanswered == 0 {
            return least;
        }
        let most = thousands(self.objects + self.unanswered);
        format!("{least} to {most}")
    }

    /// Returns true if `undo --last` does not look at the run: it is an undo, or was undone.
    pub fn is_settled(&self) -> bool {
        self.undone || self.is_undo()
    }

    /// Returns true if the run wrote nothing and left no lock, so there is nothing to undo. Nobody knows this of a run
    /// that is in progress, or whose journal is damaged.
    pub fn changed_nothing(&self) -> bool {
        let is_over = matches!(self.state, JournalState::Ended | JournalState::Interrupted);
        is_over && self.objects == 0 && self.unanswered == 0
    }
}

/// The parts of an intent that a list needs. The values in its changes can be long, and are skipped.
#[derive(Deserialize)]
struct IntentSize {
    intent: Changed,
}

#[derive(Deserialize)]
struct Changed {
    id: u64,
    changes: Vec<IgnoredAny>,
}

/// Reads one journal; `None` if its first line is damaged.
fn listed(path: &Path) -> io::Result<Option<Listed>> {
    let file = open_own(path)?;
    let is_running = is_alive(&file);
    let mut lines = Lines::new(BufReader::new(file));
    let Some(first) = lines.next()? else {
        return Ok(None);
    };
    let Ok(header) = header(path, first) else {
        return Ok(None);
    };

    let mut objects = 0;
    let mut lock = None;
    let mut state = JournalState::Interrupted;
    let mut was_stopped = false;
    let mut ended = false;
    // The numbers of objects in writes without an outcome so far.
    let mut unanswered: HashMap<u64, usize> = HashMap::new();
    while let Some(line) = lines.next()? {
        if !line.is_sound {
            state = JournalState::Damaged;
            break;
        }
        let line = line.text;
        if line.starts_with(b"{\"intent\":") {
            match serde_json::from_slice(line) {
                Ok(IntentSize { intent }) => {
                    unanswered.insert(intent.id, intent.changes.len());
                }
                Err(_) => state = JournalState::Damaged,
            }
            continue;
        }
        match serde_json::from_slice(line) {
            Ok(Entry::Outcome(outcome)) => {
                unanswered.remove(&outcome.id);
                objects += outcome.written.map_or(0, |written| written.len());
            }
            Ok(Entry::Lock(mark)) => lock = Some(mark),
            Ok(Entry::Interrupted {}) => was_stopped = true,
            Ok(Entry::End {}) => {
                ended = true;
                if !was_stopped {
                    state = JournalState::Ended;
                }
            }
            _ => state = JournalState::Damaged,
        }
    }

    let leaves_lock = matches!(lock, Some(LockMark::Taking(_) | LockMark::Taken(_)));
    if is_running {
        state = JournalState::Running;
    } else if leaves_lock && state != JournalState::Damaged {
        state = JournalState::LockLeft;
    }
    Ok(Some(Listed {
        path: path.to_owned(),
        header,
        objects,
        unanswered: unanswered.into_values().sum(),
        state,
        ended,
        undone: false,
    }))
}

#[cfg(test)]
mod tests {
    use calipam_files::frames::{MAGIC, Packer};
    use std::fs;

    use super::*;
    use crate::journal::entry::ChangeRecord;
    use crate::journal::{FORMAT, Intent, Journal, Outcome};

    async fn write(folder: &Path, name: &str, command: &str, day: u8, objects: usize) {
        write_on("", folder, name, command, day, objects).await;
    }

    async fn write_on(cluster: &str, folder: &Path, name: &str, command: &str, day: u8, objects: usize) {
        let started_at = format!("2026-05-{day:02}T10:00:00Z");
        let header = Header {
            format: FORMAT,
            started_at,
            command: command.into(),
            cluster: cluster.into(),
            ..Header::default()
        };
        let journal = Journal::create(&folder.join(name), &header).unwrap();
        let mut intent = Intent {
            id: 0,
            step: 0,
            reason: String::new(),
            changes: Vec::new(),
            guards: Vec::new(),
        };
        journal.intend(&mut intent).await.unwrap();
        let written = Some(vec![None; objects]);
        journal
            .conclude(Outcome {
                id: intent.id,
                written,
            })
            .unwrap();
        journal.end().await.unwrap();
        drop(journal);
    }

    #[tokio::test]
    async fn the_newest_first_with_what_was_undone() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        write(folder.path(), "a", "release --leaked", 1, 3).await;
        write(folder.path(), "b", "rebuild --apply", 2, 2).await;
        write(folder.path(), "c", &undo_command(&at("b")), 3, 2).await;
        write(folder.path(), "d", &undo_command(&at("c")), 4, 2).await;
        write(folder.path(), "e", "release --leaked", 5, 0).await;
        write(folder.path(), "f", &undo_command(&at("a")), 6, 3).await;
        fs::write(at("other"), [&MAGIC[..], b"not a journal"].concat()).unwrap();
        let found = list(folder.path()).unwrap();
        assert_eq!(unreadable(folder.path()).unwrap(), [at("other")]);
        let names: Vec<_> = found
            .iter()
            .map(|l| l.path.file_name().unwrap().to_str().unwrap())
            .collect();
        assert_eq!(names, ["f", "e", "d", "c", "b", "a"]);
        let undone: Vec<_> = found.iter().map(|l| l.undone).collect();
        // The undo of `b` was undone, so `b` is not undone.
        assert_eq!(undone, [false, false, false, true, false, true]);
        let left: Vec<_> = found.iter().filter(|l| !l.is_settled()).collect();
        let left: Vec<_> = left
            .iter()
            .map(|l| (l.path.clone(), l.changed_nothing()))
            .collect();
        assert_eq!(left, [(at("e"), true), (at("b"), false)]);
    }

    fn created(key: &str) -> ChangeRecord {
        ChangeRecord {
            key: key.to_owned(),
            before: None,
            after: None,
        }
    }

    /// Writes the journal of a run that was killed before its last line.
    async fn killed(folder: &Path, name: &str, command: &str, day: u8) {
        write(folder, name, command, day, 2).await;
        let path = folder.join(name);
        let ended = zstd::stream::decode_all(fs::File::open(&path).unwrap()).unwrap();
        let text = String::from_utf8(ended).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let (_, unfinished) = lines.split_last().unwrap();
        let mut frame = Vec::new();
        let text = unfinished.join("\n") + "\n";
        Packer::new().unwrap().push(text.as_bytes(), &mut frame).unwrap();
        fs::write(&path, frame).unwrap();
    }

    #[tokio::test]
    async fn a_killed_run_is_unfinished_until_its_undo_or_another_run_of_its_command() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let unfinished = || -> Vec<String> {
            let runs = unfinished_runs(folder.path(), &BTreeSet::from([""])).unwrap();
            let names = runs.iter().map(|run| run.path.file_name().unwrap());
            names.map(|name| name.to_str().unwrap().to_owned()).collect()
        };
        write(folder.path(), "ended", "release --leaked", 1, 3).await;
        killed(folder.path(), "a", "release --leaked", 2).await;
        killed(folder.path(), "b", "configure", 3).await;
        assert_eq!(unfinished(), ["b", "a"]);
        assert!(
            unfinished_runs(folder.path(), &BTreeSet::from(["another"]))
                .unwrap()
                .is_empty()
        );

        write(folder.path(), "c", &undo_command(&at("b")), 4, 2).await;
        assert_eq!(unfinished(), ["a"]);
        write(folder.path(), "d", "configure", 5, 1).await;
        assert_eq!(unfinished(), ["a"], "it is about something else");
        write_on("another", folder.path(), "elsewhere", "release --leaked", 5, 1).await;
        let both = BTreeSet::from(["", "another"]);
        let runs = unfinished_runs(folder.path(), &both).unwrap();
        let paths: Vec<&PathBuf> = runs.iter().map(|run| &run.path).collect();
        assert_eq!(
            paths,
            [&at("a")],
            "a run on another cluster does not go on with it"
        );
        write(folder.path(), "e", "release --orphan-handles", 6, 1).await;
        assert_eq!(unfinished(), [""; 0]);

        killed(folder.path(), "f", &undo_command(&at("e")), 7).await;
        let runs = unfinished_runs(folder.path(), &BTreeSet::from([""])).unwrap();
        assert_eq!(runs[0].to_undo(), at("e"), "the undo goes on");
    }

    #[tokio::test]
    async fn a_run_that_a_signal_stopped_has_ended_and_is_interrupted() {
        let folder = tempfile::tempdir().unwrap();
        let header = Header {
            format: FORMAT,
            ..Header::default()
        };
        let journal = Journal::create(&folder.path().join("a"), &header).unwrap();
        journal.mark_interrupted().unwrap();
        journal.end().await.unwrap();
        drop(journal);
        let found = list(folder.path()).unwrap().remove(0);
        assert_eq!((found.state, found.ended), (JournalState::Interrupted, true));
        assert!(
            unfinished_runs(folder.path(), &BTreeSet::from([""]))
                .unwrap()
                .is_empty()
        );
    }

    /// A run that is killed during its first write has an intent, and no outcome.
    #[tokio::test]
    async fn objects_of_a_write_without_an_outcome_may_have_been_written() {
        let folder = tempfile::tempdir().unwrap();
        let header = Header {
            format: FORMAT,
            ..Header::default()
        };
        let journal = Journal::create(&folder.path().join("a"), &header).unwrap();
        let mut intent = Intent {
            id: 0,
            step: 0,
            reason: String::new(),
            changes: ["/calico/a", "/calico/b"].map(created).to_vec(),
            guards: Vec::new(),
        };
        journal.intend(&mut intent).await.unwrap();
        drop(journal);
        let found = list(folder.path()).unwrap().remove(0);
        assert_eq!(
            (found.objects, found.unanswered, found.state),
            (0, 2, JournalState::Interrupted)
        );
        assert!(!found.changed_nothing());
    }

    #[tokio::test]
    async fn a_damaged_journal_says_so() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a", "release --leaked", 1, 3).await;
        let path = folder.path().join("a");
        let text =
            String::from_utf8(zstd::stream::decode_all(fs::File::open(&path).unwrap()).unwrap()).unwrap();
        let rewrite = |text: String| {
            let mut frame = Vec::new();
            Packer::new().unwrap().push(text.as_bytes(), &mut frame).unwrap();
            fs::write(&path, frame).unwrap();
        };
        rewrite(text.replacen("\"step\":0", "\"step\":1", 1));
        assert_eq!(list(folder.path()).unwrap()[0].state, JournalState::Damaged);
        rewrite(text.lines().next().unwrap().to_owned() + "\n");
        assert_eq!(list(folder.path()).unwrap()[0].state, JournalState::Interrupted);
    }
}
