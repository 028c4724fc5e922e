//! The commands that repair findings. Which remedy a finding has, `check/src/remedy.rs` decides.

use calipam_check::Remedy;

use super::{Reader, command_in_document};

/// What a remedy does, and its command line.
pub(crate) fn hint(remedy: &Remedy) -> String {
    let purpose = match remedy {
        Remedy::ReleaseLeaked => "release leaked addresses",
        Remedy::ReleaseNodes(nodes) if nodes.len() > 1 => "release the addresses of deleted nodes",
        Remedy::ReleaseNodes(_) => "release the addresses of a deleted node",
        Remedy::ReleaseOrphanHandles => "delete the orphan handles",
        Remedy::ReleaseAddress(_) => "release an address once you know that it is not in use",
        Remedy::RebuildBlock(_) | Remedy::Rebuild => "see what a rebuild would change",
    };
    format!("{purpose}: {}", line(remedy, Reader::Operator))
}

/// The command line in a text.
pub(crate) fn line(remedy: &Remedy, reader: Reader) -> String {
    let words = words(remedy);
    reader.command(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The command line in a document: the field `repair` of a finding.
pub(crate) fn in_document(remedy: &Remedy) -> String {
    let words = words(remedy);
    command_in_document(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn words(remedy: &Remedy) -> Vec<String> {
    let (first, others) = match remedy {
        Remedy::ReleaseLeaked => ("release", vec!["--leaked".to_owned()]),
        Remedy::ReleaseNodes(nodes) => {
            let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
            ("release", vec!["--node".to_owned(), names.join(",")])
        }
        Remedy::ReleaseOrphanHandles => ("release", vec!["--orphan-handles".to_owned()]),
        Remedy::ReleaseAddress(address) => ("release", vec!["--ip".to_owned(), address.to_string()]),
        Remedy::RebuildBlock(cidr) => ("rebuild", vec!["--block".to_owned(), cidr.to_string()]),
        Remedy::Rebuild => ("rebuild", Vec::new()),
    };
    std::iter::once(first.to_owned()).chain(others).collect()
}
