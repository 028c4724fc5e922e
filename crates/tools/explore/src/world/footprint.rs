//! The footprints of steps. Two steps commute unless one writes a path that the other reads or writes.

/// The paths that a step reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint(Vec<Access>);

/// One path that is read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Access {
    path: String,
    /// True if the path is a prefix.
    is_range: bool,
    writes: bool,
}

impl Footprint {
    /// Adds a read of a path.
    pub fn read(mut self, path: impl Into<String>) -> Self {
        self.0.push(Access {
            path: path.into(),
            is_range: false,
            writes: false,
        });
        self
    }

    /// Adds a read of all paths with a prefix.
    pub fn read_range(mut self, prefix: impl Into<String>) -> Self {
        self.0.push(Access {
            path: prefix.into(),
            is_range: true,
            writes: false,
        });
        self
    }

    /// Adds a write of a path.
    pub fn write(mut self, path: impl Into<String>) -> Self {
        self.0.push(Access {
            path: path.into(),
            is_range: false,
            writes: true,
        });
        self
    }

    /// Adds a write of any path with a prefix.
    pub fn write_range(mut self, prefix: impl Into<String>) -> Self {
        self.0.push(Access {
            path: prefix.into(),
            is_range: true,
            writes: true,
        });
        self
    }

    /// Joins two footprints.
    pub fn and(mut self, other: &Self) -> Self {
        self.0.extend_from_slice(&other.0);
        self
    }

    /// True if the order of the two steps matters.
    pub fn conflicts(&self, other: &Self) -> bool {
        self.0
            .iter()
            .any(|a| other.0.iter().any(|b| (a.writes || b.writes) && a.meets(b)))
    }

    /// The paths that are read, each with a flag that is true if the path is a prefix.
    pub(crate) fn reads(&self) -> impl Iterator<Item = (&str, bool)> {
        self.0
            .iter()
            .filter(|access| !access.writes)
            .map(|access| (&*access.path, access.is_range))
    }
}

impl Access {
    fn meets(&self, other: &Self) -> bool {
        match (self.is_range, other.is_range) {
            (false, false) => self.path == other.path,
            (true, false) => other.path.starts_with(&self.path),
            (false, true) => self.path.starts_with(&other.path),
            (true, true) => self.path.starts_with(&other.path) || other.path.starts_with(&self.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_commute_and_writes_of_the_same_do_not() {
        let range = Footprint::default().read_range("/block/");
        let read = Footprint::default().read("/block/1");
        let write = Footprint::default().write("/block/1");
        let other = Footprint::default().write("/handle/1");
        assert!(!range.conflicts(&read) && !read.conflicts(&read));
        assert!(range.conflicts(&write) && write.conflicts(&read) && write.conflicts(&write));
        assert!(!write.conflicts(&other) && !other.conflicts(&range));
        assert!(other.clone().and(&write).conflicts(&range));
    }
}
