//! The handles, in the least memory: a large cluster has a million of them.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};

use calipam_model::handle::Handle;
use calipam_model::text::Text;

/// Handles by their IDs. Nothing depends on their order.
#[derive(Clone, Default)]
pub(super) struct Handles(HashSet<Stored, foldhash::fast::FixedState>);

/// A handle with its revision, known by the ID that it holds itself.
#[derive(Clone)]
struct Stored(Handle, i64);

impl Handles {
    pub(super) fn get(&self, id: &str) -> Option<(&Handle, i64)> {
        self.0.get(Text::new(id).as_ref().packed()).map(|Stored(handle, revision)| (handle, *revision))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Handle> {
        self.0.iter().map(|Stored(handle, _)| handle)
    }

    pub(super) fn put(&mut self, handle: Handle, revision: i64) {
        self.0.replace(Stored(handle, revision));
    }

    pub(super) fn remove(&mut self, id: &str) {
        self.0.remove(Text::new(id).as_ref().packed());
    }
}

impl Borrow<[u8]> for Stored {
    fn borrow(&self) -> &[u8] {
        self.0.id().packed()
    }
}

impl Hash for Stored {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id().packed().hash(state);
    }
}

impl PartialEq for Stored {
    fn eq(&self, other: &Self) -> bool {
        self.0.id().packed() == other.0.id().packed()
    }
}

impl Eq for Stored {}
