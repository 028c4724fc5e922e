//! `--archive DIR --at TIME`: an earlier state instead of the datastore.

use std::path::Path;

use calipam_workflow::{ArchivedState, state_at};
use jiff::Timestamp;

use crate::args::Global;
use crate::console::Console;
use crate::exit::Failure;
use crate::operator::Person;

/// A state from an archive. Dropping this deletes its temporary file, if it has one.
pub(crate) struct Past {
    /// The call's global options, with the state as the datastore.
    pub global: Global,
    _state: ArchivedState,
}

impl Past {
    /// Reads the state that a call names; `None` if the call has no `--at`.
    pub(crate) fn of_call(
        archive: Option<&Path>,
        at: Option<Timestamp>,
        global: &Global,
        console: &Console,
    ) -> Result<Option<Self>, Failure> {
        let (Some(folder), Some(at)) = (archive, at) else { return Ok(None) };
        if global.datastore.is_some() {
            return Err(Failure::usage("--archive says what is read; --datastore has no effect here"));
        }
        let state = state_at(folder, at, &Person::watching(console))?;
        let datastore = Some(state.path.to_string_lossy().into_owned());
        Ok(Some(Self { global: Global { datastore, ..global.clone() }, _state: state }))
    }
}
