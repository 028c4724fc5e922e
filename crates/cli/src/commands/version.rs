//! The `version` command.

use calipam_model::config::newest_known;
use calipam_model::snapshot::Source;
use serde::Serialize;

use crate::args::{Global, VersionArgs};
use crate::connect;
use crate::console::Console;
use crate::exit::{Outcome, Result};
use crate::render::document::Document;
use crate::render::output::Text;
use crate::render::text::escape;

/// The width of the labels before the texts.
const LABEL_WIDTH: usize = 12;

/// The program and the formats that it reads.
#[derive(Debug, Serialize)]
struct Version {
    program: &'static str,
    version: &'static str,
    /// The commit of the source; empty in a development build.
    commit: &'static str,
    reads: Reads,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<Cluster>,
}

/// The data formats that the program reads.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Reads {
    datastores: [&'static str; 4],
    files: [&'static str; 3],
    export_version: u64,
    journal_version: u32,
    /// The newest Calico version whose data format calipam knows.
    calico_version: String,
}

/// The version of the cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cluster {
    /// Empty if the cluster does not record its version.
    calico_version: String,
    /// True if calipam knows the data format of that version.
    is_known: bool,
}

/// Prints the program's version and, on request, the cluster's.
///
/// # Errors
/// If the cluster cannot be read.
pub(super) fn run(args: &VersionArgs, global: &Global, console: &Console) -> Result<Outcome> {
    // The program's own version needs no cluster.
    let mut cluster = None;
    if args.check_compat {
        cluster = Some(read_cluster(global, console)?);
    }
    let outcome = match &cluster {
        Some(cluster) if !cluster.is_known => Outcome::Findings,
        _ => Outcome::Clean,
    };
    console.print(&Version {
        program: "calipam",
        version: env!("CARGO_PKG_VERSION"),
        commit: env!("CALIPAM_COMMIT"),
        reads: Reads {
            datastores: [
                "etcd v3",
                "etcd v2 (Calico 2.x)",
                "crd.projectcalico.org/v1",
                "projectcalico.org/v3",
            ],
            files: ["calipam export", "etcd snapshot", "Kubernetes list"],
            export_version: calipam_files::export::VERSION,
            journal_version: calipam_repair::journal::FORMAT,
            calico_version: newest_known(),
        },
        cluster,
    })?;
    Ok(outcome)
}

/// Reads the version of the cluster's Calico, and whether calipam knows it.
fn read_cluster(global: &Global, console: &Console) -> Result<Cluster> {
    let snapshot = connect::with(global, console, async |access| {
        calipam_workflow::read_sources(access, &[Source::ClusterInformation]).await
    })?;
    let information = snapshot.cluster.unwrap_or_default();
    // A cluster without a readable version counts as unknown.
    let is_known = information.is_known().unwrap_or(false);
    Ok(Cluster {
        calico_version: information.calico_version,
        is_known,
    })
}

impl Cluster {
    fn text(&self) -> String {
        match (self.calico_version.as_str(), self.is_known) {
            ("", _) => "does not name its Calico version".to_owned(),
            (version, true) => format!("Calico {}, which calipam knows", escape(version)),
            (version, false) => format!("Calico {}, which calipam does not know", escape(version)),
        }
    }
}

impl Document for Version {
    const KIND: &'static str = "Version";

    /// Writes the version of the program, what it reads, and the cluster's version if there is a cluster.
    fn text(&self, out: &mut Text) {
        let Self {
            program,
            version,
            commit,
            reads,
            cluster,
        } = self;
        let built = if commit.is_empty() {
            "a development build".to_owned()
        } else {
            format!("commit {commit}")
        };
        out.line(format!("{program} {version} ({built})"));
        let mut lines = vec![
            format!("Datastores  {}", reads.datastores.join(", ")),
            format!("Files       {}", reads.files.join(", ")),
            format!(
                "Formats     export version {}, journal version {}",
                reads.export_version, reads.journal_version
            ),
            format!("Calico      up to {}", reads.calico_version),
        ];
        if let Some(cluster) = cluster {
            lines.push(format!("Cluster     {}", cluster.text()));
        }
        for line in &lines {
            out.hanging(LABEL_WIDTH, line);
        }
    }
}
