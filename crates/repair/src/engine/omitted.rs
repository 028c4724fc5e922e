//! Parts of steps that are not made because their guards do not hold, while the others go on.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use calipam_model::edit::Unit;

/// A part whose guards do not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Omission {
    pub unit: Unit,
    /// The addresses that stay as they are on account of it.
    pub addresses: Vec<IpAddr>,
    /// The part only frees addresses.
    pub releases: bool,
    /// What had changed.
    pub reason: String,
}

/// Handles of which some step of the run does not free the addresses, and why.
pub(crate) type KeptHandles = Arc<Mutex<HashMap<String, String>>>;

/// What is omitted so far, as a group sees it.
#[derive(Debug, Default)]
pub(crate) struct Omitted {
    /// Parts of the step of this group.
    parts: Vec<Omission>,
    /// Of all groups.
    kept: KeptHandles,
}

impl Omitted {
    pub(crate) fn new(kept: &KeptHandles) -> Self {
        Self { parts: Vec::new(), kept: Arc::clone(kept) }
    }

    /// True if the part of this step is omitted already.
    pub(crate) fn has(&self, unit: &Unit) -> bool {
        self.parts.iter().any(|omission| omission.unit == *unit)
    }

    /// Why another step keeps the addresses of the handle.
    pub(crate) fn why_kept(&self, handle: &str) -> Option<String> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(handle).cloned()
    }

    /// Omits parts from now on.
    pub(crate) fn add(&mut self, omissions: Vec<Omission>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for omission in omissions {
            if let (Unit::Handle(id), true) = (&omission.unit, omission.releases) {
                kept.entry(id.clone()).or_insert_with(|| omission.reason.clone());
            }
            self.parts.push(omission);
        }
    }

    pub(crate) fn into_parts(self) -> Vec<Omission> {
        self.parts
    }
}
