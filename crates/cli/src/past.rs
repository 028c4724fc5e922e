//! Reads an earlier state from an archive instead of the datastore, for `--archive DIR --at TIME`.

use std::path::Path;

use calipam_workflow::{ArchivedState, state_at};
use jiff::Timestamp;

use crate::args::Global;
use crate::console::Console;
use crate::exit::{Failure, Result};
use crate::operator::Person;
use crate::render::text::local;

/// A state from an archive. Dropping this deletes its temporary file, if it has one.
pub(crate) struct Past {
    /// The global options, with the state as the datastore.
    pub global: Global,
    _state: ArchivedState,
}

impl Past {
    /// Reads the state of the archive at the time that the options name; `None` without `--at`.
    pub(crate) fn of_call(
        archive: Option<&Path>,
        at: Option<Timestamp>,
        global: &Global,
        console: &Console,
    ) -> Result<Option<Self>> {
        let (Some(folder), Some(at)) = (archive, at) else {
            return Ok(None);
        };
        if global.datastore.is_some() {
            return Err(Failure::usage("with --archive, --datastore has no effect"));
        }
        // A file of the archive is read like any export. `_state` keeps it until the end, if it is temporary.
        let state = state_at(folder, at, &Person::never_asked(console))?;
        let global = Global {
            datastore: Some(state.path.to_string_lossy().into_owned()),
            shown_as: Some(shown_as(folder, &state)),
            ..global.clone()
        };
        Ok(Some(Self {
            global,
            _state: state,
        }))
    }
}

/// Returns the name of a state in documents: the archive and the time, since the file can be a temporary one.
pub(crate) fn shown_as(archive: &Path, state: &ArchivedState) -> String {
    format!("{} at {}", archive.display(), local(state.at))
}
