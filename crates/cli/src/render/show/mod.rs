//! What `show` prints.

mod address;
mod capacity;
mod compare;
mod lists;

use calipam_check::ClusterIdentity;
use calipam_model::snapshot::Snapshot;
use serde::Serialize;

use super::document;
use super::table::Grid;
use crate::exit::Failure;
use crate::output::Console;

pub use self::address::{address, handle};
pub use self::capacity::{blocks, pools};
pub use self::compare::{agrees, compare};
pub use self::lists::{borrowed, configuration, nodes};

/// A view with the cluster that it is of.
#[derive(Serialize)]
struct Shown<'a, T> {
    cluster: ClusterIdentity,
    #[serde(flatten)]
    view: &'a T,
}

/// Prints a view as YAML or JSON, or else the table that `grid` makes of it and the lines below it.
fn print<T: Serialize>(
    kind: &str,
    view: &T,
    snapshot: &Snapshot,
    console: &Console,
    grid: impl FnOnce() -> (Grid, Vec<String>),
) -> Result<(), Failure> {
    console.data(|out| {
        if !console.format.is_table() {
            let shown = Shown { cluster: ClusterIdentity::of(snapshot), view };
            return document::write(console.format, kind, &shown, out);
        }
        let (grid, notes) = grid();
        grid.write(out)?;
        if !notes.is_empty() {
            writeln!(out)?;
        }
        notes.iter().try_for_each(|note| writeln!(out, "{}", super::text::escape(note)))
    })
}

/// A text, or a dash for none.
fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}
