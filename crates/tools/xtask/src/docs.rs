//! `cargo xtask docs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::failure::Failure;
use crate::{step, tools, workspace};

/// Build the documentation as a site, with search
///
/// Makes README.md, CHANGELOG.md and docs/ a site of static files below
/// target/site/book, with a table of contents (docs/site/SUMMARY.md) and search, by
/// mdBook. Serve it by any web server, or open target/site/book/index.html.
///
/// Needs mdbook 0.5. If there is none in PATH, it is built once into
/// target/tools, which takes minutes and downloads Rust crates.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Docs;

/// The version of mdBook that is built if the machine has none.
const MDBOOK: &str = "^0.5";

/// The pages and the files that they link to. All keep their relative paths, so that links work.
const SOURCES: [&str; 5] = [
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "docs",
    "tests/fixtures/schemas",
];

pub(crate) fn run() -> Result<(), Failure> {
    let mdbook = mdbook()?;
    let site = workspace::root().join("target/site");
    let pages = site.join("src");
    fs::remove_dir_all(&site).ok();
    let folder = pages.join("tests/fixtures");
    fs::create_dir_all(&folder).map_err(|error| Failure::io("create", &folder, &error))?;
    let copy = |from: &str, to: PathBuf| step::run_silently(Command::new("cp").args(["-R", from]).arg(to));
    for source in SOURCES {
        copy(source, pages.join(source))?;
    }
    copy("docs/site/book.toml", site.join("book.toml"))?;
    copy("docs/site/SUMMARY.md", pages.join("SUMMARY.md"))?;
    step::run(
        "Building target/site/book",
        Command::new(mdbook).arg("build").arg(&site),
    )?;
    list_folders(&site.join("book/docs"))
}

fn mdbook() -> Result<PathBuf, Failure> {
    let tools = workspace::root().join("target/tools");
    let program = tools.join("bin/mdbook");
    if let Some(found) = tools::on_path("mdbook").or_else(|| program.is_file().then(|| program.clone())) {
        return Ok(found);
    }
    let mut install = workspace::cargo();
    install
        .args(["install", "--locked", "mdbook", "--version", MDBOOK, "--root"])
        .arg(tools);
    step::run("Building mdbook (minutes, once)", &mut install)?;
    Ok(program)
}

/// Writes an index page into every folder, since pages link to folders and not every web server lists a folder's files.
fn list_folders(folder: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::io("list", folder, &error);
    let entries = fs::read_dir(folder).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let mut names = Vec::new();
    for entry in entries.map_err(failed)? {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            list_folders(&path)?;
        }
        names.push(name);
    }
    names.sort();
    let items: String = names
        .iter()
        .map(|name| format!("<li><a href=\"{name}\">{name}</a></li>\n"))
        .collect();
    fs::write(
        folder.join("index.html"),
        format!("<!DOCTYPE html>\n<ul>\n{items}</ul>\n"),
    )
    .map_err(failed)
}
