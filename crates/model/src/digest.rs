//! SHA-256 and SHA3-256, which Calico uses in names, labels and handles.

use ring::digest::{SHA256, digest};
use tiny_keccak::{Hasher as _, Sha3};

pub fn sha256(bytes: impl AsRef<[u8]>) -> [u8; 32] {
    let mut sum = [0; 32];
    sum.copy_from_slice(digest(&SHA256, bytes.as_ref()).as_ref());
    sum
}

/// SHA-256 in lowercase hexadecimal digits.
pub fn sha256_hex(bytes: impl AsRef<[u8]>) -> String {
    sha256(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA3-256, with which Calico hashes node names.
pub(crate) fn sha3_256(bytes: &[u8]) -> [u8; 32] {
    let mut sum = [0; 32];
    let mut hasher = Sha3::v256();
    hasher.update(bytes);
    hasher.finalize(&mut sum);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests the examples of FIPS 180 and FIPS 202.
    #[test]
    fn sums_are_those_of_the_standards() {
        assert_eq!(
            sha256_hex("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        let sha3: String = sha3_256(b"abc")
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(
            sha3,
            "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532"
        );
    }
}
