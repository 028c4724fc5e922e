//! `version`.

use std::io::{self, Write};

use serde::Serialize;

use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::render::document::{Detail, Document};
use crate::render::table::Page;
use crate::render::wrap::on_page;

/// The program and what it reads.
#[derive(Debug, Serialize)]
struct Version {
    program: &'static str,
    version: &'static str,
    /// Of the source; empty in a build for development.
    commit: &'static str,
    reads: Reads,
}

/// The formats of data that the program reads.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Reads {
    datastores: [&'static str; 3],
    files: [&'static str; 3],
    /// The latest version of the format.
    export_version: u64,
    journal_version: u32,
}

const VERSION: Version = Version {
    program: "calipam",
    version: env!("CARGO_PKG_VERSION"),
    commit: env!("CALIPAM_COMMIT"),
    reads: Reads {
        datastores: ["etcd v3", "crd.projectcalico.org/v1", "projectcalico.org/v3"],
        files: ["export of calipam", "etcd snapshot", "Kubernetes list"],
        export_version: calipam_files::export::VERSION,
        journal_version: calipam_repair::journal::FORMAT,
    },
};

/// Prints the version.
pub(super) fn run(console: &Console) -> Result<Outcome, Failure> {
    console.print(&VERSION)?;
    Ok(Outcome::Clean)
}

impl Document for Version {
    fn kind(&self) -> &'static str {
        "Version"
    }

    fn text(&self, _: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let Self { program, version, commit, reads } = self;
        let built =
            if commit.is_empty() { "a development build".to_owned() } else { format!("commit {commit}") };
        writeln!(out, "{program} {version} ({built})")?;
        let lines = [
            format!("Datastores  {}", reads.datastores.join(", ")),
            format!("Files       {}", reads.files.join(", ")),
            format!(
                "Formats     exports up to version {}, journals up to version {}",
                reads.export_version, reads.journal_version
            ),
        ];
        lines.iter().try_for_each(|line| writeln!(out, "{}", on_page(line, 12, page)))
    }

    fn schema(&self) -> impl Serialize {
        self
    }
}
