//! `cargo xtask bench build`: measures builds from scratch.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use crate::failure::Failure;
use crate::{protoc, step, workspace};

/// The measurements by name. `change` reuses the build folder of `release`.
const ROWS: [(&str, Measure); 4] =
    [("demo", demo), ("release", release), ("change", change), ("graph", graph)];

/// A measurement. It builds the project below a folder and returns rows of the table.
type Measure = fn(&Path) -> Result<Vec<Row>, Failure>;

const PROGRAMS: [&str; 2] = ["calipam", "calico-ipam"];

/// The file that `change` adds a line to. Most crates depend on it.
const CHANGED: &str = "crates/check/src/lib.rs";

/// Clock ticks per second in `/proc`, the same on every Linux.
const TICKS: f64 = 100.0;

struct Row {
    what: String,
    cells: [String; 2],
}

/// Measures the named rows, or all rows if none is named, in an empty folder below `target`.
pub(super) fn run(named: &[String]) -> Result<(), Failure> {
    let known = ROWS.map(|(name, _)| name);
    if let Some(unknown) = named.iter().find(|name| !known.contains(&name.as_str())) {
        let failure = Failure::new(format!("`{unknown}` is not a part of `cargo xtask bench build`"));
        return Err(failure.hint(format!("its parts are {}", known.join(", "))));
    }
    step::run("Downloading the crates", workspace::cargo().args(["fetch", "--locked"]))?;
    let folder = workspace::root().join("target").join("bench-build");
    remove(&folder)?;

    let mut rows = Vec::new();
    for (name, measure) in ROWS {
        if named.is_empty() || named.iter().any(|wanted| wanted == name) {
            rows.extend(measure(&folder)?);
        }
    }
    remove(&folder)?;
    println!("| what | wall | processor time |\n|---|---:|---:|");
    for Row { what, cells: [first, second] } in rows {
        println!("| {what} | {first} | {second} |");
    }
    Ok(())
}

/// Builds what `cargo xtask demo` builds on a fresh clone: the tasks, and the program.
fn demo(folder: &Path) -> Result<Vec<Row>, Failure> {
    let target = folder.join("demo");
    let tasks = build(&target, &["--package", "xtask"])?;
    let program = build(&target, &["--package", "calipam"])?;
    Ok(vec![tasks.plus(&program).row("`cargo xtask demo`, from nothing")])
}

fn release(folder: &Path) -> Result<Vec<Row>, Failure> {
    let cost = build_release(folder)?;
    let mut rows = vec![cost.row("both programs, release, from nothing")];
    for program in PROGRAMS {
        let path = folder.join("release/release").join(program);
        let bytes = fs::metadata(&path).map_err(|error| Failure::io("read", &path, &error))?.len();
        let size = format!("{:.1} MB", bytes as f64 / 1e6);
        rows.push(Row { what: format!("size of {program}"), cells: [size, String::new()] });
    }
    Ok(rows)
}

fn change(folder: &Path) -> Result<Vec<Row>, Failure> {
    if !folder.join("release").is_dir() {
        build_release(folder)?;
    }
    let changed = ChangedFile::begin(&workspace::root().join(CHANGED))?;
    let cost = build_release(folder)?;
    changed.finish()?;
    Ok(vec![cost.row(&format!("both again, after a line in {CHANGED}"))])
}

fn build_release(folder: &Path) -> Result<Cost, Failure> {
    build(&folder.join("release"), &["--release", "--package", "calipam", "--package", "calipam-cni"])
}

/// Counts the packages that a build of calipam needs on this platform.
fn graph(_: &Path) -> Result<Vec<Row>, Failure> {
    let mut tree = workspace::cargo();
    tree.args(["tree", "--locked", "--package", "calipam", "--edges", "normal,build", "--prefix", "none"]);
    let output = tree.output().map_err(|error| Failure::new(format!("cannot run `cargo tree`: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let packages: BTreeSet<_> = text.lines().map(|line| line.split(" (").next()).collect();
    let what = "packages in the graph of calipam".to_owned();
    Ok(vec![Row { what, cells: [packages.len().to_string(), String::new()] }])
}

fn build(target: &Path, arguments: &[&str]) -> Result<Cost, Failure> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--locked", "--target-dir"]).arg(target).args(arguments).envs(protoc::variables()?);
    Cost::of(&mut cargo)
}

struct Cost {
    wall: Duration,
    /// The processor time of all processes that the command waited for; `None` if the system does not report it.
    processor: Option<Duration>,
}

impl Cost {
    fn of(command: &mut Command) -> Result<Self, Failure> {
        let (start, before) = (Instant::now(), processor_time());
        step::run("Building", command)?;
        let wall = start.elapsed();
        let processor = processor_time().zip(before).map(|(after, before)| after - before);
        Ok(Self { wall, processor })
    }

    fn plus(&self, other: &Self) -> Self {
        let processor = self.processor.zip(other.processor).map(|(one, two)| one + two);
        Self { wall: self.wall + other.wall, processor }
    }

    fn row(&self, what: &str) -> Row {
        let processor = self.processor.map_or_else(|| "unknown".to_owned(), step::seconds);
        Row { what: what.to_owned(), cells: [step::seconds(self.wall), processor] }
    }
}

/// The processor time of all descendants of this process that have been waited for.
fn processor_time() -> Option<Duration> {
    children(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// Reads the processor time of child processes: fields 16 and 17 of `stat`. The second field is a name, which may
/// contain spaces and parentheses.
fn children(stat: &str) -> Option<Duration> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(13);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some(Duration::from_secs_f64((ticks()? + ticks()?) / TICKS))
}

fn remove(folder: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::io("remove", folder, &error))
        }
        _ => Ok(()),
    }
}

/// A source file with an added line. Dropping it removes the line, even after a failed build.
struct ChangedFile {
    path: PathBuf,
    text: String,
    modified: SystemTime,
}

impl ChangedFile {
    fn begin(path: &Path) -> Result<Self, Failure> {
        let read = || Ok((fs::read_to_string(path)?, fs::metadata(path)?.modified()?));
        let (text, modified) = read().map_err(|error| Failure::io("read", path, &error))?;
        let changed = Self { path: path.to_owned(), text, modified };
        let longer = format!("{}\nconst _: () = ();\n", changed.text);
        fs::write(path, longer).map_err(|error| Failure::io("write", path, &error))?;
        Ok(changed)
    }

    fn finish(self) -> Result<(), Failure> {
        self.restore().map_err(|error| Failure::io("write", &self.path, &error))
    }

    /// Restores the text and the modification time, so that no other build sees a change.
    fn restore(&self) -> std::io::Result<()> {
        fs::write(&self.path, &self.text)?;
        File::options().append(true).open(&self.path)?.set_modified(self.modified)
    }
}

impl Drop for ChangedFile {
    fn drop(&mut self) {
        self.restore().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_children_is_read_after_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 0 0 11 12 150 25 20 0 1 0 100 0 0";
        assert_eq!(children(stat), Some(Duration::from_millis(1750)));
        assert_eq!(children("7 (a) S 1"), None);
    }

    #[test]
    fn a_changed_file_is_as_before_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lib.rs");
        fs::write(&path, "fn a() {}\n").unwrap();
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        let changed = ChangedFile::begin(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "fn a() {}\n\nconst _: () = ();\n");
        drop(changed);
        assert_eq!(fs::read_to_string(&path).unwrap(), "fn a() {}\n");
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
    }
}
