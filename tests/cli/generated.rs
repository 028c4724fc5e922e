//! Generated files are current.

use super::program::{files, root};

#[path = "../../crates/cli/examples/generated_files/main.rs"]
#[allow(dead_code, reason = "the program that writes the files has a main of its own")]
mod generated_files;

#[test]
fn committed_files_are_current_and_no_others_are_left_over() {
    let generated = generated_files::files().unwrap();
    assert!(generated.len() > 10, "{:?}", generated.keys());
    for (name, content) in &generated {
        let committed = std::fs::read(root().join(name)).unwrap_or_default();
        assert!(
            committed == *content,
            "{name} is not current: run `cargo xtask generate`"
        );
    }
    for file in ["completions", "docs/man"]
        .into_iter()
        .flat_map(|folder| files(&root().join(folder)))
    {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        assert!(generated.contains_key(&name), "{name} is not generated any more");
    }
    let held: Vec<String> = calipam::MAN_PAGES
        .iter()
        .map(|(name, _)| format!("docs/man/{name}"))
        .collect();
    let pages: Vec<&String> = generated
        .keys()
        .filter(|name| name.starts_with("docs/man/"))
        .collect();
    assert_eq!(
        held.iter().collect::<Vec<_>>(),
        pages,
        "`man_pages.rs` of `install-links` lists them"
    );
}

/// The pictures in the README exist. They are not compared with new ones, since browser versions draw differently. Only
/// `cargo xtask generate` updates them.
#[test]
fn the_readme_shows_pictures_that_are_there() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let shown: Vec<&str> = readme
        .split("](docs/images/")
        .skip(1)
        .map(|rest| rest.split(')').next().unwrap())
        .collect();
    assert_eq!(shown, ["page.png", "map.png"]);
    for name in shown {
        let picture = std::fs::read(root().join("docs/images").join(name)).unwrap();
        assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n"), "{name}");
        // The width is in the header of the PNG file.
        assert_eq!(picture[16..20], 1280_u32.to_be_bytes(), "{name}");
        assert!(picture.len() < 400_000, "{name}: {} bytes", picture.len());
    }
}
