//! The two packages: calipam, and its CNI plugin.

use std::path::Path;

use crate::files::{Content, Entry, completion_place, file};
use crate::{Request, Result, VERSION, read};

/// A package of any format.
#[derive(Debug)]
pub(crate) struct Package {
    pub name: &'static str,
    pub summary: &'static str,
    pub description: &'static str,
    pub entries: Vec<Entry>,
}

/// The summary of calipam's package.
pub(crate) const SUMMARY: &str =
    "Inspects, checks and repairs the IP address management (IPAM) data of Calico";
/// The description of calipam's package.
pub(crate) const DESCRIPTION: &str = "\
calipam reads blocks, affinities, handles and pools from etcd, Kubernetes or a file, compares them
with what really uses addresses, and says what is wrong, how it is known, and what to do.
Repairs show a plan, ask, and keep a journal from which they can be undone.
";

/// The name of calipam's file on an operating system.
pub(crate) fn program(os: &str) -> &'static str {
    if os == "windows" { "calipam.exe" } else { "calipam" }
}

/// Other names of calipam, installed as links.
const LINKS: [&str; 3] = ["ipam", "kubectl-ipam", "kubectl-calico"];

impl Package {
    /// Collects the packages for a target. The plugin is for Linux only.
    pub(crate) fn all(request: &Request) -> Result<Vec<Self>> {
        let mut all = vec![Self::calipam(request)?];
        if request.machine.os == "linux" {
            all.push(Self::cni(request)?);
        }
        Ok(all)
    }

    /// The package of calipam, with completions, man pages and systemd units.
    fn calipam(request: &Request) -> Result<Self> {
        let root = &request.root;
        let name = program(request.machine.os);
        let mut entries = vec![file(name, "usr/bin/calipam", request.program(name)?, 0o755)];
        for link in LINKS {
            let place = format!("usr/bin/{link}");
            entries.push(Entry {
                name: link.to_owned(),
                place,
                content: Content::Link("calipam"),
            });
        }
        for (name, content) in calipam::completion_scripts() {
            if let Some((place, mode)) = completion_place(&name) {
                entries.push(file(&format!("completions/{name}"), &place, content, mode));
            }
        }
        for (name, text) in calipam::MAN_PAGES {
            let place = format!("usr/share/man/man1/{name}.gz");
            // Packages contain compressed man pages, archives plain ones.
            entries.push(file(
                &format!("man/{name}"),
                &place,
                text.as_bytes().to_owned(),
                0o644,
            ));
        }
        for (path, place) in [
            (
                "docs/systemd/calipam-check.service",
                "usr/lib/systemd/system/calipam-check.service",
            ),
            (
                "docs/systemd/calipam-check.timer",
                "usr/lib/systemd/system/calipam-check.timer",
            ),
            ("docs/systemd/calipam.sysusers", "usr/lib/sysusers.d/calipam.conf"),
            ("docs/systemd/crontab", "usr/share/doc/calipam/crontab"),
            ("LICENSE", "usr/share/doc/calipam/copyright"),
            ("README.md", "usr/share/doc/calipam/README.md"),
            ("CHANGELOG.md", "usr/share/doc/calipam/CHANGELOG.md"),
        ] {
            entries.push(project_file(root, path, place)?);
        }
        Ok(Self {
            name: "calipam",
            summary: SUMMARY,
            description: DESCRIPTION,
            entries,
        })
    }

    /// The package of the plugin. It only puts the plugin on PATH; the plugin installs itself on a node.
    fn cni(request: &Request) -> Result<Self> {
        let root = &request.root;
        let mut entries = vec![file(
            "calipam-cni",
            "usr/bin/calipam-cni",
            request.program("calico-ipam")?,
            0o755,
        )];
        for (path, place) in [
            (
                "docs/systemd/calipam-cni.service",
                "usr/lib/systemd/system/calipam-cni.service",
            ),
            ("LICENSE", "usr/share/doc/calipam-cni/copyright"),
            ("docs/cni.md", "usr/share/doc/calipam-cni/cni.md"),
        ] {
            entries.push(project_file(root, path, place)?);
        }
        Ok(Self {
            name: "calipam-cni",
            summary: "The CNI plugin calico-ipam of calipam, and its installer",
            description: "\
A drop-in for Calico's CNI plugin calico-ipam, on the same data.
`calipam-cni install` puts it in place of Calico's, `calipam-cni uninstall` restores Calico's.
",
            entries,
        })
    }

    /// The file name of the archive, without the extension.
    pub(crate) fn stem(&self, target: &str) -> String {
        format!("{}-{VERSION}-{target}", self.name)
    }
}

/// A file of the project. Archives drop `docs/` from its path.
fn project_file(root: &Path, path: &str, place: &str) -> Result<Entry> {
    Ok(file(
        path.trim_start_matches("docs/"),
        place,
        read(&root.join(path))?,
        0o644,
    ))
}
