//! Images of static programs as OCI layouts: folders that podman, skopeo and containerd read.

use std::fs;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use tar::Builder;

use crate::archive::{add_file, add_folder};
use crate::files::{Machine, gzip};
use crate::package::SUMMARY;
use crate::{AUTHORS, REPOSITORY, Request, Result, VERSION, cannot, read, sums, write};

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
        title: SUMMARY,
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
pub(crate) fn write_all(request: &Request, commit: &str) -> Result<Vec<PathBuf>> {
    let licence = read(&request.root.join("LICENSE"))?;
    let mut written = Vec::new();
    for image in &IMAGES {
        let layout = Layout {
            folder: request.output.join(image.name),
        };
        let layer = layer(image, &request.program(image.program.0)?, &licence)?;
        layout.write(image, &request.machine, &layer, commit)?;
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

/// Unpacks the image for a platform from a layout into a folder. Returns the image's user, as `USER:GROUP` in numbers,
/// and its entry point.
pub(crate) fn unpack(layout: &Path, machine: &Machine, into: &Path) -> Result<(String, Vec<String>)> {
    let layout = Layout {
        folder: layout.to_owned(),
    };
    let manifests = layout.manifests();
    let manifest = manifests.iter().find(|manifest| is_for(manifest, machine));
    let manifest =
        manifest.ok_or_else(|| format!("{}: no image for {}", layout.folder.display(), machine.arch))?;
    let manifest = layout.read(&layout.path_of(manifest));
    for layer in manifest["layers"].as_array().into_iter().flatten() {
        let path = layout.path_of(layer);
        let layer = fs::File::open(&path).map_err(cannot("read", &path))?;
        tar::Archive::new(GzDecoder::new(layer))
            .unpack(into)
            .map_err(cannot("unpack", &path))?;
    }
    let config = layout.read(&layout.path_of(&manifest["config"]));
    let config = &config["config"];
    Ok(serde_json::from_value(json!([
        config["User"],
        config["Entrypoint"]
    ]))?)
}

/// True if a manifest's descriptor names the platform.
fn is_for(manifest: &Value, machine: &Machine) -> bool {
    manifest["platform"]["architecture"] == machine.arch
}

struct Layout {
    folder: PathBuf,
}

impl Layout {
    fn write(&self, image: &Image, machine: &Machine, layer: &[u8], commit: &str) -> Result<()> {
        self.put("oci-layout", &json!({"imageLayoutVersion": "1.0.0"}).to_string())?;
        let packed = self.blob(LAYER, &gzip(layer)?)?;
        let program = format!("/{}", image.program.1);
        let entry = [&[&*program][..], image.arguments].concat();
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
        manifests.retain(|found| !is_for(found, machine));
        manifests.push(manifest);
        manifests.sort_by_key(|manifest| manifest["platform"]["architecture"].to_string());
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}).to_string();
        let mut described = self.blob(INDEX, index.as_bytes())?;
        described["annotations"] = json!({"org.opencontainers.image.ref.name": VERSION});
        let top = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [described]}).to_string();
        self.put("index.json", &top)?;

        let texts = manifests
            .iter()
            .map(|manifest| self.read(&self.path_of(manifest)).to_string());
        self.keep_named(&texts.chain([index, top]).collect::<String>())
    }

    /// Removes the blobs whose digests the text does not contain.
    fn keep_named(&self, text: &str) -> Result<()> {
        for blob in fs::read_dir(self.blobs())? {
            let path = blob?.path();
            if !text.contains(&*path.file_name().unwrap_or_default().to_string_lossy()) {
                fs::remove_file(&path).map_err(cannot("remove", &path))?;
            }
        }
        Ok(())
    }

    /// The descriptors of the images, one per platform.
    fn manifests(&self) -> Vec<Value> {
        let index = self.read(&self.folder.join("index.json"));
        let index = self.read(&self.path_of(&index["manifests"][0]));
        index["manifests"].as_array().cloned().unwrap_or_default()
    }

    /// Writes a blob, and returns its descriptor.
    fn blob(&self, kind: &str, content: &[u8]) -> Result<Value> {
        let descriptor = json!({"mediaType": kind, "digest": digest(content), "size": content.len()});
        write(self.path_of(&descriptor), content)?;
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
        fs::read(path)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default()
    }

    fn put(&self, name: &str, content: &str) -> Result<PathBuf> {
        write(self.folder.join(name), content)
    }
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", sums::of(content))
}
