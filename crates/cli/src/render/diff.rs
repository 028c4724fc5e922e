//! The output of `diff`.

use calipam_check::ClusterIdentity;
use calipam_history::diff::{
    AddressChange, AddressRecord, AffinityChange, BlockChange, BlockState, Difference, FieldChange,
    FindingSummary, HandleChange, NamedSum, NotCompared, ObjectChange, Side as OnSide, Sum, Uncompared,
};
use calipam_model::snapshot::Snapshot;
use calipam_workflow::Side;
use serde::Serialize;

use super::column::{left, right};
use super::document::Document;
use super::header;
use super::page::Text;
use super::table::Grid;
use super::text::{count, thousands};

/// The maximum number of nodes in a short table.
const NODES_SHOWN: usize = 20;

/// One of two compared states: its cluster and its time.
pub(crate) struct State {
    cluster: ClusterIdentity,
    knows_its_time: bool,
}

impl State {
    pub(crate) fn of(snapshot: &Snapshot, side: &Side) -> Self {
        Self { cluster: ClusterIdentity::of(snapshot), knows_its_time: side.knows_its_time() }
    }

    /// Formats `… · read at 2026-11-21T10:15:00Z`.
    fn line(&self) -> String {
        let said = if self.knows_its_time { "read at" } else { "newest time in it" };
        format!("{} · {said} {:.0}", header::cluster(&self.cluster), self.cluster.taken_at)
    }
}

/// The differences between two states.
pub(crate) struct DifferenceDocument<'a> {
    /// The earlier state and the later one.
    pub states: [State; 2],
    pub difference: &'a Difference<'a>,
}

#[derive(Serialize)]
struct Schema<'a> {
    old: &'a ClusterIdentity,
    new: &'a ClusterIdentity,
    #[serde(flatten)]
    difference: &'a Difference<'a>,
}

impl Document for DifferenceDocument<'_> {
    const KIND: &'static str = "Difference";

    fn text(&self, text: &mut Text) {
        let [old, new] = &self.states;
        text.about(5, format!("OLD  {}", old.line()));
        text.about(5, format!("NEW  {}", new.line()));
        text.blank();

        let difference = self.difference;
        if has_moved(&difference.sums.total) {
            text.section(sums(difference, text.page.wide));
        }
        text.section(table(difference, text.page.wide));
        text.lines(difference.not_compared.iter().map(not_compared));
        text.line(said(rows(difference).count(), difference.same));
    }

    fn schema(&self) -> impl Serialize {
        let [old, new] = &self.states;
        Schema { old: &old.cluster, new: &new.cluster, difference: self.difference }
    }
}

/// Formats the number of differences. If there are none, `same` is false if something was not compared.
fn said(number: usize, same: bool) -> String {
    match number {
        0 if same => "No difference".to_owned(),
        0 => "No difference in what was compared".to_owned(),
        number => count(number, "difference", "differences"),
    }
}

fn has_moved(sum: &Sum) -> bool {
    sum.assigned + sum.released + sum.moved > 0
}

/// The numbers of addresses in total, by pool and by node.
fn sums(difference: &Difference<'_>, wide: bool) -> Grid {
    let named = |kind: &str, of: &NamedSum| match of.name.as_str() {
        "" => format!("no {kind}"),
        name => format!("{kind} {name}"),
    };
    let sums = &difference.sums;
    let mut rows = vec![("everything".to_owned(), Some(&sums.total))];
    rows.extend(sums.by_pool.iter().map(|of| (named("pool", of), Some(&of.sum))));

    let mut nodes: Vec<&NamedSum> = sums.by_node.iter().collect();
    let left_out = if wide { 0 } else { nodes.len().saturating_sub(NODES_SHOWN) };
    if left_out > 0 {
        nodes.sort_by_key(|of| std::cmp::Reverse(of.sum.assigned + of.sum.released + of.sum.moved));
        nodes.truncate(NODES_SHOWN);
    }
    rows.extend(nodes.into_iter().map(|of| (named("node", of), Some(&of.sum))));
    if left_out > 0 {
        rows.push((format!("(and {})", count(left_out, "more node", "more nodes")), None));
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

#[derive(Clone, Copy)]
enum Row<'a> {
    Address(&'a AddressChange<'a>),
    Block(&'a BlockChange),
    Affinity(&'a AffinityChange),
    Handle(&'a HandleChange<'a>),
    /// A pool, reservation, node or configuration, with its kind, the position of the kind, and its changes.
    Object(&'static str, u8, &'a ObjectChange),
    /// A finding; true for a new one.
    Finding(&'a FindingSummary, bool),
}

fn rows<'a>(difference: &'a Difference<'a>) -> impl Iterator<Item = Row<'a>> {
    let objects = [
        ("pool", 4, &difference.pools),
        ("reservation", 5, &difference.reservations),
        ("node", 6, &difference.nodes),
        ("configuration", 7, &difference.configuration),
    ];
    let objects = objects.into_iter().flat_map(|(word, place, changes)| {
        changes.iter().map(move |change| Row::Object(word, place, change))
    });
    let findings = &difference.findings;
    let new = findings.new.iter().map(|finding| Row::Finding(finding, true));
    let gone = findings.gone.iter().map(|finding| Row::Finding(finding, false));
    difference
        .addresses
        .iter()
        .map(Row::Address)
        .chain(difference.blocks.iter().map(Row::Block))
        .chain(difference.affinities.iter().map(Row::Affinity))
        .chain(difference.handles.iter().map(Row::Handle))
        .chain(objects)
        .chain(new)
        .chain(gone)
}

impl Row<'_> {
    /// Returns the position of the difference's kind in a table, and the word for that kind.
    fn kind(self) -> (u8, &'static str) {
        match self {
            Self::Address(_) => (0, "address"),
            Self::Block(_) => (1, "block"),
            Self::Affinity(_) => (2, "affinity"),
            Self::Handle(_) => (3, "handle"),
            Self::Object(word, place, _) => (place, word),
            Self::Finding(..) => (8, "finding"),
        }
    }

    fn change(self) -> &'static str {
        match self {
            Self::Address(change) => change.change.words(),
            Self::Block(change) => change.change.words(),
            Self::Affinity(change) => change.change.words(),
            Self::Handle(change) => change.change.words(),
            Self::Object(_, _, change) => change.change.words(),
            Self::Finding(_, true) => "new",
            Self::Finding(_, false) => "gone",
        }
    }

    fn name(self) -> String {
        match self {
            Self::Address(change) => change.address.to_string(),
            Self::Block(change) => change.cidr.to_string(),
            Self::Affinity(change) => format!("{}/{}", change.node, change.cidr),
            Self::Handle(change) => change.id.to_string(),
            Self::Object(_, _, change) => change.name.clone(),
            Self::Finding(finding, _) => format!("{} {}", finding.code, finding.subject),
        }
    }

    /// Returns the object's old and new state.
    fn states(self) -> [String; 2] {
        match self {
            Self::Address(change) => [change.before, change.after].map(holder),
            Self::Block(change) => [&change.before, &change.after].map(|states| blocks(states)),
            Self::Affinity(change) => {
                [&change.before, &change.after].map(|state| state.clone().unwrap_or_default())
            }
            Self::Handle(change) => {
                let [before, after] = change.counts().map(|number| format!("holds {}", thousands(number)));
                [change.before.map(|_| before), change.after.map(|_| after)].map(Option::unwrap_or_default)
            }
            Self::Object(_, _, change) => {
                let side = |of: fn(&FieldChange) -> Option<&String>| {
                    let said = change.fields.iter().filter_map(|f| Some(format!("{}: {}", f.field, of(f)?)));
                    said.collect::<Vec<_>>().join(", ")
                };
                [side(|field| field.before.as_ref()), side(|field| field.after.as_ref())]
            }
            Self::Finding(finding, is_new) => {
                let said = finding.message.clone();
                if is_new { [String::new(), said] } else { [said, String::new()] }
            }
        }
    }
}

/// Formats `pod default/web-0 on node-1`.
fn holder(held: Option<AddressRecord<'_>>) -> String {
    let Some(held) = held else { return "free".to_owned() };
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
        let owner = state.owner.as_ref().map_or_else(|| "no owner".to_owned(), ToString::to_string);
        let held = state.allocated.map(|number| format!(", {number} taken")).unwrap_or_default();
        format!("{} of {owner}{held}", state.cidr)
    };
    states.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// A row for each difference or, in a short table, for each change to a kind of object, with an example.
fn table(difference: &Difference<'_>, wide: bool) -> Grid {
    let state = |row: Row<'_>, side: usize| match &row.states()[side] {
        state if state.is_empty() => "-".to_owned(),
        state => state.clone(),
    };
    let columns = vec![
        left("WHAT", |row: Row<'_>| row.kind().1).of_kind(),
        left("DIFFERENCE", Row::change).of_kind(),
        left("NAME", Row::name),
        left("BEFORE", |row: Row<'_>| state(row, 0)),
        left("AFTER", |row: Row<'_>| state(row, 1)),
    ];
    let example = |row: Row<'_>| {
        let [before, after] = row.states();
        let arrow = if before.is_empty() || after.is_empty() { "" } else { " → " };
        format!("{}: {before}{arrow}{after}", row.name())
    };
    Grid::short(wide, 0, rows(difference), columns, |row| (row.kind().0, row.change()), example)
}

fn not_compared(left_out: &NotCompared) -> String {
    let place = match left_out.side {
        OnSide::Old => "in OLD",
        OnSide::New => "in NEW",
        OnSide::Both => "on either side",
    };
    let why = if left_out.kind == Uncompared::Source { "were not read" } else { "cannot be decoded" };
    format!("Not compared: {} {why} {place}", left_out.name)
}
