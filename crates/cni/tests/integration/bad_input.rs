//! Each error in the facts of the plugin, with its code, JSON and exit code; and hostile configurations.

use std::fs::File;
use std::process::Stdio;

use serde_json::json;

use crate::runtime::{Runtime, run};
use crate::world::World;

const ADD: [(&str, &str); 5] = [
    ("CNI_COMMAND", "ADD"),
    ("CNI_CONTAINERID", "c"),
    ("CNI_NETNS", "/run/netns/none"),
    ("CNI_IFNAME", "eth0"),
    ("CNI_PATH", "/opt/cni/bin"),
];

#[test]
fn the_plugin_describes_itself_to_people() {
    let outcome = run(&[], &[], Stdio::null());
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), ""));
    assert!(
        outcome
            .stderr
            .contains("CNI protocol versions supported: 0.1.0, "),
        "{outcome:?}"
    );
    let version = concat!("calipam ", env!("CARGO_PKG_VERSION"), "\n");
    for (option, code) in [("-v", 0), ("-h", 0), ("--help", 0), ("-x", 2), ("-upgrade", 1)] {
        let outcome = run(&[option], &[], Stdio::null());
        let printed = if option == "-v" { version } else { "" };
        assert_eq!(
            (outcome.code, outcome.stdout.as_str()),
            (Some(code), printed),
            "{option}"
        );
    }
}

#[test]
fn versions_are_printed_without_stdin() {
    // A folder cannot be read.
    let outcome = run(
        &[],
        &[("CNI_COMMAND", "VERSION")],
        File::open("/").unwrap().into(),
    );
    let versions = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
    assert_eq!(
        outcome.success(),
        json!({"cniVersion": "1.1.0", "supportedVersions": versions})
    );
    assert!(
        outcome.stdout.ends_with("}\n") && outcome.stdout.lines().count() == 1,
        "{outcome:?}"
    );
}

#[test]
fn errors_have_calicos_form() {
    let runtime = Runtime::on_etcd("http://127.0.0.1:1");
    let outcome = runtime.call_with("ADD", "c", b"{\"name\":\"a b\"}");
    let text = "{\n    \"code\": 7,\n    \"msg\": \"invalid characters found in network name\",\n    \"details\": \"a b\"\n}";
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), text));
}

#[test]
fn errors_name_missing_variables() {
    let lacking = |count: usize| run(&[], &ADD[..count], Stdio::null()).error();
    assert_eq!(
        lacking(3),
        (4, "required env variables [CNI_IFNAME,CNI_PATH] missing".into())
    );
    let expected = "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH] missing";
    assert_eq!(lacking(1).1, expected);
    let folder = File::open("/").unwrap();
    assert_eq!(run(&[], &ADD, folder.into()).error().0, 5);
    let interface = [("CNI_COMMAND", "DEL"), ("CNI_IFNAME", "a/b")];
    assert_eq!(run(&[], &interface, Stdio::null()).error().0, 4);
    let (code, text) = run(&[], &ADD, Stdio::null()).error();
    assert!(
        code == 6 && text.starts_with("error unmarshall network config: "),
        "{text}"
    );
}

#[test]
fn configurations_that_cannot_be_used() {
    let runtime = Runtime::on_etcd("http://127.0.0.1:1");
    let call = |command: &str, stdin: &str| runtime.call_with(command, "c", stdin.as_bytes()).error();
    let without_attachments =
        r#"{"name":"net","nodename":"a","cniVersion":"1.1.0","etcd_endpoints":"http://127.0.0.1:1"}"#;
    for (command, stdin, expected) in [
        ("ADD", "{", 6),
        ("ADD", r#"{"name":{}}"#, 6),
        ("ADD", "{}", 7),
        ("ADD", r#"{"name":"net","cniVersion":"1.2.0"}"#, 1),
        (
            "ADD",
            r#"{"name":"net","datastore_type":"etcdv3","nodename":"a"}"#,
            999,
        ),
        ("DEL", r#"{"name":"net","cniVersion":"x"}"#, 1),
        ("CHECK", r#"{"name":"net","cniVersion":"0.3.1"}"#, 1),
        ("STATUS", r#"{"name":"net","cniVersion":"1.0.0"}"#, 1),
        ("PROD", r#"{"name":"net"}"#, 4),
        ("PROD", "{", 6),
        ("GC", r#"{"name":"net","cniVersion":"1.0.0"}"#, 1),
        ("ADD", r#"{"name":"net","ipam":{"assign_ipv6":true}}"#, 999),
        ("ADD", r#"{"name":"net","ipam":{"ipv4_pools":"[]"}}"#, 999),
        (
            "ADD",
            r#"{"name":"net","nodename":"a","datastore_type":"consul"}"#,
            999,
        ),
        (
            "DEL",
            r#"{"name":"net","nodename":"a","datastore_type":"etcdv3"}"#,
            999,
        ),
        (
            "ADD",
            r#"{"name":"net","nodename":"-a","etcd_endpoints":"http://127.0.0.1:1"}"#,
            999,
        ),
        ("GC", without_attachments, 7),
    ] {
        let (code, text) = call(command, stdin);
        assert!(
            code == expected && !text.is_empty(),
            "{command} {stdin}: {code} {text}"
        );
    }
    let dead = call(
        "STATUS",
        r#"{"name":"net","cniVersion":"1.1.0","etcd_endpoints":"http://127.0.0.1:1"}"#,
    );
    assert!(dead.0 == 50 && dead.1.contains("connection refused"), "{dead:?}");
    for container in ["-c", "c/d", "c d"] {
        assert_eq!(runtime.call("ADD", container, "").error().0, 4, "{container}");
    }
}

#[test]
fn hostile_configurations_do_no_harm() {
    let runtime = Runtime::on_etcd("http://127.0.0.1:1");
    let deep = format!(
        "{{\"name\":\"net\",\"x\":{}{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let many = format!(
        "{{\"name\":\"net\",\"etcd_endpoints\":\"{}\"}}",
        "x,".repeat(10_000)
    );
    let texts: [&[u8]; 7] = [
        deep.as_bytes(),
        many.as_bytes(),
        b"\xFF\xFE",
        b"{\"name\":\"net\"}{\"name\":\"net\"}",
        b"{\"name\":\"net\",\"nodename\":\"a\",\"etcd_endpoints\":\"file:///etc/passwd\"}",
        b"{\"name\":\"net\",\"nodename\":\"a\",\"etcd_endpoints\":\"http://user:hunter2@127.0.0.1:1\"}",
        b"{\"name\":\"../../etc\",\"etcd_endpoints\":\"http://127.0.0.1:1\"}",
    ];
    for text in texts {
        let outcome = runtime.call_with("ADD", "c", text);
        outcome.error();
        let output = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(
            !output.contains("hunter2") && !output.contains("panicked"),
            "{output}"
        );
    }
}

#[test]
fn arguments_are_checked_as_in_calicos_plugin() {
    let world = World::etcd();
    let runtime = world.runtime();
    let pods = "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-2";
    let text = "ARGS: unknown args [\"K8S_POD_NAMESPACE=ns\" \"K8S_POD_NAME=web-2\"]";
    assert_eq!(runtime.call("ADD", "c", pods).error(), (999, text.into()));
    assert_eq!(runtime.call("DEL", "c", pods).code, Some(0));
    for args in ["a", "IP=10.7.0.3/24", "IgnoreUnknown=perhaps", "K8S_POD_UID=u"] {
        assert_eq!(runtime.call("ADD", "c", args).error().0, 999, "{args}");
    }
    world.assert_empty();
}

#[test]
fn the_own_namespace_is_refused_before_anything_is_allocated() {
    let world = World::etcd();
    let mut runtime = world.runtime();
    runtime
        .variables
        .insert("CNI_NETNS".into(), "/proc/self/ns/net".into());
    let (code, text) = runtime.call("ADD", "c", "").error();
    assert!(code == 8 && text.contains("should not be the same"), "{text}");
    world.assert_empty();
    runtime
        .variables
        .insert("CNI_NETNS_OVERRIDE".into(), "True".into());
    runtime.add_and_delete("c", "");
}

#[test]
fn errors_have_calicos_texts() {
    let world = World::etcd();
    world.runtime().call("ADD", "c1", "IP=10.7.0.3").success();
    let taken = "resource already exists: 10.7.0.3 with error: Address already assigned in block";
    let pool = |pool: &str| world.runtime().with_ipam("ipv4_pools", json!([pool]));
    for (runtime, args, text) in [
        (world.runtime(), "IP=10.7.0.3", taken),
        (
            world.runtime(),
            "IP=192.0.2.1",
            "The provided IP address is not in a configured pool\n",
        ),
        (pool("x"), "", "error parsing pool \"x\": invalid CIDR address: x"),
        (
            pool("10.9.0.0/24"),
            "",
            "the given pool (10.9.0.0/24) does not exist, or is not enabled",
        ),
        (
            world.runtime().with("nodename", "c"),
            "",
            "resource does not exist: Node(c) with error: <nil>",
        ),
    ] {
        assert_eq!(runtime.call("ADD", "c9", args).error(), (999, text.into()));
    }
    let none = world.runtime().with_ipam("assign_ipv4", "false");
    assert_eq!(
        none.call("ADD", "c9", "").success(),
        json!({"cniVersion": "0.3.1", "dns": {}})
    );
    world.runtime().call("DEL", "c1", "").success();
    world.assert_empty();
}
