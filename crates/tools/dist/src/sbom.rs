//! SBOMs: CycloneDX documents that list the packages in a program, with licenses, checksums and dependencies. They are
//! made from cargo's own metadata, since cargo-cyclonedx would add another hundred packages to the build.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::Result;

#[derive(Deserialize)]
pub(crate) struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    /// Absent for the crates of this workspace.
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// Reads cargo's metadata of all packages for a target.
pub(crate) fn metadata(root: &Path, target: &str) -> Result<Metadata> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", target]);
    let output = cargo.current_dir(root).output()?;
    if !output.status.success() {
        return Err(format!("{cargo:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Builds the document for a program, which is the crate `name` of the workspace. The same input gives the same
/// document.
pub(crate) fn document(name: &str, metadata: &Metadata, lock: &str) -> Result<Value> {
    let lock: Lock = toml::from_str(lock)?;
    let sums: BTreeMap<(&str, &str), &str> = lock
        .package
        .iter()
        .filter_map(|p| Some(((p.name.as_str(), p.version.as_str()), p.checksum.as_deref()?)))
        .collect();
    let packages: BTreeMap<&str, &Package> = metadata.packages.iter().map(|p| (p.id.as_str(), p)).collect();
    let nodes: BTreeMap<&str, &Node> = metadata.resolve.nodes.iter().map(|n| (n.id.as_str(), n)).collect();
    let is_root = |package: &&Package| package.name == name && package.source.is_none();
    let root = metadata.packages.iter().find(is_root).ok_or_else(|| format!("no crate {name}"))?;

    // The packages that are built into the program, without dev-dependencies.
    let (mut found, mut open) = (BTreeSet::from([root.id.as_str()]), vec![root.id.as_str()]);
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    while let Some(id) = open.pop() {
        let node = nodes.get(id).ok_or_else(|| format!("cargo does not resolve {id}"))?;
        let built = node.deps.iter().filter(|d| d.dep_kinds.iter().any(|k| k.kind.as_deref() != Some("dev")));
        let depends = edges.entry(reference(packages[id])).or_default();
        for dependency in built {
            depends.insert(reference(packages[dependency.pkg.as_str()]));
            if found.insert(&dependency.pkg) {
                open.push(&dependency.pkg);
            }
        }
    }

    let mut components: Vec<Value> = found
        .iter()
        .filter(|id| **id != root.id)
        .map(|id| component("library", packages[id], &sums))
        .collect();
    components.sort_by_key(|component| component["bom-ref"].to_string());
    let dependencies: Vec<Value> =
        edges.into_iter().map(|(from, to)| json!({"ref": from, "dependsOn": to})).collect();
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component("application", root, &sums)},
        "components": components,
        "dependencies": dependencies,
    }))
}

/// Returns the package URL. Its type is `generic` for crates of the workspace, which no registry contains.
fn reference(package: &Package) -> String {
    let kind = if package.source.is_some() { "cargo" } else { "generic" };
    // A version may contain a `+`, which must be encoded in URLs.
    format!("pkg:{kind}/{}@{}", package.name, package.version.replace('+', "%2B"))
}

fn component(kind: &str, package: &Package, sums: &BTreeMap<(&str, &str), &str>) -> Value {
    let Package { name, version, license, .. } = package;
    let url = reference(package);
    let mut component = json!({"type": kind, "bom-ref": url, "name": name, "version": version, "purl": url});
    if let Some(license) = license {
        // Older crates write `/` instead of `OR`.
        component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    if let Some(sum) = sums.get(&(name.as_str(), version.as_str())) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    component
}
