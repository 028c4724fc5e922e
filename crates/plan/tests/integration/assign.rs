//! Plans that assign addresses, their trials, and the order of their writes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_check::{Code, Options, Report, Subject, check};
use calipam_model::affinity::{Affinity, AffinityKey, AffinityState, AffinityType, LOAD_BALANCER};
use calipam_model::attributes::Attribute;
use calipam_model::block::{Block, BlockContent, BlockOwner};
use calipam_model::cidr::address_at;
use calipam_model::config::IpamConfig;
use calipam_model::edit::Edit;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::pool::Reservation;
use calipam_model::snapshot::{Revision, Snapshot, StoredBlock, Versioned};
use calipam_model::writable::Object;
use calipam_plan::assign::{Request, plan, taken_since};
use calipam_plan::{Basis, Plan, SkipReason, SuggestedAction, try_plan};
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use serde_json::json;

/// The plan that assigns one more address on the first node, before and after its trial.
fn one_more(snapshot: Snapshot, report: Report) -> (Plan, Plan) {
    let options = Options::default();
    let node = snapshot.nodes[0].value.clone();
    let request = Request {
        node: node.name.clone(),
        count: 1,
        handle: Some("printer".to_owned()),
        ..Request::default()
    };
    let made = plan(&Basis::new(&snapshot, &report, &options), &node, &request);
    let kept = try_plan(snapshot, report, made.clone(), &options).unwrap();
    (made, kept)
}

/// A new cluster whose pools overlap. Its tunnels and pods have addresses that no block records.
#[test]
fn the_first_block_is_not_blamed_for_pools_that_overlap() {
    let cluster = Cluster::plain(ClusterSpec::new(12), 2, 3);
    let mut snapshot = cluster.snapshot();
    let inner = snapshot.pools[0].value.cidr.subnets(20).unwrap().next().unwrap();
    let mut pool = snapshot.pools[0].clone();
    (pool.value.name, pool.value.cidr) = ("inner".to_owned(), inner);
    snapshot.pools.push(pool);
    snapshot.blocks.clear();
    snapshot.affinities.clear();
    snapshot.handles.clear();

    let report = check(&snapshot, &Options::default());
    assert!(report.findings.iter().all(|finding| finding.code == Code::OverlappingPools), "{report:?}");
    assert!(!report.findings.is_empty());
    let (made, kept) = one_more(snapshot, report);
    assert_eq!(made.forced.len(), 1);
    assert_eq!(kept.actions.len(), made.actions.len(), "{:?}", kept.skipped);
}

/// Calico IPAM serves only services, so pods and tunnels with addresses in its pools belong to another IPAM. After the
/// first block of a node they count as Calico's. That is not the assignment's fault.
#[test]
fn the_first_block_of_a_node_beside_those_of_services_is_not_blamed_for_pods() {
    let cluster = Cluster::plain(ClusterSpec::new(12), 2, 3);
    let mut snapshot = cluster.snapshot();
    let mut block = snapshot.blocks[0].clone();
    snapshot.blocks.clear();
    snapshot.affinities.clear();
    snapshot.handles.clear();
    let cidr = cluster.spec().spare_block_v4(7);
    let owner = BlockOwner::Virtual(LOAD_BALANCER.to_owned());
    let of_services = Block::new(cidr, Some(owner), snapshot.taken_at).unwrap();
    block.value = StoredBlock { key: cidr, content: BlockContent::Sound(Box::new(of_services)) };
    snapshot.blocks.push(block);
    let key = AffinityKey { kind: AffinityType::Virtual, node: LOAD_BALANCER.to_owned(), cidr };
    let affinity = Affinity::new(key, AffinityState::Confirmed);
    snapshot.affinities.push(Versioned { value: affinity, revision: Revision::Etcd(7) });

    let report = check(&snapshot, &Options::default());
    assert_eq!(report.findings, [], "{:?}", report.notes);
    let (made, kept) = one_more(snapshot, report);
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
    value["attributes"].as_array_mut().unwrap().push(json!({"handle_id": "stray"}));
    block.value.content = BlockContent::parse(value.to_string().as_bytes()).unwrap();
    assert!(block.value.content.sound().is_none());

    let report = check(&snapshot, &Options::default());
    let (made, kept) = one_more(snapshot, report);
    let [action] = &made.actions[..] else { panic!("{:?}", made.skipped) };
    let is_own = |edit: &Edit| edit.block() == Some(cidr);
    assert!(action.step.edits().any(is_own), "from the block that it has");
    assert_eq!(kept.actions.len(), 1, "{:?}", kept.skipped);
}

#[test]
fn the_affinity_of_a_new_block_comes_before_the_handle_and_the_block() {
    let cluster = Cluster::plain(ClusterSpec::new(12), 2, 3);
    let snapshot = cluster.snapshot();
    let options = Options::default();
    let report = check(&snapshot, &options);
    let basis = Basis::new(&snapshot, &report, &options);
    let node = &snapshot.nodes[0].value;
    let address = cluster.spec().spare_block_v4(0).hosts().nth(4).unwrap();
    let request = Request {
        node: node.name.clone(),
        addresses: vec![address],
        handle: Some("printer".to_owned()),
        ..Request::default()
    };

    let planned = plan(&basis, node, &request);
    let [action] = &planned.actions[..] else { panic!("{planned:?}") };
    let kinds = action.step.by_object().into_iter().map(|(key, _)| match key {
        Key::Affinity(_) => "affinity",
        Key::Handle(_) => "handle",
        Key::Block(_) => "block",
        _ => "another",
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["affinity", "handle", "block"]);
}

/// The plan that assigns these addresses on the first node.
fn of_addresses(snapshot: &Snapshot, addresses: Vec<IpAddr>, force: bool) -> Plan {
    let options = Options::default();
    let report = check(snapshot, &options);
    let node = &snapshot.nodes[0].value;
    let handle = Some("printer".to_owned());
    let request = Request { node: node.name.clone(), addresses, handle, force, ..Request::default() };
    plan(&Basis::new(snapshot, &report, &options), node, &request)
}

#[test]
fn an_affinity_whose_deletion_stopped_half_way_is_deleted_before_it_comes_back() {
    let cluster = Cluster::plain(ClusterSpec::new(12), 2, 3);
    let mut snapshot = cluster.snapshot();
    let cidr = cluster.spec().spare_block_v4(0);
    let node = snapshot.nodes[0].value.name.clone();
    let key = AffinityKey { kind: AffinityType::Host, node, cidr };
    let affinity = Affinity { deleted: true, ..Affinity::new(key, AffinityState::Confirmed) };
    snapshot.affinities.push(Versioned { value: affinity, revision: Revision::Etcd(7) });

    let plan = of_addresses(&snapshot, cidr.hosts().skip(4).take(1).collect(), false);
    let edits = plan.actions.iter().flat_map(|action| action.step.edits());
    let of_affinity = edits.filter(|edit| matches!(edit.key(), Key::Affinity(_)));
    let of_affinity = of_affinity.map(|edit| matches!(edit, Edit::Delete(..)));
    assert_eq!(of_affinity.collect::<Vec<_>>(), [true, false], "{:?}", plan.skipped);
    let created = plan.actions.iter().flat_map(|action| action.step.edits()).find_map(|edit| match edit {
        Edit::Create(Key::Block(_), block) => Some(block),
        _ => None,
    });
    let Some(Object::Block(BlockContent::Sound(created))) = created.map(|block| &**block) else { panic!() };
    assert_eq!(created.claimed_at(), Some(snapshot.taken_at));
    let keys: BTreeSet<Key> =
        plan.actions.iter().flat_map(|action| action.step.edits()).map(Edit::key).collect();
    assert_eq!((plan.totals().objects(), plan.totals().others()), (keys.len(), 1));
}

#[test]
fn taken_since_reports_addresses_in_use_unless_forced() {
    let mut cluster = Cluster::plain(ClusterSpec::new(12), 2, 3);
    let pod = cluster.add_pod_on(1);
    pod.addresses.iter().for_each(|(address, block)| cluster.free(*address, *block));
    let used = cluster.snapshot();
    let address = pod.addresses[0].0;
    let mut unused = used.clone();
    unused.endpoints.clear();

    let report = check(&used, &Options::default());
    let options = Options::default();
    let taken = |plan: &Plan| taken_since(&Basis::new(&used, &report, &options), plan).len();
    let forced = of_addresses(&used, vec![address], true);
    assert_eq!((forced.forced.as_slice(), taken(&forced)), ([address].as_slice(), 0));
    let before = of_addresses(&unused, vec![address], false);
    assert_eq!((before.forced.as_slice(), taken(&before)), ([address].as_slice(), 1), "{:?}", before.skipped);
}

#[test]
fn a_refused_address_has_a_reason() {
    let cluster = Cluster::plain(ClusterSpec::new(12), 2, 3);
    let mut snapshot = cluster.snapshot();
    snapshot.ipam_config = Some(IpamConfig { strict_affinity: true, ..IpamConfig::default() });
    let [own, other] = [0, 1].map(|index| BlockOwner::Host(snapshot.nodes[index].value.name.clone()));
    let mut free_of = |owner: &BlockOwner, windows: bool| {
        let is_of = |block: &&mut Versioned<StoredBlock>| block.value.content.owner() == Some(owner);
        let block = snapshot.blocks.iter_mut().find(is_of).unwrap();
        let BlockContent::Sound(block) = &mut block.value.content else { panic!() };
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
        let skipped =
            plan.skipped.iter().find(|skipped| skipped.subject == Subject::Address(address)).unwrap();
        (skipped.reason, skipped.suggested_action.clone())
    };
    assert_eq!(skip_of(addresses[0]), (SkipReason::WindowsReserved, None));
    let explained = Some(SuggestedAction::ExplainNode("node-1".into()));
    assert_eq!(skip_of(addresses[1]), (SkipReason::NotAvailable, explained));

    let mut cluster = Cluster::plain(ClusterSpec::new(12), 1, 1);
    let pod = cluster.add_pod_on(0);
    let plan = of_addresses(&cluster.snapshot(), vec![pod.addresses[0].0], false);
    let said = &plan.skipped[0].detail;
    assert!(said.contains(", for ") && said.contains(" on node-1; "), "{said}");
}

/// The changes of a plan, each as its verb, subject and detail.
fn described(plan: &Plan) -> Vec<String> {
    plan.changes().map(|change| format!("{:?} {} {}", change.action, change.subject, change.detail)).collect()
}

#[test]
fn changes_name_the_pool_and_the_handle() {
    let cluster = Cluster::plain(ClusterSpec::new(12), 2, 3);
    let snapshot = cluster.snapshot();
    let report = check(&snapshot, &Options::default());
    let pool = snapshot.pools[0].value.name.clone();
    let (plain, _) = one_more(snapshot.clone(), report);
    let [assigned, handle] = &described(&plain)[..] else { panic!("{:?}", described(&plain)) };
    assert!(assigned.starts_with("AssignAddress "), "{assigned}");
    assert!(assigned.contains(&format!(", in pool {pool}")), "{assigned}");
    assert!(handle.starts_with("CreateHandle printer 1 more address in block "), "{handle}");
    assert!(plain.warnings.is_empty(), "{:?}", plain.warnings);

    let mut with_handle = snapshot.clone();
    with_handle.handles.push(Versioned { value: Handle::new("printer"), revision: Revision::Etcd(7) });
    let (again, _) = one_more(with_handle.clone(), check(&with_handle, &Options::default()));
    assert!(described(&again)[1].starts_with("SetHandleCounts printer "), "{:?}", described(&again));

    let cidr = cluster.spec().spare_block_v4(0);
    let claimed = described(&of_addresses(&snapshot, cidr.hosts().skip(4).take(1).collect(), false));
    let affinity = format!("{} {cidr}", snapshot.nodes[0].value.name).replace(' ', "/");
    assert!(claimed.iter().any(|line| line.contains(&format!("Affinity {affinity} "))), "{claimed:?}");
}

#[test]
fn reservations_and_selectors_are_warned_of_where_an_address_is_named() {
    let cluster = Cluster::plain(ClusterSpec::new(12), 2, 3);
    let mut snapshot = cluster.snapshot();
    let address = cluster.spec().spare_block_v4(0).hosts().nth(4).unwrap();
    assert!(of_addresses(&snapshot, vec![address], false).warnings.is_empty());
    snapshot.pools[0].value.node_selector = "!all()".to_owned();
    let reservation = Reservation { name: "r".into(), cidrs: vec![address.into()] };
    snapshot.reservations.push(Versioned { value: reservation, revision: Revision::Etcd(7) });
    let warnings = of_addresses(&snapshot, vec![address], false).warnings;
    let [selector, reservation] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(selector.text.contains("nodeSelector (!all())") && reservation.text.contains("reserved by r,"));
}

/// The request exceeds the free addresses in the node's own block. The plan fills that block, and claims two more
/// blocks of each family.
#[test]
fn many_addresses_come_from_several_blocks_and_pass_over_what_is_in_use() {
    let mut cluster = Cluster::plain(ClusterSpec::new(12), 2, 3);
    let pod = cluster.add_pod_on(0);
    pod.addresses.iter().for_each(|(address, block)| cluster.free(*address, *block));
    let snapshot = cluster.snapshot();
    let options = Options::default();
    let report = check(&snapshot, &options);
    let node = &snapshot.nodes[0].value;
    for pool in &snapshot.pools {
        let pools = vec![pool.value.cidr];
        let request = Request { node: node.name.clone(), count: 160, pools, ..Request::default() };
        let plan = plan(&Basis::new(&snapshot, &report, &options), node, &request);
        assert_eq!(plan.forced.len(), 160, "{:?}", plan.skipped);
        assert!(!pod.addresses.iter().any(|(address, _)| plan.forced.contains(address)));
    }
}
