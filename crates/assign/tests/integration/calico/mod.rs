//! Test cases from Calico's allocator (libcalico-go/lib/ipam) for ADD, DEL and affinities. They are rewritten: only the
//! setup, the requests and the expectations come from Calico. Where calipam differs on purpose, a test calls
//! [`differs`] with the row in `docs/cni.md` that describes the difference.

mod affinities;
mod answers;
mod assign_ip;
mod auto_assign;
mod blocks;
mod borrowing;
mod handles;
mod named_pools;
mod namespaces;
mod owners;
mod pools;
mod races;
mod releases;
mod reservations;
mod selectors;
mod settings;
mod walks;
mod windows;

/// Generates one test for each row of a table.
macro_rules! rows {
    ($check:ident: $($name:ident($($argument:expr),* $(,)?);)+) => {
        $(
            #[test]
            fn $name() {
                $check($($argument),*);
            }
        )+
    };
}
pub(crate) use rows;

/// Expects a row in the table of differences in `docs/cni.md` that begins with `row`.
fn differs(row: &str) {
    let document = include_str!("../../../../../docs/cni.md");
    assert!(
        document.contains(&format!("\n| {row} |")),
        "docs/cni.md has no row {row:?}"
    );
}
