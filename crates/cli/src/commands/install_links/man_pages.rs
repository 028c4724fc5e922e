//! The man pages of `docs/man`, which `cargo xtask generate` writes.

macro_rules! pages {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../../docs/man/", $name)))),*]
    };
}

/// The file name and text of each page.
pub const MAN_PAGES: &[(&str, &str)] = pages![
    "calipam-assign.1",
    "calipam-check.1",
    "calipam-completion.1",
    "calipam-configure.1",
    "calipam-diff.1",
    "calipam-explain.1",
    "calipam-export.1",
    "calipam-history.1",
    "calipam-install-links.1",
    "calipam-migrate.1",
    "calipam-rebuild.1",
    "calipam-record.1",
    "calipam-release.1",
    "calipam-serve.1",
    "calipam-show.1",
    "calipam-simulate.1",
    "calipam-split.1",
    "calipam-undo.1",
    "calipam-version.1",
    "calipam.1",
];
