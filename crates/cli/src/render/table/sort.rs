//! Sorting of a table by a column.

use std::cmp::Ordering;
use std::net::IpAddr;

use calipam_check::Severity;
use calipam_model::IpNet;

use super::{Cells, Grid};
use crate::render::text::join;

impl Grid {
    /// Sorts the rows by the column with the name `wanted`, descending if that begins with a hyphen. The sort is
    /// stable, and cells without a value come last.
    ///
    /// # Errors
    /// If no column has this name. Its case does not matter, and spaces can be written as `-` or `_`.
    pub(super) fn sort(&mut self, wanted: &str) -> Result<(), String> {
        let descends = wanted.starts_with('-');
        let name = wanted.strip_prefix('-').unwrap_or(wanted);
        let sorted_by = self.column_named(name)?;
        let cell = |row: usize| sorted_by.cells[row].0.as_str();

        let mut order: Vec<usize> = (0..self.rows).collect();
        order.sort_by(|first, second| compare(cell(*first), cell(*second), descends));
        for column in &mut self.columns {
            let cells = order.iter().map(|row| std::mem::take(&mut column.cells[*row]));
            column.cells = cells.collect();
        }
        Ok(())
    }

    /// Returns the column with a name, written as [`Self::sort`] allows.
    ///
    /// # Errors
    /// If there is none. The message lists the columns.
    fn column_named(&self, name: &str) -> Result<&Cells, String> {
        let normalized = |name: &str| name.replace(['-', '_'], " ").to_lowercase();
        let wanted = normalized(name);
        let mut columns = self.columns.iter();
        if let Some(column) = columns.find(|column| normalized(column.title) == wanted) {
            return Ok(column);
        }
        let titles: Vec<&str> = self.columns.iter().map(|column| column.title).collect();
        let titles = join(&titles);
        Err(format!("--sort-by: there is no column \"{name}\", only {titles}"))
    }
}

/// Compares two cells. Cells without a value are the last ones in both directions.
fn compare(first: &str, second: &str, descends: bool) -> Ordering {
    let first = SortKey::of_cell(first);
    let second = SortKey::of_cell(second);
    // `None` is the greatest key, so it must not be reversed.
    let both_have_values = first != SortKey::None && second != SortKey::None;
    if descends && both_have_values {
        return second.cmp(&first);
    }
    first.cmp(&second)
}

/// The sort key of a cell.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum SortKey<'a> {
    Severity(usize),
    Number(u128),
    Network(IpNet),
    Text(&'a str),
    /// A dash or an empty cell.
    None,
}

impl<'a> SortKey<'a> {
    /// Returns the sort key of a cell, by the form of its text.
    fn of_cell(cell: &'a str) -> Self {
        if cell.is_empty() || cell == "-" {
            return Self::None;
        }
        let mut severities = Severity::ALL.iter();
        if let Some(severity) = severities.position(|severity| severity.to_string() == cell) {
            return Self::Severity(severity);
        }
        if let Ok(number) = cell.replace(',', "").parse() {
            return Self::Number(number);
        }
        if let Ok(network) = cell.parse() {
            return Self::Network(network);
        }
        if let Ok(address) = cell.parse::<IpAddr>() {
            return Self::Network(address.into());
        }
        Self::Text(cell)
    }
}
