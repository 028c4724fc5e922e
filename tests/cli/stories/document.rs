//! Checks that `docs/repair.md` shows the output of the stories.

use std::fs;

use crate::cli::program::root;

/// The variable that makes the test update the document. Look at the difference before you commit it.
const UPDATE: &str = "CALIPAM_UPDATE_DOCS";

/// Compares the output of a story with the document below `<!-- story NAME n -->`.
pub(super) fn check_document(name: &str, told: &[String]) {
    let path = root().join("docs/repair.md");
    let mut document = fs::read_to_string(&path).unwrap();
    for (number, text) in (1..).zip(told) {
        let marker = format!("<!-- story {name} {number} -->\n```\n");
        let from = document
            .find(&marker)
            .unwrap_or_else(|| panic!("docs/repair.md lacks {marker:?}"));
        let from = from + marker.len();
        let to = from
            + format!("\n{}", &document[from..])
                .find("\n```\n")
                .expect("the block ends");
        if std::env::var_os(UPDATE).is_some() {
            document.replace_range(from..to, text);
        } else {
            assert_eq!(
                &document[from..to],
                text,
                "docs/repair.md is not what the program prints; `{UPDATE}=1 cargo test -p calipam stories -- \
                 --test-threads 1` writes it anew"
            );
        }
    }
    let beyond = format!("<!-- story {name} {} -->", told.len() + 1);
    assert!(
        !document.contains(&beyond),
        "docs/repair.md shows more than the story tells: {beyond}"
    );
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&path, document).unwrap();
    }
}
