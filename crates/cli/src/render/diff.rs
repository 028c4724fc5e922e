//! The output of `diff`.

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
use super::table::Grid;
use super::text::{count, joined, or_dash, thousands};

/// The maximum number of nodes in a short table.
const NODES_SHOWN: usize = 20;

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

/// Formats `… · read at 2026-11-21T10:15:00Z`.
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

    fn text(&self, text: &mut Text) {
        let [old, new] = self.has_known_time;
        text.about(5, format!("OLD  {}", state(&self.old, old)));
        text.about(5, format!("NEW  {}", state(&self.new, new)));
        text.blank();

        let difference = self.difference;
        let total = &difference.sums.total;
        if total.assigned + total.released + total.moved > 0 {
            text.section(sums(difference, text.page.wide));
        }
        let rows = rows(difference);
        text.section(table(&rows, text.page.wide));
        text.lines(difference.not_compared.iter().map(not_compared));
        text.line(difference_count(rows.len(), difference.same));
    }
}

/// Formats the number of differences. `same` is true if there are none and every object could be compared.
fn difference_count(number: usize, same: bool) -> String {
    match number {
        0 if same => "No difference".to_owned(),
        0 => "No difference in what was compared".to_owned(),
        number => count(number, "difference", "differences"),
    }
}

/// Creates the table of the numbers of addresses: in total, by pool and by node.
fn sums(difference: &Difference<'_>, wide: bool) -> Grid {
    let named = |kind: &str, of: &NamedSum| match of.name.as_str() {
        "" => format!("no {kind}"),
        name => format!("{kind} {name}"),
    };
    let sums = &difference.sums;
    let mut rows = vec![("everything".to_owned(), Some(&sums.total))];
    rows.extend(sums.by_pool.iter().map(|of| (named("pool", of), Some(&of.sum))));

    let mut nodes: Vec<&NamedSum> = sums.by_node.iter().collect();
    let left_out = if wide {
        0
    } else {
        nodes.len().saturating_sub(NODES_SHOWN)
    };
    if left_out > 0 {
        nodes.sort_by_key(|of| std::cmp::Reverse(of.sum.assigned + of.sum.released + of.sum.moved));
        nodes.truncate(NODES_SHOWN);
    }
    rows.extend(nodes.into_iter().map(|of| (named("node", of), Some(&of.sum))));
    if left_out > 0 {
        rows.push((
            format!("(and {})", count(left_out, "more node", "more nodes")),
            None,
        ));
    }
    let number = |title, number: fn(&Sum) -> usize| {
        right(title, move |(_, sum): &(String, Option<&Sum>)| {
            sum.map(|sum| thousands(number(sum))).unwrap_or_default()
        })
    };
    let columns = vec![
        left("ADDRESSES OF", |(name, _): &(String, Option<&Sum>)| name),
        number("IN OLD", |sum| sum.before),
        number("IN NEW", |sum| sum.after),
        number("ASSIGNED", |sum| sum.assigned),
        number("RELEASED", |sum| sum.released),
        number("MOVED", |sum| sum.moved),
    ];
    Grid::new(wide, &rows, columns)
}

/// One difference, formatted for a table row.
struct Row {
    /// The kind of the object: the position of this kind in a table, and its name.
    kind: (u8, &'static str),
    change: &'static str,
    name: String,
    /// The object's old and new state.
    states: [String; 2],
}

fn rows(difference: &Difference<'_>) -> Vec<Row> {
    let row = |kind, change, name, states| Row {
        kind,
        change,
        name,
        states,
    };
    let addresses = difference.addresses.iter().map(|of| {
        row(
            (0, "address"),
            of.change.words(),
            of.address.to_string(),
            [of.before, of.after].map(holder),
        )
    });
    let blocks = difference.blocks.iter().map(|of| {
        let states = [&of.before, &of.after].map(|states| blocks(states));
        row((1, "block"), of.change.words(), of.cidr.to_string(), states)
    });
    let affinities = difference.affinities.iter().map(|of| {
        let states = [&of.before, &of.after].map(|state| state.clone().unwrap_or_default());
        row(
            (2, "affinity"),
            of.change.words(),
            format!("{}/{}", of.node, of.cidr),
            states,
        )
    });
    let handles = difference.handles.iter().map(|of| {
        let [before, after] = of.counts().map(|number| format!("holds {}", thousands(number)));
        let states = [of.before.map(|_| before), of.after.map(|_| after)].map(Option::unwrap_or_default);
        row((3, "handle"), of.change.words(), of.id.to_string(), states)
    });
    let objects = [
        ((4, "pool"), &difference.pools),
        ((5, "reservation"), &difference.reservations),
        ((6, "node"), &difference.nodes),
        ((7, "configuration"), &difference.configuration),
    ];
    let objects = objects.into_iter().flat_map(|(kind, changes)| {
        changes
            .iter()
            .map(move |of| row(kind, of.change.words(), of.name.clone(), fields(of)))
    });
    let finding = |found: &FindingSummary, change, states| {
        row(
            (8, "finding"),
            change,
            format!("{} {}", found.code, found.subject),
            states,
        )
    };
    let new = difference.findings.new.iter();
    let new = new.map(|found| finding(found, "new", [String::new(), found.message.clone()]));
    let gone = difference.findings.gone.iter();
    let gone = gone.map(|found| finding(found, "gone", [found.message.clone(), String::new()]));
    let records = addresses.chain(blocks).chain(affinities).chain(handles);
    records.chain(objects).chain(new).chain(gone).collect()
}

/// Formats the old and new values of the changed fields.
fn fields(change: &ObjectChange) -> [String; 2] {
    let side = |of: fn(&FieldChange) -> Option<&String>| {
        let said = change
            .fields
            .iter()
            .filter_map(|field| Some(format!("{}: {}", field.field, of(field)?)));
        joined(said, ", ")
    };
    [
        side(|field| field.before.as_ref()),
        side(|field| field.after.as_ref()),
    ]
}

/// Formats `pod default/web-0 on node-1`.
fn holder(held: Option<AddressRecord<'_>>) -> String {
    let Some(held) = held else {
        return "free".to_owned();
    };
    if let Some(released_at) = held.record().released_at() {
        return format!("cooling since {released_at}");
    }
    if !held.is_allocated() {
        return "reserved for Windows".to_owned();
    }
    let (kind, name) = held.owner();
    let node = held.node().map(|node| format!(" on {node}")).unwrap_or_default();
    format!("{kind} {name}{node}")
}

fn blocks(states: &[BlockState]) -> String {
    let one = |state: &BlockState| {
        let owner = state
            .owner
            .as_ref()
            .map_or_else(|| "no owner".to_owned(), ToString::to_string);
        let held = state
            .allocated
            .map(|number| format!(", {number} taken"))
            .unwrap_or_default();
        format!("{} of {owner}{held}", state.cidr)
    };
    joined(states.iter().map(one), "; ")
}

/// Creates a table with a row for each difference. In the short form, a row stands for all changes of one kind to
/// objects of one kind, with an example.
fn table(rows: &[Row], wide: bool) -> Grid {
    let columns = vec![
        left("WHAT", |row: &Row| row.kind.1).of_kind(),
        left("DIFFERENCE", |row: &Row| row.change).of_kind(),
        left("NAME", |row: &Row| &row.name),
        left("BEFORE", |row: &Row| or_dash(&row.states[0])),
        left("AFTER", |row: &Row| or_dash(&row.states[1])),
    ];
    let example = |row: &Row| {
        let [before, after] = &row.states;
        let arrow = if before.is_empty() || after.is_empty() {
            ""
        } else {
            " → "
        };
        format!("{}: {before}{arrow}{after}", row.name)
    };
    Grid::short(wide, 0, rows, columns, |row| (row.kind.0, row.change), example)
}

fn not_compared(left_out: &NotCompared) -> String {
    let place = match left_out.side {
        OnSide::Old => "in OLD",
        OnSide::New => "in NEW",
        OnSide::Both => "on either side",
    };
    let why = if left_out.kind == Uncompared::Source {
        "were not read"
    } else {
        "cannot be decoded"
    };
    format!("Not compared: {} {why} {place}", left_out.name)
}
