//! Maps of pools: half-block characters in 256 colors, or an ASCII character for each cell.

use std::collections::{BTreeMap, HashMap};

use calipam_check::Severity;
use calipam_check::views::{MapCell, MapList, PoolMap};
use clap::builder::styling::{Ansi256Color, Color, Style};
use textwrap::core::display_width;

use super::View;
use crate::render::output::Text;
use crate::render::page::Page;
use crate::render::text::{count, join, thousands};

/// The number of cells in a line if the width is unknown.
const USUAL: u32 = 64;
/// The minimum number of cells in a line, even on a narrow terminal.
const FEWEST: u32 = 16;
/// The maximum number of cells with findings that are listed below a map.
const NAMED: usize = 10;

impl View for MapList {
    const KIND: &'static str = "PoolMapList";
    const NAME: &'static str = "pool";

    fn names(&self) -> impl Iterator<Item = String> {
        self.pools.iter().map(|pool| pool.name.clone())
    }

    /// Draws the map of each pool, and a legend.
    fn text(&self, text: &mut Text) {
        if self.pools.is_empty() {
            return text.line("There are no pools");
        }
        for map in &self.pools {
            add_map(text, map);
        }
        if has_half_blocks(text.page) {
            text.drawn(&colors());
        } else {
            text.line(LEGEND);
        }
    }
}

/// The legend of maps with a character for each cell.
const LEGEND: &str = "Legend: . no block; - block with nothing taken; 1-9 tenths of the cell taken; # all taken; \
                      ? unknown. A letter is the worst finding: C critical, E error, W warning, I info";

/// True if two cells of a map share a character. Only colors tell them apart.
fn has_half_blocks(page: Page) -> bool {
    page.color && page.unicode
}

/// Draws the map of a pool, and names the cells with findings below it.
fn add_map(text: &mut Text, map: &PoolMap) {
    text.line(title(map));
    let drawing = Drawing::new(map, text.page);
    if has_half_blocks(text.page) {
        drawing.half_blocks(text);
    } else {
        drawing.characters(text);
    }

    let limit = if text.page.wide { usize::MAX } else { NAMED };
    let indent = 2;
    for line in findings(map, limit) {
        text.hanging(indent, line);
    }
    text.blank();
}

/// Formats `default-ipv4-ippool (10.244.0.0/16): 6 of 1,024 cells hold blocks; a cell is a /26`.
fn title(map: &PoolMap) -> String {
    let with_blocks = map.cells.iter().filter(|cell| cell.blocks > 0).count();
    let verb = if with_blocks == 1 { "holds" } else { "hold" };
    format!(
        "{} ({}): {} of {} {verb} blocks; a cell is a /{}",
        map.name,
        map.cidr,
        thousands(with_blocks),
        count(map.size as usize, "cell", "cells"),
        map.cell_size
    )
}

/// Formats the cells with findings, a line for each, the worst first, so that no information is shown by color alone.
/// Names at most `limit` cells, and counts the others in a last line.
fn findings(map: &PoolMap, limit: usize) -> Vec<String> {
    let mut marked: Vec<(Severity, &MapCell)> = Vec::new();
    for cell in &map.cells {
        if let Some(worst) = cell.worst {
            marked.push((worst, cell));
        }
    }
    marked.sort_by_key(|(worst, cell)| (*worst, cell.index));

    let (named, further) = marked.split_at(limit.min(marked.len()));
    let mut lines: Vec<String> = Vec::new();
    for (worst, cell) in named {
        let number = count(cell.findings as usize, "finding", "findings");
        let cidr = map.cell_cidr(cell.index);
        lines.push(format!("{cidr}: {number} (worst: {worst})"));
    }
    if !further.is_empty() {
        let numbers = numbers_by_severity(further);
        lines.push(format!("and {numbers}; `-o wide` names them"));
    }
    lines
}

/// Formats the numbers of cells by their worst finding, such as `2 error and 31 warning`.
fn numbers_by_severity(cells: &[(Severity, &MapCell)]) -> String {
    let mut numbers: BTreeMap<Severity, usize> = BTreeMap::new();
    for (worst, _) in cells {
        *numbers.entry(*worst).or_default() += 1;
    }
    let mut parts: Vec<String> = Vec::new();
    for (worst, number) in numbers {
        parts.push(format!("{} {worst}", thousands(number)));
    }
    join(&parts)
}

/// The symbol for a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Glyph {
    Unclaimed,
    Free,
    /// Tenths of the addresses that are in use, cooling down or reserved, from 1 to 9.
    Used(u8),
    Full,
    Unknown,
    Found(Severity),
}

impl Glyph {
    /// Returns the glyph of a cell: its worst finding, or else the share of its addresses that is taken.
    fn of_cell(cell: Option<&MapCell>) -> Self {
        let Some(cell) = cell else { return Self::Unclaimed };
        if let Some(worst) = cell.worst {
            return Self::Found(worst);
        }
        if cell.unknown.0 > 0 {
            return Self::Unknown;
        }
        let taken = cell.in_use.0 + cell.cooling.0 + cell.reserved.0;
        if taken > 0 {
            return Self::of_share(taken, cell.total.0);
        }
        if cell.blocks > 0 {
            Self::Free
        } else {
            Self::Unclaimed
        }
    }

    /// Returns the glyph for a number of taken addresses that is not 0. Only a cell without a free address is full.
    fn of_share(taken: u128, total: u128) -> Self {
        if taken >= total {
            return Self::Full;
        }
        // Cells of IPv6 can have so many addresses that ten times their number overflows.
        let tenths = match taken.checked_mul(10) {
            Some(ten_times) => ten_times / total,
            None => taken / (total / 10),
        };
        Self::Used((tenths as u8).clamp(1, 9))
    }

    /// Returns the character of a glyph, for pages without color.
    fn character(self) -> char {
        match self {
            Self::Unclaimed => '.',
            Self::Free => '-',
            Self::Used(tenths) => char::from(b'0' + tenths),
            Self::Full => '#',
            Self::Unknown => '?',
            Self::Found(severity) => letter(severity),
        }
    }

    /// Returns one of the 256 terminal colors: gray for no block, blue to yellow by use, and red tones for findings.
    fn color(self) -> Color {
        let color = match self {
            Self::Unclaimed => 238,
            Self::Free => 18,
            Self::Used(1..=3) => 26,
            Self::Used(4..=6) => 37,
            Self::Used(_) => 113,
            Self::Full => 226,
            Self::Unknown => 250,
            Self::Found(severity) => red_tone(severity),
        };
        Ansi256Color(color).into()
    }
}

/// Returns the letter for a finding on a map without color.
fn letter(severity: Severity) -> char {
    match severity {
        Severity::Critical => 'C',
        Severity::Error => 'E',
        Severity::Warning => 'W',
        Severity::Info => 'I',
    }
}

/// Returns the number of the terminal color for a finding.
fn red_tone(severity: Severity) -> u8 {
    match severity {
        Severity::Critical => 201,
        Severity::Error => 196,
        Severity::Warning => 208,
        Severity::Info => 224,
    }
}

/// Returns the width of the widest label, of all cells with which a row can begin.
fn widest_label(map: &PoolMap) -> usize {
    let mut widest = 0;
    for index in (0..map.size).step_by(FEWEST as usize) {
        let label = map.cell_cidr(index).network().to_string();
        widest = widest.max(display_width(&label));
    }
    widest
}

/// A map on a page. Each row has the address of its first cell, and `columns` cells.
struct Drawing<'a> {
    map: &'a PoolMap,
    cells: HashMap<u32, &'a MapCell>,
    columns: u32,
    label_width: usize,
}

impl<'a> Drawing<'a> {
    /// Prepares the drawing of a map, with as many columns as the width of a page allows.
    fn new(map: &'a PoolMap, page: Page) -> Self {
        let label_width = widest_label(map);
        let room = match page.width {
            Some(width) => u32::from(width).saturating_sub(label_width as u32 + 1),
            None => USUAL,
        };
        // With a power of two, every row begins at an aligned address.
        let columns = (1 << room.max(FEWEST).ilog2()).min(map.size);
        Self {
            map,
            cells: map.cells.iter().map(|cell| (cell.index, cell)).collect(),
            columns,
            label_width,
        }
    }

    /// Returns the glyph of a cell; `None` after the end of the pool.
    fn glyph(&self, row: u32, column: u32) -> Option<Glyph> {
        let index = row * self.columns + column;
        if index >= self.map.size {
            return None;
        }
        Some(Glyph::of_cell(self.cells.get(&index).copied()))
    }

    fn rows(&self) -> u32 {
        self.map.size.div_ceil(self.columns)
    }

    fn label(&self, row: u32) -> String {
        let address = self.map.cell_cidr(row * self.columns).network().to_string();
        format!("{address:<width$} ", width = self.label_width)
    }

    /// Draws the map with a character for each cell.
    fn characters(&self, text: &mut Text) {
        for row in 0..self.rows() {
            let mut line = self.label(row);
            for column in 0..self.columns {
                line.extend(self.glyph(row, column).map(Glyph::character));
            }
            text.drawn(&line);
        }
    }

    /// Draws two rows of cells on one line with the character `▀`. The upper cells are its foreground, and the lower
    /// cells its background.
    fn half_blocks(&self, text: &mut Text) {
        // The last line has no lower cells if the number of rows is odd.
        for upper_row in (0..self.rows()).step_by(2) {
            let mut pairs: Vec<(Option<Glyph>, Option<Glyph>)> = Vec::new();
            for column in 0..self.columns {
                pairs.push((self.glyph(upper_row, column), self.glyph(upper_row + 1, column)));
            }
            let mut line = self.label(upper_row);
            // Cells with the same colors share the escape sequences.
            for run in pairs.chunk_by(|pair, next| pair == next) {
                let (upper, lower) = run[0];
                let style = Style::new()
                    .fg_color(upper.map(Glyph::color))
                    .bg_color(lower.map(Glyph::color));
                let characters = "▀".repeat(run.len());
                line.push_str(&format!("{style}{characters}{style:#}"));
            }
            text.drawn(&line);
        }
    }
}

/// Formats the legend of the colors.
fn colors() -> String {
    let use_of_cells = [
        (Glyph::Unclaimed, "no block"),
        (Glyph::Free, "free"),
        // A number of tenths stands for all that have the same color.
        (Glyph::Used(1), "below 40% taken"),
        (Glyph::Used(4), "below 70%"),
        (Glyph::Used(7), "more"),
        (Glyph::Full, "all"),
        (Glyph::Unknown, "unknown"),
    ];
    let worst_findings = [
        (Glyph::Found(Severity::Critical), "critical"),
        (Glyph::Found(Severity::Error), "error"),
        (Glyph::Found(Severity::Warning), "warning"),
        (Glyph::Found(Severity::Info), "info"),
    ];
    let line = |parts: &[(Glyph, &str)]| {
        let mut words = Vec::new();
        for (glyph, word) in parts {
            let style = Style::new().fg_color(Some(glyph.color()));
            words.push(format!("{style}■{style:#} {word}"));
        }
        words.join("  ")
    };
    format!(
        "{}\nWorst finding: {}",
        line(&use_of_cells),
        line(&worst_findings)
    )
}

#[cfg(test)]
mod tests {
    use calipam_check::views::Count;

    use super::*;

    fn cell(in_use: u128, total: u128) -> MapCell {
        MapCell {
            blocks: 1,
            in_use: Count(in_use),
            total: Count(total),
            ..MapCell::default()
        }
    }

    #[test]
    fn a_cell_shows_its_worst_state() {
        let of = |cell: MapCell| Glyph::of_cell(Some(&cell)).character();
        let glyphs = [
            of(cell(0, 64)),
            of(cell(1, 64)),
            of(cell(63, 64)),
            of(cell(64, 64)),
        ];
        assert_eq!(glyphs, ['-', '1', '9', '#']);
        assert_eq!(of(cell(u128::MAX / 2, u128::MAX)), '5');
        assert_eq!(
            of(MapCell {
                unknown: Count(1),
                ..cell(1, 64)
            }),
            '?'
        );
        assert_eq!(
            of(MapCell {
                worst: Some(Severity::Warning),
                ..cell(1, 64)
            }),
            'W'
        );
        assert_eq!(
            of(MapCell {
                blocks: 0,
                ..cell(0, 64)
            }),
            '.'
        );
        assert_eq!(Glyph::of_cell(None).character(), '.');
    }
}
