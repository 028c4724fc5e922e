use super::*;

#[test]
fn the_names_of_settings_match_in_any_case() {
    let text =
        br#"{"Strict_Affinity":true,"AUTO_ALLOCATE_BLOCKS":true,"MaxBlocksPerHost":3,"maxblocksperhost":null,
        "KubeVirtVMAddressPersistence":"Disabled","IPCooldownSeconds":7,"other":{}}"#;
    let expected = IpamConfig {
        strict_affinity: true,
        auto_allocate_blocks: true,
        max_blocks_per_host: 3,
        kubevirt_persistence: Some(false),
        cooldown_seconds: 7,
    };
    assert_eq!(IpamConfig::parse(text), Ok(expected));
    let text = std::str::from_utf8(text).unwrap();
    let text = text
        .replace("Strict_Affinity", "StrictAffinity")
        .replace("AUTO_ALLOCATE_BLOCKS", "AUTOALLOCATEBLOCKS");
    let resource = format!("{{\"spec\":{text}}}");
    assert_eq!(IpamConfig::parse_resource(resource.as_bytes()), Ok(expected));
    assert!(IpamConfig::parse(br#"{"Strict_Affinity":1}"#).is_err());
    assert!(!IpamConfig::parse(b"{}").unwrap().auto_allocate_blocks);
}

#[test]
fn the_names_of_the_resource_say_nothing_in_etcd_and_the_other_way_round() {
    let none = IpamConfig::parse(b"{}").unwrap();
    assert_eq!(IpamConfig::parse(br#"{"strictAffinity":true,"autoAllocateBlocks":true}"#), Ok(none));
    let resource = br#"{"spec":{"strict_affinity":true,"auto_allocate_blocks":true}}"#;
    assert_eq!(IpamConfig::parse_resource(resource), Ok(none));
}

#[test]
fn only_versions_after_the_newest_known_one_are_new() {
    let judged = |version: &str| {
        let calico_version = version.to_owned();
        let cluster = ClusterInformation { calico_version, ..Default::default() };
        (cluster.is_newer_than_known(), cluster.is_known())
    };
    for known in ["v2.6.12", "v3.32.1", &format!("{}.9", newest_known())] {
        assert_eq!(judged(known), (false, Some(true)), "{known}");
    }
    for new in ["v3.34.0-0.dev", "v3.100.1", "v4.0.0"] {
        assert_eq!(judged(new), (true, Some(false)), "{new}");
    }
    assert_eq!(judged("v1.6.0"), (false, Some(false)));
    for none in ["", "master"] {
        assert_eq!(judged(none), (false, None), "{none}");
    }
}
