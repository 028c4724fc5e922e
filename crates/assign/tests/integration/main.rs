//! The allocator on a datastore in memory.

mod basics;
mod calico;
mod clients;
mod interleaved;
mod interrupted;
mod large;
mod plugin;
mod scheduler;
mod world;
