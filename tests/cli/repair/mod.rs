//! `release` and `undo` on real servers: what they change, what they leave alone, and what they say.

mod consent;
mod everything;
mod named;
mod node;
mod rebuild;
mod rebuild_kubernetes;
mod sightings;
mod site;
