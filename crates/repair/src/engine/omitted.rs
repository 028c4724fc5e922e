//! Parts of steps that are omitted because they cannot be written. The other parts are written.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use calipam_model::edit::Unit;
use calipam_model::parallel::lock;

/// An omitted part of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Omission {
    pub unit: Unit,
    /// The addresses that stay as they are.
    pub addresses: Vec<IpAddr>,
    /// True if the part only frees addresses.
    pub releases: bool,
    /// The reason for the omission.
    pub reason: String,
}

/// The handles whose addresses stay allocated because a step of the run omitted these addresses, with the reasons.
pub(crate) type KeptHandles = Arc<Mutex<HashMap<String, String>>>;

/// The omitted parts of a group's step, and the handles that the run leaves allocated.
#[derive(Debug, Default)]
pub(crate) struct Omitted {
    pub parts: Vec<Omission>,
    /// The handles that any group of the run leaves allocated.
    pub kept: KeptHandles,
}

impl Omitted {
    pub(crate) fn has(&self, unit: &Unit) -> bool {
        self.parts.iter().any(|omission| omission.unit == *unit)
    }

    /// Returns the reason why a step of the run leaves the handle's addresses allocated.
    pub(crate) fn kept_reason(&self, handle: &str) -> Option<String> {
        lock(&self.kept).get(handle).cloned()
    }

    /// Notes parts of steps that were left out, and the handles that keep addresses because of them.
    pub(crate) fn add(&mut self, omissions: Vec<Omission>) {
        let mut kept = lock(&self.kept);
        for omission in omissions {
            if omission.releases
                && let Unit::Handle(id) = &omission.unit
            {
                kept.entry(id.clone()).or_insert_with(|| omission.reason.clone());
            }
            self.parts.push(omission);
        }
    }
}
