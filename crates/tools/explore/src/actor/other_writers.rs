//! Other writers of the same objects: people with calicoctl, and Calico's controllers.

use std::sync::Arc;

use calipam_testkit::memory::MemoryStore;

use super::Actor;
use crate::world::{Footprint, World, Write};

/// A change of a value. `None` means that there is no value.
pub type Edit = fn(Option<&str>) -> Option<String>;

/// Creates an actor that reads a key and then writes it only if its version is still the same, like `calicoctl apply`
/// and `calicoctl delete`.
pub fn edit(name: &'static str, path: &'static str, edit: Edit) -> Actor {
    Actor::new(name, move |world: Arc<World>, actor| async move {
        if !world.turn(actor, format!("read {path}"), Footprint::default().read(path)).answered().await {
            return;
        }
        let found = world.data().value_at(path);
        world.record_answer(actor, &found);
        let after = edit(found.as_ref().and_then(|(raw, _)| std::str::from_utf8(raw).ok()));
        let expected = found.map_or(0, |(_, revision)| revision);
        let change = (path.to_string(), after.map(String::into_bytes));
        let write: Write = Arc::new(move |store: &MemoryStore| {
            if store.value_at(&change.0).map_or(0, |(_, revision)| revision) == expected {
                store.change_together(std::slice::from_ref(&change));
            }
        });
        let turn = world.turn(actor, format!("write {path}"), Footprint::default().write(path));
        if turn.writing(Arc::clone(&write)).answered().await {
            write(world.data());
        }
    })
}
