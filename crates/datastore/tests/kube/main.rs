//! The Kubernetes datastore against real API servers, and against servers that misbehave.

mod access;
mod beside;
mod fake;
mod faults;
mod order;
mod paging;
mod pods;
mod read;
mod schema;
mod support;
mod write;
