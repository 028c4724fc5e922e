//! Images of static programs as OCI layouts: folders that podman, skopeo and containerd read.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use tar::Builder;

use crate::archive::{add_file, add_folder};
use crate::files::{Machine, gzip};
use crate::{AUTHORS, REPOSITORY, Request, Result, VERSION, cannot, sums};

/// The user that runs calipam in its image, and in the manifests of docs/kubernetes.
const NOBODY: &str = "65532:65532";
/// The creation time in images: the epoch, so that the same programs give the same image.
const TIME: &str = "1970-01-01T00:00:00Z";

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

struct Image {
    name: &'static str,
    title: &'static str,
    /// The name of the built program, and its path in the image.
    program: (&'static str, &'static str),
    arguments: &'static [&'static str],
    user: &'static str,
}

const IMAGES: [Image; 2] = [
    Image {
        name: "calipam",
        title: "Inspects, checks and repairs the IP address management (IPAM) data of Calico",
        program: ("calipam", "usr/bin/calipam"),
        arguments: &[],
        user: NOBODY,
    },
    Image {
        name: "calipam-cni-installer",
        title: "Keeps calipam's CNI plugin calico-ipam in place of Calico's",
        program: ("calico-ipam", "usr/bin/calipam-cni"),
        arguments: &["install", "--watch"],
        // The installer writes into a folder that root owns.
        user: "0:0",
    },
];

/// Writes both images for a target. Images for other platforms stay in the layouts.
pub(crate) fn write_all(request: &Request, machine: &Machine, commit: &str) -> Result<Vec<PathBuf>> {
    let licence = request.root.join("LICENSE");
    let licence = fs::read(&licence).map_err(cannot("read", &licence))?;
    let mut written = Vec::new();
    for image in &IMAGES {
        let layout = Layout { folder: request.output.join(image.name) };
        let layer = layer(image, &request.program(image.program.0)?, &licence)?;
        layout.write(image, machine, &layer, commit)?;
        written.push(layout.folder);
    }
    Ok(written)
}

/// Builds the only layer: the program, its license, and an `/etc/passwd` that names its user.
fn layer(image: &Image, program: &[u8], licence: &[u8]) -> Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for folder in ["etc", "usr", "usr/bin", "usr/share", "usr/share/licenses"] {
        add_folder(&mut tar, &format!("{folder}/"))?;
    }
    let users = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n";
    add_file(&mut tar, "etc/passwd", users.as_bytes(), 0o644)?;
    add_file(&mut tar, image.program.1, program, 0o755)?;
    add_file(&mut tar, "usr/share/licenses/calipam", licence, 0o644)?;
    Ok(tar.into_inner()?)
}

/// The user and the entry point of an unpacked image.
pub(crate) struct Unpacked {
    /// The numbers of the user and the group.
    pub user: String,
    pub entry: Vec<String>,
}

/// Unpacks the image for a platform from a layout into a folder.
pub(crate) fn unpack(layout: &Path, machine: &Machine, into: &Path) -> Result<Unpacked> {
    let layout = Layout { folder: layout.to_owned() };
    let manifests = layout.manifests();
    let manifest = manifests.iter().find(|manifest| manifest["platform"]["architecture"] == machine.arch);
    let manifest =
        manifest.ok_or_else(|| format!("{}: no image for {}", layout.folder.display(), machine.arch))?;
    let manifest = layout.read(&layout.path_of(manifest));
    for layer in manifest["layers"].as_array().into_iter().flatten() {
        let path = layout.path_of(layer);
        let layer = fs::File::open(&path).map_err(cannot("read", &path))?;
        tar::Archive::new(GzDecoder::new(layer)).unpack(into).map_err(cannot("unpack", &path))?;
    }
    let config = layout.read(&layout.path_of(&manifest["config"]));
    let config = &config["config"];
    let entry = serde_json::from_value(config["Entrypoint"].clone())?;
    Ok(Unpacked { user: config["User"].as_str().unwrap_or_default().to_owned(), entry })
}

struct Layout {
    folder: PathBuf,
}

impl Layout {
    fn write(&self, image: &Image, machine: &Machine, layer: &[u8], commit: &str) -> Result<()> {
        let blobs = self.blobs();
        fs::create_dir_all(&blobs).map_err(cannot("create", &blobs))?;
        self.put("oci-layout", json!({"imageLayoutVersion": "1.0.0"}).to_string().as_bytes())?;

        let packed = self.blob(LAYER, &gzip(layer)?)?;
        let entry: Vec<String> = [&format!("/{}", image.program.1)]
            .into_iter()
            .cloned()
            .chain(image.arguments.iter().map(|word| (*word).to_owned()))
            .collect();
        let mut labels = json!({
            "org.opencontainers.image.title": image.name,
            "org.opencontainers.image.description": image.title,
            "org.opencontainers.image.version": VERSION,
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.authors": AUTHORS,
        });
        for (name, value) in [("source", REPOSITORY), ("revision", commit)] {
            if !value.is_empty() {
                labels[format!("org.opencontainers.image.{name}")] = value.into();
            }
        }
        let config = json!({
            "architecture": machine.arch, "os": machine.os, "created": TIME,
            "config": {
                "User": image.user, "Entrypoint": entry, "Env": ["PATH=/usr/bin"], "WorkingDir": "/", "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
            "history": [{"created": TIME, "created_by": "cargo xtask image"}],
        });
        let config = self.blob(CONFIG, config.to_string().as_bytes())?;
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [packed],
        });
        let mut manifest = self.blob(MANIFEST, manifest.to_string().as_bytes())?;
        manifest["platform"] = json!({"architecture": machine.arch, "os": machine.os});

        let mut manifests = self.manifests();
        manifests.retain(|found| found["platform"]["architecture"] != machine.arch);
        manifests.push(manifest);
        manifests.sort_by_key(|manifest| manifest["platform"]["architecture"].to_string());
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
        let mut index = self.blob(INDEX, index.to_string().as_bytes())?;
        index["annotations"] = json!({"org.opencontainers.image.ref.name": VERSION});
        let top = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [index]});
        self.put("index.json", top.to_string().as_bytes())?;
        self.remove_unused()
    }

    /// The descriptors of the images, one per platform.
    fn manifests(&self) -> Vec<Value> {
        let index = self.read(&self.folder.join("index.json"));
        let index = self.read(&self.path_of(&index["manifests"][0]));
        index["manifests"].as_array().cloned().unwrap_or_default()
    }

    /// Removes the blobs that no descriptor refers to.
    fn remove_unused(&self) -> Result<()> {
        let mut used = BTreeSet::new();
        let mut open = vec![self.folder.join("index.json")];
        while let Some(path) = open.pop() {
            let content = self.read(&path);
            let lists = ["manifests", "layers"].into_iter().filter_map(|list| content[list].as_array());
            for blob in lists.flatten().chain([&content["config"]]).filter(|blob| blob["digest"].is_string())
            {
                let path = self.path_of(blob);
                if blob["mediaType"] != LAYER && used.insert(path.clone()) {
                    open.push(path);
                } else {
                    used.insert(path);
                }
            }
        }
        for blob in fs::read_dir(self.blobs())? {
            let path = blob?.path();
            if !used.contains(&path) {
                fs::remove_file(&path).map_err(cannot("remove", &path))?;
            }
        }
        Ok(())
    }

    /// Writes a blob, and returns its descriptor.
    fn blob(&self, kind: &str, content: &[u8]) -> Result<Value> {
        let descriptor = json!({"mediaType": kind, "digest": digest(content), "size": content.len()});
        let path = self.path_of(&descriptor);
        fs::write(&path, content).map_err(cannot("write", &path))?;
        Ok(descriptor)
    }

    fn path_of(&self, descriptor: &Value) -> PathBuf {
        let digest = descriptor["digest"].as_str().unwrap_or_default();
        self.blobs().join(digest.trim_start_matches("sha256:"))
    }

    fn blobs(&self) -> PathBuf {
        self.folder.join("blobs/sha256")
    }

    /// Reads a JSON file; `null` if there is none.
    fn read(&self, path: &Path) -> Value {
        fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    fn put(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, content).map_err(cannot("write", &path))
    }
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", sums::of(content))
}
