//! Parts of a cluster, selected by `--node`, `--pool` and `--pod`, with patterns.

use calipam_testkit::cluster::Cluster;
use calipam_testkit::servers::Etcd;
use serde_json::Value;

use super::kubernetes::cluster;
use super::program::{EXAMPLE, Run, calipam, example, expected, file, items, on_etcd, on_example};

fn show(arguments: &str) -> Run {
    on_example(&format!("show -o json {arguments}"))
}

#[test]
fn a_node_shows_its_addresses() {
    expected!("show-node-table", on_example("show --node node-2").transcript());
    expected!(
        "show-node-wide",
        on_example("show --node node-2 -o wide").transcript()
    );
    expected!(
        "show-node-yaml",
        on_example("show --node node-12 -o yaml").transcript()
    );
    let held = show("--node node-2");
    // The count equals that in the list of nodes. One address is borrowed from node-1.
    assert_eq!(held.column("addresses", "node"), ["node-2"; 13]);
    assert!(
        held.column("addresses", "block")
            .contains(&"10.244.1.0/26".to_owned())
    );
}

#[test]
fn patterns_match_nodes() {
    let nodes = |pattern: &str| show(&format!("--nodes --node {pattern}")).column("nodes", "node");
    assert_eq!(nodes("win-*"), ["win-5"]);
    assert_eq!(nodes("node-1?"), ["node-10", "node-11", "node-12", "node-13"]);
    assert_eq!(
        nodes("node-1?,node-2"),
        ["node-10", "node-11", "node-12", "node-13", "node-2"]
    );
    assert_eq!(nodes("*").len(), 13);
    let checked = on_example("check --node node-1? -o json");
    let by_name = on_example("check --node node-10,node-11,node-12,node-13 -o json");
    assert_eq!(checked.stdout, by_name.stdout);
    assert!(
        checked
            .column("findings", "code")
            .contains(&"block-of-missing-node".to_owned())
    );
    for command in ["check", "show"] {
        on_example(&[command, "--node", "gpu-*"]).refused(1, "error: node \"gpu-*\" not found");
    }
}

/// A selector matches the labels of nodes, like the selector of a pool, and narrows names.
#[test]
fn selectors_match_nodes_by_label() {
    let label = |line: &str| {
        let mut entry: Value = serde_json::from_str(line).unwrap();
        let is_node = entry["key"]
            .as_str()
            .is_some_and(|key| key.contains("/nodes/node-1"));
        if let Some(metadata) = entry.pointer_mut("/value/metadata").filter(|_| is_node) {
            metadata["labels"]["rack"] = "a".into();
        }
        entry.to_string() + "\n"
    };
    let labelled: String = example().lines().map(label).collect();
    let (_folder, file) = file("cluster.jsonl", labelled);
    let run = |words: &[&str]| calipam(&[words, &["--datastore", &file]].concat());
    let same = |selector: &[&str], names: &str| {
        for command in [
            "check -o json",
            "show -o json",
            "show --blocks -o json",
            "release --leaked --dry-run -o json",
            "rebuild -o json",
        ] {
            let command: Vec<&str> = command.split(' ').collect();
            let by_label = run(&[&command, selector].concat());
            let by_name = run(&[&command[..], &["--node", names]].concat());
            let wanted = (by_name.code, by_name.json());
            assert_eq!(
                (by_label.code, by_label.json()),
                wanted,
                "{command:?} {selector:?}"
            );
            assert_ne!(by_name.stdout, run(&command).stdout, "{command:?} is narrowed");
        }
    };
    // node-11 has no object, and therefore no labels.
    same(&["--selector", "rack == 'a'"], "node-1,node-10,node-12,node-13");
    same(
        &["--selector", "rack == 'a'", "--node", "node-10,node-2"],
        "node-10",
    );
    calipam(&["diff", EXAMPLE, &file, "--selector", "has(rack)"])
        .prints("NEW")
        .completed();

    run(&["check", "-o", "wide", "--selector", "rack == 'a'"])
        .prints("release --leaked --selector 'rack == '\\''a'\\'''");
    for (words, code, says) in [
        (
            &["check", "--selector", "rack == 'b'"][..],
            1,
            "the selector matches no node",
        ),
        (
            &["check", "--selector", "rack=a"],
            2,
            "expected a selector as in a pool's nodeSelector",
        ),
        (
            &["release", "--node", "node-11", "--selector", "has(rack)"],
            2,
            "a deleted node has no labels",
        ),
        (
            &["release", "--selector", "has(rack)"],
            2,
            "specify what to release",
        ),
    ] {
        run(words).failed(code, says);
    }
}

/// A release refuses live nodes. Of the nodes that match a pattern, only the deleted ones count.
#[test]
fn patterns_stand_for_the_nodes_of_repairs() {
    let release = |node: &str| on_example(&format!("release --dry-run --node {node} -o json"));
    assert_eq!(release("node-1?").json(), release("node-11").json());
    assert_eq!(release("node-1*,node-11").json(), release("node-11").json());
    release("node-2*").exits(1).prints("node node-2 exists");
    release("dead-*").failed(1, "node \"dead-*\" not found");
    let rebuild = |node: &str| on_example(&format!("rebuild --node {node} -o json")).json();
    assert_eq!(rebuild("node-1?"), rebuild("node-10,node-11,node-12,node-13"));
}

/// If a name is not found, a command that reads shows the other objects and an error, but a command that writes does
/// nothing.
#[test]
fn a_name_that_is_not_found_keeps_no_other_from_being_read() {
    for (words, option, found, gone, says) in [
        (
            "check",
            "--node",
            "node-2",
            "node-99",
            "error: node \"node-99\" not found\nhint: did you mean",
        ),
        (
            "check",
            "--pool",
            "extra-5",
            "extra-77",
            "error: pool \"extra-77\" not found",
        ),
        (
            "check --fail-on never",
            "--node",
            "node-1?",
            "gpu-*",
            "error: node \"gpu-*\" not found",
        ),
        (
            "show --nodes",
            "--node",
            "node-2",
            "node-99",
            "error: node \"node-99\" not found",
        ),
        (
            "show",
            "--pool",
            "extra-5",
            "10.9.0.0/16",
            "error: nothing is in 10.9.0.0/16",
        ),
    ] {
        let run = |names: &str| on_example(&format!("{words} -o name {option} {names}"));
        let (alone, both) = (run(found), run(&format!("{gone} {option} {found}")));
        assert_eq!((both.code, &both.stdout), (1, &alone.stdout), "{words}: {both:?}");
        both.says(says);
    }
    for words in [
        "rebuild --node node-2,node-99",
        "release --leaked --dry-run --node node-2,node-99",
    ] {
        on_example(words).exits(1).prints_nothing();
    }
}

#[test]
fn blocks_borrowed_addresses_and_pools_of_a_part() {
    let blocks = show("--blocks --node node-1 --pool default-ipv4-ippool");
    assert_eq!(blocks.column("blocks", "pool"), ["default-ipv4-ippool"; 3]);
    assert_eq!(
        blocks.column("blocks", "cidr"),
        ["10.244.1.0/26", "10.244.1.64/26", "10.244.1.128/26"]
    );
    assert_eq!(show("--pool 172.16.5.0/28").column("pools", "name"), ["extra-5"]);
    // node-2 has borrowed the first address from node-1, and it is listed for both. node-1 has borrowed the second one.
    for (node, addresses) in [
        ("node-1", &["10.244.1.8", "10.244.5.6"][..]),
        ("node-2", &["10.244.1.8"]),
    ] {
        let borrowed = show(&format!("--borrowed --node {node} --pool default-ipv4-ippool"));
        assert_eq!(borrowed.column("addresses", "address"), addresses, "{node}");
    }
    let held = show("--node node-10 --pool extra-5");
    assert_eq!(held.column("addresses", "address").len(), 15);
    on_example("show --pool nowhere").exits(1);
}

/// Missing names are errors, since an empty answer would look like a healthy cluster.
#[test]
fn missing_objects_are_an_error_in_every_command() {
    let diff = format!("diff {EXAMPLE} {EXAMPLE}");
    let commands = ["check", "show", "release --leaked --dry-run", "rebuild", &diff];
    let node = "error: node \"node-x1\" not found\nhint: did you mean `node-1`?";
    let pool = "error: pool \"rak-ippool\" not found\nhint: did you mean `rack-ippool`?";
    let network = "error: nothing is in 10.9.0.0/16: no pool, no block, and no address in use\nhint: ";
    let pod = "hint: did you mean `shop/search-6799fc88d8-4v7sw`?";
    for (unknown, says, commands) in [
        ("--node node-x1", node, &commands[..]),
        ("--pool rak-ippool", pool, &commands),
        ("--pool 10.9.0.0/16", network, &commands),
        (
            "-n kube-sytem",
            "error: namespace \"kube-sytem\" not found",
            &[commands[0], commands[2]],
        ),
        (
            "--block 10.244.99.0/26",
            "error: block 10.244.99.0/26 not found",
            &commands[3..],
        ),
        (
            "--ip 10.9.0.1",
            "error: nothing is in 10.9.0.1/32",
            &commands[4..],
        ),
        ("--pod shop/search-6799fc88d8-4v7sx", pod, &commands[1..2]),
    ] {
        for command in commands {
            let line = format!("{command} {unknown}");
            let run = if *command == diff {
                calipam(&line)
            } else {
                on_example(&line)
            };
            run.refused(1, says);
        }
    }
    // A CIDR that contains data need not be that of a pool.
    for line in ["check --pool 10.244.10.0/24", "show --pool 10.244.10.5/32"] {
        assert!(!on_example(line).stdout.is_empty(), "{line}");
    }
}

#[test]
fn the_addresses_of_a_pod() {
    let run = on_example("show --pod monitoring/node-exporter-6799fc88d8-2ssxf");
    expected!("show-pod-table", run.transcript());
    // One pod uses an address that no block records.
    let lost = show("--pod shop/search-6799fc88d8-4v7sw").json();
    let mut addresses = items(&lost["addresses"]).iter();
    let is_lost = |of: &Value| of["address"] == "10.244.10.5" && of["type"] == "not recorded";
    assert!(addresses.any(is_lost), "{lost:?}");
    let elsewhere = on_example("show --pod shop/search-6799fc88d8-4v7sw --pool extra-5");
    let said = "error: the pod shop/search-6799fc88d8-4v7sw has no address on the named nodes or in the named pools\n\
        hint: `calipam show --pod shop/search-6799fc88d8-4v7sw --datastore ";
    assert!(
        elsewhere.code == 1 && elsewhere.stderr.starts_with(said),
        "{elsewhere:?}"
    );
    on_example("show --pod default/nobody").refused(1, "no address is recorded for the pod default/nobody");
    on_example("show --pod web-0").failed(2, "expected NAMESPACE/NAME");
}

#[test]
fn filters_that_mean_nothing_are_refused() {
    for options in [
        "--ip 10.244.1.7 --node node-1",
        "--handle x --pool extra-5",
        "--configuration --node node-1",
        "--nodes --pool extra-5",
        "--pod a/b --blocks",
        "node-10 --blocks",
        "node-10 --pool extra-5",
        "node-10 --quick",
        "k8s-pod-network.8c16 --no-headers",
    ] {
        on_example(&format!("show {options}")).exits(2);
    }
    on_example(&["show", ""]).exits(2);
}

/// An object that is named without an option prints the same as with its option.
#[test]
fn an_object_is_known_by_its_form_or_its_name() {
    for (object, options) in [
        ("10.244.10.6", "--ip 10.244.10.6"),
        ("default/queue-49", "--pod default/queue-49"),
        ("10.244.0.0/16", "--pool 10.244.0.0/16"),
        ("10.244.10.0/26", "--blocks --pool 10.244.10.0/26"),
        ("node-10", "--node node-10"),
        ("node-1*", "--node node-1*"),
        ("extra-5", "--pool extra-5"),
        ("k8s-pod-network.8c16b8a8…", &format!("--handle {HANDLE}")),
    ] {
        let run = |words: &str| on_example(&format!("show {words}")).succeeded();
        assert_eq!(run(object).stdout, run(options).stdout, "{object}");
    }
    on_example("show queue-49").failed(1, "did you mean `default/queue-49`?");

    let (_folder, path) = file("both.jsonl", example().replace("node-12", "extra-5"));
    let said = "error: \"extra-5\" is a node and a pool\nhint: say which: `calipam show --node extra-5 ";
    let both = calipam(&format!("show extra-5 -d {path}"))
        .exits(2)
        .says_first(said);
    both.says(" or `calipam show --pool extra-5 ");
}

const HANDLE: &str = "k8s-pod-network.8c16b8a8b184d94e12a589464aa8d0d381596d5c419b3ae76efbb840d224bd32";

#[test]
fn a_handle_by_the_beginning_of_its_id() {
    let handle = |begin: &str| on_example(&format!("show --handle {begin}"));
    let whole = handle(HANDLE).succeeded().prints(HANDLE);
    // The short form of an ID that tables show is also accepted.
    for begin in ["k8s-pod-network.8c16", "k8s-pod-network.8c16b8a8…"] {
        assert_eq!(handle(begin).transcript(), whole.transcript(), "{begin}");
    }
    expected!("show-handle-several", handle("k8s-pod-network.8").transcript());
    let many = handle("k8s").exits(1);
    assert!(
        many.stderr.lines().count() == 13 && many.stderr.ends_with("\n  …\n"),
        "{many:?}"
    );
    handle("k8s-pod-network.zz").failed(1, "handle \"k8s-pod-network.zz\" not found");
    // A release requires the complete ID of a handle, since a prefix could match another one.
    let release = on_example("release --handle k8s-pod-network.8c16").exits(1);
    release.prints("Nothing to do; 1 skipped").omits("8c16b8a8");
}

/// Selects parts of a cluster in etcd, and finds an address or a prefix of a handle in a few requests.
#[test]
fn parts_of_a_live_etcd() {
    let etcd = Etcd::of(&Cluster::example()).unwrap();
    let all = on_etcd(&etcd, "show --node * -o json");
    let (handles, nodes) = (all.column("addresses", "handle"), all.column("addresses", "node"));
    assert!(handles.len() > 50, "{all:?}");
    let of_one = on_etcd(&etcd, &format!("show --node {} -o json", nodes[0]));
    let expected = nodes.iter().filter(|node| **node == nodes[0]).count();
    assert_eq!(of_one.column("addresses", "node").len(), expected);

    let requests = |run: &Run| -> u32 {
        let numbers = run
            .stderr
            .lines()
            .filter_map(|line| line.split_once(" in ")?.1.strip_suffix(" requests"));
        numbers.map(|number| number.parse::<u32>().unwrap()).sum()
    };
    let id = handles
        .iter()
        .find(|id| id.starts_with("k8s-pod-network."))
        .unwrap();
    let mut begins = (id.len() - 63..id.len()).map(|end| &id[..end]);
    let is_of_one = |begin: &&str| handles.iter().filter(|id| id.starts_with(begin)).count() == 1;
    let begin = begins.find(is_of_one).unwrap();
    let found = on_etcd(&etcd, &format!("show --handle {begin} --quick -v"))
        .succeeded()
        .prints(id);
    assert!((1..20).contains(&requests(&found)), "{found:?}");
    on_etcd(&etcd, "show --handle k8s-pod-network.").failed(1, "several handles begin with");

    let address = on_etcd(&etcd, "show --ip 10.244.10.6 --quick -v").succeeded();
    assert!((1..=4).contains(&requests(&address)), "{address:?}");
    address.prints("default/queue-49, which was not found");
}

/// Selects parts of a cluster on Kubernetes.
#[test]
fn parts_of_a_live_kubernetes() {
    let cluster = cluster();
    let held = cluster.run("show --node node-? -o json");
    assert_eq!(
        held.column("addresses", "address"),
        ["10.0.0.0", "10.0.0.1"],
        "{held:?}"
    );
    let pod = cluster.run("show --pod default/web-0 -o json");
    assert_eq!(
        pod.column("addresses", "handle"),
        ["k8s-pod-network.abc"],
        "{pod:?}"
    );
    let blocks = cluster.run("show --blocks --pool default-ipv4-ippool -o json");
    assert_eq!(blocks.column("blocks", "cidr"), ["10.0.0.0/26"], "{blocks:?}");
    for begin in ["k8s-pod-network.abc", "k8s-pod-network.a", "k8s"] {
        cluster
            .run(&["show", "--handle", begin])
            .succeeded()
            .prints("k8s-pod-network.abc\n");
    }
}
