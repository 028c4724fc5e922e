use super::*;

fn read(json: &str) -> Result<Configuration, CniError> {
    Document::read(json.as_bytes(), Some(Command::Add))?.configuration()
}

#[test]
fn defaults_are_calicos() {
    let found = read(r#"{"name":"net"}"#).unwrap();
    assert_eq!((found.version, found.name.as_str()), (Version::V0_1_0, "net"));
    assert_eq!(
        found.ipam,
        Ipam {
            ipv4: true,
            ..Ipam::default()
        }
    );
    assert_eq!(found.lock_file, PathBuf::from("/var/run/calico/ipam.lock"));
    assert_eq!(found.node.file, PathBuf::from("/var/lib/calico/nodename"));
    assert_eq!(found.log, Log::default());
    assert!(!found.reads_namespaces && !found.single_block && found.valid_containers == Ok(None));
}

#[test]
fn families_and_pools() {
    let ipam = |json: &str| read(&format!(r#"{{"name":"net","ipam":{json}}}"#)).map(|found| found.ipam);
    let both =
        ipam(r#"{"assign_ipv4":"False","assign_ipv6":"true","ipv4_pools":["a","10.0.0.0/8"]}"#).unwrap();
    assert!(both.ipv4 && both.ipv6);
    assert_eq!(both.ipv4_pools, ["a", "10.0.0.0/8"]);
    let none =
        ipam(r#"{"assign_ipv4":"false","assign_ipv6":"TRUE","ipv4_pools":null,"ipv6_pools":[]}"#).unwrap();
    assert_eq!(none, Ipam::default());
    for json in [
        r#"{"assign_ipv6":true}"#,
        r#"{"ipv4_pools":"[]"}"#,
        r#"{"ipv4_pools":[1]}"#,
        "[]",
        r#"{"type":1}"#,
    ] {
        let error = ipam(json).unwrap_err();
        assert!(
            error.code == Code::Internal && error.msg.starts_with("failed to load netconf: "),
            "{error}"
        );
    }
}

#[test]
fn the_log_has_calicos_options() {
    let log = |json: &str| read(&format!(r#"{{"name":"net",{json}}}"#)).unwrap().log;
    assert_eq!(log(r#""log_level":"DEBUG""#).level, tracing::Level::DEBUG);
    assert_eq!(log(r#""log_level":"Warning""#).level, tracing::Level::INFO);
    assert_eq!(log(r#""log_level":"error","log_file_max_size":0"#).max_size, 100);
    let found =
        log(r#""log_file_path":"/a/b","log_file_max_size":1,"log_file_max_age":2,"log_file_max_count":3"#);
    assert_eq!(
        (found.file, found.max_size, found.max_age, found.max_count),
        (Some("/a/b".into()), 1, 2, 3)
    );
}

#[test]
fn fields_that_runtimes_add() {
    let json = r#"{"name":"net","cniVersion":"1.1.0","prevResult":{"ips":[{"address":"10.0.0.1/26"},{"address":"x"}]},
        "cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}],"runtimeConfig":{},"args":{}}"#;
    let found = read(json).unwrap();
    assert_eq!(found.previous, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
    assert_eq!(found.valid_containers, Ok(Some(vec!["a".to_owned()])));
    assert!(
        read(r#"{"name":"net","prevResult":"nonsense"}"#)
            .unwrap()
            .previous
            .is_empty()
    );
    let wrong = read(r#"{"name":"net","cni.dev/valid-attachments":7}"#).unwrap();
    assert!(
        wrong
            .valid_containers
            .unwrap_err()
            .to_string()
            .contains("valid-attachments")
    );
}

#[test]
fn checks_come_in_calicos_order() {
    for (json, code) in [
        ("{", 6),
        ("", 6),
        ("[]", 6),
        (r#"{"name":7}"#, 6),
        (r#"{"name":"a","cniVersion":1}"#, 6),
        ("{}", 7),
        ("null", 7),
        (r#"{"name":"a b","cniVersion":"9"}"#, 7),
        (r#"{"name":"-a"}"#, 7),
        (r#"{"name":"a","cniVersion":"9","ipam":7}"#, 1),
        (r#"{"name":"a","ipam":7}"#, 999),
        (r#"{"name":"a","qps":"x"}"#, 999),
        (r#"{"name":"a","log_file_max_size":1.5}"#, 999),
    ] {
        assert_eq!(read(json).unwrap_err().code.number(), code, "{json}");
    }
    assert_eq!(
        Document::read(b"\xFF{}", None).err().unwrap().code,
        Code::Decoding
    );
}

#[test]
fn secrets_are_not_shown() {
    let found = read(r#"{"name":"a","policy":{"k8s_auth_token":"hunter2"}}"#).unwrap();
    assert!(!format!("{found:?}").contains("hunter2"));
    let error = read(r#"{"name":"a","policy":{"k8s_auth_token":["hunter2"]}}"#).unwrap_err();
    assert!(!error.msg.contains("hunter2"), "{error}");
}

#[test]
fn pools_by_cidr() {
    assert_eq!(pool_cidr("10.0.0.7/8"), Some("10.0.0.0/8".parse().unwrap()));
    assert_eq!(pool_cidr("10.0.0.7"), None);
}
