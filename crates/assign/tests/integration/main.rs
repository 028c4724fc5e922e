//! The allocator on a datastore in memory.

mod basics;
mod clients;
mod interleaved;
mod interrupted;
mod scheduler;
mod world;
