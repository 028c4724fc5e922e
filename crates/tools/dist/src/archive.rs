//! Archives (`.tar.gz`) that people and krew download.

use std::io::Write;

use tar::{Builder, EntryType, Header};

use crate::Result;
use crate::files::{Content, Entry, gzip};

/// Builds an archive with the files below `stem/`.
pub(crate) fn build(stem: &str, entries: &[Entry]) -> Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for entry in entries {
        if let Content::File(content, mode) = &entry.content {
            add_file(&mut tar, &format!("{stem}/{}", entry.name), content, *mode)?;
        }
    }
    gzip(&tar.into_inner()?)
}

/// Returns a header with root as the owner and without a time, so that the same input gives the same package.
fn header(kind: EntryType, size: usize, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size as u64);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

pub(crate) fn add_file<W: Write>(tar: &mut Builder<W>, path: &str, content: &[u8], mode: u32) -> Result<()> {
    let mut header = header(EntryType::Regular, content.len(), mode);
    Ok(tar.append_data(&mut header, path, content)?)
}

pub(crate) fn add_link<W: Write>(tar: &mut Builder<W>, path: &str, target: &str) -> Result<()> {
    let mut header = header(EntryType::Symlink, 0, 0o777);
    Ok(tar.append_link(&mut header, path, target)?)
}

pub(crate) fn add_folder<W: Write>(tar: &mut Builder<W>, path: &str) -> Result<()> {
    let mut header = header(EntryType::Directory, 0, 0o755);
    Ok(tar.append_data(&mut header, path, std::io::empty())?)
}
