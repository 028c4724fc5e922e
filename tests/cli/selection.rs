//! Parts of a cluster, selected by `--node`, `--pool` and `--pod`, with patterns.

use std::collections::BTreeSet;
use std::fs;

use calipam_testkit::cluster::Cluster;
use calipam_testkit::servers::Etcd;
use serde_json::Value;

use super::kubernetes::{on_kubernetes, server};
use super::program::{EXAMPLE, Run, calipam, expected, on_example, root, scratch};

/// Returns a field of all items in a list of a document.
pub(super) fn column(run: &Run, list: &str, field: &str) -> Vec<String> {
    let json = run.json();
    let items = json[list].as_array().unwrap().iter();
    items.map(|item| item[field].as_str().unwrap_or("-").to_owned()).collect()
}

fn show(arguments: &[&str]) -> Run {
    on_example(&[&["show", "-o", "json"], arguments].concat())
}

fn distinct(texts: Vec<String>) -> BTreeSet<String> {
    texts.into_iter().collect()
}

#[test]
fn a_node_shows_its_addresses() {
    expected!("show-node-table", on_example(&["show", "--node", "node-2"]).transcript());
    expected!("show-node-wide", on_example(&["show", "--node", "node-2", "-o", "wide"]).transcript());
    expected!("show-node-yaml", on_example(&["show", "--node", "win-5", "-o", "yaml"]).transcript());
    let held = show(&["--node", "node-2"]);
    assert_eq!(distinct(column(&held, "addresses", "node")), distinct(vec!["node-2".into()]));
    // The count equals that in the list of nodes. One address is borrowed from node-1.
    assert_eq!(column(&held, "addresses", "address").len(), 13);
    assert!(column(&held, "addresses", "block").contains(&"10.244.1.0/26".to_owned()));
}

#[test]
fn patterns_match_nodes() {
    let nodes = |pattern: &str| column(&show(&["--nodes", "--node", pattern]), "nodes", "node");
    assert_eq!(nodes("win-*"), ["win-5"]);
    assert_eq!(nodes("node-1?"), ["node-10", "node-11", "node-12", "node-13"]);
    assert_eq!(nodes("node-1?,node-2"), ["node-10", "node-11", "node-12", "node-13", "node-2"]);
    assert_eq!(nodes("*").len(), 13);
    let checked = on_example(&["check", "--node", "node-1?", "-o", "json"]);
    let by_name = on_example(&["check", "--node", "node-10,node-11,node-12,node-13", "-o", "json"]);
    assert_eq!(checked.stdout, by_name.stdout);
    assert!(column(&checked, "findings", "code").contains(&"block-of-missing-node".to_owned()));
    for command in ["check", "show"] {
        on_example(&[command, "--node", "gpu-*"]).refused(1, "error: node \"gpu-*\" not found");
    }
}

/// A selector matches the labels of nodes, like the selector of a pool, and narrows names.
#[test]
fn selectors_match_nodes_by_label() {
    let (_folder, file) = scratch("cluster.jsonl");
    let example = std::fs::read_to_string(super::program::root().join(EXAMPLE)).unwrap();
    let label = |line: &str| {
        let mut entry: Value = serde_json::from_str(line).unwrap();
        let is_node = entry["key"].as_str().is_some_and(|key| key.contains("/nodes/node-1"));
        let Some(metadata) = entry.pointer_mut("/value/metadata").filter(|_| is_node) else {
            return line.to_owned();
        };
        metadata["labels"]["rack"] = "a".into();
        entry.to_string()
    };
    let labelled: Vec<String> = example.lines().map(label).collect();
    std::fs::write(&file, labelled.join("\n") + "\n").unwrap();
    let at = ["--datastore", file.to_str().unwrap()];
    let run = |words: &[&str]| calipam(&[words, &at].concat());
    let same = |selector: &[&str], names: &[&str]| {
        for command in [
            &["check", "-o", "json"][..],
            &["show", "-o", "json"],
            &["show", "--blocks", "-o", "json"],
            &["release", "--leaked", "--dry-run", "-o", "json"],
            &["rebuild", "-o", "json"],
        ] {
            let [by_label, by_name] = [selector, names].map(|more| run(&[command, more].concat()));
            let wanted = (by_name.code, by_name.json());
            assert_eq!((by_label.code, by_label.json()), wanted, "{command:?} {selector:?}");
            assert_ne!(by_name.stdout, run(command).stdout, "{command:?} is narrowed");
        }
    };
    // node-11 has no object, and therefore no labels.
    same(&["--selector", "rack == 'a'"], &["--node", "node-1,node-10,node-12,node-13"]);
    same(&["--selector", "rack == 'a'", "--node", "node-10,node-2"], &["--node", "node-10"]);
    let compared = calipam(&["diff", EXAMPLE, at[1], "--selector", "has(rack)"]);
    assert!(compared.code <= 1 && compared.stdout.contains("NEW"), "{compared:?}");

    let hints = run(&["check", "--selector", "rack == 'a'"]).stderr;
    assert!(hints.contains("release --leaked --selector 'rack == '\\''a'\\'''"), "{hints}");
    for (words, code, says) in [
        (&["check", "--selector", "rack == 'b'"][..], 1, "the selector matches no node"),
        (&["check", "--selector", "rack=a"], 2, "expected a selector as in a pool's nodeSelector"),
        (&["release", "--node", "node-11", "--selector", "has(rack)"], 2, "a deleted node has no labels"),
        (&["release", "--selector", "has(rack)"], 2, "specify what to release"),
    ] {
        run(words).exits(code).says(says);
    }
}

/// A release refuses live nodes. Of the nodes that match a pattern, only the deleted ones count.
#[test]
fn patterns_stand_for_the_nodes_of_repairs() {
    let plan = |words: &[&str]| on_example(&[words, &["-o", "json"]].concat());
    let release = |node: &str| plan(&["release", "--dry-run", "--node", node]);
    assert_eq!(release("node-1?").json(), release("node-11").json());
    assert_eq!(release("node-1*,node-11").json(), release("node-11").json());
    release("node-2*").exits(1).prints("node node-2 exists");
    release("dead-*").failed(1, "node \"dead-*\" not found");
    let rebuild = |node: &str| plan(&["rebuild", "--node", node]).json();
    assert_eq!(rebuild("node-1?"), rebuild("node-10,node-11,node-12,node-13"));
}

/// If a name is not found, a command that reads shows the other objects and an error, but a command that writes does
/// nothing.
#[test]
fn a_name_that_is_not_found_keeps_no_other_from_being_read() {
    for (words, option, found, gone, says) in [
        (
            &["check"][..],
            "--node",
            "node-2",
            "node-99",
            "error: node \"node-99\" not found\nhint: did you mean",
        ),
        (&["check"], "--pool", "extra-5", "extra-77", "error: pool \"extra-77\" not found"),
        (&["check", "--fail-on", "never"], "--node", "node-1?", "gpu-*", "error: node \"gpu-*\" not found"),
        (&["show", "--nodes"], "--node", "node-2", "node-99", "error: node \"node-99\" not found"),
        (&["show"], "--pool", "extra-5", "10.9.0.0/16", "error: nothing is in 10.9.0.0/16"),
    ] {
        let run = |names: &[&str]| {
            let options: Vec<&str> = names.iter().flat_map(|name| [option, name]).collect();
            on_example(&[words, &options, &["-o", "name"]].concat())
        };
        let (alone, both) = (run(&[found]), run(&[gone, found]));
        assert_eq!((both.code, &both.stdout), (1, &alone.stdout), "{words:?}: {both:?}");
        assert!(both.stderr.contains(says), "{words:?}: {both:?}");
    }
    for words in [&["rebuild", "--node"][..], &["release", "--leaked", "--dry-run", "--node"]] {
        on_example(&[words, &["node-2,node-99"]].concat()).exits(1).prints_nothing();
    }
}

#[test]
fn blocks_borrowed_addresses_and_pools_of_a_part() {
    let blocks = show(&["--blocks", "--node", "node-1", "--pool", "default-ipv4-ippool"]);
    assert_eq!(distinct(column(&blocks, "blocks", "pool")), distinct(vec!["default-ipv4-ippool".into()]));
    assert_eq!(column(&blocks, "blocks", "cidr"), ["10.244.1.0/26", "10.244.1.64/26", "10.244.1.128/26"]);
    assert_eq!(column(&show(&["--pool", "172.16.5.0/28"]), "pools", "name"), ["extra-5"]);
    // The address is borrowed by node-2 from node-1, and listed for both.
    for node in ["node-1", "node-2"] {
        let borrowed = show(&["--borrowed", "--node", node, "--pool", "default-ipv4-ippool"]);
        assert_eq!(column(&borrowed, "addresses", "address"), ["10.244.1.8"], "{node}");
    }
    let held = show(&["--node", "node-10", "--pool", "extra-5"]);
    assert_eq!(column(&held, "addresses", "address").len(), 15);
    on_example(&["show", "--pool", "nowhere"]).exits(1);
}

/// Missing names are errors, since an empty answer would look like a healthy cluster.
#[test]
fn missing_objects_are_an_error_in_every_command() {
    const DIFF: [&str; 3] = ["diff", EXAMPLE, EXAMPLE];
    let commands: [&[&str]; 5] =
        [&["check"], &["show"], &["release", "--leaked", "--dry-run"], &["rebuild"], &DIFF];
    let node = "error: node \"node-x1\" not found\nhint: did you mean `node-1`?";
    let pool = "error: pool \"rak-ippool\" not found\nhint: did you mean `rack-ippool`?";
    let network = "error: nothing is in 10.9.0.0/16: no pool, no block, and no address in use\nhint: ";
    for (unknown, says, commands) in [
        (["--node", "node-x1"], node, &commands[..]),
        (["--pool", "rak-ippool"], pool, &commands),
        (["--pool", "10.9.0.0/16"], network, &commands),
        (["-n", "kube-sytem"], "error: namespace \"kube-sytem\" not found", &[commands[0], commands[2]]),
        (["--block", "10.244.99.0/26"], "error: block 10.244.99.0/26 not found", &[commands[3], commands[4]]),
        (["--ip", "10.9.0.1"], "error: nothing is in 10.9.0.1/32", &[commands[4]]),
        (
            ["--pod", "shop/search-6799fc88d8-4v7sx"],
            "hint: did you mean `shop/search-6799fc88d8-4v7sw`?",
            &[commands[1]],
        ),
    ] {
        for command in commands {
            let words = [command, &unknown[..]].concat();
            let run = if command[0] == "diff" { calipam(&words) } else { on_example(&words) };
            assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{words:?}: {run:?}");
            assert!(run.stderr.contains(says), "{words:?}: {run:?}");
        }
    }
    // A CIDR that contains data need not be that of a pool.
    for words in [["check", "--pool", "10.244.10.0/24"], ["show", "--pool", "10.244.10.5/32"]] {
        assert!(!on_example(&words).stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn the_addresses_of_a_pod() {
    let run = on_example(&["show", "--pod", "monitoring/node-exporter-6799fc88d8-2ssxf"]);
    expected!("show-pod-table", run.transcript());
    let addresses = |pod: &str| {
        let run = show(&["--pod", pod]);
        column(&run, "addresses", "address")
            .into_iter()
            .zip(column(&run, "addresses", "type"))
            .collect::<Vec<_>>()
    };
    // One pod uses an address that no block records.
    let lost = addresses("shop/search-6799fc88d8-4v7sw");
    assert!(lost.contains(&("10.244.10.5".to_owned(), "not recorded".to_owned())), "{lost:?}");
    let elsewhere = on_example(&["show", "--pod", "shop/search-6799fc88d8-4v7sw", "--pool", "extra-5"]);
    let said = "error: the pod shop/search-6799fc88d8-4v7sw has no address on the named nodes or in the named pools\n\
        hint: `calipam show --pod shop/search-6799fc88d8-4v7sw --datastore ";
    assert!(elsewhere.code == 1 && elsewhere.stderr.starts_with(said), "{elsewhere:?}");
    on_example(&["show", "--pod", "default/nobody"])
        .refused(1, "no address is recorded for the pod default/nobody");
    on_example(&["show", "--pod", "web-0"]).failed(2, "expected NAMESPACE/NAME");
}

#[test]
fn filters_that_mean_nothing_are_refused() {
    for arguments in [
        &["--ip", "10.244.1.7", "--node", "node-1"][..],
        &["--handle", "x", "--pool", "extra-5"],
        &["--configuration", "--node", "node-1"],
        &["--nodes", "--pool", "extra-5"],
        &["--pod", "a/b", "--blocks"],
    ] {
        assert_eq!(on_example(&[&["show"], arguments].concat()).code, 2, "{arguments:?}");
    }
}

/// An object that is named without an option prints the same as with its option.
#[test]
fn an_object_is_known_by_its_form_or_its_name() {
    for (object, options) in [
        ("10.244.10.6", &["--ip", "10.244.10.6"][..]),
        ("default/queue-49", &["--pod", "default/queue-49"]),
        ("10.244.0.0/16", &["--pool", "10.244.0.0/16"]),
        ("10.244.10.0/26", &["--blocks", "--pool", "10.244.10.0/26"]),
        ("node-10", &["--node", "node-10"]),
        ("node-1*", &["--node", "node-1*"]),
        ("extra-5", &["--pool", "extra-5"]),
        ("k8s-pod-network.8c16b8a8…", &["--handle", HANDLE]),
    ] {
        let (short, long) = (on_example(&["show", object]), on_example(&[&["show"], options].concat()));
        assert_eq!((short.code, &short.stdout), (0, &long.stdout), "{object}: {short:?}");
    }
    on_example(&["show", "queue-49"]).failed(1, "did you mean `default/queue-49`?");
    for wrong in [
        &["node-10", "--blocks"][..],
        &["node-10", "--pool", "extra-5"],
        &["node-10", "--quick"],
        &["k8s-pod-network.8c16", "--no-headers"],
        &[""],
    ] {
        assert_eq!(on_example(&[&["show"], wrong].concat()).code, 2, "{wrong:?}");
    }

    let (_folder, path) = scratch("both.jsonl");
    let renamed = fs::read_to_string(root().join(EXAMPLE)).unwrap().replace("node-12", "extra-5");
    fs::write(&path, renamed).unwrap();
    let both = calipam(&["show", "extra-5", "-d", path.to_str().unwrap()]);
    let said = "error: \"extra-5\" is a node and a pool\nhint: say which: `calipam show --node extra-5 ";
    assert!(both.code == 2 && both.stderr.starts_with(said), "{both:?}");
    assert!(both.stderr.contains(" or `calipam show --pool extra-5 "), "{both:?}");
}

const HANDLE: &str = "k8s-pod-network.8c16b8a8b184d94e12a589464aa8d0d381596d5c419b3ae76efbb840d224bd32";

#[test]
fn a_handle_by_the_beginning_of_its_id() {
    let whole = on_example(&["show", "--handle", HANDLE]).succeeded().prints(HANDLE);
    // The short form of an ID that tables show is also accepted.
    for begin in ["k8s-pod-network.8c16", "k8s-pod-network.8c16b8a8…"] {
        assert_eq!(on_example(&["show", "--handle", begin]).transcript(), whole.transcript(), "{begin}");
    }
    expected!("show-handle-several", on_example(&["show", "--handle", "k8s-pod-network.8"]).transcript());
    let many = on_example(&["show", "--handle", "k8s"]);
    assert_eq!((many.code, many.stderr.lines().count()), (1, 13), "{many:?}");
    assert!(many.stderr.ends_with("\n  …\n"), "{many:?}");
    on_example(&["show", "--handle", "k8s-pod-network.zz"])
        .failed(1, "handle \"k8s-pod-network.zz\" not found");
}

/// A release requires the complete ID of a handle, since a prefix could match another one.
#[test]
fn a_release_wants_the_whole_id() {
    let run = on_example(&["release", "--handle", "k8s-pod-network.8c16"]).exits(1);
    assert!(run.stdout.contains("Nothing to do; 1 skipped") && !run.stdout.contains("8c16b8a8"), "{run:?}");
}

/// Selects parts of a cluster in etcd, and finds a prefix of a handle in a few requests.
#[test]
fn parts_of_a_live_etcd() {
    let cluster = Cluster::example();
    let etcd = Etcd::of(&cluster).unwrap();
    let on_etcd =
        |arguments: &[&str]| calipam(&[arguments, &["--etcd-endpoints", &etcd.endpoint()]].concat());
    let all = on_etcd(&["show", "--node", "*", "-o", "json"]);
    let (handles, nodes) = (column(&all, "addresses", "handle"), column(&all, "addresses", "node"));
    assert!(handles.len() > 50, "{all:?}");
    let of_one = on_etcd(&["show", "--node", &nodes[0], "-o", "json"]);
    let expected = nodes.iter().filter(|node| **node == nodes[0]).count();
    assert_eq!(column(&of_one, "addresses", "node").len(), expected);

    let id = handles.iter().find(|id| id.starts_with("k8s-pod-network.")).unwrap();
    let begin = (id.len() - 63..id.len()).map(|end| &id[..end]);
    let begin =
        begin.clone().find(|begin| handles.iter().filter(|id| id.starts_with(begin)).count() == 1).unwrap();
    let found = on_etcd(&["show", "--handle", begin, "--quick", "-v"]).succeeded().prints(id);
    let requests =
        found.stderr.lines().filter_map(|line| line.split_once(" in ")?.1.strip_suffix(" requests"));
    let requests: u32 = requests.map(|number| number.parse::<u32>().unwrap()).sum();
    assert!((1..20).contains(&requests), "{found:?}");
    on_etcd(&["show", "--handle", "k8s-pod-network."]).failed(1, "several handles begin with");
}

/// Selects parts of a cluster on Kubernetes.
#[test]
fn parts_of_a_live_kubernetes() {
    let server = server();
    let held = on_kubernetes(&server, &["show", "--node", "node-?", "-o", "json"]);
    assert_eq!(column(&held, "addresses", "address"), ["10.0.0.0", "10.0.0.1"], "{held:?}");
    let pod = on_kubernetes(&server, &["show", "--pod", "default/web-0", "-o", "json"]);
    assert_eq!(column(&pod, "addresses", "handle"), ["k8s-pod-network.abc"], "{pod:?}");
    let blocks = on_kubernetes(&server, &["show", "--blocks", "--pool", "default-ipv4-ippool", "-o", "json"]);
    assert_eq!(column(&blocks, "blocks", "cidr"), ["10.0.0.0/30"], "{blocks:?}");
    for begin in ["k8s-pod-network.abc", "k8s-pod-network.a", "k8s"] {
        on_kubernetes(&server, &["show", "--handle", begin]).succeeded().prints("k8s-pod-network.abc\n");
    }
}
