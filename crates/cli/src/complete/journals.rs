//! Suggestions for the journal to undo.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use calipam_repair::journal::{Header, headers};
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};

use crate::args::journals_folder;

/// The maximum number of suggested journals.
const MOST: usize = 50;
/// The length of a time stamp up to its minutes.
const UP_TO_MINUTES: usize = 16;

/// Suggests the journals in the user's folder, newest first, with date, command and location, then files.
pub(super) fn complete(typed: &OsStr) -> Vec<CompletionCandidate> {
    let mut candidates = match journals_folder() {
        Some(folder) => journals_in(&folder, typed),
        None => Vec::new(),
    };
    // If there are journals, files are suggested only after the user has begun a word.
    if candidates.is_empty() || !typed.is_empty() {
        let mut files = PathCompleter::file().complete(typed);
        files.retain(|file| {
            let mut journals = candidates.iter();
            journals.all(|journal| journal.get_value() != file.get_value())
        });
        candidates.append(&mut files);
    }
    candidates
}

/// Returns suggestions for the journals in a folder whose paths begin with `typed`: the newest [`MOST`], newest first.
fn journals_in(folder: &Path, typed: &OsStr) -> Vec<CompletionCandidate> {
    let mut journals: Vec<(PathBuf, Header)> = headers(folder);
    journals.retain(|(path, _)| {
        let path = path.as_os_str().as_encoded_bytes();
        path.starts_with(typed.as_encoded_bytes())
    });
    // Time stamps sort as text.
    journals.sort_by(|(_, a), (_, b)| b.started_at.cmp(&a.started_at));

    let mut candidates = Vec::new();
    for (position, (path, header)) in journals.into_iter().take(MOST).enumerate() {
        let to_minutes = header
            .started_at
            .get(..UP_TO_MINUTES)
            .unwrap_or(&header.started_at);
        let date = to_minutes.replace('T', " ");
        let about = format!("{date} UTC, {} on {}", header.command, header.location);
        candidates.push(
            CompletionCandidate::new(path)
                .help(Some(about.into()))
                .display_order(Some(position)),
        );
    }
    candidates
}
