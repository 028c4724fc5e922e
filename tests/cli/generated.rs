//! Generated files are current.

use super::program::root;

#[path = "../../crates/cli/examples/generated_files/main.rs"]
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
fn the_program_holds_every_man_page() {
    let held: Vec<String> = calipam::MAN_PAGES.iter().map(|(name, _)| format!("docs/man/{name}")).collect();
    let files = generated_files::files().unwrap();
    let pages: Vec<&String> = files.keys().filter(|name| name.starts_with("docs/man/")).collect();
    assert_eq!(held.iter().collect::<Vec<_>>(), pages, "`man_pages.rs` of `install-links` lists them");
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

/// The pictures in the README exist. They are not compared with new ones, since browser versions draw differently. Only
/// `cargo xtask generate` updates them.
#[test]
fn the_readme_shows_pictures_that_are_there() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let shown: Vec<&str> =
        readme.split("](docs/images/").skip(1).map(|rest| rest.split(')').next().unwrap()).collect();
    assert_eq!(shown, ["page.png", "map.png"]);
    for name in shown {
        let picture = std::fs::read(root().join("docs/images").join(name)).unwrap();
        assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n"), "{name}");
        // The width is in the header of the PNG file.
        assert_eq!(picture[16..20], 1280_u32.to_be_bytes(), "{name}");
        assert!(picture.len() < 400_000, "{name}: {} bytes", picture.len());
    }
}
