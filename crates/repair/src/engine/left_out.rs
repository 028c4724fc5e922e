//! What is left out of a step because its guards fail, while the rest of the step goes on.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// What goes as a whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Part {
    /// Everything that a step frees of a handle, by its ID up to the first carriage return.
    Handle(String),
    /// An address without handle.
    Address(IpAddr),
    /// All else that a step does.
    Rest,
}

/// A part whose guards do not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Omission {
    pub part: Part,
    /// The addresses that are not released on account of it.
    pub addresses: Vec<IpAddr>,
    /// What had changed.
    pub reason: String,
}

/// Handles that were left out of some step of a run, and why.
pub(crate) type Abandoned = Arc<Mutex<HashMap<Part, String>>>;

/// What is left out so far, as a group sees it.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    here: Vec<Omission>,
    run: Abandoned,
}

impl LeftOut {
    pub fn new(run: &Abandoned) -> Self {
        Self { here: Vec::new(), run: Arc::clone(run) }
    }

    /// True where nothing is left out of this group.
    pub fn is_empty(&self) -> bool {
        self.here.is_empty()
    }

    /// True where the part is left out of this group already.
    pub fn has(&self, part: &Part) -> bool {
        self.here.iter().any(|omission| omission.part == *part)
    }

    /// Why the part was left out of another group: a handle goes as a whole or not at all.
    pub fn elsewhere(&self, part: &Part) -> Option<String> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner).get(part).cloned()
    }

    /// Leaves parts out from now on.
    pub fn note(&mut self, omissions: Vec<Omission>) {
        let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        for omission in omissions {
            if matches!(omission.part, Part::Handle(_)) {
                run.entry(omission.part.clone()).or_insert_with(|| omission.reason.clone());
            }
            self.here.push(omission);
        }
    }

    pub fn into_omissions(self) -> Vec<Omission> {
        self.here
    }
}
