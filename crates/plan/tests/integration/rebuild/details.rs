//! The exact writes of rebuilds, with their conditions.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_check::{Code, Subject};
use calipam_model::IpNet;
use calipam_model::affinity::AffinityState;
use calipam_model::attributes::Attribute;
use calipam_model::edit::{BlockEdit, Edit, HandleEdit, Precondition};
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_plan::rebuild::Request;
use calipam_plan::{Action, SkipReason, Verb};
use calipam_testkit::cluster::wire::{Tunnel, key};
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault, Pod};
use calipam_testkit::values;

use super::judge::{at_first_sight, plain, rebuild, rebuild_all, words};

fn record(snapshot: &Snapshot, address: IpAddr) -> Option<Attribute> {
    let around = snapshot
        .blocks
        .iter()
        .filter(|block| block.value.key.contains(&address));
    let mut records = around.filter_map(|block| block.value.content.sound()?.allocation_of(address));
    records
        .next()
        .map(|allocation| allocation.attribute.to_attribute())
}

fn owner<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<BTreeMap<String, String>> {
    Some(
        entries
            .into_iter()
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect(),
    )
}

/// A healthy cluster in which the addresses of one pod are free.
fn with_freed_pod() -> (Cluster, Pod) {
    let mut cluster = plain();
    let pod = cluster.add_pod_on(1);
    cluster.free_pod(&pod);
    (cluster, pod)
}

/// Removes the container from a pod's endpoint.
fn remove_container(cluster: &mut Cluster, pod: &Pod) {
    cluster.json_mut(&pod.endpoint)["spec"]
        .as_object_mut()
        .unwrap()
        .remove("containerID")
        .unwrap();
}

#[test]
fn the_record_of_a_pod_is_made_as_the_cni_plugin_makes_it() {
    let (cluster, pod) = with_freed_pod();
    let rebuilt = rebuild_all("freed", &cluster);
    let expected = owner([
        ("namespace", pod.name.namespace),
        ("node", &pod.node),
        ("pod", &pod.name.pod),
        ("timestamp", "2026-06-01 08:00:00 +0000 UTC"),
    ]);
    for (address, _) in &pod.addresses {
        let found = record(&rebuilt.after, *address).unwrap();
        let wanted = (Some(pod.handle.as_str()), expected.clone());
        assert_eq!((found.handle.as_deref(), found.owner.clone()), wanted);
    }
    // The handle's count is raised before the block is written, and the endpoint must be the version that was read.
    for action in &rebuilt.plan.actions {
        let edits: Vec<&Edit> = action.step.edits().collect();
        let [
            Edit::Handle(id, HandleEdit::Increment(_, 1)),
            Edit::Block(_, BlockEdit::Assign { .. }),
        ] = edits[..]
        else {
            panic!("{:?}", action.step);
        };
        assert_eq!(*id, pod.handle);
        let evidence: Vec<&(Key, Precondition)> = action.step.evidence().collect();
        let [(Key::Endpoint { namespace, .. }, Precondition::At(_))] = evidence[..] else {
            panic!("{:?}", action.step);
        };
        assert_eq!(namespace, pod.name.namespace);
    }
}

#[test]
fn the_network_is_that_of_the_nodes_other_records() {
    let mut cluster = plain();
    let node = cluster.add_node();
    let other = cluster.add_pod_on(node);
    let pod = cluster.add_pod_on(node);
    for pod in [&other, &pod] {
        let renamed = pod.handle.replace("k8s-pod-network", "tenant.net");
        for (address, block) in &pod.addresses {
            cluster.count(&pod.handle, *block, -1);
            cluster.record_mut(*address, *block).handle = Some(renamed.clone());
            cluster.count(&renamed, *block, 1);
        }
    }
    cluster.free_pod(&pod);
    let rebuilt = rebuild_all("network", &cluster);
    let handle = record(&rebuilt.after, pod.address()).unwrap().handle.unwrap();
    assert_eq!(handle, pod.handle.replace("k8s-pod-network", "tenant.net"));
}

#[test]
fn without_container_or_network_there_is_no_record() {
    let (mut cluster, pod) = with_freed_pod();
    remove_container(&mut cluster, &pod);
    let rebuilt = rebuild_all("no container", &cluster);
    assert!(rebuilt.plan.is_empty());
    assert_eq!(
        rebuilt.reason(Code::UnallocatedInUse, pod.address()),
        Some(SkipReason::ContainerUnknown)
    );

    let mut cluster = Cluster::plain(ClusterSpec::new(12), 1, 0);
    let pod = cluster.add_pod_on(0);
    cluster.free_pod(&pod);
    let rebuilt = rebuild_all("no network", &cluster);
    assert_eq!(
        rebuilt.reason(Code::UnallocatedInUse, pod.address()),
        Some(SkipReason::ContainerUnknown)
    );
}

#[test]
fn a_handle_that_does_not_decode_is_never_counted() {
    let (mut cluster, pod) = with_freed_pod();
    cluster.put_raw(key::handle(&pod.handle), "[]");
    let rebuilt = rebuild_all("undecodable handle", &cluster);
    assert!(rebuilt.plan.is_empty(), "{}", words(&rebuilt.plan));
    assert_eq!(
        rebuilt.reason(Code::UnallocatedInUse, pod.address()),
        Some(SkipReason::Unchecked)
    );
}

#[test]
fn a_tunnel_gets_its_own_record() {
    let mut cluster = plain();
    let info = cluster.nodes()[0].clone();
    let address = cluster.tunnel(&info.name, Tunnel::Wireguard).unwrap();
    cluster.free(address, info.blocks[0]);
    let rebuilt = rebuild_all("tunnel", &cluster);
    let found = record(&rebuilt.after, address).unwrap();
    assert_eq!(found.handle, Some(Tunnel::Wireguard.handle(&info.name)));
    assert_eq!(
        found.owner,
        owner([("node", info.name.as_str()), ("type", "wireguardTunnelAddress")])
    );
    let evidence: Vec<&(Key, Precondition)> = rebuilt.plan.actions[0].step.evidence().collect();
    assert!(matches!(&evidence[..], [(Key::Node(node), Precondition::At(_))] if *node == info.name));
}

#[test]
fn an_owner_is_rewritten_only_where_the_recorded_one_does_not_exist() {
    // The recorded pod is gone: the address is recorded for its user.
    let mut cluster = plain();
    let (gone, user) = (cluster.add_pod_on(0), cluster.add_pod_on(0));
    cluster.remove(&gone.endpoint);
    cluster.set_addresses(&user.endpoint, &[gone.address(), user.addresses[1].0]);
    let rebuilt = rebuild_all("gone", &cluster);
    let rewritten = record(&rebuilt.after, gone.address()).unwrap();
    assert_eq!(rewritten.handle.as_deref(), Some(user.handle.as_str()));
    let rewrites = |action: &&Action| {
        action
            .changes
            .iter()
            .any(|change| change.action == Verb::RewriteOwner)
    };
    let action = rebuilt.plan.actions.iter().find(rewrites).unwrap();
    let evidence: Vec<&(Key, Precondition)> = action.step.evidence().collect();
    let absent = evidence.iter().filter(|(key, expect)| {
        matches!(key, Key::Endpoint { name, .. } if gone.endpoint.ends_with(name.as_str()))
            && *expect == Precondition::Absent
    });
    assert_eq!(absent.count(), 1, "{evidence:?}");
    // The recorded pod exists and has another address: it is unclear which pod should have this one.
    let mut cluster = plain();
    let (lives, user) = (cluster.add_pod_on(0), cluster.add_pod_on(0));
    let stolen = lives.address();
    cluster.set_addresses(&lives.endpoint, &[lives.addresses[1].0]);
    cluster.set_addresses(&user.endpoint, &[stolen, user.addresses[1].0]);
    let rebuilt = rebuild_all("lives", &cluster);
    assert_eq!(
        rebuilt.reason(Code::OwnerMismatch, stolen),
        Some(SkipReason::OwnerMayLive)
    );
    assert_eq!(record(&rebuilt.after, stolen), record(&rebuilt.before, stolen));
}

#[test]
fn an_address_seen_unused_only_once_stays_unless_its_node_is_deleted() {
    let cluster = plain().with(Fault::LeakedNoOwner, 1);
    let plan = at_first_sight(cluster.snapshot());
    assert!(plan.is_empty(), "{}", words(&plan));
    assert!(
        plan.skipped
            .iter()
            .all(|skipped| skipped.reason == SkipReason::SeenOnce)
    );
    assert_eq!(plan.skipped.len(), 2);
    let cluster = plain().with(Fault::NodeGone, 1);
    let plan = at_first_sight(cluster.snapshot());
    assert!(
        plan.skipped.is_empty() && plan.totals().addresses > 3,
        "{}",
        words(&plan)
    );
}

#[test]
fn a_block_of_another_size_is_in_the_way_of_a_lost_one() {
    let mut cluster = plain().with(Fault::UnallocatedNoBlock, 1);
    let info = cluster.nodes().last().unwrap().clone();
    // The last /28 of the lost block, where no address is in use.
    let wide: IpNet = info.blocks[0].subnets(28).unwrap().last().unwrap();
    let value = values::block(&wide.to_string(), "host:node-1", []);
    cluster.put_raw(key::block(wide), value.to_string());
    cluster.put_raw(
        key::affinity("host", "node-1", wide),
        r#"{"state":"confirmed","deleted":false}"#,
    );
    let rebuilt = rebuild_all("overlap", &cluster);
    let first = info.blocks[0].network();
    assert_eq!(
        rebuilt.reason(Code::UnallocatedInUse, first),
        Some(SkipReason::Overlap)
    );
    let second = rebuilt
        .plan
        .changes()
        .filter(|change| change.action == Verb::CreateBlock);
    let expected = [Subject::Block(info.blocks[1])];
    assert_eq!(
        second.map(|change| change.subject.clone()).collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn a_lost_block_comes_back_with_its_owner_and_its_affinity() {
    let mut cluster = plain();
    let node = cluster.add_node();
    let pods = [cluster.add_pod_on(node), cluster.add_pod_on(node)];
    let info = cluster.nodes()[node].clone();
    let lost = info.blocks[0];
    cluster.remove(&key::block(lost));
    cluster.put_raw(
        key::affinity("host", &info.name, lost),
        r#"{"state":"pending","deleted":false}"#,
    );
    // One of the pods cannot get a record, but its address must not become free either.
    remove_container(&mut cluster, &pods[1]);
    let rebuilt = rebuild_all("lost", &cluster);
    let block = rebuilt
        .after
        .blocks
        .iter()
        .find(|block| block.value.key == lost)
        .unwrap();
    let owner = block.value.content.owner().map(ToString::to_string);
    assert_eq!(owner, Some(format!("host:{}", info.name)));
    let affinity = rebuilt
        .after
        .affinities
        .iter()
        .find(|affinity| affinity.value.key.cidr == lost)
        .unwrap();
    assert_eq!(affinity.value.state, AffinityState::Confirmed);
    assert_eq!(
        record(&rebuilt.after, pods[0].address()).unwrap().handle.as_ref(),
        Some(&pods[0].handle)
    );
    assert_eq!(
        record(&rebuilt.after, pods[1].address()),
        Some(Attribute::default())
    );
    let expected = Some(SkipReason::ContainerUnknown);
    assert_eq!(
        rebuilt.reason(Code::UnallocatedInUse, pods[1].address()),
        expected
    );
}

#[test]
fn a_half_released_empty_block_is_deleted() {
    let mut cluster = plain().with(Fault::AffinityReleasing, 1);
    // The block is kept while a pod has an address in it. Once the pod is deleted, so is the block.
    let kept = rebuild_all("in use", &cluster);
    let [action] = kept.plan.actions.as_slice() else {
        panic!("{}", words(&kept.plan))
    };
    let edits: Vec<&Edit> = action.step.edits().collect();
    let [Edit::Block(cidr, BlockEdit::Touch), Edit::Affinity(_, _, state)] = edits[..] else {
        panic!("{:?}", action.step);
    };
    assert_eq!(*state, AffinityState::Confirmed);
    let cidr = *cidr;
    let taken: Vec<IpAddr> = cluster
        .block_mut(cidr)
        .records()
        .map(|(address, _)| address)
        .collect();
    taken.into_iter().for_each(|address| cluster.free(address, cidr));
    for endpoint in cluster.snapshot().endpoints {
        if endpoint.value.addresses().any(|address| cidr.contains(&address)) {
            cluster.remove(&endpoint.value.key().to_string());
        }
    }
    let gone = rebuild_all("empty", &cluster);
    assert!(
        gone.after.blocks.iter().all(|block| block.value.key != cidr),
        "{}",
        words(&gone.plan)
    );
    assert!(
        gone.after
            .affinities
            .iter()
            .all(|affinity| affinity.value.key.cidr != cidr)
    );
}

#[test]
fn a_corrupt_block_of_a_node_that_is_gone_is_rebuilt_and_given_up_at_once() {
    let mut cluster = plain().with(Fault::NodeGone, 1);
    let info = cluster.nodes().last().unwrap().clone();
    let block = cluster.json_mut(&key::block(info.blocks[0]));
    block["unallocated"].as_array_mut().unwrap().push(63.into());
    let rebuilt = rebuild_all("corrupt and gone", &cluster);
    let of_block = |edit: &Edit| edit.key() == Key::Block(info.blocks[0]);
    let steps = rebuilt.plan.actions.iter().map(|action| &action.step);
    let written: Vec<_> = steps.filter(|step| step.edits().any(of_block)).collect();
    let [step] = written.as_slice() else {
        panic!("{written:?}")
    };
    assert!(
        step.block_part().is_some(),
        "one write, as it must not be free in between: {step:?}"
    );
    let owner = rebuilt
        .after
        .blocks
        .iter()
        .find(|block| block.value.key == info.blocks[0]);
    assert!(owner.is_none_or(|block| block.value.content.owner().is_none()));
    assert!(
        rebuilt
            .after
            .affinities
            .iter()
            .all(|affinity| affinity.value.key.node != info.name)
    );
}

#[test]
fn a_lost_block_of_a_windows_node_keeps_what_windows_reserves() {
    let mut cluster = plain().with(Fault::UnallocatedNoBlock, 1);
    let info = cluster.nodes().last().unwrap().clone();
    let lost = info.blocks[0];
    // Windows nodes have no tunnels. Tunnel addresses would be among the addresses that Windows reserves.
    for tunnel in Tunnel::ALL {
        cluster.set_tunnel(&info.name, tunnel, "");
    }
    let mut snapshot = cluster.snapshot();
    for node in snapshot
        .nodes
        .iter_mut()
        .filter(|node| node.value.name == info.name)
    {
        node.value
            .labels
            .insert("kubernetes.io/os".to_owned(), "windows".to_owned());
    }
    let rebuilt = rebuild("windows", snapshot, &Request::default());
    let block = rebuilt
        .after
        .blocks
        .iter()
        .find(|block| block.value.key == lost)
        .unwrap();
    let sound = block.value.content.sound().unwrap();
    let reserved = sound
        .allocations()
        .filter(|a| a.attribute.is_windows_reserved())
        .map(|a| a.ordinal);
    assert_eq!(reserved.collect::<Vec<_>>(), [0, 1, 2, 63]);
    assert_eq!(sound.allocated(), 6, "and two pods");
}
