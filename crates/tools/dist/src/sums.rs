//! SHA-256 sums, in the form that `sha256sum --check` reads.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::{Result, cannot, read};

const NAME: &str = "SHA256SUMS";
/// The extensions of packages.
const PACKAGES: [&str; 4] = [".tar.gz", ".deb", ".rpm", ".cdx.json"];

/// The SHA-256 sum of some bytes, in hexadecimal.
pub(crate) fn of(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The packages in a folder, by name.
pub(crate) fn packages(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut packages = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(cannot("read", folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if PACKAGES.iter().any(|end| name.ends_with(end)) {
            packages.insert(name, read(&entry.path())?);
        }
    }
    Ok(packages)
}

/// Writes the sums of all packages in the folder.
pub(crate) fn write(folder: &Path) -> Result<PathBuf> {
    let lines = packages(folder)?
        .into_iter()
        .map(|(name, content)| format!("{}  {name}\n", of(&content)));
    crate::write(folder.join(NAME), lines.collect::<String>())
}
