//! The output of `diff`.

use std::cmp::Reverse;

use calipam_check::ClusterIdentity;
use calipam_history::diff::{
    AddressRecord, BlockState, Difference, FieldChange, FindingSummary, NamedSum, NotCompared, ObjectChange,
    Side as OnSide, Sum, Uncompared,
};
use calipam_workflow::{Pair, Side};
use serde::Serialize;

use super::column::{left, right};
use super::document::Document;
use super::header;
use super::output::Text;
use super::table::{Grid, NONE_SINGLY};
use super::text::{count, joined, or_dash, thousands};

/// The maximum number of nodes in a short table.
const NODES_SHOWN: usize = 20;
/// The width of the labels `OLD  ` and `NEW  `, below which the next lines of a state begin.
const STATE_INDENT: usize = 5;

/// The differences between two states.
#[derive(Serialize)]
pub(crate) struct DifferenceDocument<'a> {
    old: ClusterIdentity,
    new: ClusterIdentity,
    #[serde(flatten)]
    difference: &'a Difference<'a>,
    /// True for each state whose time is known.
    #[serde(skip)]
    has_known_time: [bool; 2],
}

impl<'a> DifferenceDocument<'a> {
    /// Shows a difference between two states of a cluster.
    pub(crate) fn new(pair: &Pair, sides: [&Side; 2], difference: &'a Difference<'a>) -> Self {
        let [old, new] = [&pair.old, &pair.new].map(ClusterIdentity::of);
        Self {
            old,
            new,
            difference,
            has_known_time: sides.map(Side::has_known_time),
        }
    }
}

/// Formats `… · read at 2026-11-21T10:15:00Z`. If the time of the state is not known, that of its newest record is
/// shown.
fn state(cluster: &ClusterIdentity, has_known_time: bool) -> String {
    let said = if has_known_time {
        "read at"
    } else {
        "newest timestamp"
    };
    format!("{} · {said} {:.0}", header::cluster(cluster), cluster.taken_at)
}

impl Document for DifferenceDocument<'_> {
    const KIND: &'static str = "Difference";

    /// Writes the two states, the numbers of addresses if any changed, the differences, and what was not compared.
    fn text(&self, out: &mut Text) {
        let [old_has_time, new_has_time] = self.has_known_time;
        out.about(STATE_INDENT, format!("OLD  {}", state(&self.old, old_has_time)));
        out.about(STATE_INDENT, format!("NEW  {}", state(&self.new, new_has_time)));
        out.blank();

        let is_wide = out.page.wide;
        let difference = self.difference;
        if changed(&difference.sums.total) > 0 {
            out.section(numbers_of_addresses(difference, is_wide));
        }
        let rows = rows_of(difference);
        out.section(table(&rows, is_wide));

        out.lines(difference.not_compared.iter().map(not_compared));
        out.line(difference_count(rows.len(), difference.same));
    }
}

/// Formats the number of differences. `are_same` is true if there are none and every object could be compared.
fn difference_count(number: usize, are_same: bool) -> String {
    if number > 0 {
        return count(number, "difference", "differences");
    }
    if are_same {
        "No difference".to_owned()
    } else {
        "No difference in what was compared".to_owned()
    }
}

fn changed(sum: &Sum) -> usize {
    sum.assigned + sum.released + sum.moved
}

/// A row of the table of the numbers of addresses. The row that stands for the nodes that are left out has no numbers.
#[derive(Default)]
struct SumRow {
    name: String,
    in_old: String,
    in_new: String,
    assigned: String,
    released: String,
    moved: String,
}

impl SumRow {
    /// Formats the numbers of a sum.
    fn new(name: String, sum: &Sum) -> Self {
        Self {
            name,
            in_old: thousands(sum.before),
            in_new: thousands(sum.after),
            assigned: thousands(sum.assigned),
            released: thousands(sum.released),
            moved: thousands(sum.moved),
        }
    }

    /// Makes a row for a pool or a node; for addresses without one, if the name is empty.
    fn of_object(kind: &str, named: &NamedSum) -> Self {
        let name = if named.name.is_empty() {
            format!("no {kind}")
        } else {
            format!("{kind} {}", named.name)
        };
        Self::new(name, &named.sum)
    }
}

/// Creates the table of the numbers of addresses: in total, by pool and by node. A short table has only the nodes with
/// the most changes.
fn numbers_of_addresses(difference: &Difference<'_>, wide: bool) -> Grid {
    let sums = &difference.sums;
    let mut rows = vec![SumRow::new("everything".to_owned(), &sums.total)];
    for pool in &sums.by_pool {
        rows.push(SumRow::of_object("pool", pool));
    }
    if wide || sums.by_node.len() <= NODES_SHOWN {
        for node in &sums.by_node {
            rows.push(SumRow::of_object("node", node));
        }
    } else {
        add_changed_nodes(&mut rows, &sums.by_node);
    }

    let columns = vec![
        left("ADDRESSES OF", |row: &SumRow| &row.name),
        right("IN OLD", |row: &SumRow| &row.in_old),
        right("IN NEW", |row: &SumRow| &row.in_new),
        right("ASSIGNED", |row: &SumRow| &row.assigned),
        right("RELEASED", |row: &SumRow| &row.released),
        right("MOVED", |row: &SumRow| &row.moved),
    ];
    Grid::new(wide, &rows, columns)
}

/// Adds the rows of the [`NODES_SHOWN`] nodes with the most changes, and a last row that counts the others.
fn add_changed_nodes(rows: &mut Vec<SumRow>, nodes: &[NamedSum]) {
    let mut by_changes: Vec<&NamedSum> = nodes.iter().collect();
    by_changes.sort_by_key(|node| Reverse(changed(&node.sum)));
    for node in by_changes.iter().take(NODES_SHOWN) {
        rows.push(SumRow::of_object("node", node));
    }
    let left_out = nodes.len().saturating_sub(NODES_SHOWN);
    rows.push(SumRow {
        name: format!("(and {})", count(left_out, "more node", "more nodes")),
        ..SumRow::default()
    });
}

/// A kind of object that differs, in the order of the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Address,
    Block,
    Affinity,
    Handle,
    Pool,
    Reservation,
    Node,
    Configuration,
    Finding,
}

impl Kind {
    /// Returns the name of the kind in one word.
    fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Block => "block",
            Self::Affinity => "affinity",
            Self::Handle => "handle",
            Self::Pool => "pool",
            Self::Reservation => "reservation",
            Self::Node => "node",
            Self::Configuration => "configuration",
            Self::Finding => "finding",
        }
    }
}

/// One difference, formatted for a table row.
struct Row {
    kind: Kind,
    change: &'static str,
    name: String,
    /// The object's old and new state.
    states: [String; 2],
}

impl Row {
    fn before(&self) -> &str {
        &self.states[0]
    }

    fn after(&self) -> &str {
        &self.states[1]
    }
}

/// Formats all differences, one kind of object after the other.
fn rows_of(difference: &Difference<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for address in &difference.addresses {
        rows.push(Row {
            kind: Kind::Address,
            change: address.change.words(),
            name: address.address.to_string(),
            states: [address.before, address.after].map(holder),
        });
    }
    for block in &difference.blocks {
        rows.push(Row {
            kind: Kind::Block,
            change: block.change.words(),
            name: block.cidr.to_string(),
            states: [words_of_blocks(&block.before), words_of_blocks(&block.after)],
        });
    }
    for affinity in &difference.affinities {
        rows.push(Row {
            kind: Kind::Affinity,
            change: affinity.change.words(),
            name: format!("{}/{}", affinity.node, affinity.cidr),
            states: [&affinity.before, &affinity.after].map(|state| state.clone().unwrap_or_default()),
        });
    }

    for handle in &difference.handles {
        let [number_before, number_after] = handle.counts();
        let mut states = [String::new(), String::new()];
        if handle.before.is_some() {
            states[0] = format!("holds {}", thousands(number_before));
        }
        if handle.after.is_some() {
            states[1] = format!("holds {}", thousands(number_after));
        }
        rows.push(Row {
            kind: Kind::Handle,
            change: handle.change.words(),
            name: handle.id.to_string(),
            states,
        });
    }

    let objects = [
        (Kind::Pool, &difference.pools),
        (Kind::Reservation, &difference.reservations),
        (Kind::Node, &difference.nodes),
        (Kind::Configuration, &difference.configuration),
    ];
    for (kind, changes) in objects {
        for object in changes {
            rows.push(Row {
                kind,
                change: object.change.words(),
                name: object.name.clone(),
                states: fields(object),
            });
        }
    }

    for finding in &difference.findings.new {
        let states = [String::new(), finding.message.clone()];
        rows.push(finding_row(finding, "new", states));
    }
    for finding in &difference.findings.gone {
        let states = [finding.message.clone(), String::new()];
        rows.push(finding_row(finding, "gone", states));
    }
    rows
}

/// Makes a row for a finding.
fn finding_row(summary: &FindingSummary, change: &'static str, states: [String; 2]) -> Row {
    Row {
        kind: Kind::Finding,
        change,
        name: format!("{} {}", summary.code, summary.subject),
        states,
    }
}

/// Formats the old and the new values of the changed fields, in this order. A field that was added has no old value.
fn fields(change: &ObjectChange) -> [String; 2] {
    let mut old = Vec::new();
    let mut new = Vec::new();
    for FieldChange { field, before, after } in &change.fields {
        if let Some(before) = before {
            old.push(format!("{field}: {before}"));
        }
        if let Some(after) = after {
            new.push(format!("{field}: {after}"));
        }
    }
    [joined(old, ", "), joined(new, ", ")]
}

/// Formats the owner in the record of an address, such as `pod default/web-0 on node-1`. Without a record, the address
/// is free.
fn holder(record: Option<AddressRecord<'_>>) -> String {
    let Some(record) = record else {
        return "free".to_owned();
    };
    if let Some(released_at) = record.record().released_at() {
        return format!("cooling since {released_at}");
    }
    // A record that is neither cooling nor an allocation is one of Windows nodes.
    if !record.is_allocated() {
        return "reserved for Windows".to_owned();
    }
    let (kind, name) = record.owner();
    match record.node() {
        Some(node) => format!("{kind} {name} on {node}"),
        None => format!("{kind} {name}"),
    }
}

/// Describes blocks by their owners and numbers of taken addresses, such as `10.0.0.0/26 of node-1, 3 taken`.
fn words_of_blocks(blocks: &[BlockState]) -> String {
    let mut descriptions = Vec::new();
    for block in blocks {
        let owner = match &block.owner {
            Some(owner) => owner.to_string(),
            None => "no owner".to_owned(),
        };
        let mut description = format!("{} of {owner}", block.cidr);
        if let Some(number) = block.allocated {
            description.push_str(&format!(", {number} taken"));
        }
        descriptions.push(description);
    }
    descriptions.join("; ")
}

/// Creates a table with a row for each difference. Unless the table is wide, a row stands for all changes of one kind
/// to objects of one kind, and shows one of them as an example.
fn table(rows: &[Row], wide: bool) -> Grid {
    let columns = vec![
        left("WHAT", |row: &Row| row.kind.name()).in_both_forms(),
        left("DIFFERENCE", |row: &Row| row.change).in_both_forms(),
        left("NAME", |row: &Row| &row.name),
        left("BEFORE", |row: &Row| or_dash(row.before())),
        left("AFTER", |row: &Row| or_dash(row.after())),
    ];
    let kind_of_change = |row: &Row| (row.kind, row.change);
    Grid::short(wide, NONE_SINGLY, rows, columns, kind_of_change, example)
}

/// Formats `10.0.0.7: pod default/web-0 → free`.
fn example(row: &Row) -> String {
    let before = row.before();
    let after = row.after();
    let arrow = if before.is_empty() || after.is_empty() {
        ""
    } else {
        " → "
    };
    format!("{}: {before}{arrow}{after}", row.name)
}

/// Warns that objects could not be compared, and names the side.
fn not_compared(left_out: &NotCompared) -> String {
    let place = match left_out.side {
        OnSide::Old => "in OLD",
        OnSide::New => "in NEW",
        OnSide::Both => "on either side",
    };
    let reason = if left_out.kind == Uncompared::Source {
        "were not read"
    } else {
        "cannot be decoded"
    };
    format!("Not compared: {} {reason} {place}", left_out.name)
}
