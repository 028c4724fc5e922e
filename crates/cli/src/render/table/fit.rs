//! The widths of a table's columns on a page.

use textwrap::core::display_width;

use super::{GAP, Grid};
use crate::render::page::Page;
use crate::render::wrap::{longest_word, round, shorten_handles};

/// The width that a column of a short table keeps if its words are cut.
const NARROWEST: usize = 24;

/// The number of columns whose words are cut before any column is hidden: the last one, which usually has sentences.
const LAST: usize = 1;

/// A table that fits its page, as far as possible.
pub(super) struct Fit {
    /// The widths of the columns, if cells have to be wrapped; `None` if each column is as wide as its widest cell.
    pub widths: Option<Vec<usize>>,
    /// The titles of the columns that were removed.
    pub hidden: Vec<&'static str>,
}

impl Grid {
    /// Shortens cells and hides columns until the table fits the page.
    pub(super) fn fit(&mut self, page: Page) -> Fit {
        let mut hidden = Vec::new();
        let widths = self.fitting_widths(page, &mut hidden);
        Fit { widths, hidden }
    }

    /// Finds widths of the columns that fit the page: first shortens the last column, then all, then hides some. `None`
    /// if the table fits as it is, or if nothing makes it fit.
    fn fitting_widths(&mut self, page: Page, hidden: &mut Vec<&'static str>) -> Option<Vec<usize>> {
        let room = usize::from(page.width?);
        let natural = self.widths(display_width);
        if total(&natural) <= room {
            return None;
        }
        // A wide table shows everything, so nothing is cut or hidden.
        if page.wide {
            let none = 0;
            return self.fitted(room, none);
        }

        let last = self.columns.len().saturating_sub(1);
        let room_of_last = room.saturating_sub(total(&natural[..last]) + GAP);
        self.shorten_last(room_of_last.max(NARROWEST));
        if let Some(widths) = self.fitted(room, LAST) {
            return Some(widths);
        }
        self.shorten();
        self.hide_until_fitted(room, hidden)
    }

    /// Hides one column after the other until the others fit, and returns their widths. If no more can be hidden, words
    /// in all columns are cut; `None` if the table is still too wide.
    fn hide_until_fitted(&mut self, room: usize, hidden: &mut Vec<&'static str>) -> Option<Vec<usize>> {
        loop {
            if let Some(widths) = self.fitted(room, LAST) {
                return Some(widths);
            }
            let Some(position) = self.next_to_hide() else {
                let all = self.columns.len();
                return self.fitted(room, all);
            };
            hidden.push(self.columns.remove(position).title);
        }
    }

    /// Returns the position of the column that is hidden next; `None` if all others stay.
    fn next_to_hide(&self) -> Option<usize> {
        let columns = self.columns.iter().enumerate();
        columns
            .filter(|(_, column)| column.hidden > 0)
            .min_by_key(|(_, column)| column.hidden)
            .map(|(position, _)| position)
    }

    /// Returns column widths that fit the width `page`; `None` if a word does not fit. Words in the last `cut` columns
    /// can be cut.
    fn fitted(&self, page: usize, cut: usize) -> Option<Vec<usize>> {
        // A column is at least as wide as its longest word, unless its words can be cut. Numbers never are.
        let mut least = self.widths(longest_word);
        for (width, column) in least.iter_mut().zip(&self.columns).rev().take(cut) {
            if !column.is_right {
                *width = NARROWEST.min(*width);
            }
        }
        if total(&least) > page {
            return None;
        }
        Some(spread(&self.widths(display_width), &least, page))
    }

    /// Returns the width of each column, measured with `width_of`.
    fn widths(&self, width_of: fn(&str) -> usize) -> Vec<usize> {
        let mut widths = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let mut width = width_of(column.title);
            for (cell, _) in &column.cells {
                width = width.max(width_of(cell));
            }
            widths.push(width);
        }
        widths
    }

    /// Shortens handle IDs in those cells of the last column that are wider than `room`.
    fn shorten_last(&mut self, room: usize) {
        let Some(last) = self.columns.last_mut() else {
            return;
        };
        for (cell, _) in &mut last.cells {
            if display_width(cell) > room
                && let Some(shorter) = shorten_handles(cell)
            {
                *cell = shorter;
            }
        }
    }

    /// Shortens all handle IDs, and the very long numbers that occur only in IPv6 pools.
    fn shorten(&mut self) {
        for column in &mut self.columns {
            let shorten = if column.is_right { round } else { shorten_handles };
            for (cell, _) in &mut column.cells {
                if let Some(shorter) = shorten(cell) {
                    *cell = shorter;
                }
            }
        }
    }
}

/// Returns the total width of columns, including the gaps between them.
fn total(widths: &[usize]) -> usize {
    widths
        .iter()
        .map(|width| width + GAP)
        .sum::<usize>()
        .saturating_sub(GAP)
}

/// Distributes the width of a page. Each column gets its natural width up to a common limit, but at least its minimum
/// width, so that only the widest columns shrink.
fn spread(natural: &[usize], least: &[usize], page: usize) -> Vec<usize> {
    let widest = natural.iter().copied().max().unwrap_or_default();
    for limit in (0..=widest).rev() {
        let mut widths = Vec::with_capacity(natural.len());
        for (natural, least) in natural.iter().zip(least) {
            widths.push((*natural).min(limit).max(*least));
        }
        if total(&widths) <= page {
            return widths;
        }
    }
    least.to_vec()
}
