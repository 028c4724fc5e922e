use super::*;

fn observe(path: &Path) -> Snapshot {
    DataFile::open(path)
        .unwrap()
        .observe(&(Arc::new(|_| {}) as ProgressFn))
        .unwrap()
}

#[test]
fn the_content_tells_what_a_file_is() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        DataFile::open(&path)
    };
    let kind = |error: Error| error.kind;
    assert!(matches!(kind(open("a.db", b"").unwrap_err()), FileError::Empty));
    assert!(matches!(
        kind(open("a.zst", b"{\"kind\":\"Other\"}").unwrap_err()),
        FileError::UnknownKind(_)
    ));
    assert!(matches!(
        kind(DataFile::open(&folder.path().join("none")).unwrap_err()),
        FileError::Io(_)
    ));
    let header = br#"{"format":"calipam-export","version":1"#;
    assert_eq!(open("a.db", header).unwrap().kind(), FileKind::Export);
    assert_eq!(
        open("b", &[0x28, 0xB5, 0x2F, 0xFD, 0]).unwrap().kind(),
        FileKind::Export
    );
}

#[test]
fn standard_input_is_read_like_a_file_and_named_in_errors() {
    let wrong = DataFile::of_input(&b"hello"[..]).unwrap_err().to_string();
    assert!(wrong.starts_with("standard input: "), "{wrong}");
    let header = b"{\"format\":\"calipam-export\",\"version\":1}\n";
    let file = DataFile::of_input(&header[..]).unwrap();
    assert_eq!(
        (file.kind(), file.name().as_str()),
        (FileKind::Export, "standard input")
    );
    let quiet: ProgressFn = Arc::new(|_| {});
    let cut = file.observe(&quiet).unwrap_err().to_string();
    assert!(cut.starts_with("standard input: "), "{cut}");
    let path = file.path.clone();
    drop((file.clone(), file));
    assert!(!path.exists(), "the temporary file is taken away");
}

#[test]
fn the_time_of_objects_is_their_newest_timestamp_in_the_past() {
    let folder = tempfile::tempdir().unwrap();
    let taken_at = |record: &str| {
        let path = folder.path().join("x.json");
        let block = r#"{"apiVersion":"projectcalico.org/v3","kind":"IPAMBlock","metadata":{"name":"10-0-0-0-31"},"spec":{"cidr":"10.0.0.0/31",
            "affinityClaimTime":"2026-05-01T10:00:00Z","allocations":[0,null],"unallocated":[1],"attributes":[RECORD]}}"#;
        std::fs::write(&path, block.replace("RECORD", record)).unwrap();
        observe(&path).taken_at.to_string()
    };
    let released = |at: &str| taken_at(&format!(r#"{{"releasedAt":"{at}"}}"#));
    assert_eq!(released("2026-05-01T12:00:00Z"), "2026-05-01T12:00:00Z");
    assert_eq!(released("2026-05-01T09:00:00Z"), "2026-05-01T10:00:00Z");
    assert_eq!(released("2999-01-01T00:00:00Z"), "2026-05-01T10:00:00Z");
    let allocated = |at: &str| {
        taken_at(&format!(
            r#"{{"handle_id":"h","secondary":{{"timestamp":"{at}"}}}}"#
        ))
    };
    assert_eq!(allocated("2026-05-01 12:00:00 +0000 UTC"), "2026-05-01T12:00:00Z");
    assert_eq!(allocated("2999-01-01 00:00:00 +0000 UTC"), "2026-05-01T10:00:00Z");
    let created = |at: &str| {
        let path = folder.path().join("list.json");
        let pool = r#"{"apiVersion":"projectcalico.org/v3","kind":"IPPool","metadata":{"name":"p","creationTimestamp":"AT"},"spec":{"cidr":"10.0.0.0/16"}}"#;
        let block = std::fs::read_to_string(folder.path().join("x.json")).unwrap();
        let items = format!("{},{}", pool.replace("AT", at), block.replace("2999", "1999"));
        std::fs::write(
            &path,
            format!(r#"{{"apiVersion":"v1","kind":"List","items":[{items}]}}"#),
        )
        .unwrap();
        observe(&path).taken_at.to_string()
    };
    assert_eq!(created("2026-05-01T13:00:00Z"), "2026-05-01T13:00:00Z");
    assert_eq!(created("2999-01-01T00:00:00Z"), "2026-05-01T10:00:00Z");
}

#[test]
fn an_export_says_when_and_what_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.jsonl");
    let at = "2026-05-01T12:00:00Z".parse().unwrap();
    let mut header = Header::new(DatastoreKind::Etcd, "https://10.0.0.5:2379", "48250", at);
    header
        .coverage
        .insert(calipam_model::snapshot::Source::Blocks, Coverage::Read);
    let mut writer = export::Writer::create(&path, &header).unwrap();
    let key = b"/calico/ipam/v2/handle/h";
    writer
        .entry(&RawEntry {
            key,
            value: b"{}",
            mod_revision: 7,
            ..RawEntry::default()
        })
        .unwrap();
    writer.finish().unwrap();
    let snapshot = observe(&path);
    assert_eq!((snapshot.handles.len(), snapshot.revision.as_str()), (1, "48250"));
    assert_eq!(snapshot.taken_at, "2026-05-01T12:00:00Z".parse().unwrap());
    assert!(snapshot.has_read(calipam_model::snapshot::Source::Blocks));
    assert!(!snapshot.has_read(calipam_model::snapshot::Source::Handles));
    assert!(
        snapshot
            .location
            .ends_with("x.jsonl (exported from https://10.0.0.5:2379)")
    );
}
