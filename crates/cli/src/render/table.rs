//! Tables without lines: columns two spaces apart, fitted to the terminal.

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::IpAddr;

use calipam_check::Severity;
use calipam_model::IpNet;
use clap::builder::styling::{AnsiColor, Style};
use comfy_table::{CellAlignment, ColumnConstraint, Table, Width, presets};
use textwrap::core::display_width;

use super::document::Detail;
use super::text::{escape, join};
use super::wrap::{cut_words, longest_word, on_page};

/// How the cells of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

/// What tables and texts are written on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub color: bool,
    /// Characters beyond ASCII may be drawn with: bars and maps.
    pub unicode: bool,
    /// Columns of the terminal; `None` for a file or pipe, if nothing is cut or broken.
    pub width: Option<u16>,
    /// Tables have no header, and nothing stands around them.
    pub rows_only: bool,
    /// The column by whose cells the rows of tables are sorted, as it was typed; after `-` descending.
    pub sort_by: Option<&'static str>,
}

impl Page {
    /// A text in a style, if colours are wanted.
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
    hidden: Vec<String>,
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
/// Longest number that is written digit by digit if there is no room: all of 10^12.
const LONGEST_NUMBER: usize = 17;
const HEADER: Style = Style::new().bold();
/// Around a word in a style while comfy-table measures it: these have no width, and [`escape`] lets none of them pass.
const MARKS: [(char, Style); 4] = [
    ('\u{202a}', HEADER),
    ('\u{202b}', AnsiColor::Magenta.on_default()),
    ('\u{202d}', AnsiColor::Red.on_default()),
    ('\u{202e}', AnsiColor::Yellow.on_default()),
];
const END_MARK: char = '\u{202c}';

impl Grid {
    /// A table with these columns, written as in the header: two spaces apart, with `>` before those whose cells are on the
    /// right, such as numbers.
    pub(crate) fn new(page: Page, detail: Detail, columns: &str) -> Self {
        let (none, rows, dispensable, hidden) = Default::default();
        let mut grid = Self { columns: none, rows, page, detail, dispensable, hidden };
        grid.columns(columns);
        grid
    }

    /// Adds columns, before any row.
    pub(crate) fn columns(&mut self, columns: &str) {
        self.columns.extend(columns.split("  ").map(|column| match column.strip_prefix('>') {
            Some(name) => (name.to_owned(), Align::Right),
            None => (column.to_owned(), Align::Left),
        }));
    }

    /// Names columns that a short table hides where the terminal is too narrow, the most important first.
    pub(crate) fn can_do_without(&mut self, columns: &[&str]) {
        self.dispensable = columns.iter().rev().map(|name| (*name).to_owned()).collect();
    }

    /// Adds a row. Cells are escaped here: no text of the datastore reaches a terminal otherwise.
    pub(crate) fn row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.colored_row(None, cells);
    }

    /// Adds a row whose first cell has a colour, if colours are wanted.
    pub(crate) fn colored_row<T: AsRef<str>>(
        &mut self,
        color: Option<AnsiColor>,
        cells: impl IntoIterator<Item = T>,
    ) {
        self.rows.push((color, cells.into_iter().map(|text| cut(escape(text.as_ref()))).collect()));
    }

    /// Writes the table. If the terminal is too narrow, texts are wrapped between words; a short table shortens
    /// handle IDs as well, and hides columns. What still does not fit is left to the terminal.
    pub(crate) fn write(mut self, out: &mut dyn Write) -> io::Result<()> {
        if let Some(wanted) = self.page.sort_by {
            self.sort(wanted)?;
        }
        let widths = self.fit();
        for line in self.table(widths.as_deref()).lines() {
            writeln!(out, "{}", self.styled(line.trim_end()))?;
        }

        let hidden: Vec<&str> = self.hidden.iter().map(String::as_str).collect();
        let note = match hidden.as_slice() {
            [] => return Ok(()),
            _ if self.page.rows_only => return Ok(()),
            [one] => format!("({one} is hidden: narrow terminal; `-o wide` shows it)"),
            several => format!("({} are hidden: narrow terminal; `-o wide` shows them)", join(several)),
        };
        writeln!(out, "{}", on_page(&note, 0, self.page))
    }

    /// Sorts the rows by a column. Rows of equal cells stay in their order, and cells without a value come last.
    fn sort(&mut self, wanted: &str) -> io::Result<()> {
        let (wanted, descends) = wanted.strip_prefix('-').map_or((wanted, false), |wanted| (wanted, true));
        let plain = |name: &str| name.replace(['-', '_'], " ").to_lowercase();
        let Some(place) = self.columns.iter().position(|(name, _)| plain(name) == plain(wanted)) else {
            let names: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
            let message = format!("--sort-by: no column \"{wanted}\"; there are {}", join(&names));
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        };
        self.rows.sort_by(|(_, one), (_, other)| {
            match (SortKey::of(&one[place]), SortKey::of(&other[place])) {
                (one, other) if !descends || one == SortKey::None || other == SortKey::None => {
                    one.cmp(&other)
                }
                (one, other) => other.cmp(&one),
            }
        });
        Ok(())
    }

    fn table(&self, widths: Option<&[usize]>) -> Table {
        let width = |place: usize| widths.map(|widths| widths[place]);
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        if !self.page.rows_only {
            table.set_header(self.columns.iter().map(|(name, _)| self.marked(name, HEADER)));
        }
        for (color, cells) in &self.rows {
            let style = color.map(AnsiColor::on_default).unwrap_or_default();
            table.add_row(cells.iter().enumerate().map(|(place, cell)| {
                let text = width(place).map_or(Cow::Borrowed(cell.as_str()), |width| cut_words(cell, width));
                if place == 0 { self.marked(&text, style) } else { text.into_owned() }
            }));
        }

        for (place, (column, (name, align))) in table.column_iter_mut().zip(&self.columns).enumerate() {
            column.set_padding((0, GAP as u16));
            if *align == Align::Right {
                column.set_cell_alignment(CellAlignment::Right);
            }
            if self.hidden.contains(name) {
                column.set_constraint(ColumnConstraint::Hidden);
            } else if let Some(width) = width(place) {
                column.set_constraint(ColumnConstraint::Absolute(Width::Fixed((width + GAP) as u16)));
            }
        }
        table
    }

    /// A text with marks around each word, where the page has colours and the style is one.
    fn marked(&self, text: &str, style: Style) -> String {
        match MARKS.iter().find(|(_, of)| *of == style) {
            Some((mark, _)) if self.page.color && !text.is_empty() => {
                format!("{mark}{}{END_MARK}", text.replace(' ', &format!("{END_MARK} {mark}")))
            }
            _ => text.to_owned(),
        }
    }

    /// A line of the table with styles instead of marks. Words one space apart are of one cell, and of one style.
    fn styled(&self, line: &str) -> String {
        let mut line = line.to_owned();
        for (mark, style) in MARKS.iter().filter(|_| self.page.color) {
            line = line.replace(&format!("{END_MARK} {mark}"), " ").replace(*mark, &style.to_string());
        }
        line.replace(END_MARK, &format!("{HEADER:#}"))
    }

    /// The widths of the columns where texts have to be wrapped, after cells and columns were made to fit the page;
    /// 0 for hidden ones. `None` if each column is as wide as its texts.
    fn fit(&mut self) -> Option<Vec<usize>> {
        let natural = self.widths(display_width);
        let page = self.page.width.map(usize::from).filter(|page| total(&natural) > *page)?;
        if self.detail == Detail::Full {
            return self.fitted(page, self.columns.len());
        }

        let last = self.columns.len().saturating_sub(1);
        self.shorten_last(page.saturating_sub(total(&natural[..last]) + GAP).max(NARROWEST));
        let mut widths = self.fitted(page, last);
        if widths.is_none() {
            self.shorten();
            widths = self.fitted(page, last);
        }
        while widths.is_none() && self.hide_one() {
            widths = self.fitted(page, last);
        }
        widths.or_else(|| self.fitted(page, 0))
    }

    /// The widths on a page, if they are enough for each word. Those of text columns from a place on may be cut.
    fn fitted(&self, page: usize, cut_from: usize) -> Option<Vec<usize>> {
        let mut least = self.widths(longest_word);
        for (width, (_, align)) in least.iter_mut().zip(&self.columns).skip(cut_from) {
            *width = if *align == Align::Left { NARROWEST.min(*width) } else { *width };
        }
        (total(&least) <= page).then(|| spread(&self.widths(display_width), &least, page))
    }

    /// The width that each column needs where a text needs as much as `of` says; 0 for hidden ones.
    fn widths(&self, of: fn(&str) -> usize) -> Vec<usize> {
        let width = |(place, (name, _)): (usize, &(String, Align))| {
            let cells = self.rows.iter().filter_map(|(_, cells)| cells.get(place));
            let widest = cells.chain([name]).map(|text| of(text)).max();
            widest.filter(|_| !self.hidden.contains(name)).unwrap_or_default()
        };
        self.columns.iter().enumerate().map(width).collect()
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

    /// Hides the least important column that is left; false if every column is needed.
    fn hide_one(&mut self) -> bool {
        while let Some(name) = self.dispensable.pop() {
            if self.columns.iter().any(|(column, _)| *column == name) {
                self.hidden.push(name);
                return true;
            }
        }
        false
    }
}

/// What a cell is sorted by.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum SortKey<'a> {
    Severity(usize),
    Number(u128),
    Network(IpNet),
    Text(&'a str),
    /// A dash or nothing.
    None,
}

impl<'a> SortKey<'a> {
    fn of(cell: &'a str) -> Self {
        if cell.is_empty() || cell == "-" {
            return Self::None;
        }
        let severity = Severity::ALL.iter().position(|severity| severity.to_string() == cell);
        let number = || cell.replace(',', "").parse().ok();
        let network = || cell.parse().ok().or_else(|| cell.parse::<IpAddr>().ok().map(IpNet::from));
        severity
            .map(Self::Severity)
            .or_else(|| number().map(Self::Number))
            .or_else(|| network().map(Self::Network))
            .unwrap_or(Self::Text(cell))
    }
}

/// The width of a line of columns.
fn total(widths: &[usize]) -> usize {
    let shown = widths.iter().filter(|width| **width > 0);
    shown.map(|width| width + GAP).sum::<usize>().saturating_sub(GAP)
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

/// `k8s-pod-network.1efa87f4…`: handle IDs with the first digits of their container's ID. `None` if there is none.
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
