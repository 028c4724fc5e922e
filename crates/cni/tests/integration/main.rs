//! The plugin under a runtime: environment, stdin, stdout and exit code, on real servers.

mod bad_input;
mod client;
mod concurrent;
mod conformance;
mod costs;
mod golden;
mod install;
mod login;
mod machines;
mod node;
mod outlook;
mod overlap;
mod runtime;
mod trouble;
mod upgrade;
mod watch;
mod world;
