//! Completion of option values, from the cluster that the command line names and from files.

use std::fs;
use std::time::{Duration, Instant};

use calipam_testkit::cluster::Cluster;
use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::Etcd;
use calipam_testkit::values;
use serde_json::json;

use super::super::kube_cluster::{KubeCluster, Record, connection, pod};
use super::super::program::{EXAMPLE, Run, file, prepare, scratch};
use super::{NO_HURRY, TIME_LIMIT, suggested, suggested_in_time};

fn example_in_etcd() -> Etcd {
    Etcd::of(&Cluster::example()).unwrap()
}

fn put(etcd: &Etcd, keys: Vec<String>) {
    etcd.put_all(
        &keys
            .into_iter()
            .map(|key| (key, b"{}".to_vec()))
            .collect::<Vec<_>>(),
    )
    .unwrap();
}

/// Returns the longest common prefix of `texts`.
fn shared(texts: &[String]) -> String {
    let (first, last) = (texts.iter().min().unwrap(), texts.iter().max().unwrap());
    first
        .chars()
        .zip(last.chars())
        .take_while(|(a, b)| a == b)
        .map(|(a, _)| a)
        .collect()
}

#[test]
fn names_come_from_the_etcd_on_the_line() {
    let etcd = example_in_etcd();
    let endpoint = etcd.endpoint();
    let on = |line: &str| suggested(&format!("--etcd-endpoints {endpoint} {line}"));
    let nodes = on("check --node ");
    assert!(
        nodes.len() > 2 && nodes.iter().all(|node| !node.contains('/')),
        "{nodes:?}"
    );
    assert_eq!(
        on(&format!("release --node {}", &nodes[0][..nodes[0].len() - 1]))[0],
        nodes[0]
    );
    let two = format!("{},{}", nodes[1], nodes[0]);
    assert_eq!(on(&format!("check --node={two}"))[0], two);
    let pools = on("rebuild --pool=");
    assert!(
        !pools.is_empty() && pools.iter().all(|pool| !pool.contains('/')),
        "{pools:?}"
    );
    let blocks = on("rebuild --block 10.244.1");
    assert!(!blocks.is_empty(), "{blocks:?}");
    assert!(
        blocks
            .iter()
            .all(|b| b.starts_with("10.244.1") && b.contains('/')),
        "{blocks:?}"
    );
    let namespaces = on("check -n ");
    assert!(namespaces.contains(&"batch".to_owned()), "{namespaces:?}");
    assert!(namespaces.iter().all(|n| !n.contains('/')), "{namespaces:?}");
    assert_eq!(on("release --leaked --namespace=batc"), ["batch"]);
    let networks = on("show --ip ");
    assert!(
        networks.iter().any(|network| network.starts_with("10.")),
        "{networks:?}"
    );
    let addresses = on("show --ip 10.244.10.");
    assert!(addresses.contains(&"10.244.10.6".to_owned()), "{addresses:?}");
    assert!(
        addresses.iter().all(|address| address.starts_with("10.244.10.")),
        "{addresses:?}"
    );
    let handles = on("show --handle k8s");
    assert!(handles.len() > 10, "{handles:?}");
    assert!(
        handles
            .iter()
            .all(|handle| handle.starts_with("k8s-pod-network.")),
        "{handles:?}"
    );
    assert!(on("show --handle nothing-begins-so").is_empty());

    // Only the cluster on the line is read.
    let asked = |line: &str| {
        let mut program = prepare("__complete");
        program
            .env("ETCD_ENDPOINTS", etcd.endpoint())
            .env("DATASTORE_TYPE", "etcdv3")
            .env(TIME_LIMIT, NO_HURRY);
        Run::of(program.args(line.split(' '))).stdout
    };
    assert!(asked("check --node ").lines().count() > 2);
    for line in [
        "check --etcd-endpoints=http://127.0.0.1:1 --node ",
        "check -d /does/not/exist --node ",
        "check -d/does/not/exist --node ",
        "check --datastore etcd --datastore kubernetes --node ",
        "check --config=/does/not/exist --node ",
        // Unknown options are skipped, and the words after them still take effect.
        "check --nonsense --etcd-endpoints http://127.0.0.1:1 --node ",
    ] {
        assert_eq!(asked(line), ":36\n", "{line}");
    }

    // A server that does not answer is not waited for.
    etcd.pause().unwrap();
    let begun = Instant::now();
    assert!(suggested_in_time(&format!("check --etcd-endpoints {endpoint} --node ")).is_empty());
    // The default timeout for etcd is five seconds.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    etcd.resume().unwrap();
}

#[test]
fn many_names_are_completed_to_some_names_and_their_common_prefix() {
    let etcd = Etcd::start().unwrap();
    let handle = |text: String| format!("/calico/ipam/v2/handle/{text}");
    put(
        &etcd,
        (0..3000)
            .map(|n| handle(format!("k8s-pod-network.{n:04}")))
            .collect(),
    );
    put(
        &etcd,
        ["ipip-tunnel-addr-a", "k8s-pod-network.zz", "k8s-x"]
            .map(|id| handle(id.into()))
            .into(),
    );
    let endpoint = etcd.endpoint();
    let handles = |begin: &str| suggested(&format!("show --etcd-endpoints {endpoint} --handle {begin}"));
    for (begin, all_share) in [
        ("", ""),
        ("k", "k8s-"),
        ("k8s-p", "k8s-pod-network."),
        ("k8s-pod-network.1", "k8s-pod-network.1"),
    ] {
        let found = handles(begin);
        assert!((100..120).contains(&found.len()), "{begin}: {}", found.len());
        assert_eq!(shared(&found), all_share, "{begin}: {found:?}");
    }
    assert_eq!(handles("k8s-pod-network.299").len(), 10);

    // Addresses of many blocks come network by network.
    let block = |cidr: String| format!("/calico/ipam/v2/assignment/ipv4/block/{cidr}");
    put(
        &etcd,
        (0..40)
            .flat_map(|a| (0..8).map(move |b| block(format!("10.{a}.{b}.0-24"))))
            .collect(),
    );
    put(&etcd, vec![block("192.168.0.0-26".into())]);
    let addresses = |begin: &str| suggested(&format!("show --etcd-endpoints {endpoint} --ip {begin}"));
    assert_eq!(addresses(""), ["10.", "192."]);
    let thirties = (30..40).map(|n| format!("10.{n}."));
    assert_eq!(
        addresses("10.3"),
        ["10.3.".to_owned()]
            .into_iter()
            .chain(thirties)
            .collect::<Vec<_>>()
    );
}

#[test]
fn names_come_from_the_kubernetes_on_the_line() {
    let cluster = KubeCluster::with_nodes(Flavour::Classic, &["node-a", "node-b"]);
    let many: Vec<_> = (0..60)
        .map(|n| Record::of_pod(n, "team", &format!("Web-{n:02}"), "node-gone"))
        .collect();
    cluster.add_block("10.0.3.0/26", "node-gone", &many);
    let ask = |line: &str| suggested(&format!("{} {line}", connection(&cluster.server)));
    assert_eq!(ask("check --node "), ["node-a", "node-b", "node-gone"]);
    assert_eq!(ask("check --node node-g"), ["node-gone"]);
    assert_eq!(ask("check --pool def"), ["default-ipv4-ippool"]);
    assert_eq!(ask("check -n kube-s"), ["kube-system"]);
    assert_eq!(ask("rebuild --block 10.0."), ["10.0.3.0/26"]);
    assert_eq!(
        ask("show --ip 10.0.3.5").first().map(String::as_str),
        Some("10.0.3.5")
    );
    assert_eq!(ask("show --handle k8s-pod-network.team-Web-1").len(), 10);
    assert_eq!(
        ask("show --handle=k8s-pod-network.team-Web-07"),
        ["k8s-pod-network.team-Web-07"]
    );
    // A pod that waits for an address has no record.
    let mut waits = pod("team", "waits-0", "node-a", "10.0.0.9", 1);
    waits["status"] = json!({"phase": "Pending"});
    cluster.add_pods(&[waits]);
    assert_eq!(ask("explain --pod team/"), ["team/waits-0"]);
    assert_eq!(ask("explain --node node-b"), ["node-b"]);
    let etcd = example_in_etcd();
    let beside = format!(
        "--etcd-endpoints {} --kubeconfig {}",
        etcd.endpoint(),
        cluster.server.kubeconfig().display()
    );
    assert_eq!(
        suggested(&format!("{beside} explain --pod team/w")),
        ["team/waits-0"]
    );
    let known = suggested(&format!(
        "--etcd-endpoints {} explain --pod batch/",
        etcd.endpoint()
    ));
    assert!(
        known.iter().all(|pod| pod.starts_with("batch/") && pod.len() > 8),
        "{known:?}"
    );
}

#[test]
fn names_come_from_files() {
    let blocks = suggested(&format!("rebuild -d {EXAMPLE} --block 10.244.10"));
    assert!(blocks.contains(&"10.244.10.0/26".to_owned()), "{blocks:?}");

    let context = |name: &str| json!({"name": name, "context": {"cluster": "c", "user": "u"}});
    let names = ["arn:aws:eks:eu:1:cluster/prod", "my context", "staging"];
    let config = json!({"apiVersion": "v1", "kind": "Config", "contexts": names.map(context)});
    let (_folder, path) = file("config", config.to_string());
    assert_eq!(suggested(&format!("check --kubeconfig={path} --context ")), names);
    assert_eq!(
        suggested(&format!("check --kubeconfig={path} --context=st")),
        ["staging"]
    );
}

#[test]
fn journals_come_newest_first_with_date_and_place() {
    let (folder, state) = scratch("calipam");
    fs::create_dir(&state).unwrap();
    let etcd = example_in_etcd();
    let mut written = Vec::new();
    for option in ["--orphan-handles", "--leaked"] {
        let release = format!(
            "release {option} --grace 0 --settle 0 --yes --etcd-endpoints {}",
            etcd.endpoint()
        );
        Run::of(prepare(&release).env("XDG_STATE_HOME", folder.path())).completed();
        let mut all: Vec<_> = fs::read_dir(&state)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        all.retain(|path| !written.contains(path));
        written.append(&mut all);
    }
    assert_eq!(written.len(), 2, "{written:?}");
    fs::write(state.join("other.txt"), "no journal").unwrap();
    let lines = Run::of(prepare(&["__complete", "undo", ""]).env("XDG_STATE_HOME", folder.path())).stdout;
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (line, path) in lines.iter().zip(written.iter().rev()) {
        let (value, about) = line.split_once('\t').unwrap();
        assert_eq!(value, path.to_str().unwrap());
        assert!(about.contains(" UTC, release --"), "{about}");
        assert!(about.ends_with(&format!("on {}", etcd.endpoint())), "{about}");
    }
}

/// In a cluster with many blocks, the common prefixes of handles are determined from only some of the blocks. Handles
/// in the other blocks are completed, too.
#[test]
fn handle_prefixes_come_from_some_blocks_of_a_large_cluster() {
    let etcd = Etcd::start().unwrap();
    let handle =
        |block: usize, place: usize| format!("k8s-pod-network.{:04x}{place}", (block * 40_503) % 65_536);
    let (mut blocks, mut ids) = (Vec::new(), Vec::new());
    for block in 0..600 {
        let cidr = format!("10.0.{}.{}/30", block / 64, block % 64 * 4);
        let own: Vec<String> = (0..4).map(|place| handle(block, place)).collect();
        let value = values::block(&cidr, "host:n", own.iter().map(|id| json!({"handle_id": id})));
        blocks.push((values::block_key(&cidr), value.to_string().into_bytes()));
        ids.extend(own);
    }
    ids.extend(["ipip-tunnel-addr-n", "vxlan-tunnel-addr-n"].map(str::to_owned));
    etcd.put_all(&blocks).unwrap();
    put(
        &etcd,
        ids.into_iter()
            .map(|id| format!("/calico/ipam/v2/handle/{id}"))
            .collect(),
    );
    let endpoint = etcd.endpoint();
    let handles = |begin: &str| suggested(&format!("show --etcd-endpoints {endpoint} --handle {begin}"));
    let all = handles("");
    assert!(all.len() > 20 && shared(&all).is_empty(), "{all:?}");
    for id in ["ipip-tunnel-addr-n", "vxlan-tunnel-addr-n"] {
        assert!(all.contains(&id.to_owned()), "{all:?}");
    }
    assert_eq!(shared(&handles("k")), "k8s-pod-network.");
    assert_eq!(
        handles("k8s-pod-network.9e37"),
        (0..4).map(|place| handle(1, place)).collect::<Vec<_>>()
    );
    assert_eq!(handles("ipip"), ["ipip-tunnel-addr-n"]);
}

/// In a cluster with many blocks, pods of a large namespace are those in some of the blocks, and those of a small one all.
#[test]
fn pods_come_from_some_blocks_or_from_the_endpoints_of_a_small_namespace() {
    let etcd = Etcd::start().unwrap();
    let mut blocks = Vec::new();
    for number in 0..600 {
        let cidr = format!("10.0.{}.{}/30", number / 64, number % 64 * 4);
        let record = json!({
            "handle_id": format!("k8s-pod-network.{number}"),
            "secondary": {"namespace": "large", "pod": format!("web-{number}")},
        });
        let value = values::block(&cidr, "host:n", [record]);
        blocks.push((values::block_key(&cidr), value.to_string().into_bytes()));
    }
    etcd.put_all(&blocks).unwrap();
    let endpoints = "/calico/resources/v3/projectcalico.org/workloadendpoints";
    put(
        &etcd,
        vec![
            format!("{endpoints}/large/n-k8s-web--0-eth0"),
            format!("{endpoints}/small/n-k8s-api--0-eth0"),
            format!("{endpoints}/small/n-k8s-job--0-eth0"),
        ],
    );
    let pods = |begin: &str| {
        suggested(&format!(
            "explain --etcd-endpoints {} --pod {begin}",
            etcd.endpoint()
        ))
    };
    assert_eq!(pods("small/"), ["small/api-0", "small/job-0"]);
    assert_eq!(pods("small/j"), ["small/job-0"]);
    let large = pods("large/");
    assert!(
        large.len() > 5 && large.iter().all(|pod| pod.starts_with("large/web-")),
        "{large:?}"
    );
}
