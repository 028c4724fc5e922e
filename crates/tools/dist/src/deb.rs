//! The package for Debian and its descendants: an `ar` archive of two tar archives.

use std::collections::BTreeSet;
use std::path::Path;

use tar::Builder;

use crate::archive::{add_file, add_folder, add_link};
use crate::files::{Content, Entry, Machine, gzip, installed};
use crate::package::Package;
use crate::{REPOSITORY, Result, VERSION, maintainer};

pub(crate) fn build(package: &Package, machine: &Machine) -> Result<Vec<u8>> {
    let entries = &package.entries;
    let mut data = Builder::new(Vec::new());
    let mut bytes = 0;
    for folder in folders(entries) {
        add_folder(&mut data, &format!("./{}/", folder.display()))?;
    }
    for entry in entries {
        let path = format!("./{}", entry.place);
        match &entry.content {
            Content::File(content, mode) => {
                let content = installed(entry, content)?;
                bytes += content.len();
                add_file(&mut data, &path, &content, *mode)?;
            }
            Content::Link(target) => add_link(&mut data, &path, target)?,
        }
    }

    let mut control = Builder::new(Vec::new());
    add_file(
        &mut control,
        "./control",
        fields(package, machine, bytes).as_bytes(),
        0o644,
    )?;
    let parts = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gzip(&control.into_inner()?)?),
        ("data.tar.gz", gzip(&data.into_inner()?)?),
    ];
    let mut archive = ar::Builder::new(Vec::new());
    for (name, content) in parts {
        let mut header = ar::Header::new(name.as_bytes().to_vec(), content.len() as u64);
        header.set_mode(0o100644);
        archive.append(&header, content.as_slice())?;
    }
    Ok(archive.into_inner()?)
}

/// The folders that contain the files. A folder comes before its subfolders.
fn folders(entries: &[Entry]) -> BTreeSet<&Path> {
    let folders = entries
        .iter()
        .flat_map(|entry| Path::new(&entry.place).ancestors().skip(1));
    folders.filter(|folder| !folder.as_os_str().is_empty()).collect()
}

fn fields(package: &Package, machine: &Machine, bytes: usize) -> String {
    let depends = if machine.needs_libc {
        "Depends: libc6\n"
    } else {
        ""
    };
    let home = if REPOSITORY.is_empty() {
        String::new()
    } else {
        format!("Homepage: {REPOSITORY}\n")
    };
    let description: String = package
        .description
        .lines()
        .map(|line| format!(" {line}\n"))
        .collect();
    format!(
        "Package: {}\nVersion: {VERSION}\nSection: admin\nPriority: optional\nArchitecture: {}\n{depends}\
         Installed-Size: {}\nMaintainer: {}\n{home}Description: {}\n{description}",
        package.name,
        machine.deb,
        bytes.div_ceil(1024),
        maintainer(),
        package.summary,
    )
}
