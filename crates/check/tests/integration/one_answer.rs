//! `check`, `explain`, `show` and the metrics agree about who gets an address, on random clusters with random requests.

use std::collections::{BTreeMap, BTreeSet};

use calipam_check::views::{self, Asking, Explanation, RequestState};
use calipam_check::{Code, Context, Options, Subject};
use calipam_model::IpNet;
use calipam_model::key::{Key, RESOURCE_PREFIX};
use calipam_model::pod::{Annotations, Namespace, Pod, PodParts, PodRequest};
use calipam_model::snapshot::{ALLOCATION_SOURCES, Revision, Snapshot, Source, Versioned};
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::{rounds, values};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const NODES: [&str; 4] = ["a", "b", "c", "win"];
const NAMESPACES: [(&str, &str); 2] = [("shop", "s"), ("team", "t")];
const POOLS: [(&str, &str, u8); 4] = [
    ("one", "10.0.0.0/28", 30),
    ("two", "10.1.0.0/27", 29),
    ("six", "fd00::/124", 126),
    ("tiny", "fd01::/127", 126),
];
/// Values of the annotations with pools, families and addresses.
const POOL_NAMES: [&str; 8] = [
    r#"["one"]"#,
    r#"["two", "one"]"#,
    r#"["10.1.0.0/27"]"#,
    r#"["six"]"#,
    r#"["tiny"]"#,
    r#"["nowhere"]"#,
    "[]",
    "one",
];
const FAMILIES: [&str; 5] = [r#"["IPv4"]"#, r#"["IPv6"]"#, r#"["IPv4", "IPv6"]"#, "[]", "IPv4"];
const ADDRESSES: [&str; 6] = [
    r#"["10.0.0.1"]"#,
    r#"["10.1.0.9", "fd00::5"]"#,
    r#"["10.0.0.1", "10.0.0.2"]"#,
    r#"["192.0.2.7"]"#,
    "[]",
    "10.0.0.1",
];

fn taken_at() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

struct World {
    snapshot: Snapshot,
    rng: Rng,
}

impl World {
    fn new(seed: u64) -> Self {
        let snapshot = Snapshot {
            taken_at: taken_at(),
            ..Snapshot::default()
        };
        let mut world = Self {
            snapshot,
            rng: Rng::new(seed),
        };
        world.snapshot.mark_read(ALLOCATION_SOURCES);
        world
            .snapshot
            .mark_read([Source::Pods, Source::Endpoints, Source::ClusterInformation]);
        let version = *world.rng.pick(&["v3.28.0", "v3.31.7", "v3.32.1"]);
        let mut cluster = json!({"calicoVersion": version, "datastoreReady": true});
        match world.rng.below(40) {
            0 | 1 => cluster["datastoreReady"] = false.into(),
            2 => cluster["datastoreReady"] = Value::Null,
            _ => {}
        }
        if !world.rng.one_in(40) {
            world.resource("clusterinformations/default", cluster);
        }
        let mut config =
            json!({"strict_affinity": world.rng.one_in(2), "auto_allocate_blocks": !world.rng.one_in(6)});
        if world.rng.one_in(2) {
            config["maxBlocksPerHost"] = (1 + world.rng.below(3)).into();
        }
        world.put("/calico/ipam/v2/config", &config);
        for node in NODES {
            let system = if node == "win" { "windows" } else { "linux" };
            let labels = json!({"metadata": {"labels": {"name": node, "kubernetes.io/os": system}}});
            world.put(&format!("{RESOURCE_PREFIX}nodes/{node}"), &labels);
            if world.rng.one_in(8) {
                let of_node = world.snapshot.nodes.last_mut().expect("the node");
                of_node.value.tainted = true;
            }
        }
        let has_namespaces = world.rng.one_in(2);
        for (name, cidr, block_size) in POOLS {
            world.pool(name, cidr, block_size, has_namespaces);
        }
        world.namespaces();
        let has_v6 = world.rng.one_in(2);
        for number in 0..world.rng.below(8) {
            world.pod(&format!("runs-{number}"), true, has_v6);
        }
        for number in 0..2 + world.rng.below(6) {
            world.pod(&format!("waits-{number}"), false, has_v6);
        }
        world
    }

    fn put(&mut self, path: &str, value: &Value) {
        self.snapshot
            .add_entry(path.as_bytes(), value.to_string().as_bytes(), 7);
    }

    fn resource(&mut self, name: &str, spec: Value) {
        self.put(&format!("{RESOURCE_PREFIX}{name}"), &json!({ "spec": spec }));
    }

    fn pool(&mut self, name: &str, cidr: &str, block_size: u8, has_namespaces: bool) {
        let mut spec = json!({"cidr": cidr, "blockSize": block_size});
        match self.rng.below(12) {
            0 => spec["assignmentMode"] = "Manual".into(),
            1 => spec["nodeSelector"] = "name == 'b'".into(),
            2 => spec["nodeSelector"] = "!all()".into(),
            3 => spec["allowedUses"] = json!(["Tunnel"]),
            4 => spec["disabled"] = true.into(),
            5 => spec["nodeSelector"] = "((".into(),
            6 | 7 if has_namespaces => spec["namespaceSelector"] = "of == 't'".into(),
            _ => {}
        }
        self.resource(&format!("ippools/{name}"), spec);
        let cidr: IpNet = cidr.parse().unwrap();
        let places: Vec<IpNet> = cidr.subnets(block_size).into_iter().flatten().collect();
        for place in places {
            if !self.rng.one_in(3) {
                self.block(place);
            }
        }
    }

    fn block(&mut self, cidr: IpNet) {
        let owner = *self.rng.pick(&["a", "b", "c", "win", "gone"]);
        let size = calipam_model::cidr::size(cidr) as usize;
        let taken = size.min(*self.rng.pick(&[0, 1, size, size]));
        let records = vec![json!({"handle_id": "others"}); taken];
        self.put(
            &Key::Block(cidr).to_string(),
            &values::block(&cidr.to_string(), format!("host:{owner}"), records),
        );
        if !self.rng.one_in(8) {
            let path = values::affinity_key(&format!("host/{owner}"), &cidr.to_string());
            self.put(&path, &json!({"state": "confirmed"}));
        }
    }

    fn namespaces(&mut self) {
        if self.rng.one_in(5) {
            return;
        }
        let mut namespaces = BTreeMap::new();
        for (name, label) in NAMESPACES {
            let labels = BTreeMap::from([("of".to_owned(), label.to_owned())]);
            let annotations = if self.rng.one_in(4) {
                self.request()
            } else {
                Annotations::default()
            };
            let of_namespace = Annotations {
                pools: annotations.pools,
                families: annotations.families,
                ..Annotations::default()
            };
            namespaces.insert(
                name.to_owned(),
                Namespace {
                    labels,
                    annotations: of_namespace,
                },
            );
        }
        self.snapshot.namespaces = Some(namespaces);
        self.snapshot.mark_read([Source::Namespaces]);
    }

    /// A request in annotations.
    fn request(&mut self) -> Annotations {
        let mut request = Annotations::default();
        match self.rng.below(6) {
            0 => request.pools[0] = (*self.rng.pick(&POOL_NAMES)).to_owned(),
            1 => request.pools[1] = (*self.rng.pick(&POOL_NAMES)).to_owned(),
            2 => request.addresses = (*self.rng.pick(&ADDRESSES)).to_owned(),
            3 => request.no_ipam = (*self.rng.pick(&ADDRESSES)).to_owned(),
            4 => request.floating = Some((*self.rng.pick(&ADDRESSES)).to_owned()),
            _ => {}
        }
        if self.rng.one_in(4) {
            request.families = (*self.rng.pick(&FAMILIES)).to_owned();
        }
        request
    }

    fn pod(&mut self, name: &str, runs: bool, has_v6: bool) {
        let request = if self.rng.one_in(2) {
            self.request()
        } else {
            Annotations::default()
        };
        let (namespace, _) = *self.rng.pick(&NAMESPACES);
        let address = format!("192.0.2.{}", self.rng.below(200));
        let mut status_ips = Vec::new();
        if runs {
            status_ips.push(address.as_str());
        }
        if runs && has_v6 {
            status_ips.push("2001:db8::1");
        }
        let parts = PodParts {
            namespace,
            name,
            node: self.rng.pick::<&str>(&["a", "b", "c", "win", "unknown"]),
            phase: if runs { "Running" } else { "Pending" },
            ready: runs,
            status_ips,
            created: Some(taken_at() - SignedDuration::from_mins(30)),
            request: PodRequest::from(request),
            ..PodParts::default()
        };
        let value = Pod::new(&parts).0;
        self.snapshot.pods.push(Versioned {
            value,
            revision: Revision::Etcd(7),
        });
    }
}

/// The subjects and nodes of findings with a code.
fn found(context: &Context<'_>, code: Code) -> BTreeSet<String> {
    let report = context.check();
    let findings = report.findings.iter().filter(|finding| finding.code == code);
    let names = findings.flat_map(|finding| match &finding.subject {
        Subject::Endpoint(pod) => vec![pod.clone()],
        _ => finding.nodes.clone(),
    });
    names.collect()
}

fn is_known(explained: &Explanation) -> bool {
    !matches!(
        explained.state,
        RequestState::NotKnown | RequestState::NamespacesNotRead
    )
}

/// Compares the answers about each waiting pod and each node, and counts the refusals and the other answers.
fn compare(snapshot: &Snapshot, counts: &mut [usize; 3], differences: &mut Vec<String>) {
    let context = Context::new(snapshot, &Options::default());
    let pods = found(&context, Code::PodWithoutAddress);
    let nodes = found(&context, Code::NodeWithoutAddresses);
    let counted = context.nodes_without_addresses();
    // A finding about the cluster information is about all nodes.
    let is_about_all = context
        .check()
        .findings
        .iter()
        .any(|finding| [Code::DatastoreLocked, Code::NoClusterInformation].contains(&finding.code));
    for pod in snapshot
        .pods
        .iter()
        .map(|stored| &stored.value)
        .filter(|pod| pod.waits())
    {
        let namespace = pod.namespace().to_string();
        let name = pod.name().to_string();
        let explained = views::explain(&context, snapshot, Asking::Pod(&namespace, &name)).unwrap();
        let is_found = pods.contains(&format!("{namespace}/{name}"));
        if explained.is_refused() != is_found {
            differences.push(format!("pod found: {is_found}, {}", explained.sentence()));
        }
        counts[usize::from(is_found)] += 1;
    }

    let shown = views::nodes(snapshot);
    for node in NODES {
        let explained = views::explain(&context, snapshot, Asking::Node(node)).unwrap();
        let is_refused = explained.is_refused();
        if is_refused && !nodes.contains(node) && !is_about_all {
            differences.push(format!("node not found: {}", explained.sentence()));
        }
        counts[2] += usize::from(is_refused);
        let view = shown.nodes.iter().find(|view| view.node == node).unwrap();
        let without = view
            .families
            .iter()
            .any(|family| family.without_address == Some(true));
        let is_shown = view
            .families
            .iter()
            .all(|family| family.without_address.is_some());
        let is_counted = is_refused && is_about_all || counted.contains(node);
        if is_shown && view.is_without_address() != is_counted {
            differences.push(format!(
                "node counted: {is_counted}, {:?}, {}",
                view.families,
                explained.sentence()
            ));
        }
        if is_known(&explained) && is_shown && without != is_refused {
            differences.push(format!(
                "node shown: {:?}, {}",
                view.families,
                explained.sentence()
            ));
        }
    }
}

#[test]
fn check_explain_and_show_agree() {
    let mut counts = [0; 3];
    let mut all = Vec::new();
    for seed in 0..rounds(400) {
        let mut differences = Vec::new();
        compare(&World::new(seed).snapshot, &mut counts, &mut differences);
        all.extend(
            differences
                .into_iter()
                .map(|difference| format!("seed {seed}: {difference}")),
        );
    }
    assert!(
        all.is_empty(),
        "{} differences, the first:\n{}",
        all.len(),
        all[..all.len().min(20)].join("\n")
    );
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}
