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
fn field_names_of_etcd_and_of_the_resource_are_not_mixed() {
    let none = IpamConfig::parse(b"{}").unwrap();
    assert_eq!(
        IpamConfig::parse(br#"{"strictAffinity":true,"autoAllocateBlocks":true}"#),
        Ok(none)
    );
    let resource = br#"{"spec":{"strict_affinity":true,"auto_allocate_blocks":true}}"#;
    assert_eq!(IpamConfig::parse_resource(resource), Ok(none));
}

/// Calico's client moves the annotations of other programs into an annotation of its own.
#[test]
fn the_run_that_locked_the_datastore_is_read_from_an_annotation() {
    let read = |annotations: &str| {
        let json =
            format!(r#"{{"metadata":{{"annotations":{annotations}}},"spec":{{"datastoreReady":false}}}}"#);
        let cluster = ClusterInformation::parse(json.as_bytes()).unwrap();
        assert_eq!(cluster.datastore_ready, Some(false));
        cluster.locked_by
    };
    assert_eq!(read("{}"), None);
    let own = r#"{"calipam.io/locked-by":"a run"}"#;
    let moved = r#"{"projectcalico.org/metadata":"{\"annotations\":{\"calipam.io/locked-by\":\"a run\"}}"}"#;
    for annotations in [own, moved] {
        assert_eq!(read(annotations).as_deref(), Some("a run"));
    }
}

#[test]
fn only_versions_after_the_newest_known_one_are_new() {
    let judged = |version: &str| {
        let calico_version = version.to_owned();
        let cluster = ClusterInformation {
            calico_version,
            ..Default::default()
        };
        (cluster.is_newer_than_known(), cluster.is_known())
    };
    for known in ["v2.6.12", "v3.32.1", &format!("{}.9", newest_known())] {
        assert_eq!(judged(known), (false, Some(true)), "{known}");
    }
    for new in ["v3.34.0-0.dev", "v3.100.1", "v4.0.0"] {
        assert_eq!(judged(new), (true, Some(false)), "{new}");
    }
    assert_eq!(judged("v1.6.0"), (false, Some(false)));
    for none in [
        "",
        "master",
        "release-v3.40",
        "V3.34.0",
        "v3.x",
        "vv3.32.1",
        "v3.32.x",
    ] {
        assert_eq!(judged(none), (false, None), "{none}");
    }
}

#[test]
fn status_determines_which_controllers_run() {
    use AssignIps::{AllServices, RequestedServicesOnly};
    let read = |spec: &str, status: &str, version: &str| {
        let json = format!(r#"{{"spec":{{"controllers":{{{spec}}}}},"status":{{{status}}}}}"#);
        let (controllers, defects) = KubeControllersConfiguration::parse(json.as_bytes()).unwrap();
        assert!(defects.is_empty(), "{defects:?}");
        let cluster = ClusterInformation {
            calico_version: version.into(),
            ..Default::default()
        };
        (
            controllers.leak_grace_period.map(|period| period.as_mins()),
            controllers
                .serves(Some(&cluster))
                .map(|controller| controller.assign),
        )
    };
    let section = r#""loadBalancer":{"assignIPs":"RequestedServicesOnly"},"node":{"leakGracePeriod":"5m"}"#;
    let named = r#""environmentVars":{"ENABLED_CONTROLLERS":"node,loadbalancer"}"#;
    let running = r#""runningConfig":{"controllers":{"node":{"leakGracePeriod":"7m"},"loadBalancer":{"assignIPs":"AllServices"}}}"#;
    let both = format!("{named},{running}");
    let other =
        r#""environmentVars":{"ENABLED_CONTROLLERS":"node"},"runningConfig":{"controllers":{"node":{}}}"#;
    let no_controllers = r#""runningConfig":{"logSeverityScreen":"Info"}"#;
    for (spec, status, version, minutes, serves) in [
        (section, "", "v3.32.1", Some(5), Ok(RequestedServicesOnly)),
        (
            section,
            no_controllers,
            "v3.32.1",
            Some(5),
            Ok(RequestedServicesOnly),
        ),
        (
            section,
            r#""runningConfig":{"controllers":{}}"#,
            "v3.32.1",
            Some(5),
            Ok(RequestedServicesOnly),
        ),
        (section, running, "v3.32.1", Some(7), Ok(AllServices)),
        (section, other, "v3.32.1", Some(5), Err(NotServed::ControllerOff)),
        ("", "", "v3.32.1", None, Err(NotServed::NoSection)),
        ("", named, "v3.32.1", None, Ok(AllServices)),
        ("", &both, "v3.32.1", Some(7), Ok(AllServices)),
        ("", &both, "v3.32.0", Some(7), Ok(AllServices)),
        ("", &both, "v3.31.6", Some(7), Ok(AllServices)),
        ("", &both, "v3.31.5", Some(7), Err(NotServed::OnlyByEnvironment)),
        ("", running, "v3.31.5", Some(7), Ok(AllServices)),
        ("", "", "v3.31.5", None, Ok(AllServices)),
        ("", "", "v3.31.0", None, Err(NotServed::NoSection)),
        (section, "", "v3.29.7", Some(5), Err(NotServed::TooOld)),
        ("", &both, "v3.30.0", Some(7), Err(NotServed::OnlyByEnvironment)),
        ("", &both, "v3.30.7-0.dev", Some(7), Ok(AllServices)),
        ("", &both, "v3.34.0-0.dev", Some(7), Ok(AllServices)),
        ("", &both, "master", Some(7), Ok(AllServices)),
    ] {
        assert_eq!(
            read(spec, status, version),
            (minutes, serves),
            "{spec} {status} {version}"
        );
    }
    let json = br#"{"status":{"runningConfig":{"controllers":{"node":{"leakGracePeriod":"soon"}}}}}"#;
    let (_, defects) = KubeControllersConfiguration::parse(json).unwrap();
    assert_eq!(
        defects[0].field,
        "status.runningConfig.controllers.node.leakGracePeriod"
    );
}

#[test]
fn false_and_zero_values_are_left_out() {
    let mut config = Document::parse(br#"{"strict_affinity":true,"maxBlocksPerHost":4,"future":1}"#).unwrap();
    config.set(&[
        IpamSetting::MaxBlocksPerHost(0),
        IpamSetting::Cooldown(30),
        IpamSetting::Kubevirt(false),
    ]);
    assert_eq!(
        serde_json::to_string(&config).unwrap(),
        r#"{"future":1,"ipCooldownSeconds":30,"kubeVirtVMAddressPersistence":"Disabled","strict_affinity":true}"#
    );
    config.set(&[IpamSetting::StrictAffinity(false)]);
    assert!(!config.ipam_config().unwrap().strict_affinity);
}

#[test]
fn only_a_positive_block_limit_replaces_the_default_however_large_it_is() {
    let limit = |max_blocks_per_host: i64| {
        let config = IpamConfig {
            max_blocks_per_host,
            ..IpamConfig::default()
        };
        config.block_limit()
    };
    assert_eq!([-1, 0, 1, 21].map(limit), [20, 20, 1, 21]);
    assert_eq!([1 << 32, i64::MAX].map(limit), [u32::MAX; 2]);
}
