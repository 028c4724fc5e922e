//! Tables without lines: columns two spaces apart, fitted to the terminal.

use std::borrow::Cow;
use std::io::{self, Write};

use clap::builder::styling::{AnsiColor, Style};
use textwrap::core::display_width;

use super::document::Detail;
use super::text::{escape, join};
use super::wrap::{cut_words, longest_word, on_page, wrap};

/// How the cells of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// What tables and texts are written on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub color: bool,
    /// Characters beyond ASCII may be drawn with: bars and maps.
    pub unicode: bool,
    /// Columns of the terminal; `None` for a file or pipe, where nothing is cut or broken.
    pub width: Option<u16>,
}

impl Page {
    /// A text in a style, where colours are wanted.
    pub(crate) fn styled(self, style: Style, text: &str) -> String {
        if self.color && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

/// A table that is being filled.
#[derive(Debug)]
pub(crate) struct Grid {
    columns: Vec<(String, Align)>,
    rows: Vec<(Option<AnsiColor>, Vec<String>)>,
    page: Page,
    detail: Detail,
    /// Columns that a short table can do without, the least important first.
    dispensable: Vec<String>,
    left_out: Vec<String>,
    /// Words of every text may be cut.
    cuts_all: bool,
}

/// Spaces between columns.
const GAP: usize = 2;
/// Longest text of a cell, in characters; YAML and JSON have all of it.
const LONGEST: usize = 300;
/// A last column of a short table that is wider than this can have its words cut.
const NARROWEST: usize = 24;
/// Hexadecimal digits of a handle ID that tell it from others.
const DIGITS_SHOWN: usize = 8;
/// So many hexadecimal digits in a row are a hash.
const HASH: usize = 32;
/// Longest number that is written digit by digit where there is no room: all of 10^12.
const LONGEST_NUMBER: usize = 17;

impl Grid {
    /// A table with these columns.
    pub(crate) fn new(page: Page, detail: Detail, columns: &[(&str, Align)]) -> Self {
        Self {
            columns: columns.iter().map(|(name, align)| ((*name).to_owned(), *align)).collect(),
            rows: Vec::new(),
            page,
            detail,
            dispensable: Vec::new(),
            left_out: Vec::new(),
            cuts_all: false,
        }
    }

    /// Names columns that a short table leaves out where the terminal is too narrow, the least important first.
    pub(crate) fn can_do_without(&mut self, columns: &[&str]) {
        self.dispensable = columns.iter().rev().map(|name| (*name).to_owned()).collect();
    }

    /// Adds a row. Cells are escaped here: no text of the datastore reaches a terminal otherwise.
    pub(crate) fn row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.colored_row(None, cells);
    }

    /// Adds a row whose first cell has a colour, where colours are wanted.
    pub(crate) fn colored_row<T: AsRef<str>>(
        &mut self,
        color: Option<AnsiColor>,
        cells: impl IntoIterator<Item = T>,
    ) {
        self.rows.push((color, cells.into_iter().map(|text| cut(escape(text.as_ref()))).collect()));
    }

    /// Writes the table. Where the terminal is too narrow, texts are broken between words; a short table shortens
    /// handle IDs as well, and leaves columns out. What still does not fit is left to the terminal.
    pub(crate) fn write(mut self, out: &mut dyn Write) -> io::Result<()> {
        let widths = self.fit();
        let names: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        self.write_row(Style::new().bold(), true, &names, &widths, out)?;
        for (color, cells) in &self.rows {
            let style = color.map(|color| color.on_default()).unwrap_or_default();
            self.write_row(style, false, cells, &widths, out)?;
        }
        let left_out: Vec<&str> = self.left_out.iter().map(String::as_str).collect();
        let note = match left_out.as_slice() {
            [] => return Ok(()),
            [one] => format!("({one} is left out for lack of room; `-o wide` shows it)"),
            several => format!("({} are left out for lack of room; `-o wide` shows them)", join(several)),
        };
        writeln!(out, "{}", on_page(&note, 0, self.page))
    }

    /// The widths of the columns, after cells and columns were made to fit the page.
    fn fit(&mut self) -> Vec<usize> {
        let natural = self.widths(display_width);
        let Some(page) = self.page.width.map(usize::from).filter(|page| total(&natural) > *page) else {
            return natural;
        };
        if self.detail == Detail::Full {
            return self.fitted(page).unwrap_or(natural);
        }

        let others = &natural[..natural.len().saturating_sub(1)];
        self.shorten_last(page.saturating_sub(total(others) + GAP).max(NARROWEST));
        if let Some(widths) = self.fitted(page) {
            return widths;
        }
        self.shorten();
        loop {
            if let Some(widths) = self.fitted(page) {
                return widths;
            }
            if !self.leave_one_out() {
                break;
            }
        }
        self.cuts_all = true;
        self.fitted(page).unwrap_or_else(|| self.widths(display_width))
    }

    /// The widths on a page, where they are enough for each word that is not cut.
    fn fitted(&self, page: usize) -> Option<Vec<usize>> {
        let mut least = self.widths(longest_word);
        for (place, width) in least.iter_mut().enumerate() {
            *width = if self.cuts(place) { NARROWEST.min(*width) } else { *width };
        }
        (total(&least) <= page).then(|| spread(&self.widths(display_width), &least, page))
    }

    /// True where words of a column may be cut: in a short table the last, and where nothing else helps every text.
    fn cuts(&self, place: usize) -> bool {
        let is_text = self.columns.get(place).is_some_and(|(_, align)| *align == Align::Left);
        let is_last = place + 1 == self.columns.len();
        self.detail == Detail::Short && self.page.width.is_some() && is_text && (is_last || self.cuts_all)
    }

    /// The width that each column needs where a text needs as much as `of` says.
    fn widths(&self, of: fn(&str) -> usize) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|(name, _)| of(name)).collect();
        for (_, cells) in &self.rows {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = of(cell).max(*width);
            }
        }
        widths
    }

    /// Shortens handle IDs in texts of the last column that are wider than its room.
    fn shorten_last(&mut self, room: usize) {
        let last = self.columns.len().saturating_sub(1);
        let cells = self.rows.iter_mut().filter_map(|(_, cells)| cells.get_mut(last));
        for cell in cells.filter(|cell| display_width(cell) > room) {
            if let Some(shorter) = shorten_handles(cell) {
                *cell = shorter;
            }
        }
    }

    /// Shortens all handle IDs, and numbers that only IPv6 pools have.
    fn shorten(&mut self) {
        let aligns = self.columns.iter().map(|(_, align)| *align);
        for (_, cells) in &mut self.rows {
            for (cell, align) in cells.iter_mut().zip(aligns.clone()) {
                let shorter = match align {
                    Align::Left => shorten_handles(cell),
                    Align::Right => round(cell),
                };
                if let Some(shorter) = shorter {
                    *cell = shorter;
                }
            }
        }
    }

    /// Takes the least important column out; false where every column is needed.
    fn leave_one_out(&mut self) -> bool {
        while let Some(name) = self.dispensable.pop() {
            let Some(place) = self.columns.iter().position(|(column, _)| *column == name) else { continue };
            self.columns.remove(place);
            self.rows.iter_mut().filter(|(_, cells)| place < cells.len()).for_each(|(_, cells)| {
                cells.remove(place);
            });
            self.left_out.push(name);
            return true;
        }
        false
    }

    /// Writes a row, of which the first cell or `all` have a style.
    fn write_row(
        &self,
        style: Style,
        all: bool,
        cells: &[String],
        widths: &[usize],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let last = widths.len().saturating_sub(1);
        let cells: Vec<Vec<String>> =
            cells
                .iter()
                .zip(widths)
                .enumerate()
                .map(|(place, (cell, width))| {
                    if self.cuts(place) { wrap(&cut_words(cell, *width), *width) } else { wrap(cell, *width) }
                })
                .collect();
        for number in 0..cells.iter().map(Vec::len).max().unwrap_or_default() {
            let mut line = String::new();
            for (place, (lines, width)) in cells.iter().zip(widths).enumerate() {
                let text = lines.get(number).map_or("", String::as_str);
                let padding = " ".repeat(width.saturating_sub(display_width(text)));
                let text = if all || place == 0 { self.page.styled(style, text) } else { text.to_owned() };
                match self.columns.get(place).map(|(_, align)| *align) {
                    Some(Align::Right) => line.extend([padding.as_str(), &text]),
                    _ => line.extend([text.as_str(), &padding]),
                }
                if place < last {
                    line.push_str(&" ".repeat(GAP));
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The width of a line of columns.
fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// Widths that fill a page and give up room where most was wanted: no column is wider than a limit that is the same
/// for all, or narrower than its least width.
fn spread(natural: &[usize], least: &[usize], page: usize) -> Vec<usize> {
    let within = |limit: usize| -> Vec<usize> {
        natural.iter().zip(least).map(|(natural, least)| (*natural).min(limit).max(*least)).collect()
    };
    let widest = natural.iter().copied().max().unwrap_or_default();
    (0..=widest).rev().map(within).find(|widths| total(widths) <= page).unwrap_or_else(|| least.to_vec())
}

/// A text that is not too long for a cell.
fn cut(text: Cow<'_, str>) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

/// `k8s-pod-network.1efa87f4…`: handle IDs with the first digits of their container's ID. `None` where there is none.
fn shorten_handles(text: &str) -> Option<String> {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(dot) = rest.find('.') {
        let (before, after) = rest.split_at(dot + 1);
        let digits = after.bytes().take_while(u8::is_ascii_hexdigit).count();
        shown.push_str(before);
        if digits >= HASH {
            shown.extend([&after[..DIGITS_SHOWN], "…"]);
        } else {
            shown.push_str(&after[..digits]);
        }
        rest = &after[digits..];
    }
    shown.push_str(rest);
    (shown.len() < text.len()).then_some(shown)
}

/// `1.20e24` for a number with commas that is too long to be read. `None` for others.
fn round(text: &str) -> Option<String> {
    if text.len() <= LONGEST_NUMBER {
        return None;
    }
    let digits: String = text.split(',').collect();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(format!("{}.{}e{}", &digits[..1], &digits[1..3], digits.len() - 1))
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
