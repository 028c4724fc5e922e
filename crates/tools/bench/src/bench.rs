//! The tables that the parts of the benchmark fill with measurements.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use calipam_testkit::servers::EtcdOptions;

use crate::cluster::Cluster;
use crate::measured::Measured;

/// The largest difference in bytes between complete responses to the same request.
const CUT: u64 = 1_000;

/// The titles of a table of commands and their floors.
pub(crate) const COMPARED: &str = "size | <what | bytes read | floor | time | ratio | peak memory";

/// One size that a part measures.
pub(crate) struct Bench<'a> {
    /// The path of `calipam`.
    pub program: &'a str,
    /// `etcd` or `kubernetes`.
    pub datastore: &'a str,
    pub size: &'a str,
    pub tables: &'a mut [Table],
}

impl Bench<'_> {
    /// The size as a number of allocations, pods or others.
    pub(crate) fn number(&self) -> Result<u64> {
        Ok(self.size.parse()?)
    }

    /// Starts a server with a healthy cluster of this size.
    pub(crate) fn cluster(&self) -> Result<Cluster> {
        Cluster::sized(self.datastore, self.number()?, EtcdOptions::new())
    }

    /// The path of another program in the folder of `calipam`.
    pub(crate) fn sibling(&self, name: &str) -> PathBuf {
        Path::new(self.program).with_file_name(name)
    }

    /// Adds a row to one of the part's tables. The size precedes the cells, which are separated by `|`.
    pub(crate) fn row(&mut self, table: usize, cells: &str) {
        let row = format!("{} | {cells}", self.size);
        let Table { titles, rows } = &mut self.tables[table];
        assert_eq!(row.matches('|').count(), titles.matches('|').count(), "{row}");
        rows.push(row);
    }

    /// Measures a command and its floor, the time in which a minimal client does the same work, `runs` times each. Adds
    /// a row with the best of each to the first table.
    ///
    /// They take turns, so that a disturbance of the machine affects both. Disturbances only ever make a run slower.
    pub(crate) fn compare(
        &mut self,
        what: &str,
        runs: usize,
        mut floor: impl FnMut() -> Result<Measured>,
        mut command: impl FnMut() -> Result<Measured>,
    ) -> Result<()> {
        let mut floors = Vec::new();
        let mut commands = Vec::new();
        for _ in 0..runs {
            floors.push(floor()?);
            commands.push(command()?);
        }
        let most = floors.iter().map(|floor| floor.bytes).max().unwrap_or_default();
        let is_whole = |floor: &Measured| floor.bytes + CUT >= most;
        ensure!(
            floors.iter().all(is_whole),
            "the server broke off one of its answers"
        );
        let floor = Measured::best(floors)?;
        let command = Measured::best(commands)?;
        let bytes = (floor.bytes > 0).then(|| format!("{:.0} MB", floor.bytes as f64 / 1e6));
        let cells = format!(
            "`{what}` | {} | {:.2} s | {:.2} s | {:.2} | {:.0} MiB",
            bytes.unwrap_or_default(),
            floor.seconds,
            command.seconds,
            command.seconds / floor.seconds,
            command.peak_mib,
        );
        self.row(0, &cells);
        Ok(())
    }
}

/// A table in Markdown.
pub(crate) struct Table {
    titles: &'static str,
    rows: Vec<String>,
}

impl Table {
    /// Creates an empty table. `titles` separates columns with `|`. Columns contain numbers, except those whose titles
    /// begin with `<`, which contain text.
    pub(crate) fn new(titles: &'static str) -> Self {
        Self {
            titles,
            rows: Vec::new(),
        }
    }

    pub(crate) fn print(&self) {
        let alignment = |title: &str| {
            if title.trim().starts_with('<') {
                "---|"
            } else {
                "---:|"
            }
        };
        println!("\n| {} |", self.titles.replace('<', ""));
        println!("|{}", self.titles.split('|').map(alignment).collect::<String>());
        self.rows.iter().for_each(|row| println!("| {row} |"));
    }
}
