//! SBOMs: CycloneDX documents that list the packages in a program, with licenses, checksums and dependencies. They are
//! made from cargo's own metadata, since cargo-cyclonedx would add another hundred packages to the build.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::Result;

/// Reads cargo's metadata of all packages for a target.
pub(crate) fn metadata(root: &Path, target: &str) -> Result<Value> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--filter-platform",
        target,
    ]);
    let output = cargo.current_dir(root).output()?;
    if !output.status.success() {
        return Err(format!("{cargo:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Builds the document for a program, which is the crate `name` of the workspace. The same input gives the same
/// document.
pub(crate) fn document(name: &str, metadata: &Value, lock: &str) -> Result<Value> {
    let lock: Value = toml::from_str(lock)?;
    let locked = list(&lock["package"]).filter(|package| package["checksum"].is_string());
    let sums: BTreeMap<_, _> = locked
        .map(|package| (named(package), &package["checksum"]))
        .collect();
    let packages = by_id(&metadata["packages"]);
    let nodes = by_id(&metadata["resolve"]["nodes"]);
    let is_root = |package: &&&Value| package["name"] == name && package["source"].is_null();
    let root = *packages
        .values()
        .find(is_root)
        .ok_or_else(|| format!("no crate {name}"))?;

    // The packages that are built into the program, without dev-dependencies.
    let mut found = BTreeSet::from([text(&root["id"])]);
    let mut open = vec![text(&root["id"])];
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    while let Some(id) = open.pop() {
        let node = nodes
            .get(id)
            .ok_or_else(|| format!("cargo does not resolve {id}"))?;
        let is_built = |dependency: &&Value| list(&dependency["dep_kinds"]).any(|kind| kind["kind"] != "dev");
        let depends = edges.entry(reference(packages[id])).or_default();
        for id in list(&node["deps"])
            .filter(is_built)
            .map(|dependency| text(&dependency["pkg"]))
        {
            depends.insert(reference(packages[id]));
            if found.insert(id) {
                open.push(id);
            }
        }
    }

    found.remove(text(&root["id"]));
    let mut components: Vec<Value> = found
        .iter()
        .map(|id| component("library", packages[id], &sums))
        .collect();
    components.sort_by_key(|component| component["bom-ref"].to_string());
    let dependencies: Vec<Value> = edges
        .into_iter()
        .map(|(from, to)| json!({"ref": from, "dependsOn": to}))
        .collect();
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

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn by_id(values: &Value) -> BTreeMap<&str, &Value> {
    list(values).map(|value| (text(&value["id"]), value)).collect()
}

/// The name and version of a package.
fn named(package: &Value) -> [&str; 2] {
    ["name", "version"].map(|field| text(&package[field]))
}

/// Returns the package URL. Its type is `generic` for crates of the workspace, which no registry contains.
fn reference(package: &Value) -> String {
    let kind = if package["source"].is_null() {
        "generic"
    } else {
        "cargo"
    };
    let [name, version] = named(package);
    // A version may contain a `+`, which must be encoded in URLs.
    format!("pkg:{kind}/{name}@{}", version.replace('+', "%2B"))
}

fn component(kind: &str, package: &Value, sums: &BTreeMap<[&str; 2], &Value>) -> Value {
    let ([name, version], url) = (named(package), reference(package));
    let mut component = json!({"type": kind, "bom-ref": url, "name": name, "version": version, "purl": url});
    if let Some(license) = package["license"].as_str() {
        // Older crates write `/` instead of `OR`.
        component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    if let Some(sum) = sums.get(&named(package)) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    component
}
