//! Reads journals.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufReader};
use std::iter;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use calipam_files::regular;
use calipam_model::parallel;

use super::disk::{is_alive, open_own};
use super::entry::{Entry, FORMAT, Header, Intent, LockMark, Outcome};
use super::error::JournalError;
use super::line::{Line, Lines};

/// The reason for a line whose checksum does not fit.
const CHANGED: &str = "it is not the line that was written here";

/// A journal that was read.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The path of the file.
    pub path: PathBuf,
    /// The first line of the journal.
    pub header: Header,
    /// The intents, in order.
    pub intents: Vec<Intent>,
    /// Outcomes by the number of the intent.
    pub outcomes: BTreeMap<u64, Outcome>,
    /// The last lock mark.
    pub lock: Option<LockMark>,
    /// True if the run ended normally.
    pub ended: bool,
    /// Intents of an interrupted run that had not been written when their objects were read, but whose writes may still
    /// arrive. Empty before [`resolve`](super::resolve()).
    pub awaited: BTreeSet<u64>,
    /// Intents without a recorded answer that had been written when their objects were read, perhaps late. Empty before
    /// [`resolve`](super::resolve()).
    pub arrived: BTreeSet<u64>,
}

impl Recorded {
    /// Reads the journal that the user named. An incomplete last line is ignored: if it is an intent, its write never
    /// began.
    ///
    /// # Errors
    /// If the file cannot be read, is not a journal, has another format, is damaged, or its run is still alive.
    pub fn read(path: &Path) -> Result<Self, JournalError> {
        let file = regular::open(path).map_err(|error| JournalError::read(path, &error))?;
        if is_alive(&file) {
            return Err(JournalError::Alive {
                path: path.to_owned(),
            });
        }
        Self::read_file(path, file)
    }

    /// Reads a journal that was found in a folder.
    pub(super) fn read_own(path: &Path) -> Result<Self, JournalError> {
        let file = open_own(path).map_err(|error| JournalError::read(path, &error))?;
        Self::read_file(path, file)
    }

    /// Reads all lines of a journal. Fails at the first line that was changed after it was written.
    fn read_file(path: &Path, file: File) -> Result<Self, JournalError> {
        let failed = |error: io::Error| JournalError::read(path, &error);
        let mut lines = Lines::new(BufReader::new(file));
        let first = lines.next().map_err(failed)?.unwrap_or_default();
        let mut recorded = Self {
            path: path.to_owned(),
            header: header(path, first)?,
            intents: Vec::new(),
            outcomes: BTreeMap::new(),
            lock: None,
            ended: false,
            awaited: BTreeSet::new(),
            arrived: BTreeSet::new(),
        };

        // No line is read after an unsound one, or after a failure.
        let mut is_over = false;
        let next = || {
            if is_over {
                return None;
            }
            let line = match lines.next() {
                Ok(Some(line)) if line.is_sound => Ok(Some(line.text.to_vec())),
                Ok(Some(_)) => Ok(None),
                Ok(None) => return None,
                Err(error) => Err(error),
            };
            is_over = !matches!(line, Ok(Some(_)));
            Some(line)
        };
        // The number of objects that each intent changes.
        let mut changes = HashMap::new();
        // The header is the first line.
        let mut number = 1;
        let take = |entry: io::Result<Result<Entry, String>>| {
            number += 1;
            let taken = match entry {
                Ok(entry) => entry.and_then(|entry| recorded.take_entry(entry, &mut changes)),
                Err(error) => return ControlFlow::Break(failed(error)),
            };
            match taken {
                Ok(()) => ControlFlow::Continue(()),
                Err(reason) => ControlFlow::Break(JournalError::Line {
                    path: path.to_owned(),
                    line: number,
                    reason,
                }),
            }
        };
        match parallel::in_order(iter::from_fn(next), |line| line.map(decode), take) {
            ControlFlow::Continue(()) => Ok(recorded),
            ControlFlow::Break(error) => Err(error),
        }
    }

    /// Takes the entry of a line. `changes` are the numbers of objects that each intent changes.
    ///
    /// # Errors
    /// The reason why the line is not part of a journal.
    fn take_entry(&mut self, entry: Entry, changes: &mut HashMap<u64, usize>) -> Result<(), String> {
        if self.ended && !matches!(entry, Entry::Lock(_)) {
            return Err("it comes after the end of the run".into());
        }

        match entry {
            Entry::Header(_) => return Err("there is a second header".into()),
            Entry::Intent(intent) => {
                check(&intent)?;
                if changes.insert(intent.id, intent.changes.len()).is_some() {
                    return Err(format!("intent {} is repeated", intent.id));
                }
                self.intents.push(intent);
            }
            Entry::Outcome(outcome) => self.take_outcome(outcome, changes)?,
            Entry::Lock(mark) => self.lock = Some(mark),
            Entry::Interrupted {} => {}
            Entry::End {} => self.ended = true,
        }

        Ok(())
    }

    /// Takes the outcome of an intent. `change_counts` has the number of objects that each intent changes.
    fn take_outcome(&mut self, outcome: Outcome, change_counts: &HashMap<u64, usize>) -> Result<(), String> {
        let id = outcome.id;
        let Some(change_count) = change_counts.get(&id) else {
            return Err(format!("there is an outcome of intent {id}, but no such intent"));
        };
        if let Some(written) = &outcome.written
            && written.len() != *change_count
        {
            return Err(format!(
                "the outcome of intent {id} has a different number of objects"
            ));
        }
        // Two runs may resolve the same intent at the same time.
        match self.outcomes.insert(id, outcome.clone()) {
            Some(other) if other != outcome => Err(format!("intent {id} has two different outcomes")),
            _ => Ok(()),
        }
    }

    /// Returns the intents without an outcome: the run ended before it recorded one, or could not determine it.
    pub fn open_intents(&self) -> impl Iterator<Item = &Intent> {
        self.intents
            .iter()
            .filter(|intent| !self.outcomes.contains_key(&intent.id))
    }

    /// Returns the intents whose objects have to be read to resolve the intents: those without an outcome and, if the
    /// run did not end normally, unwritten intents whose objects no later intent changes.
    pub(crate) fn open(&self) -> Vec<&Intent> {
        let mut changed_later: BTreeSet<&str> = BTreeSet::new();
        let mut open = Vec::new();
        for intent in self.intents.iter().rev() {
            let mut keys = intent.changes.iter().map(|change| change.key.as_str());
            let is_last = keys.all(|key| !changed_later.contains(key));
            let is_open = match self.outcomes.get(&intent.id) {
                Some(outcome) => outcome.written.is_none() && !self.ended && is_last,
                None => true,
            };
            if is_open {
                open.push(intent);
            }
            changed_later.extend(intent.changes.iter().map(|change| change.key.as_str()));
        }
        open.reverse();
        open
    }
}

/// Decodes a line; `None` stands for one that was changed after it was written.
fn decode(line: Option<Vec<u8>>) -> Result<Entry, String> {
    let line = line.ok_or(CHANGED)?;
    serde_json::from_slice(&line).map_err(|error| error.to_string())
}

/// Refuses an intent that undo could not invert.
fn check(intent: &Intent) -> Result<(), String> {
    let mut keys = BTreeSet::new();
    for change in &intent.changes {
        if !keys.insert(&change.key) {
            return Err(format!("one intent changes {} twice", change.key));
        }
        let before = change.before.iter().map(|version| &version.value);
        let mut values = before.chain(&change.after);
        if values.any(|value| value.bytes().is_none()) {
            return Err(format!("a value of {} is not base64", change.key));
        }
    }
    Ok(())
}

/// Reads the header from the first line. The format version is read even from an unsound line: a later version may have
/// other checksums.
pub(super) fn header(path: &Path, first: Line<'_>) -> Result<Header, JournalError> {
    /// The beginning of a header in any format version.
    #[derive(serde::Deserialize)]
    struct Any {
        header: AnyHeader,
    }

    #[derive(serde::Deserialize)]
    struct AnyHeader {
        format: u32,
    }

    let no_journal = || JournalError::NoJournal {
        path: path.to_owned(),
    };
    let any: Any = serde_json::from_slice(first.text).map_err(|_| no_journal())?;
    if any.header.format != FORMAT {
        return Err(JournalError::OtherFormat {
            path: path.to_owned(),
            found: any.header.format,
        });
    }

    match serde_json::from_slice(first.text) {
        Ok(Entry::Header(header)) if first.is_sound => Ok(header),
        Ok(Entry::Header(_)) => Err(JournalError::Line {
            path: path.to_owned(),
            line: 1,
            reason: CHANGED.to_owned(),
        }),
        _ => Err(no_journal()),
    }
}

#[cfg(test)]
mod tests {
    use calipam_model::snapshot::DatastoreKind;

    use super::*;

    #[test]
    fn a_header_with_an_unknown_datastore_is_refused() {
        let read = |datastore: &str| {
            let written = Entry::Header(Header {
                format: FORMAT,
                ..Header::default()
            });
            let text = serde_json::to_string(&written).unwrap();
            let text = text.replace("\"etcd\"", &format!("{datastore:?}"));
            let is_sound = true;
            let text = text.as_bytes();
            super::header(Path::new("a.journal"), Line { text, is_sound })
        };
        assert_eq!(read("kubernetes").unwrap().datastore, DatastoreKind::Kubernetes);
        for unknown in ["", "consul"] {
            assert!(
                matches!(read(unknown), Err(JournalError::NoJournal { .. })),
                "{unknown:?}"
            );
        }
    }
}
