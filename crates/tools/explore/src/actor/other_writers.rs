//! Other writers of the same objects: people with calicoctl, and Calico's controllers.

use std::sync::Arc;

use calipam_testkit::memory::MemoryStore;

use super::Actor;
use crate::world::{Footprint, World};

/// Creates an actor that reads a value and then replaces it only if its version is still the same, like `calicoctl
/// apply`.
pub fn edit(name: &'static str, path: &'static str, edit: fn(&str) -> String) -> Actor {
    Actor::new(name, move |world: Arc<World>, actor| async move {
        let read = world.turn(actor, format!("read {path}"), Footprint::default().read(path));
        let (Ok(()), Some(found)) = (read.answered().await, world.data.value_at(path)) else { return };
        world.record_answer(actor, &found);
        let (value, revision) = found;
        let after = edit(&String::from_utf8_lossy(&value));
        let write = move |store: &MemoryStore| {
            if store.value_at(path).is_some_and(|(_, now)| now == revision) {
                store.put(path, after.clone());
            }
        };
        let turn = world.turn(actor, format!("write {path}"), Footprint::default().write(path));
        let _ = turn.executed(write).await;
    })
}
