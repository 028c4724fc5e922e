//! The commands that repair findings.

use calipam_check::Remedy;

/// What a remedy does, in words.
pub fn purpose(remedy: &Remedy) -> &'static str {
    match remedy {
        Remedy::ReleaseLeaked => "release what leaked",
        Remedy::ReleaseNode(_) => "release what a node that is gone holds",
        Remedy::ReleaseOrphanHandles => "delete the orphan handles",
        Remedy::ReleaseAddress(_) => "release an address once you know that nobody uses it",
        Remedy::RebuildBlock(_) | Remedy::Rebuild => "see what a rebuild would change",
    }
}

/// The command line.
pub fn command(remedy: &Remedy) -> String {
    match remedy {
        Remedy::ReleaseLeaked => "calipam release --leaked".to_owned(),
        Remedy::ReleaseNode(node) => format!("calipam release --node {node}"),
        Remedy::ReleaseOrphanHandles => "calipam release --orphan-handles".to_owned(),
        Remedy::ReleaseAddress(address) => format!("calipam release --ip {address}"),
        Remedy::RebuildBlock(cidr) => format!("calipam rebuild --block {cidr}"),
        Remedy::Rebuild => "calipam rebuild".to_owned(),
    }
}
