use std::path::Path;

use calipam_model::snapshot::WhySkipped;

use crate::error::{Error, FileError};
use crate::export::read::read_some;
use crate::export::*;
use crate::raw::{RawEntry, RawKv};

fn entries() -> Vec<RawKv> {
    let entry = |key: &[u8], value: &[u8]| RawKv {
        key: key.to_vec(),
        value: value.to_vec(),
        mod_revision: 7,
    };
    vec![
        entry(b"/calico/ipam/v2/config", b"{}"),
        entry(
            b"/calico/ipam/v2/handle/a",
            br#"{"block": {"10.0.0.0/26":1}, "x":18446744073709551615}"#,
        ),
        entry(b"/calico/ipam/v2/handle/a\r\neth0", b"{\"block\":\n{}}"),
        entry(b"/calico/ipam/v2/host/n/ipv4/block/10.0.0.0-26", b""),
        entry(b"/calico/ipam/v2/handle/\xFF\xFE", b"\x00\xFF"),
        entry(b"/calico/ipam/v2/handle/null", b"null"),
        entry(b"/calico/ipam/v2/handle/blank", b" {} "),
        entry(b"/calico/ipam/v2/handle/cut", b"{\"block\":"),
    ]
}

fn write(path: &Path) -> Header {
    let taken_at = "2026-05-01T12:00:00Z".parse().unwrap();
    let mut header = Header::new(DatastoreKind::Etcd, "https://10.0.0.5:2379", "48250", taken_at);
    header.coverage.insert(Source::Blocks, Coverage::Read);
    header
        .coverage
        .insert(Source::Pods, Coverage::Skipped(WhySkipped::NoKubeconfig));
    let mut writer = Writer::create(path, &header).unwrap();
    for kv in entries() {
        writer.entry(&kv.as_entry()).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), entries().len() as u64);
    header
}

fn read_all(path: &Path) -> crate::error::Result<(Header, Vec<RawKv>)> {
    let mut found = Vec::new();
    let header = read(path, |entry: &RawEntry<'_>| found.push((*entry).to_owned()))?;
    Ok((header, found))
}

#[test]
fn every_byte_comes_back_compressed_or_not() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["x.jsonl", "x.jsonl.zst"] {
        let path = folder.path().join(name);
        let header = write(&path);
        assert!(looks_like_export(&std::fs::read(&path).unwrap()));
        assert_eq!(read_all(&path).unwrap(), (header, entries()), "{name}");
    }
    let coverage = read_all(&folder.path().join("x.jsonl")).unwrap().0.coverage;
    assert_eq!(
        coverage[&Source::Pods],
        Coverage::Skipped(WhySkipped::NoKubeconfig)
    );
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        2,
        "no temporary file is left"
    );
}

/// Reads the entries that `wanted` accepts.
fn read_wanted(path: &Path, wanted: &dyn Fn(&[u8]) -> bool) -> crate::error::Result<Vec<RawKv>> {
    let mut found = Vec::new();
    read_some(path, wanted, |entry| found.push((*entry).to_owned())).map(|_| found)
}

#[test]
fn a_cut_export_is_never_taken_for_a_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["x.jsonl", "x.jsonl.zst"] {
        let path = folder.path().join(name);
        write(&path);
        let whole = std::fs::read(&path).unwrap();
        // Only the last line feed is allowed to be missing.
        for len in 0..whole.len() - 1 {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert!(read_all(&path).is_err(), "{name} cut at {len}");
            assert!(read_wanted(&path, &|_| false).is_err(), "{name} cut at {len}");
        }
    }
}

#[test]
fn a_changed_byte_of_a_compressed_export_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.jsonl.zst");
    let header = write(&path);
    let whole = std::fs::read(&path).unwrap();
    let checksum = whole.len() - 4;
    for place in 0..whole.len() {
        let mut changed = whole.clone();
        changed[place] ^= 0x10;
        std::fs::write(&path, &changed).unwrap();
        // Some bits in the frame header have no meaning, so a change of such a bit is harmless.
        if let Ok(read) = read_all(&path) {
            assert!(
                place < checksum && read == (header.clone(), entries()),
                "byte {place}"
            );
        }
    }
}

#[test]
fn a_part_of_an_export_is_read() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["x.jsonl", "x.jsonl.zst"] {
        let path = folder.path().join(name);
        write(&path);
        // Keys are compared as stored in etcd, even if they are escaped in the export or are not UTF-8.
        let wanted = |key: &[u8]| {
            key.ends_with(b"\r\neth0") || key.ends_with(b"\xFF\xFE") || key.ends_with(b"/handle/a")
        };
        let expected: Vec<RawKv> = entries().into_iter().filter(|kv| wanted(&kv.key)).collect();
        assert_eq!(expected.len(), 3);
        assert_eq!(read_wanted(&path, &wanted).unwrap(), expected, "{name}");
        assert_eq!(read_wanted(&path, &|_| false).unwrap(), [], "{name}");
    }
}

#[test]
fn later_versions_and_other_files_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let kind = |text: &str| {
        std::fs::write(&path, text).unwrap();
        match read_all(&path) {
            Err(Error { kind, .. }) => kind,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(
        kind("{\"format\":\"calipam-export\",\"version\":2,\"new\":1}\n"),
        FileError::ExportVersion(2)
    ));
    assert!(matches!(kind("hello\n"), FileError::UnknownKind(_)));
    assert!(matches!(kind("{}\n"), FileError::UnknownKind(_)));
    assert!(matches!(kind(""), FileError::Empty));
}
