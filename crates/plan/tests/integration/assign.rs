//! Plans that assign addresses, their trials, and the order of their writes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_check::{Code, Subject};
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityState, AffinityType, LOAD_BALANCER};
use calipam_model::attributes::Attribute;
use calipam_model::block::{Block, BlockContent, BlockOwner};
use calipam_model::cidr::address_at;
use calipam_model::config::IpamConfig;
use calipam_model::edit::Edit;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::pool::Reservation;
use calipam_model::snapshot::{DatastoreKind, Revision, Snapshot, StoredBlock, Versioned};
use calipam_plan::assign::{Request, plan, taken_since};
use calipam_plan::{Plan, SkipReason, SuggestedAction, try_plan};
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use serde_json::json;

use crate::checked::{Checked, created_block, edits};

/// A healthy cluster with two nodes.
fn cluster() -> Cluster {
    Cluster::plain(ClusterSpec::new(12), 2, 3)
}

/// An address that the first node can get in a new block.
fn spare_address(cluster: &Cluster) -> IpAddr {
    cluster.spec().spare_block_v4(0).hosts().nth(4).unwrap()
}

/// The plan for a request on the first node, under the handle `printer`.
fn planned(checked: &Checked, request: Request) -> Plan {
    let node = &checked.snapshot.nodes[0].value;
    let request = Request {
        node: node.name.clone(),
        handle: Some("printer".to_owned()),
        ..request
    };
    plan(&checked.basis(), node, &request)
}

/// The plan that assigns one more address on the first node, before and after its trial.
fn one_more(checked: Checked) -> (Plan, Plan) {
    let made = planned(
        &checked,
        Request {
            count: 1,
            ..Request::default()
        },
    );
    let kept = try_plan(checked.snapshot, checked.report, made.clone(), &checked.options).unwrap();
    (made, kept)
}

/// The plan that assigns these addresses on the first node.
fn of_addresses(snapshot: &Snapshot, addresses: Vec<IpAddr>, force: bool) -> Plan {
    planned(
        &Checked::new(snapshot.clone()),
        Request {
            addresses,
            force,
            ..Request::default()
        },
    )
}

fn stored<T>(value: T) -> Versioned<T> {
    Versioned {
        value,
        revision: Revision::Etcd(7),
    }
}

/// An affinity that is not in the snapshot.
fn affinity(kind: AffinityType, node: &str, cidr: IpNet) -> Affinity {
    Affinity::new(
        AffinityKey {
            kind,
            node: node.to_owned(),
            cidr,
        },
        AffinityState::Confirmed,
    )
}

fn without_blocks(mut snapshot: Snapshot) -> Snapshot {
    snapshot.blocks.clear();
    snapshot.affinities.clear();
    snapshot.handles.clear();
    snapshot
}

/// A new cluster whose pools overlap. Its tunnels and pods have addresses that no block records.
#[test]
fn the_first_block_is_not_blamed_for_pools_that_overlap() {
    let mut snapshot = without_blocks(cluster().snapshot());
    let inner = snapshot.pools[0].value.cidr.subnets(20).unwrap().next().unwrap();
    let mut pool = snapshot.pools[0].clone();
    (pool.value.name, pool.value.cidr) = ("inner".to_owned(), inner);
    snapshot.pools.push(pool);

    let checked = Checked::new(snapshot);
    let findings = &checked.report.findings;
    assert!(
        findings
            .iter()
            .all(|finding| finding.code == Code::OverlappingPools),
        "{findings:?}"
    );
    assert!(!findings.is_empty());
    let (made, kept) = one_more(checked);
    assert_eq!(made.forced.len(), 1);
    assert_eq!(kept.actions.len(), made.actions.len(), "{:?}", kept.skipped);
}

/// Calico IPAM serves only services, so pods and tunnels with addresses in its pools belong to another IPAM. After the
/// first block of a node they count as Calico's. That is not the assignment's fault.
#[test]
fn the_first_block_of_a_node_beside_those_of_services_is_not_blamed_for_pods() {
    let cluster = cluster();
    let mut snapshot = without_blocks(cluster.snapshot());
    let cidr = cluster.spec().spare_block_v4(7);
    let owner = BlockOwner::Virtual(LOAD_BALANCER.to_owned());
    let of_services = Block::new(cidr, Some(owner), snapshot.taken_at).unwrap();
    let content = BlockContent::Sound(Box::new(of_services));
    snapshot.blocks.push(stored(StoredBlock { key: cidr, content }));
    snapshot
        .affinities
        .push(stored(affinity(AffinityType::Virtual, LOAD_BALANCER, cidr)));

    let checked = Checked::new(snapshot);
    assert_eq!(checked.report.findings, [], "{:?}", checked.report.notes);
    let (made, kept) = one_more(checked);
    assert_eq!(made.forced.len(), 1, "{:?}", made.skipped);
    assert_eq!(kept.actions.len(), made.actions.len(), "{:?}", kept.skipped);
}

/// The next write of the block drops a record that no ordinal refers to, as in Calico's allocator.
#[test]
fn a_block_with_a_record_that_no_ordinal_refers_to_gives_addresses() {
    let cluster = Cluster::plain(ClusterSpec::new(12), 1, 3);
    let mut snapshot = cluster.snapshot();
    let v4 = |block: &&mut Versioned<StoredBlock>| block.value.key.addr().is_ipv4();
    let block = snapshot.blocks.iter_mut().find(v4).unwrap();
    let cidr = block.value.key;
    let mut value = serde_json::to_value(block.value.content.sound().unwrap()).unwrap();
    value["attributes"]
        .as_array_mut()
        .unwrap()
        .push(json!({"handle_id": "stray"}));
    block.value.content = BlockContent::parse(value.to_string().as_bytes()).unwrap();
    assert!(block.value.content.sound().is_none());

    let (made, kept) = one_more(Checked::new(snapshot));
    let [action] = &made.actions[..] else {
        panic!("{:?}", made.skipped)
    };
    let is_own = |edit: &Edit| edit.block() == Some(cidr);
    assert!(action.step.edits().any(is_own), "from the block that it has");
    assert_eq!(kept.actions.len(), 1, "{:?}", kept.skipped);
}

#[test]
fn the_affinity_of_a_new_block_comes_before_the_handle_and_the_block() {
    let cluster = cluster();
    let planned = of_addresses(&cluster.snapshot(), vec![spare_address(&cluster)], false);
    let [action] = &planned.actions[..] else {
        panic!("{planned:?}")
    };
    let kinds = action.step.by_object().into_iter().map(|(key, _)| match key {
        Key::Affinity(_) => "affinity",
        Key::Handle(_) => "handle",
        Key::Block(_) => "block",
        _ => "another",
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["affinity", "handle", "block"]);
}

#[test]
fn an_affinity_whose_deletion_stopped_half_way_is_deleted_before_it_comes_back() {
    let cluster = cluster();
    let mut snapshot = cluster.snapshot();
    // On etcd, the mark means nothing.
    snapshot.datastore = DatastoreKind::Kubernetes;
    let own = affinity(
        AffinityType::Host,
        &snapshot.nodes[0].value.name,
        cluster.spec().spare_block_v4(0),
    );
    snapshot
        .affinities
        .push(stored(Affinity { deleted: true, ..own }));

    let plan = of_addresses(&snapshot, vec![spare_address(&cluster)], false);
    let of_affinity = edits(&plan).filter(|edit| matches!(edit.key(), Key::Affinity(_)));
    let of_affinity = of_affinity.map(|edit| matches!(edit, Edit::Delete(..)));
    assert_eq!(
        of_affinity.collect::<Vec<_>>(),
        [true, false],
        "{:?}",
        plan.skipped
    );
    assert_eq!(
        created_block(&plan).unwrap().claimed_at(),
        Some(snapshot.taken_at)
    );
    let keys: BTreeSet<Key> = edits(&plan).map(Edit::key).collect();
    assert_eq!((plan.totals().objects(), plan.totals().others()), (keys.len(), 1));
}

#[test]
fn taken_since_reports_addresses_in_use_unless_forced() {
    let mut cluster = cluster();
    let pod = cluster.add_pod_on(1);
    cluster.free_pod(&pod);
    let used = Checked::new(cluster.snapshot());
    let address = pod.address();
    let mut unused = used.snapshot.clone();
    unused.endpoints.clear();

    let taken = |plan: &Plan| taken_since(&used.basis(), plan).len();
    let forced = of_addresses(&used.snapshot, vec![address], true);
    assert_eq!(
        (forced.forced.as_slice(), taken(&forced)),
        ([address].as_slice(), 0)
    );
    let before = of_addresses(&unused, vec![address], false);
    assert_eq!(
        (before.forced.as_slice(), taken(&before)),
        ([address].as_slice(), 1),
        "{:?}",
        before.skipped
    );
}

#[test]
fn a_refused_address_has_a_reason() {
    let mut snapshot = cluster().snapshot();
    snapshot.ipam_config = Some(IpamConfig {
        strict_affinity: true,
        ..IpamConfig::default()
    });
    let [own, other] = [0, 1].map(|index| BlockOwner::Host(snapshot.nodes[index].value.name.clone()));
    let mut free_of = |owner: &BlockOwner, windows: bool| {
        let is_of = |block: &&mut Versioned<StoredBlock>| block.value.content.owner() == Some(owner);
        let block = snapshot.blocks.iter_mut().find(is_of).unwrap();
        let BlockContent::Sound(block) = &mut block.value.content else {
            panic!()
        };
        let free = block.free()[0];
        if windows {
            let reserved = Attribute::new(Some("windows-reserved-ipam-handle"), []);
            block.update(|update| update.assign(free, &reserved).unwrap());
        }
        address_at(block.cidr(), free)
    };
    let addresses = [free_of(&own, true), free_of(&other, false)];

    let plan = of_addresses(&snapshot, addresses.to_vec(), false);
    let skip_of = |address| {
        let skipped = plan
            .skipped
            .iter()
            .find(|skipped| skipped.subject == Subject::Address(address))
            .unwrap();
        (skipped.reason, skipped.suggested_action.clone())
    };
    assert_eq!(skip_of(addresses[0]), (SkipReason::WindowsReserved, None));
    let explained = Some(SuggestedAction::ExplainNode("node-1".into()));
    assert_eq!(skip_of(addresses[1]), (SkipReason::NotAvailable, explained));

    let mut cluster = Cluster::plain(ClusterSpec::new(12), 1, 1);
    let pod = cluster.add_pod_on(0);
    let plan = of_addresses(&cluster.snapshot(), vec![pod.address()], false);
    let said = &plan.skipped[0].detail;
    assert!(said.contains(", for ") && said.contains(" on node-1; "), "{said}");
}

/// The changes of a plan, each as its verb, subject and detail.
fn described(plan: &Plan) -> Vec<String> {
    plan.changes()
        .map(|change| format!("{:?} {} {}", change.action, change.subject, change.detail))
        .collect()
}

#[test]
fn changes_name_the_pool_and_the_handle() {
    let cluster = cluster();
    let snapshot = cluster.snapshot();
    let pool = snapshot.pools[0].value.name.clone();
    let (plain, _) = one_more(Checked::new(snapshot.clone()));
    let [assigned, handle] = &described(&plain)[..] else {
        panic!("{:?}", described(&plain))
    };
    assert!(assigned.starts_with("AssignAddress "), "{assigned}");
    assert!(assigned.contains(&format!(", in pool {pool}")), "{assigned}");
    assert!(
        handle.starts_with("CreateHandle printer 1 more address in block "),
        "{handle}"
    );
    assert!(plain.warnings.is_empty(), "{:?}", plain.warnings);

    let mut with_handle = snapshot.clone();
    with_handle.handles.push(stored(Handle::new("printer")));
    let (again, _) = one_more(Checked::new(with_handle));
    assert!(
        described(&again)[1].starts_with("SetHandleCounts printer "),
        "{:?}",
        described(&again)
    );

    let claimed = described(&of_addresses(&snapshot, vec![spare_address(&cluster)], false));
    let affinity = format!(
        "{}/{}",
        snapshot.nodes[0].value.name,
        cluster.spec().spare_block_v4(0)
    );
    assert!(
        claimed
            .iter()
            .any(|line| line.contains(&format!("Affinity {affinity} "))),
        "{claimed:?}"
    );
}

#[test]
fn reservations_and_selectors_are_warned_of_where_an_address_is_named() {
    let cluster = cluster();
    let (mut snapshot, address) = (cluster.snapshot(), spare_address(&cluster));
    assert!(of_addresses(&snapshot, vec![address], false).warnings.is_empty());
    snapshot.pools[0].value.node_selector = "!all()".to_owned();
    let reservation = Reservation {
        name: "r".into(),
        cidrs: vec![address.into()],
    };
    snapshot.reservations.push(stored(reservation));
    let warnings = of_addresses(&snapshot, vec![address], false).warnings;
    let [selector, reservation] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    assert!(selector.text.contains("nodeSelector (!all())") && reservation.text.contains("reserved by r,"));
}

/// The request exceeds the free addresses in the node's own block. The plan fills that block, and claims two more
/// blocks of each family.
#[test]
fn many_addresses_come_from_several_blocks_and_pass_over_what_is_in_use() {
    let mut cluster = cluster();
    let pod = cluster.add_pod_on(0);
    cluster.free_pod(&pod);
    let checked = Checked::new(cluster.snapshot());
    for pool in &checked.snapshot.pools {
        let plan = planned(
            &checked,
            Request {
                count: 160,
                pools: vec![pool.value.cidr],
                ..Request::default()
            },
        );
        assert_eq!(plan.forced.len(), 160, "{:?}", plan.skipped);
        assert!(
            !pod.addresses
                .iter()
                .any(|(address, _)| plan.forced.contains(address))
        );
    }
}
