//! The allocator on a datastore in memory.

mod basics;
mod clients;
mod interleaved;
mod scheduler;
mod world;
