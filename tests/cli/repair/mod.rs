//! What writes, on real servers: what they change, what they leave alone, and what they say.

mod assign;
mod assign_kubernetes;
mod assign_races;
mod calicoctl;
mod configure;
mod consent;
mod details;
mod everything;
mod journal;
mod journals;
mod killed;
mod kubernetes;
mod lock;
mod named;
mod no_space;
mod node;
mod offline;
mod rebuild;
mod rebuild_kubernetes;
mod reports;
mod rights;
mod scope;
mod sightings;
mod site;
mod split;
mod undo;
