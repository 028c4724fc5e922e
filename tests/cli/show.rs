//! `calipam show` on the example cluster.

use std::time::Duration;

use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use calipam_testkit::servers::{Etcd, Tear, Tearing};
use serde_json::{Value, json};

use super::program::{HOSTILE, Run, calipam, expected, file, items, on_etcd, on_example, prepare, scratch};
use super::pty::{Terminal, interrupt, plain};

/// The subjects with their options, and the kind of each document.
const SUBJECTS: [(&str, &str, &str); 10] = [
    ("pools", "", "PoolList"),
    ("blocks", "--blocks", "BlockList"),
    ("nodes", "--nodes", "NodeList"),
    ("namespaces", "--namespaces", "NamespaceList"),
    ("borrowed", "--borrowed", "BorrowedList"),
    ("configuration", "--configuration", "Configuration"),
    ("map", "--map --pool 172.16.1.0/24", "PoolMapList"),
    ("ip", "--ip 10.244.10.3", "Address"),
    ("ip-leaked", "--ip 10.244.10.6", "Address"),
    ("handle", "--handle monitoring.prometheus-76", "Handle"),
];

fn show(options: &str, format: &str) -> Run {
    on_example(&format!("show -o {format} {options}"))
}

#[test]
fn every_view_and_format() {
    for (name, options, kind) in SUBJECTS {
        for format in ["table", "wide", "yaml"] {
            expected!(
                format!("show-{name}-{format}"),
                show(options, format).transcript()
            );
        }
        let json = show(options, "json").json();
        let yaml: Value = serde_yaml::from_str(&show(options, "yaml").stdout).unwrap();
        assert_eq!(json, yaml, "{name}");
        assert_eq!(
            (&json["apiVersion"], &json["kind"]),
            (&"calipam/v1".into(), &kind.into()),
            "{name}"
        );
        assert_eq!(
            json["cluster"]["guid"], "0f0e1d2c3b4a59687786951423324150",
            "{name}"
        );
        let hostile = calipam(&format!("show -o wide --datastore {HOSTILE} {options}"));
        let control = |c: char| c.is_control() && c != '\n';
        assert!(
            !hostile.stdout.contains(control) && !hostile.stderr.contains(control),
            "{hostile:?}"
        );
    }
    calipam(&format!("show --ip 10.244.1.1 --datastore {HOSTILE}")).prints("web-0\\u{1b}[2J");
}

#[test]
fn a_view_says_what_was_not_read_for_it() {
    let unread = "skipped: not needed";
    for (options, blocks, configuration) in [
        ("", "read", unread),
        ("--blocks", "read", unread),
        ("--nodes", "read", unread),
        ("--borrowed", "read", unread),
        ("--configuration", unread, "read"),
    ] {
        let coverage = show(options, "json").json()["coverage"].take();
        assert_eq!(
            (&coverage["handles"], &coverage["endpoints"]),
            (&unread.into(), &unread.into())
        );
        assert_eq!(coverage["blocks"], blocks, "{options}");
        assert_eq!(
            coverage["kubeControllersConfiguration"], configuration,
            "{options}"
        );
    }
    // All sources can name nodes, so all are read.
    let json = show("--blocks --node node-1", "json").json();
    assert_eq!(json["coverage"]["handles"], "read");
}

#[test]
fn unknown_objects_have_an_exit_code() {
    expected!("show-ip-unknown", on_example("show --ip 192.0.2.1").transcript());
    expected!(
        "show-handle-unknown",
        on_example("show --handle nobody").transcript()
    );
    // A free address of a pool is known, and an address of a disabled pool is found.
    on_example("show --ip 10.244.1.60").succeeded();
    on_example("show --ip 172.16.1.16")
        .succeeded()
        .prints("old-ippool (172.16.1.0/24, disabled)")
        .prints("shop/checkout-6799fc88d8-hp8xp");
}

/// The numbers of a pool add up to its size, and none is written with an exponent.
#[test]
fn numbers_add_up() {
    for pool in items(&show("", "json").json()["pools"]) {
        let number = |field: &str| pool[field].as_u64().unwrap();
        let parts = [
            "inUse",
            "cooling",
            "windowsReserved",
            "reserved",
            "unknown",
            "free",
        ];
        assert_eq!(
            parts.into_iter().map(number).sum::<u64>(),
            number("total"),
            "{pool}"
        );
        assert!(number("allocatable") <= number("free"), "{pool}");
    }
}

/// If only pools were exported, it is unknown which blocks nodes can claim. The number of allocatable addresses is
/// therefore unknown, not zero.
#[test]
fn an_unknown_number_is_not_zero() {
    let pool = json!({"apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool",
        "metadata": {"name": "only"}, "spec": {"cidr": "10.0.0.0/24", "blockSize": 26}});
    let list = json!({"kind": "List", "apiVersion": "v1", "items": [pool]});
    let (_folder, path) = file("pools.json", list.to_string());
    let shown = |format: &str| calipam(&format!("show -o {format} --datastore {path}"));
    assert_eq!(shown("json").json()["pools"][0]["allocatable"], Value::Null);
    shown("table").prints("256      unknown\n\nonly: not known: ");
}

/// IPv6 addresses do not help a node whose IPv4 blocks are full. `show --nodes` names the reason, as the check does,
/// and its hint contains each step.
#[test]
fn a_node_that_gets_no_address_is_named_with_the_reason() {
    let (_folder, path) = scratch("cluster.jsonl");
    let cluster = Cluster::plain(ClusterSpec::new(30), 3, 4).with(Fault::StrandedByLimit, 1);
    cluster.write_export(&path).unwrap();
    let run = |line: &str| calipam(&format!("{line} --datastore {}", path.display()));
    let reason = "the block limit of 20 is reached: the node holds 20";

    let check = run("check --rule node-without-addresses").prints("error     node-without-addresses");
    assert!(check.stdout.starts_with("Cluster"), "{check:?}");
    let (_, hint) = check
        .stderr
        .split_once("gets no address: `calipam ")
        .expect("a hint");
    calipam(hint.split('`').next().unwrap()).exits(1).prints(reason);

    let json = run("show --nodes -o json").json();
    let mut stranded = Vec::new();
    for node in items(&json["nodes"]) {
        let families = items(&node["families"]);
        let free: u64 = families
            .iter()
            .map(|family| family["free"].as_u64().unwrap())
            .sum();
        assert_eq!(free, node["free"].as_u64().unwrap(), "{node}");
        if families.iter().any(|family| family["withoutAddress"] == true) {
            stranded.push((node["node"].as_str().unwrap(), families));
        }
    }
    let [(node, families)] = stranded.as_slice() else {
        panic!("{stranded:?}")
    };
    check.prints(node);
    assert_eq!(
        families[0],
        json!({"family": "ipv4", "free": 0, "withoutAddress": true, "reason": reason})
    );
    assert!(
        families[1]["withoutAddress"] == false && families[1]["free"].as_u64() > Some(0),
        "{families:?}"
    );

    let table = run("show --nodes").stdout;
    let line = table.lines().find(|line| line.starts_with(node)).unwrap();
    assert!(
        line.contains("0 ipv4, ") && line.ends_with(&format!("ipv4: {reason}")),
        "{table}"
    );
}

/// With `-o name`, each kind of list prints only the names of its items.
#[test]
fn names_are_one_a_line() {
    let names = |options: &str| {
        let run = show(options, "name").succeeded().says_nothing();
        run.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names("")[0], "pool/default-ipv4-ippool");
    assert_eq!(names("--map"), names(""));
    assert_eq!(names("--blocks")[0], "block/10.244.1.0/26");
    assert_eq!(names("--nodes")[..2], ["node/node-1", "node/node-10"]);
    assert_eq!(names("--ip 10.244.10.6"), ["address/10.244.10.6"]);
    assert_eq!(
        names("--handle monitoring.prometheus-76"),
        ["handle/monitoring.prometheus-76"]
    );
    assert!(names("--configuration").contains(&"configuration/strictAffinity".to_owned()));
    for list in ["--borrowed", "--node node-1"] {
        let names = names(list);
        assert!(
            !names.is_empty() && names.iter().all(|name| name.starts_with("address/1")),
            "{names:?}"
        );
    }
    let hostile = calipam(&format!("show --nodes -o name -d {HOSTILE}")).omits("\u{1b}");
    assert!(
        hostile.stdout.lines().all(|line| line.starts_with("node/")),
        "{hostile:?}"
    );
}

#[test]
fn rows_alone_are_sorted_by_any_column() {
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    let rows = |words: &[&str]| -> Vec<Vec<String>> {
        let run = on_example(&[words, &["--no-headers"]].concat());
        run.stdout.lines().map(cells).collect()
    };
    let blocks = show("--blocks", "json").json();
    for (order, descends) in [("in-use", false), ("-IN USE", true), ("-in_use", true)] {
        let shown = rows(&["show", "--blocks", "--sort-by", order]);
        assert_eq!(shown.len(), items(&blocks["blocks"]).len());
        let numbers: Vec<u32> = shown.iter().filter_map(|row| row[4].parse().ok()).collect();
        assert!(
            numbers.is_sorted_by(|a, b| if descends { a >= b } else { a <= b }),
            "{order}: {numbers:?}"
        );
        let last = &shown.last().unwrap()[4];
        assert_eq!(
            last, "-",
            "of a corrupt block nothing is known: last, whatever the order"
        );
    }
    let by_address = rows(&["show", "--blocks", "--sort-by", "block"]);
    let expected = rows(&["show", "--blocks"]);
    assert_eq!(
        by_address, expected,
        "by number, not by text: 10.244.2.0 before 10.244.10.0"
    );
    let by_severity = rows(&["check", "--sort-by", "-severity"]);
    assert_eq!(
        (
            by_severity[0][0].as_str(),
            by_severity.last().unwrap()[0].as_str()
        ),
        ("info", "critical")
    );
    let wide = rows(&["check", "-o", "wide", "--sort-by", "subject"]);
    assert_eq!(
        wide.len(),
        34,
        "a row for each finding, and no table of pools before it"
    );

    for (line, why) in [
        (
            "show --sort-by weight",
            "--sort-by: there is no column \"weight\", only POOL, CIDR, TOTAL, ",
        ),
        (
            "show --sort-by \u{1b}[31m",
            "--sort-by: there is no column \"\\u{1b}[31m\",",
        ),
        (
            "show --map --no-headers",
            "only apply to tables, and this output is not a table",
        ),
        ("show -o yaml --sort-by free", "only apply to tables"),
    ] {
        on_example(line).failed(2, why);
    }
}

/// The whole read of an etcd that never answers it: only its large ranges are requests of their own.
#[test]
fn an_address_is_shown_before_the_cluster_is_read() {
    const PROBE: &[u8] = b"/calico/ipam/v2/config";
    let etcd = Etcd::of(&Cluster::example()).unwrap();
    let proxy = Tearing::etcd(&etcd).unwrap();
    proxy.plan(|seen| {
        let is_probe = seen.content.windows(PROBE.len()).any(|part| part == PROBE);
        match seen.path == "/etcdserverpb.KV/Range" && !is_probe {
            true => Tear::Delay(Duration::from_secs(3600)),
            false => Tear::Pass,
        }
    });
    let mut program = prepare("show 10.244.10.3 --etcd-endpoints");
    program.arg(proxy.url()).env("TERM", "xterm-256color");
    let terminal = Terminal::new(120);
    let shown = terminal
        .converse(&mut program, "checking the cluster …", |_, child| {
            interrupt(child)
        })
        .exits(130);
    let text = plain(&shown.text);
    assert!(
        text.contains("10.244.10.3 is allocated") && text.contains("Used by    endpoint"),
        "{text}"
    );
    assert!(
        !text.contains("Finding") && text.contains("error: interrupted"),
        "{text}"
    );

    // A pipe has both, each line once.
    let whole = on_etcd(&etcd, "show 10.244.10.3").succeeded().says_nothing();
    let lines: Vec<&str> = whole.stdout.lines().collect();
    let place = |begin: &str| lines.iter().position(|line| line.starts_with(begin)).unwrap();
    assert!(place("10.244.10.3 is allocated") < place("Used by"), "{whole:?}");
    assert!(
        place("Used by") < place("Finding    critical duplicate-address"),
        "{whole:?}"
    );
    for line in lines.iter().filter(|line| !line.is_empty()) {
        assert_eq!(
            lines.iter().filter(|other| other == &line).count(),
            1,
            "{line}: {whole:?}"
        );
    }
    // The user of a free address is known only from everything.
    let unrecorded = on_etcd(&etcd, "show 10.244.10.5").succeeded();
    unrecorded
        .prints("10.244.10.5 is free")
        .prints("unallocated-in-use");
    on_etcd(&etcd, "show 192.0.2.9")
        .exits(1)
        .prints("Used by    nothing")
        .prints("Finding    none");
}
