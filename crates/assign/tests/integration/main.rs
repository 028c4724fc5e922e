//! The allocator on a datastore in memory.

mod basics;
