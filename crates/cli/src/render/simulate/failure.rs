//! The addresses of a node that fails.

use calipam_simulate::Micros;
use calipam_simulate::answer::{Course, Failure, Point};

use super::runs::{HIGHEST, LOWEST};
use super::{bars, write_heading};
use crate::render::column::{left, right};
use crate::render::output::Text;
use crate::render::table::Grid;
use crate::render::text::{count, thousands};

/// Writes how long the addresses of a failed node stay taken.
pub(super) fn write(failure: &Failure, text: &mut Text) {
    write_heading(text, "Addresses of a node that fails");
    text.line(headline(failure));
    text.blank();
    text.grid(table(failure));

    text.blank();
    text.line(format!("From the failure to {} after it:", end(failure)));
    let on = &failure.with_collector;
    let off = &failure.without_collector;
    curve("held, collector on", on, |point| point.held, text);
    curve("held, collector off", off, |point| point.held, text);
    curve("not running", on, |point| point.waiting, text);
}

/// Returns the time from the failure to the end of the courses; 0 if they have no points.
pub(super) fn end(failure: &Failure) -> Micros {
    match failure.with_collector.points.last() {
        Some(point) => point.after,
        None => Micros::default(),
    }
}

/// Creates a table with a row for each course. If there are several runs, two further rows contain the lowest and the
/// highest values.
pub(super) fn table(failure: &Failure) -> Grid {
    let mut rows = rows_of_course("on", failure, |failure| &failure.with_collector);
    rows.extend(rows_of_course("off", failure, |failure| {
        &failure.without_collector
    }));

    let last = |course: &Course| course.points.last().copied().unwrap_or_default();
    let columns = vec![
        left("COLLECTOR", |(name, _): Row<'_>| name),
        right("ADDRESSES FREE AFTER", |(_, course): Row<'_>| {
            time_or_number(course.addresses_free_after, last(course).held, "held")
        }),
        right("BLOCKS FREE AFTER", |(_, course): Row<'_>| {
            time_or_number(course.blocks_free_after, last(course).blocks, "held")
        }),
        right("RECOVERY", |(_, course): Row<'_>| {
            time_or_number(course.all_running_after, last(course).waiting, "not running")
        }),
        right("MAX PENDING", |(_, course): Row<'_>| {
            thousands(course.max_pending)
        }),
    ];
    Grid::fixed(rows, columns)
}

/// A course, with the text of its first cell.
type Row<'a> = (&'static str, &'a Course);

/// Returns the row of a course and, if there are several runs, the rows of its lowest and highest values.
fn rows_of_course<'a>(
    collector: &'static str,
    failure: &'a Failure,
    course: fn(&Failure) -> &Course,
) -> Vec<Row<'a>> {
    let mut rows = vec![(collector, course(failure))];
    if let Some(range) = &failure.range {
        rows.push((LOWEST, course(&range.lowest)));
        rows.push((HIGHEST, course(&range.highest)));
    }
    rows
}

/// Names the node that fails, and the time of its removal.
fn headline(failure: &Failure) -> String {
    let removed = match failure.removed_after {
        Some(after) => format!("removed from the cluster after {after}"),
        None => "never removed from the cluster".to_owned(),
    };
    let held = count(failure.held as usize, "address", "addresses");
    format!("{} fails while it holds {held}, and is {removed}.", failure.node)
}

/// Formats a time or, if there is none, the number that remains at the end, such as `never: 26 held`.
fn time_or_number(time: Option<Micros>, remaining: u64, state: &str) -> String {
    match time {
        Some(time) => time.to_string(),
        None => format!("never: {} {state}", thousands(remaining)),
    }
}

/// Draws a number over the course of a failure as a curve.
fn curve(name: &str, course: &Course, number: impl Fn(&Point) -> u64, text: &mut Text) {
    let values: Vec<u64> = course.points.iter().map(number).collect();
    let highest = values.iter().copied().max().unwrap_or(0);
    let drawn = bars::curve(&values, highest, bars::room(text.page));
    text.drawn(&format!("  {name:<19}  {drawn}| at most {}", thousands(highest)));
}
