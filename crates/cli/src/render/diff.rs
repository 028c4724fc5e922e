//! How two states of a cluster differ, as it is printed.

use std::collections::BTreeMap;
use std::io::{self, Write};

use calipam_check::ClusterIdentity;
use calipam_history::diff::{
    AddressChange, AffinityChange, BlockChange, BlockState, Difference, FindingSummary, HandleChange, Held,
    NamedSum, NotCompared, ObjectChange, Side as OnSide, Sum, Uncompared,
};
use calipam_model::snapshot::Snapshot;
use calipam_workflow::Side;
use serde::Serialize;

use super::document::{Detail, Document};
use super::header;
use super::table::{Grid, Page};
use super::text::{count, escape, thousands};
use super::wrap::on_page;

/// Nodes that a short table shows.
const NODES_SHOWN: usize = 20;

/// One of the two states: where and when it was read.
pub(crate) struct State {
    pub(super) cluster: ClusterIdentity,
    knows_its_time: bool,
}

impl State {
    pub(crate) fn of(snapshot: &Snapshot, side: &Side) -> Self {
        Self { cluster: ClusterIdentity::of(snapshot), knows_its_time: side.knows_its_time() }
    }

    /// `… · read at 2026-11-21T10:15:00Z`.
    fn line(&self) -> String {
        let said = if self.knows_its_time { "read at" } else { "newest time in it" };
        format!("{} · {said} {:.0}", header::cluster(&self.cluster), self.cluster.taken_at)
    }
}

/// How two states differ.
pub(crate) struct DifferenceDocument<'a> {
    /// The earlier one and the later one.
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
    fn kind(&self) -> &'static str {
        "Difference"
    }

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let [old, new] = &self.states;
        writeln!(out, "{}", on_page(&format!("OLD  {}", old.line()), 5, page))?;
        writeln!(out, "{}\n", on_page(&format!("NEW  {}", new.line()), 5, page))?;

        let difference = self.difference;
        let rows: Vec<Row<'_>> = rows(difference).collect();
        if has_moved(&difference.sums.total) {
            sums(difference, detail, page).write(out)?;
            writeln!(out)?;
        }
        if !rows.is_empty() {
            let mut grid = Grid::new(page, detail, "WHAT  DIFFERENCE");
            add_columns(&mut grid, detail);
            cells(&rows, detail).into_iter().for_each(|row| grid.row(row));
            grid.write(out)?;
            writeln!(out)?;
        }
        for left_out in &difference.not_compared {
            writeln!(out, "{}", on_page(&escape(&not_compared(left_out)), 0, page))?;
        }
        writeln!(out, "{}", said(rows.len(), difference.same))
    }

    fn schema(&self) -> impl Serialize {
        let [old, new] = &self.states;
        Schema { old: &old.cluster, new: &new.cluster, difference: self.difference }
    }
}

/// How many differences there are; `same` is false if something was not compared as well.
pub(super) fn said(number: usize, same: bool) -> String {
    match number {
        0 if same => "No difference".to_owned(),
        0 => "No difference in what was compared".to_owned(),
        number => count(number, "difference", "differences"),
    }
}

fn has_moved(sum: &Sum) -> bool {
    sum.assigned + sum.released + sum.moved > 0
}

/// Addresses in all, by pool and by node.
fn sums(difference: &Difference<'_>, detail: Detail, page: Page) -> Grid {
    let mut grid = Grid::new(page, detail, "ADDRESSES OF  >IN OLD  >IN NEW  >ASSIGNED  >RELEASED  >MOVED");
    let mut row = |name: String, sum: &Sum| {
        let numbers = [sum.before, sum.after, sum.assigned, sum.released, sum.moved];
        grid.row([name].into_iter().chain(numbers.map(thousands)));
    };
    let sums = &difference.sums;
    row("everything".to_owned(), &sums.total);
    let named = |kind: &str, of: &NamedSum| match of.name.as_str() {
        "" => format!("no {kind}"),
        name => format!("{kind} {name}"),
    };
    sums.by_pool.iter().for_each(|of| row(named("pool", of), &of.sum));

    let mut nodes: Vec<&NamedSum> = sums.by_node.iter().collect();
    let left_out = if detail == Detail::Full { 0 } else { nodes.len().saturating_sub(NODES_SHOWN) };
    if left_out > 0 {
        nodes.sort_by_key(|of| std::cmp::Reverse(of.sum.assigned + of.sum.released + of.sum.moved));
        nodes.truncate(NODES_SHOWN);
    }
    nodes.into_iter().for_each(|of| row(named("node", of), &of.sum));
    if left_out > 0 {
        grid.row([format!("(and {})", count(left_out, "more node", "more nodes"))]);
    }
    grid
}

/// One difference.
#[derive(Clone, Copy)]
pub(super) enum Row<'a> {
    Address(&'a AddressChange<'a>),
    Block(&'a BlockChange),
    Affinity(&'a AffinityChange),
    Handle(&'a HandleChange<'a>),
    /// A pool, reservation, node or configuration: the word for it, its place among all, and what differs.
    Object(&'static str, u8, &'a ObjectChange),
    /// A finding; true for a new one.
    Finding(&'a FindingSummary, bool),
}

pub(super) fn rows<'a>(difference: &'a Difference<'a>) -> impl Iterator<Item = Row<'a>> {
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
    /// The place of its kind in a table, and the word for it.
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
            Self::Finding(finding, _) => format!("{} {}", finding.0.code, finding.0.subject),
        }
    }

    /// What was there, and what is there.
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
                let side = |of: fn(&calipam_history::diff::FieldChange) -> Option<&String>| {
                    let said = change.fields.iter().filter_map(|f| Some(format!("{}: {}", f.field, of(f)?)));
                    said.collect::<Vec<_>>().join(", ")
                };
                [side(|field| field.before.as_ref()), side(|field| field.after.as_ref())]
            }
            Self::Finding(finding, is_new) => {
                let said = finding.0.message();
                if is_new { [String::new(), said] } else { [said, String::new()] }
            }
        }
    }
}

/// `pod default/web-0 on node-1`.
fn holder(held: Option<Held<'_>>) -> String {
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

/// What a table of differences has after what differs, and how.
pub(super) fn add_columns(grid: &mut Grid, detail: Detail) {
    match detail {
        Detail::Full => grid.columns("NAME  BEFORE  AFTER"),
        Detail::Short => grid.columns(">COUNT  FOR EXAMPLE"),
    }
}

/// A row for each difference, or in a short table for each kind with an example.
pub(super) fn cells(rows: &[Row<'_>], detail: Detail) -> Vec<Vec<String>> {
    match detail {
        Detail::Full => rows.iter().map(every).collect(),
        Detail::Short => kinds(rows),
    }
}

fn every(row: &Row<'_>) -> Vec<String> {
    let [before, after] = row.states().map(|state| if state.is_empty() { "-".to_owned() } else { state });
    vec![row.kind().1.to_owned(), row.change().to_owned(), row.name(), before, after]
}

fn kinds(rows: &[Row<'_>]) -> Vec<Vec<String>> {
    let mut kinds: BTreeMap<(u8, &'static str), (usize, Row<'_>)> = BTreeMap::new();
    for row in rows {
        kinds.entry((row.kind().0, row.change())).or_insert((0, *row)).0 += 1;
    }
    let cells = |((_, change), (number, example)): ((u8, &'static str), (usize, Row<'_>))| {
        let states = example.states();
        let said = match (states[0].as_str(), states[1].as_str()) {
            ("", state) | (state, "") => state.to_owned(),
            (before, after) => format!("{before} → {after}"),
        };
        let example_text = format!("{}: {said}", example.name());
        vec![example.kind().1.to_owned(), change.to_owned(), thousands(number), example_text]
    };
    kinds.into_iter().map(cells).collect()
}

pub(super) fn not_compared(left_out: &NotCompared) -> String {
    let place = match left_out.side {
        OnSide::Old => "in OLD",
        OnSide::New => "in NEW",
        OnSide::Both => "on either side",
    };
    match &left_out.what {
        Uncompared::Source(source) => format!("Not compared: {source} were not read {place}"),
        what => format!("Not compared: {what} cannot be decoded {place}"),
    }
}
