//! `configure` changes the allocator's settings, refuses values that Calico refuses, and can be undone.

use super::kubernetes::{KubeSite, in_each_group};
use super::site::*;

#[test]
fn changed_settings_are_stored_as_calico_stores_them_and_undone() {
    let site = Site::unconfigured();
    let first = site
        .run(&["configure", "--strict-affinity", "true", "--yes", "-o", "json"])
        .succeeded();
    assert_eq!(changes(&first.json()), set(["configure StrictAffinity"]));
    let stored = json!({"auto_allocate_blocks": true, "kubeVirtVMAddressPersistence": "Enabled", "strict_affinity": true});
    assert_eq!(site.json(CONFIG), stored);

    let second = site
        .run(&[
            "configure",
            "--max-blocks-per-host=2",
            "--ip-cooldown-seconds=30",
            "--yes",
        ])
        .succeeded();
    let mut more = stored.clone();
    more["maxBlocksPerHost"] = 2.into();
    more["ipCooldownSeconds"] = 30.into();
    assert_eq!(site.json(CONFIG), more);

    site.undo(&journal_of(&second)).succeeded();
    assert_eq!(site.json(CONFIG), stored);
    site.undo(&journal_of(&first)).succeeded();
    assert_eq!(site.value(CONFIG), None);

    // Unchanged settings are not written, and unknown fields are kept.
    site.put(
        CONFIG,
        r#"{"strict_affinity":true,"auto_allocate_blocks":true,"future":1}"#,
    );
    let before = site.dump();
    site.run(&["configure", "--strict-affinity=true", "--yes"])
        .succeeded();
    assert_eq!(site.dump(), before);
    site.run(&["configure", "--kubevirt-ip-persistence=disabled", "--yes"])
        .succeeded();
    let expected = json!({"strict_affinity": true, "auto_allocate_blocks": true, "future": 1,
        "kubeVirtVMAddressPersistence": "Disabled"});
    assert_eq!(site.json(CONFIG), expected);
}

#[test]
fn consequences_are_named_before_the_question() {
    let cluster = healthy();
    let site = Site::unconfigured();
    let [first, second] = [0, 1].map(|number| cluster.nodes()[number].clone());
    let more = cluster.spec().spare_block_v4(0);
    site.put(
        &key::block(more),
        Block::new(more, Some(format!("host:{}", first.name)), None, 1).value(),
    );
    site.put(
        &key::affinity("host", &first.name, more),
        r#"{"state":"confirmed","deleted":false}"#,
    );
    let full = *second.blocks.iter().find(|block| block.addr().is_ipv4()).unwrap();
    site.change_block(full, |block| {
        drop(block.take(block.unallocated.len(), Attribute::bare("held")))
    });
    let lent = *first.blocks.iter().find(|block| block.addr().is_ipv4()).unwrap();
    let of_second = Attribute::new(
        "vxlan-tunnel-addr-other",
        [("node", &*second.name), ("type", "vxlanTunnelAddress")],
    );
    let mut borrowed = Vec::new();
    site.change_block(lent, |block| borrowed = block.take(1, of_second));

    let strict = [
        "configure",
        "--strict-affinity=true",
        "--max-blocks-per-host=1",
        "--dry-run",
    ];
    let plan = site.run(&[&strict[..], &["-o", "json"]].concat()).succeeded();
    let warnings = plan.json()["warnings"].to_string();
    for says in [
        format!("after this, 1 node is above the block limit: {}", first.name),
        format!(
            "after this, 1 node gets no further address for pods: {}",
            second.name
        ),
        format!(
            "after this, 1 address is still in another node's block, which strict affinity does not allow: {}",
            borrowed[0]
        ),
    ] {
        assert!(warnings.contains(&says), "{says}: {warnings}");
        assert!(site.run(&strict).stderr.contains(&says), "{says}");
    }
    let yaml = site.run(&[&strict[..], &["-o", "yaml"]].concat());
    let yaml: Value = serde_yaml::from_str(&yaml.stdout).unwrap();
    assert_eq!(yaml["warnings"], plan.json()["warnings"]);
    let harmless = site.run(&["configure", "--ip-cooldown-seconds=30", "--dry-run", "-o", "json"]);
    assert!(
        !harmless.json()["warnings"].to_string().contains("after this"),
        "{harmless:?}"
    );
}

#[test]
fn values_that_calico_rejects_are_refused_and_change_nothing() {
    let site = Site::unconfigured();
    let stored = r#"{"strict_affinity":true,"maxBlocksPerHost":2,"auto_allocate_blocks":true,"future":1}"#;
    site.put(CONFIG, stored);
    let before = site.dump();
    for (arguments, code, says) in [
        (
            vec!["--strict-affinity=false"],
            1,
            "MaxBlocksPerHost requires StrictAffinity to be enabled",
        ),
        (
            vec![
                "--strict-affinity=false",
                "--max-blocks-per-host=0",
                "--auto-allocate-blocks=false",
            ],
            1,
            "Cannot disable 'StrictAffinity' and 'AutoAllocateBlocks' at the same time",
        ),
        (
            vec!["--ip-cooldown-seconds=1201"],
            1,
            "IPCooldownSeconds takes 0 to 1200, not 1201",
        ),
        (
            vec!["--max-blocks-per-host=-1"],
            1,
            "MaxBlocksPerHost takes 0 to 1000000, not -1",
        ),
        (vec!["--strict-affinity=perhaps"], 2, "perhaps"),
        (vec![], 2, "specify what to set"),
    ] {
        site.run(&[&["configure", "--yes"], &arguments[..]].concat())
            .exits(code)
            .says(says);
        assert_eq!(site.dump(), before);
    }
    // A number beyond the range of a double could not be written back unchanged.
    let huge = r#"{"auto_allocate_blocks":true,"future":1e400}"#;
    for (stored, says) in [
        ("[]", "expected a map"),
        (huge, "number out of range at line 1 column 43"),
    ] {
        site.put(CONFIG, stored);
        site.run(&["configure", "--yes", "--strict-affinity=true"])
            .failed(1, says);
        assert_eq!(site.value(CONFIG).unwrap(), stored.as_bytes());
    }
}

fn on_kubernetes(flavour: Flavour) {
    let site = KubeSite::of(&healthy(), flavour);
    let (plural, _) = flavour.ipam_config();
    let flags = |(name, object): (String, Value)| {
        let spec = &object["spec"];
        (
            name,
            spec["strictAffinity"] == true,
            spec["maxBlocksPerHost"].as_i64().unwrap_or(0),
        )
    };
    let settings = || site.list(plural).into_iter().map(flags).collect::<Vec<_>>();
    let before = settings();
    let set = [
        "configure",
        "--strict-affinity=true",
        "--max-blocks-per-host=3",
        "--yes",
    ];
    let run = site.run(&set).succeeded();
    assert_eq!(settings(), [("default".to_owned(), true, 3)]);
    site.undo(&journal_of(&run)).succeeded();
    assert_eq!(settings(), before);
}

in_each_group!(on_kubernetes: on_kubernetes_classic, on_kubernetes_native);
