//! Pods whose handle is their name, as those of Calico 2, and a node that is late.

use std::rc::Rc;

use super::World;
use crate::time::Micros;

/// How long such pods run before they are moved.
const MOVED: Micros = Micros::from_mins(1);
/// How long after that the node they have left stops them.
const LATE: Micros = Micros::from_secs(30);

impl World {
    /// `count` pods of a StatefulSet start, each is moved to another node, and the first node stops the old pod only then:
    /// it releases the handle, which is the new pod's, too.
    pub(super) fn share_handles(self: &Rc<Self>, count: u32) {
        for number in 0..count {
            let handle: Rc<str> = format!("default.web-{number}").into();
            let Some(node) = self.nodes.borrow().choose(&mut self.random.borrow_mut()) else { return };
            let old = self.start_on(node, Some(Rc::clone(&handle)));
            let world = Rc::clone(self);
            self.engine.at(self.engine.now() + MOVED, move || world.move_late(old, handle));
        }
    }

    fn move_late(self: &Rc<Self>, old: u32, handle: Rc<str>) {
        let Some(node) = self.nodes.borrow().choose(&mut self.random.borrow_mut()) else { return };
        self.start_on(node, Some(handle));
        let world = Rc::clone(self);
        self.engine.at(self.engine.now() + LATE, move || {
            world.delete(old);
        });
    }
}
