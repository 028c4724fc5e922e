//! `calipam show` on the example cluster.

use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use serde_json::{Value, json};

use super::program::{HOSTILE, calipam, expected, on_example, scratch};

/// The subjects with their options, and the kind of each document.
const SUBJECTS: [(&str, &[&str], &str); 9] = [
    ("pools", &[], "PoolList"),
    ("blocks", &["--blocks"], "BlockList"),
    ("nodes", &["--nodes"], "NodeList"),
    ("borrowed", &["--borrowed"], "BorrowedList"),
    ("configuration", &["--configuration"], "Configuration"),
    ("map", &["--map", "--pool", "172.16.1.0/24"], "PoolMapList"),
    ("ip", &["--ip", "10.244.10.3"], "Address"),
    ("ip-leaked", &["--ip", "10.244.10.6"], "Address"),
    ("handle", &["--handle", "monitoring.prometheus-76"], "Handle"),
];

fn show(arguments: &[&str], format: &str) -> super::program::Run {
    on_example(&[&["show", "-o", format], arguments].concat())
}

#[test]
fn every_view_and_format() {
    for (name, arguments, _) in SUBJECTS {
        expected!(format!("show-{name}-table"), show(arguments, "table").transcript());
        expected!(format!("show-{name}-wide"), show(arguments, "wide").transcript());
        expected!(format!("show-{name}-yaml"), show(arguments, "yaml").transcript());
    }
}

#[test]
fn yaml_and_json_say_the_same() {
    for (name, arguments, kind) in SUBJECTS {
        let json = show(arguments, "json").json();
        let yaml: Value = serde_yaml::from_str(&show(arguments, "yaml").stdout).unwrap();
        assert_eq!(json, yaml, "{name}");
        assert_eq!((&json["apiVersion"], &json["kind"]), (&"calipam/v1".into(), &kind.into()), "{name}");
        assert_eq!(json["cluster"]["guid"], "0f0e1d2c3b4a59687786951423324150", "{name}");
    }
}

#[test]
fn a_view_says_what_was_not_read_for_it() {
    let unread = "skipped: not needed";
    for (arguments, blocks, configuration) in [
        (&[][..], "read", unread),
        (&["--blocks"], "read", unread),
        (&["--nodes"], "read", unread),
        (&["--borrowed"], "read", unread),
        (&["--configuration"], unread, "read"),
    ] {
        let json = show(arguments, "json").json();
        let coverage = &json["coverage"];
        assert_eq!((&coverage["handles"], &coverage["endpoints"]), (&unread.into(), &unread.into()));
        assert_eq!(coverage["blocks"], blocks, "{arguments:?}");
        assert_eq!(coverage["kubeControllersConfiguration"], configuration, "{arguments:?}");
    }
    // All sources can name nodes, so all are read.
    let json = show(&["--blocks", "--node", "node-1"], "json").json();
    assert_eq!(json["coverage"]["handles"], "read");
}

#[test]
fn unknown_objects_have_an_exit_code() {
    expected!("show-ip-unknown", on_example(&["show", "--ip", "192.0.2.1"]).transcript());
    expected!("show-handle-unknown", on_example(&["show", "--handle", "nobody"]).transcript());
    let free = on_example(&["show", "--ip", "10.244.1.60"]);
    assert_eq!(free.code, 0, "a free address of a pool is known: {free:?}");
}

#[test]
fn an_address_of_a_disabled_pool_is_found() {
    let run = on_example(&["show", "--ip", "172.16.1.16"]).succeeded();
    assert!(run.stdout.contains("old-ippool (172.16.1.0/24, disabled)"), "{run:?}");
    assert!(run.stdout.contains("shop/checkout-6799fc88d8-hp8xp"), "{run:?}");
}

#[test]
fn hostile_names_are_escaped_everywhere() {
    let control = |c: char| c.is_control() && c != '\n';
    for (name, arguments, _) in SUBJECTS {
        let run = calipam(&[&["show", "-o", "wide", "--datastore", HOSTILE], arguments].concat());
        assert!(!run.stdout.contains(control) && !run.stderr.contains(control), "{name}: {run:?}");
    }
    calipam(&["show", "--ip", "10.244.1.1", "--datastore", HOSTILE]).prints("web-0\\u{1b}[2J");
}

/// The numbers of a pool add up to its size, and none is written with an exponent.
#[test]
fn numbers_add_up() {
    let json = show(&[], "json").json();
    for pool in json["pools"].as_array().unwrap() {
        let number = |field: &str| pool[field].as_u64().unwrap();
        let parts = ["inUse", "cooling", "windowsReserved", "reserved", "unknown", "free"];
        assert_eq!(parts.into_iter().map(number).sum::<u64>(), number("total"), "{pool}");
        assert!(number("allocatable") <= number("free"), "{pool}");
    }
}

/// If only pools were exported, it is unknown which blocks nodes can claim. The number of allocatable addresses is
/// therefore unknown, not zero.
#[test]
fn an_unknown_number_is_not_zero() {
    let (_folder, path) = scratch("pools.json");
    let pool = serde_json::json!({"apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool",
        "metadata": {"name": "only"}, "spec": {"cidr": "10.0.0.0/24", "blockSize": 26}});
    std::fs::write(
        &path,
        serde_json::json!({"kind": "List", "apiVersion": "v1", "items": [pool]}).to_string(),
    )
    .unwrap();
    let shown = |format: &str| calipam(&["show", "-o", format, "--datastore", path.to_str().unwrap()]).stdout;
    let json: Value = serde_json::from_str(&shown("json")).unwrap();
    assert_eq!(json["pools"][0]["allocatable"], Value::Null);
    assert!(shown("table").contains("256      unknown\n\nonly: not known: "), "{}", shown("table"));
}

/// IPv6 addresses do not help a node whose IPv4 blocks are full. `show --nodes` names the reason, as the check does,
/// and its hint contains each step.
#[test]
fn a_node_that_gets_no_address_is_named_with_the_reason() {
    let (_folder, path) = scratch("cluster.jsonl");
    let cluster = Cluster::plain(ClusterSpec::new(30), 3, 4).with(Fault::StrandedByLimit, 1);
    cluster.write_export(&path).unwrap();
    let path = path.to_str().unwrap();

    let check = calipam(&["check", "--rule", "node-without-addresses", "--datastore", path]);
    assert!(check.stdout.starts_with("Cluster"), "{check:?}");
    assert!(check.stdout.contains("error     node-without-addresses"), "{check:?}");
    let (_, hint) = check.stderr.split_once("gets no address: `calipam ").expect("a hint");
    let words: Vec<&str> = hint.split('`').next().unwrap().split(' ').collect();
    let explained = calipam(&words);
    let says = "the block limit of 20 is reached: the node holds 20";
    assert!(explained.code == 1 && explained.stdout.contains(says), "{explained:?}");

    let json = calipam(&["show", "--nodes", "-o", "json", "--datastore", path]).json();
    let mut stranded = Vec::new();
    for node in json["nodes"].as_array().unwrap() {
        let families = node["families"].as_array().unwrap();
        let free: u64 = families.iter().map(|family| family["free"].as_u64().unwrap()).sum();
        assert_eq!(free, node["free"].as_u64().unwrap(), "{node}");
        if families.iter().any(|family| family["withoutAddress"] == true) {
            stranded.push((node["node"].as_str().unwrap(), families));
        }
    }
    let [(node, families)] = stranded.as_slice() else { panic!("{stranded:?}") };
    assert!(check.stdout.contains(node), "{check:?}");
    let reason = "the block limit of 20 is reached: the node holds 20";
    assert_eq!(families[0], json!({"family": "ipv4", "free": 0, "withoutAddress": true, "reason": reason}));
    assert!(families[1]["withoutAddress"] == false && families[1]["free"].as_u64() > Some(0), "{families:?}");

    let table = calipam(&["show", "--nodes", "--datastore", path]).stdout;
    let line = table.lines().find(|line| line.starts_with(node)).unwrap();
    assert!(line.contains("0 ipv4, "), "{table}");
    assert!(line.ends_with("ipv4: the block limit of 20 is reached: the node holds 20"), "{table}");
}

/// With `-o name`, each kind of list prints only the names of its items.
#[test]
fn names_are_one_a_line() {
    let names = |arguments: &[&str]| {
        let run = on_example(&[&["show", "-o", "name"], arguments].concat());
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
        run.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(&[])[0], "pool/default-ipv4-ippool");
    assert_eq!(names(&["--map"]), names(&[]));
    assert_eq!(names(&["--blocks"])[0], "block/10.244.1.0/26");
    assert_eq!(names(&["--nodes"])[..2], ["node/node-1", "node/node-10"]);
    assert_eq!(names(&["--ip", "10.244.10.6"]), ["address/10.244.10.6"]);
    assert_eq!(names(&["--handle", "monitoring.prometheus-76"]), ["handle/monitoring.prometheus-76"]);
    assert!(names(&["--configuration"]).contains(&"configuration/strictAffinity".to_owned()));
    for list in [&["--borrowed"][..], &["--node", "node-1"]] {
        let names = names(list);
        assert!(!names.is_empty() && names.iter().all(|name| name.starts_with("address/1")), "{names:?}");
    }
    let hostile = calipam(&["show", "--nodes", "-o", "name", "-d", HOSTILE]).stdout;
    assert!(hostile.lines().all(|line| line.starts_with("node/")), "{hostile:?}");
    assert!(!hostile.contains('\u{1b}'), "{hostile:?}");
}

#[test]
fn rows_alone_are_sorted_by_any_column() {
    let rows = |arguments: &[&str]| {
        let run = on_example(&[arguments, &["--no-headers"]].concat());
        run.stdout
            .lines()
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .collect::<Vec<Vec<String>>>()
    };
    let blocks = on_example(&["show", "--blocks", "-o", "json"]).json();
    let blocks = blocks["blocks"].as_array().unwrap();
    for (order, descends) in [("in-use", false), ("-IN USE", true), ("-in_use", true)] {
        let shown = rows(&["show", "--blocks", "--sort-by", order]);
        assert_eq!(shown.len(), blocks.len());
        let numbers: Vec<u32> = shown.iter().filter_map(|row| row[4].parse().ok()).collect();
        let mut sorted = numbers.clone();
        sorted.sort_by(|a, b| if descends { b.cmp(a) } else { a.cmp(b) });
        assert_eq!(numbers, sorted, "{order}");
        let found = &shown.last().unwrap()[4];
        assert_eq!(found, "-", "of a corrupt block nothing is known: last, whatever the order");
    }
    let by_address = rows(&["show", "--blocks", "--sort-by", "block"]);
    let expected = rows(&["show", "--blocks"]);
    assert_eq!(by_address, expected, "by number, not by text: 10.244.2.0 before 10.244.10.0");
    let severities: Vec<String> =
        rows(&["check", "--sort-by", "-severity"]).into_iter().map(|row| row[0].clone()).collect();
    assert_eq!((severities[0].as_str(), severities.last().unwrap().as_str()), ("info", "critical"));
    let wide = rows(&["check", "-o", "wide", "--sort-by", "subject"]);
    assert_eq!(wide.len(), 34, "a row for each finding, and no table of pools before it");

    for (arguments, why) in [
        (
            &["show", "--sort-by", "weight"][..],
            "--sort-by: there is no column \"weight\", only POOL, CIDR, TOTAL, ",
        ),
        (&["show", "--sort-by", "\u{1b}[31m"], "--sort-by: there is no column \"\\u{1b}[31m\","),
        (&["show", "--map", "--no-headers"], "only apply to tables, and this output is not a table"),
        (&["show", "-o", "yaml", "--sort-by", "free"], "only apply to tables"),
    ] {
        on_example(arguments).failed(2, why);
    }
}
