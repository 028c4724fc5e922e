//! Generated files are current.

use super::program::root;

#[path = "../../crates/cli/examples/generated_files.rs"]
#[allow(dead_code, reason = "the program that writes the files has a main of its own")]
mod generated_files;

#[test]
fn committed_files_are_current() {
    let files = generated_files::files().unwrap();
    assert!(files.len() > 10, "{:?}", files.keys());
    for (name, content) in &files {
        let committed = std::fs::read(root().join(name)).unwrap_or_default();
        assert!(committed == *content, "{name} is not current: run `cargo xtask generate`");
    }
}

#[test]
fn nothing_else_is_left_over() {
    let files = generated_files::files().unwrap();
    for folder in ["completions", "docs/man"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let name = format!("{folder}/{}", entry.unwrap().file_name().to_str().unwrap());
            assert!(files.contains_key(&name), "{name} is not generated any more");
        }
    }
}
