//! Rules for pages and comments: paths and links are valid, every page is in the site, there are no doc tests, and doc
//! comments begin plainly.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const PAGES: [&str; 3] = [
    "docs/architecture.md",
    "docs/CONTRIBUTING.md",
    "tests/servers/README.md",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The strings between backticks, outside of code blocks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let outside = text.split("```").step_by(2);
    outside.flat_map(|part| part.split('`').skip(1).step_by(2))
}

/// Returns true for a path from the root or from `crates`, such as `check/src/code.rs`.
fn is_path(word: &str) -> bool {
    // `NAME` stands for the name of any command.
    let is_plain = !word.contains("NAME")
        && word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "/_.-".contains(c));
    is_plain && (word.starts_with("crates/") || word.contains("/src/") || word.ends_with("/src"))
}

#[test]
fn every_path_that_is_named_is_there() {
    let mut missing = Vec::new();
    for page in PAGES {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let paths: Vec<&str> = quoted(&text).filter(|word| is_path(word)).collect();
        assert!(!paths.is_empty(), "{page} names no path");
        let is_there = |path: &str| root().join(path).exists() || root().join("crates").join(path).exists();
        let gone = paths.into_iter().filter(|path| !is_there(path));
        missing.extend(gone.map(|path| format!("{page}: {path}")));
    }
    assert_eq!(missing, [""; 0]);
}

/// The documentation pages: at the root, in `docs`, and the page about the servers for tests.
fn pages() -> Vec<String> {
    let docs = fs::read_dir(root().join("docs")).unwrap();
    let names = docs.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let docs = names
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("docs/{name}"));
    docs.chain(["README.md", "CHANGELOG.md", "tests/servers/README.md"].map(str::to_owned))
        .collect()
}

/// The targets of a page's links, outside of code.
fn links(text: &str) -> Vec<&str> {
    let prose = text
        .split("```")
        .step_by(2)
        .flat_map(|part| part.split('`').step_by(2));
    let targets = prose
        .flat_map(|part| part.split("](").skip(1))
        .filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).collect()
}

/// The anchors of a page's headings: in lower case, without punctuation, with `-` for spaces.
fn anchors(text: &str) -> BTreeSet<String> {
    let outside = text.split("\n```").step_by(2).flat_map(str::lines);
    let headings = outside
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim());
    let anchor = |heading: &str| {
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    let mut seen = 0;
    for page in pages() {
        let path = root().join(&page);
        let text = fs::read_to_string(&path).unwrap();
        for link in links(&text) {
            seen += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                path.clone()
            } else {
                path.parent().unwrap().join(file)
            };
            let leads = match anchor {
                "" => target.exists(),
                _ => fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor)),
            };
            if !leads {
                broken.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(seen > 200, "only {seen} links were found");
    assert_eq!(broken, [""; 0]);
}

#[test]
fn every_page_is_in_the_site_once() {
    let summary = fs::read_to_string(root().join("docs/site/SUMMARY.md")).unwrap();
    let mut listed = links(&summary);
    listed.sort_unstable();
    let mut expected = pages();
    expected.retain(|page| !page.starts_with("tests/"));
    expected.sort_unstable();
    assert_eq!(listed, expected);
}

/// Every source file below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let own = files
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    own.chain(folders.iter().flat_map(|folder| sources(folder)))
        .collect()
}

/// Every source file of the crates: its path below `crates`, and its content.
fn texts() -> impl Iterator<Item = (String, String)> {
    let crates = root().join("crates");
    sources(&crates).into_iter().map(move |path| {
        (
            path.strip_prefix(&crates).unwrap().display().to_string(),
            fs::read_to_string(&path).unwrap(),
        )
    })
}

/// Doc tests are not allowed, since `cargo xtask test` does not run them. To run them, it would have to start rustdoc
/// for each crate.
#[test]
fn no_comment_holds_a_test() {
    for (place, text) in texts() {
        let fences = text.lines().filter_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("/// ```")
                .or_else(|| line.strip_prefix("//! ```"))
        });
        let opening = fences.step_by(2).filter(|language| *language != "text").count();
        assert_eq!(opening, 0, "{place}: a block that is not `text` is a test");
    }
}

/// Words that begin a clause instead of a plain sentence.
const CLAUSE: [&str; 16] = [
    "What", "Who", "Whose", "Whom", "Of", "Where", "When", "How", "Which", "Those", "That", "Whether", "So",
    "Says", "Tells", "As",
];

/// The number of doc comments that may begin with a clause, in the product and in the tools.
const ALLOWED: [usize; 2] = [2, 0];

/// The doc comments of a source file that begin with a clause, without those of its tests.
fn clauses(text: &str) -> Vec<&str> {
    let mut is_continued = false;
    let begins_with_one = |line: &&str| {
        let comment = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"))
            .map(str::trim);
        let is_first = !std::mem::replace(&mut is_continued, comment.is_some());
        let word = comment.and_then(|comment| comment.split(|c: char| !c.is_alphanumeric()).next());
        is_first && word.is_some_and(|word| CLAUSE.contains(&word))
    };
    let lines = text
        .lines()
        .take_while(|line| !line.starts_with("mod tests {"))
        .map(str::trim);
    lines.filter(begins_with_one).collect()
}

#[test]
fn doc_comments_begin_with_the_thing_or_a_verb() {
    assert_eq!(
        clauses("/// What it is.\n/// Of it.\nfn a() {}\n  /// The thing.\n\n/// As it is."),
        ["/// What it is.", "/// As it is."]
    );
    let mut found = [Vec::new(), Vec::new()];
    for (place, text) in texts() {
        if !["/tests/", "/examples/", "tests.rs"]
            .iter()
            .any(|part| place.contains(part))
        {
            let comments = clauses(&text)
                .into_iter()
                .map(|comment| format!("{place}: {comment}"));
            found[usize::from(place.starts_with("tools/"))].extend(comments);
        }
    }
    for (found, allowed) in found.iter().zip(ALLOWED) {
        assert!(
            found.len() <= allowed,
            "{} of {allowed} clauses:\n{}",
            found.len(),
            found.join("\n")
        );
    }
}
