//! The addresses of a node that fails.

use std::io::{self, Write};

use calipam_simulate::Micros;
use calipam_simulate::answer::{Course, Failure, Point};

use super::runs::{HIGHEST, LOWEST};
use super::{bars, heading};
use crate::render::document::Detail;
use crate::render::table::{Grid, Page};
use crate::render::text::{count, escape, thousands};
use crate::render::wrap::on_page;

pub(super) fn write(failure: &Failure, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
    heading("Addresses of a node that fails", page, out)?;
    writeln!(out, "{}", on_page(&headline(failure), 0, page))?;

    let mut grid = Grid::new(
        page,
        detail,
        "COLLECTOR  >ADDRESSES FREE AFTER  >BLOCKS FREE AFTER  >RECOVERY  >MAX PENDING",
    );
    rows(failure).into_iter().for_each(|cells| grid.row(cells));
    writeln!(out)?;
    grid.write(out)?;

    let end = failure.with_collector.points.last().map(|point| point.after).unwrap_or_default();
    writeln!(out, "\nFrom the failure to {end} after it:")?;
    for (name, course) in courses(failure) {
        curve(&format!("held, collector {name}"), course, |point| point.held, page, out)?;
    }
    curve("not running", &failure.with_collector, |point| point.waiting, page, out)
}

/// A row for each course, and where there were several runs, one for each end of its range.
pub(super) fn rows(failure: &Failure) -> Vec<Vec<String>> {
    let row = |name: &str, course| [name.to_owned()].into_iter().chain(course_cells(course)).collect();
    let mut rows = Vec::new();
    for (place, (name, course)) in courses(failure).into_iter().enumerate() {
        rows.push(row(name, course));
        if let Some(range) = &failure.range {
            rows.push(row(LOWEST, courses(&range.lowest)[place].1));
            rows.push(row(HIGHEST, courses(&range.highest)[place].1));
        }
    }
    rows
}

fn courses(failure: &Failure) -> [(&'static str, &Course); 2] {
    [("on", &failure.with_collector), ("off", &failure.without_collector)]
}

fn headline(failure: &Failure) -> String {
    let removed = match failure.removed_after {
        Some(after) => format!("removed from the cluster after {after}"),
        None => "never removed from the cluster".to_owned(),
    };
    let held = count(failure.held as usize, "address", "addresses");
    format!("{} fails with {held}, and is {removed}.", escape(&failure.node))
}

/// The course of a failure, in the order of the columns.
fn course_cells(course: &Course) -> [String; 4] {
    let last = course.points.last().copied().unwrap_or_default();
    [
        or_left(course.addresses_free_after, last.held, "held"),
        or_left(course.blocks_free_after, last.blocks, "held"),
        or_left(course.all_running_after, last.waiting, "not running"),
        thousands(course.max_pending),
    ]
}

/// A time, or what there is still at the end.
fn or_left(time: Option<Micros>, left: u64, what: &str) -> String {
    time.map_or_else(|| format!("never: {} {what}", thousands(left)), |time| time.to_string())
}

fn curve(
    name: &str,
    course: &Course,
    of: impl Fn(&Point) -> u64,
    page: Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let values: Vec<u64> = course.points.iter().map(of).collect();
    let most = values.iter().copied().max().unwrap_or(0);
    let drawn = bars::curve(&values, most, bars::room(page));
    writeln!(out, "  {name:<19}  {drawn}| at most {}", thousands(most))
}
