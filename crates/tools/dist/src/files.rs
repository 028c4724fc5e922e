//! Files of packages, and their paths on an installed system.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::Result;

/// A file of a package.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The path in the archive, below the archive's folder.
    pub name: String,
    /// The path in an installed system, without the leading slash.
    pub place: String,
    pub content: Content,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// A file's bytes, and its permissions.
    File(Vec<u8>, u32),
    /// A link to a file in the same folder. Archives leave it out.
    Link(&'static str),
}

/// The names of a target's platform in the package formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Go's name of the operating system. krew uses Go's names of operating systems and architectures.
    pub os: &'static str,
    pub arch: &'static str,
    pub deb: &'static str,
    pub rpm: &'static str,
    /// True if the programs need the system's C library.
    pub needs_libc: bool,
}

impl Machine {
    /// Returns the platform of a target triple; `None` if nothing is packaged for it.
    pub(crate) fn of(target: &str) -> Option<Self> {
        let (arch, deb, rpm) = match target.split('-').next()? {
            "x86_64" => ("amd64", "amd64", "x86_64"),
            "aarch64" => ("arm64", "arm64", "aarch64"),
            _ => return None,
        };
        let os = match target {
            _ if target.contains("-linux-") => "linux",
            _ if target.ends_with("-apple-darwin") => "darwin",
            _ if target.contains("-windows-") => "windows",
            _ => return None,
        };
        Some(Self {
            os,
            arch,
            deb,
            rpm,
            needs_libc: target.ends_with("-gnu"),
        })
    }
}

pub(crate) fn file(name: &str, place: &str, content: Vec<u8>, mode: u32) -> Entry {
    Entry {
        name: name.to_owned(),
        place: place.to_owned(),
        content: Content::File(content, mode),
    }
}

/// The path where a shell looks for a completion script, and its permissions; `None` for shells without such a path.
pub(crate) fn completion_place(name: &str) -> Option<(String, u32)> {
    if name.starts_with("kubectl_complete-") {
        return Some((format!("usr/bin/{name}"), 0o755));
    }
    let (program, shell) = name.rsplit_once('.')?;
    let place = match shell {
        "bash" => format!("usr/share/bash-completion/completions/{program}"),
        "zsh" => format!("usr/share/zsh/site-functions/_{program}"),
        "fish" => format!("usr/share/fish/vendor_completions.d/{program}.fish"),
        _ => format!("usr/share/calipam/completions/{name}"),
    };
    Some((place, 0o644))
}

/// Returns the content as it is installed: compressed if the file is a man page.
pub(crate) fn installed(entry: &Entry, content: &[u8]) -> Result<Vec<u8>> {
    if entry.place.ends_with(".gz") {
        gzip(content)
    } else {
        Ok(content.to_vec())
    }
}

/// Compresses with gzip. The same input gives the same bytes.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}
