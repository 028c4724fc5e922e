//! The order of groups. Two groups run one after the other if one of them writes an object that the other uses.

use std::collections::{BTreeSet, HashMap};

use calipam_model::key::Key;

use super::Group;

/// The groups that still wait, and those that may run.
pub(super) struct Order {
    /// The number of groups that each group still waits for.
    waits: Vec<usize>,
    /// The groups that wait for each group.
    followers: Vec<Vec<usize>>,
    /// Groups that wait for no other group, in order.
    ready: BTreeSet<usize>,
}

/// The last group so far that writes an object, and the groups after it that read the object.
#[derive(Default)]
struct Users {
    writer: Option<usize>,
    readers: Vec<usize>,
}

impl Order {
    /// Makes each group wait for the earlier groups that write an object that it reads or writes, or read one that it writes.
    pub(super) fn new(groups: &[Group]) -> Self {
        let mut order = Self {
            waits: vec![0; groups.len()],
            followers: vec![Vec::new(); groups.len()],
            ready: BTreeSet::new(),
        };
        let mut users: HashMap<Key, Users> = HashMap::new();
        for (index, group) in groups.iter().enumerate() {
            let writes: BTreeSet<Key> = group.tasks.iter().flat_map(|task| task.writes()).collect();
            let reads: BTreeSet<Key> = group.tasks.iter().flat_map(|task| task.reads()).collect();
            let mut earlier = BTreeSet::new();
            for key in reads.difference(&writes) {
                let used = users.entry(key.clone()).or_default();
                earlier.extend(used.writer);
                used.readers.push(index);
            }
            for key in writes {
                let used = users.entry(key).or_default();
                earlier.extend(used.writer.replace(index));
                earlier.extend(used.readers.drain(..));
            }
            earlier.remove(&index);

            order.waits[index] = earlier.len();
            if earlier.is_empty() {
                order.ready.insert(index);
            }
            for group in earlier {
                order.followers[group].push(index);
            }
        }
        order
    }

    /// Returns the next group that may run.
    pub(super) fn next(&mut self) -> Option<usize> {
        self.ready.pop_first()
    }

    /// Records that a group has ended. Groups that waited only for this group may now run.
    pub(super) fn end(&mut self, index: usize) {
        for follower in std::mem::take(&mut self.followers[index]) {
            self.waits[follower] -= 1;
            if self.waits[follower] == 0 {
                self.ready.insert(follower);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::{Decision, Objects, Omitted, Task};

    struct Touch {
        reads: Vec<&'static str>,
        writes: Vec<&'static str>,
    }

    fn keys(ids: &[&str]) -> Vec<Key> {
        ids.iter().map(|id| Key::Handle((*id).to_owned())).collect()
    }

    impl Task for Touch {
        fn reads(&self) -> Vec<Key> {
            keys(&[self.reads.clone(), self.writes.clone()].concat())
        }

        fn writes(&self) -> Vec<Key> {
            keys(&self.writes)
        }

        fn decide(&self, _: &Objects, _: &Omitted) -> Decision {
            Decision::Already
        }
    }

    fn group(reads: &[&'static str], writes: &[&'static str]) -> Group {
        let task = Touch {
            reads: reads.to_vec(),
            writes: writes.to_vec(),
        };
        Group {
            step: 0,
            reason: String::new(),
            cooling: None,
            tasks: vec![Arc::new(task)],
        }
    }

    #[test]
    fn groups_that_share_an_object_keep_their_order() {
        let groups = [
            group(&["node"], &["a"]),
            group(&["node"], &["b"]),
            group(&[], &["a", "b"]),
            group(&["a"], &["c"]),
            group(&[], &["node"]),
        ];
        let mut order = Order::new(&groups);
        let ready = |order: &mut Order| std::iter::from_fn(|| order.next()).collect::<Vec<_>>();
        assert_eq!(ready(&mut order), [0, 1]);
        order.end(1);
        assert_eq!(ready(&mut order), [] as [usize; 0]);
        order.end(0);
        assert_eq!(ready(&mut order), [2, 4]);
        order.end(2);
        assert_eq!(ready(&mut order), [3]);
    }
}
