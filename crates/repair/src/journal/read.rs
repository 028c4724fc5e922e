//! Reading a journal.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::entry::{Entry, FORMAT, Header, Intent, LockMark, Outcome};

/// Why a journal cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// It cannot be written.
    #[error("cannot write the journal {}: {reason}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// It cannot be read.
    #[error("cannot read the journal {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// It does not begin as a journal does.
    #[error("{} is no journal of calipam", path.display())]
    NoJournal {
        /// The file.
        path: PathBuf,
    },
    /// A later program wrote it.
    #[error("the journal {} has format {found}, which is later than this program", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// A line makes no sense.
    #[error("line {line} of the journal {}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

impl JournalError {
    pub(crate) fn write(path: &Path, error: &io::Error) -> Self {
        Self::Write { path: path.to_owned(), reason: error.to_string() }
    }
}

/// A journal that was read.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The file.
    pub path: PathBuf,
    /// Its first line.
    pub header: Header,
    /// The intents, in order.
    pub intents: Vec<Intent>,
    /// Outcomes by the number of the intent.
    pub outcomes: BTreeMap<u64, Outcome>,
    /// The last mark about the datastore lock.
    pub lock: Option<LockMark>,
    /// The run came to its end by itself.
    pub ended: bool,
}

impl Recorded {
    /// Reads a journal. A last line that breaks off is passed over: what was not durable was never
    /// begun.
    ///
    /// # Errors
    /// Where the file cannot be read, is no journal, is of a later program, or is damaged.
    pub fn read(path: &Path) -> Result<Self, JournalError> {
        let failed = |e: io::Error| JournalError::Read { path: path.to_owned(), reason: e.to_string() };
        let mut reader = BufReader::new(std::fs::File::open(path).map_err(failed)?);
        let mut text = Vec::new();
        reader.read_until(b'\n', &mut text).map_err(failed)?;
        let mut recorded = Self {
            path: path.to_owned(),
            header: header(path, &text)?,
            intents: Vec::new(),
            outcomes: BTreeMap::new(),
            lock: None,
            ended: false,
        };
        for line in 2.. {
            text.clear();
            let length = reader.read_until(b'\n', &mut text).map_err(failed)?;
            if length == 0 || !text.ends_with(b"\n") {
                break;
            }
            let taken = serde_json::from_slice(&text).map_err(|e| e.to_string());
            taken.and_then(|entry| recorded.take(entry)).map_err(|reason| JournalError::Line {
                path: path.to_owned(),
                line,
                reason,
            })?;
        }
        Ok(recorded)
    }

    fn take(&mut self, entry: Entry) -> Result<(), String> {
        match entry {
            Entry::Header(_) => return Err("a second header".into()),
            Entry::Intent(intent) => self.intents.push(intent),
            Entry::Outcome(outcome) => {
                if !self.intents.iter().rev().any(|i| i.id == outcome.id) {
                    return Err(format!("an outcome of the intent {}, which is not there", outcome.id));
                }
                self.outcomes.insert(outcome.id, outcome);
            }
            Entry::Lock(mark) => self.lock = Some(mark),
            Entry::End => self.ended = true,
        }
        Ok(())
    }

    /// The intents whose outcome was not recorded: the run ended between a write and the line about it.
    pub fn open_intents(&self) -> impl Iterator<Item = &Intent> {
        self.intents.iter().filter(|intent| !self.outcomes.contains_key(&intent.id))
    }

    /// What `datastoreReady` was before the run locked the datastore, where the run ended without
    /// restoring it. The inner `None` means that it was absent.
    pub fn stale_lock(&self) -> Option<Option<bool>> {
        match self.lock {
            Some(LockMark::Taking(before)) => Some(before),
            Some(LockMark::Restored) | None => None,
        }
    }
}

fn header(path: &Path, text: &[u8]) -> Result<Header, JournalError> {
    /// What every version of the format begins with.
    #[derive(serde::Deserialize)]
    struct Any {
        header: AnyHeader,
    }
    #[derive(serde::Deserialize)]
    struct AnyHeader {
        format: u32,
    }
    let no_journal = || JournalError::NoJournal { path: path.to_owned() };
    let any: Any = serde_json::from_slice(text).map_err(|_| no_journal())?;
    if any.header.format > FORMAT {
        return Err(JournalError::Newer { path: path.to_owned(), found: any.header.format });
    }
    match serde_json::from_slice(text) {
        Ok(Entry::Header(header)) => Ok(header),
        _ => Err(no_journal()),
    }
}
