//! The pages for people who work on the code name files that exist, and no test hides in a comment.

use std::fs;
use std::path::{Path, PathBuf};

const PAGES: [&str; 3] = ["docs/architecture.md", "docs/CONTRIBUTING.md", "tests/servers/README.md"];

/// What stands between backticks, outside of blocks of code.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let outside = text.split("```").step_by(2);
    outside.flat_map(|part| part.split('`').skip(1).step_by(2))
}

/// A path from the root, or from `crates`: `check/src/code.rs`.
fn is_path(word: &str) -> bool {
    // `NAME` stands for the name of any command.
    let is_plain =
        !word.contains("NAME") && word.chars().all(|c| c.is_ascii_alphanumeric() || "/_.-".contains(c));
    is_plain && (word.starts_with("crates/") || word.contains("/src/") || word.ends_with("/src"))
}

#[test]
fn every_path_that_is_named_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut missing = Vec::new();
    for page in PAGES {
        let text = fs::read_to_string(root.join(page)).unwrap();
        let paths: Vec<&str> = quoted(&text).filter(|word| is_path(word)).collect();
        assert!(!paths.is_empty(), "{page} names no path");
        let is_there = |path: &str| root.join(path).exists() || root.join("crates").join(path).exists();
        let gone = paths.into_iter().filter(|path| !is_there(path));
        missing.extend(gone.map(|path| format!("{page}: {path}")));
    }
    assert_eq!(missing, [""; 0]);
}

/// Every source file below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let own = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    own.chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

/// `cargo xtask test` runs no tests of comments: rustdoc would be started for each crate, for nothing.
#[test]
fn no_comment_holds_a_test() {
    for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")) {
        let text = fs::read_to_string(&path).unwrap();
        let fences = text.lines().filter_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("/// ```").or_else(|| line.strip_prefix("//! ```"))
        });
        let opening = fences.step_by(2).filter(|language| *language != "text").count();
        assert_eq!(opening, 0, "{}: a block that is not `text` is a test", path.display());
    }
}
