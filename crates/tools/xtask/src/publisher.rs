//! The URL and the registry under which the project is published, and the files that contain them.

use crate::failure::Failure;
use crate::workspace;

/// The files that contain an install command, an image or the URL of an archive.
const FILES: [&str; 10] = [
    "README.md",
    "docs/scheduled-checks.md",
    "docs/kubernetes/archive.yaml",
    "docs/kubernetes/cni/daemonset.yaml",
    "docs/kubernetes/cni/kustomization.yaml",
    "docs/kubernetes/cronjob.yaml",
    "docs/kubernetes/kustomization.yaml",
    "docs/kubernetes/serve.yaml",
    "docs/kubernetes/charts/calipam/values.yaml",
    "docs/kubernetes/charts/calipam-cni/values.yaml",
];

/// The table `workspace.metadata.publisher` of Cargo.toml.
pub(crate) struct Publisher {
    /// The URL below which packages can be downloaded.
    pub downloads: String,
    /// The registry of the images.
    pub registry: String,
}

impl Publisher {
    pub(crate) fn read() -> Result<Self, Failure> {
        let text = workspace::read("Cargo.toml")?;
        let table = text
            .split("[workspace.metadata.publisher]")
            .nth(1)
            .unwrap_or_default();
        let value = |name: &str| {
            let mut values = table
                .lines()
                .filter_map(|line| line.strip_prefix(name)?.split('"').nth(1));
            let missing = || {
                Failure::new(format!(
                    "Cargo.toml has no `{name}` in workspace.metadata.publisher"
                ))
            };
            values.next().map(str::to_owned).ok_or_else(missing)
        };
        Ok(Self {
            downloads: value("downloads")?,
            registry: value("registry")?,
        })
    }

    /// Fails if the URL or the registry is still a placeholder.
    pub(crate) fn require_published(&self) -> Result<(), Failure> {
        if self.downloads.contains("example.com") || self.registry.contains("example.com") {
            return Err(Failure::new("Cargo.toml does not say where calipam is published").hint(
                "set `downloads` and `registry` in workspace.metadata.publisher, then run `cargo xtask generate`",
            ));
        }
        Ok(())
    }

    /// Returns a file's text with its URLs and registries replaced by those of this publisher.
    fn current(&self, text: &str) -> String {
        let text = replace_before(
            text,
            &format!("/calipam-{}-", env!("CARGO_PKG_VERSION")),
            &self.downloads,
        );
        ["/calipam:latest", "/calipam-cni-installer", "/calipam\n"]
            .iter()
            .fold(text, |text, image| replace_before(&text, image, &self.registry))
    }
}

/// Replaces the word before each occurrence of `end`. The word is a URL or the name of a registry.
fn replace_before(text: &str, end: &str, word: &str) -> String {
    let mut parts: Vec<String> = text.split(end).map(str::to_owned).collect();
    let last = parts.len() - 1;
    for part in &mut parts[..last] {
        let start = part.rfind([' ', '=', '`', '"']).map_or(0, |at| at + 1);
        let start = start
            + part[start..]
                .find("docker://")
                .map_or(0, |at| at + "docker://".len());
        // A volume's path can end like an image's name.
        if !part[start..].starts_with('/') {
            part.replace_range(start.., word);
        }
    }
    parts.join(end)
}

/// Returns every file with the publisher's URL and registry: its path below the root, and its text.
pub(crate) fn files() -> Result<Vec<(String, String)>, Failure> {
    let publisher = Publisher::read()?;
    FILES
        .iter()
        .map(|file| Ok(((*file).to_owned(), publisher.current(&workspace::read(file)?))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_names_the_places_of_cargo_toml() {
        let publisher = Publisher::read().unwrap();
        let other = Publisher {
            downloads: "https://x.org/y".into(),
            registry: "r.org:5000/z".into(),
        };
        for file in FILES {
            let text = workspace::read(file).unwrap();
            assert!(
                publisher.current(&text) == text,
                "{file} is not current: `cargo xtask generate` writes it"
            );
            let moved = other.current(&text);
            let named = [&publisher.downloads, &publisher.registry]
                .iter()
                .any(|place| moved.contains(place.as_str()));
            assert!(moved != text && !named, "{file}: {moved}");
            assert!(publisher.current(&moved) == text, "{file}");
        }
        let line = "docker://registry.example.com/calipam:latest";
        assert_eq!(other.current(line), "docker://r.org:5000/z/calipam:latest");
    }

    #[test]
    fn placeholders_are_not_published() {
        let publisher = Publisher {
            downloads: "https://x.org".into(),
            registry: "registry.example.com".into(),
        };
        assert!(publisher.require_published().is_err());
        assert!(
            Publisher {
                registry: "r.org".into(),
                ..publisher
            }
            .require_published()
            .is_ok()
        );
    }
}
