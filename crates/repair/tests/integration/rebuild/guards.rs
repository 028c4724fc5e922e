//! Other clients write between planning and execution. A step is abandoned only if a change breaks one of its
//! preconditions.

use calipam_model::IpNet;
use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::block::Block;
use calipam_model::key::Key;
use calipam_plan::Verb;
use calipam_testkit::World;
use calipam_testkit::cluster::Fault;
use calipam_testkit::kube::{Flavour, edit, read};
use calipam_testkit::servers::KubeApiserver;
use calipam_testkit::values::block;
use serde_json::{Value, json};

use super::support::{Planned, assert_recorded_except, cluster, lose, rebuild_all};
use crate::cluster::{Site, sound};

/// A cluster in etcd with one fault.
async fn with(fault: Fault) -> Planned {
    Planned::of(World::etcd_of(&cluster().with(fault, 1))).await
}

/// The keys of an affinity and its block.
fn affinity_and_block(subject: &str) -> (Key, Key) {
    let (node, cidr) = subject.split_once('/').unwrap();
    let cidr = cidr.parse().unwrap();
    let affinity = AffinityKey {
        kind: AffinityType::Host,
        node: node.to_owned(),
        cidr,
    };
    (Key::Affinity(affinity), Key::Block(cidr))
}

/// Assigns the last free address of a block under a handle.
fn give_out(block: &mut Value, handle: &str) {
    let ordinal = block["unallocated"]
        .as_array_mut()
        .unwrap()
        .pop()
        .unwrap()
        .as_u64()
        .unwrap();
    let record =
        json!({"handle_id": handle, "secondary": {"namespace": "default", "pod": "new", "node": "node-1"}});
    let records = block["attributes"].as_array_mut().unwrap();
    records.push(record);
    let index = records.len() - 1;
    block["allocations"][ordinal as usize] = index.into();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_affinity_is_confirmed_while_addresses_of_its_block_come_and_go() {
    let planned = with(Fault::AffinityPending).await;
    let (affinity, block) = affinity_and_block(&planned.subject(Verb::ConfirmAffinity));
    planned
        .world
        .edit(&block, |block| give_out(block, "k8s-pod-network.new"));
    let execution = planned.run().await;
    assert!(execution.is_complete(), "{execution:?}");
    assert_eq!(planned.world.get(&affinity).unwrap()["state"], "confirmed");

    // The block was claimed again.
    let planned = with(Fault::AffinityPending).await;
    planned.world.edit(&block, |block| {
        block["affinity_claim_time"] = "2030-01-01T00:00:00Z".into()
    });
    let execution = planned.run().await;
    assert_eq!(execution.conflicts.len(), 1, "{execution:?}");
    assert_ne!(planned.world.get(&affinity).unwrap()["state"], "confirmed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_affinity_stays_where_its_node_has_created_the_block_meanwhile() {
    let planned = with(Fault::AffinityPendingWithoutBlock).await;
    let subject = planned.subject(Verb::DeleteAffinity);
    let (affinity, key) = affinity_and_block(&subject);
    assert_eq!(planned.world.get(&key), None);
    let (node, cidr) = subject.split_once('/').unwrap();
    planned
        .world
        .create(&key, &block(cidr, format!("host:{node}"), []));
    let execution = planned.run().await;
    assert_eq!(execution.conflicts.len(), 1, "{execution:?}");
    assert!(planned.world.get(&affinity).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_is_deleted_or_created_only_while_the_blocks_say_so() {
    // The CNI plugin has written the handle, and now writes the block.
    let planned = with(Fault::OrphanHandle).await;
    let id = planned.subject(Verb::DeleteHandle);
    let key = Key::Handle(id.clone());
    let named = planned.world.get(&key).unwrap();
    let cidr = named["block"].as_object().unwrap().keys().next().unwrap();
    planned
        .world
        .edit(&Key::Block(cidr.parse().unwrap()), |block| give_out(block, &id));
    let execution = planned.run().await;
    assert_eq!(execution.conflicts.len(), 1, "{execution:?}");
    assert_eq!(planned.world.get(&key), Some(named));

    // The CNI plugin frees the address whose handle is missing.
    let planned = with(Fault::MissingHandle).await;
    let id = planned.subject(Verb::CreateHandle);
    let held = |block: &Block| {
        let own = block.handles().filter(|(_, handle)| *handle == *id);
        own.map(|(ordinal, _)| ordinal).collect::<Vec<u32>>()
    };
    for found in sound(&planned.site.observe().await).filter(|block| !held(block).is_empty()) {
        let mut freed = found.clone();
        freed.update(|edit| edit.release(&held(found)));
        planned
            .world
            .edit(&Key::Block(found.cidr()), |block| *block = json!(freed));
    }
    let execution = planned.run().await;
    assert_eq!(execution.conflicts.len(), 1, "{execution:?}");
    assert_eq!(planned.world.get(&Key::Handle(id)), None);
}

/// A block that is created again, or that lost its records, is written without the address of a workload that was
/// deleted in the meantime.
#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_an_endpoint_that_has_gone_is_left_out_of_a_whole_block() {
    for is_corrupt in [false, true] {
        let cluster = cluster();
        let before = cluster.snapshot();
        let users = |cidr: IpNet| {
            let endpoints = before.endpoints.iter().map(|endpoint| &endpoint.value);
            let all = endpoints.flat_map(|endpoint| endpoint.addresses().map(move |a| (endpoint, a)));
            all.filter(|(_, address)| cidr.contains(address))
                .collect::<Vec<_>>()
        };
        let blocks = before.blocks.iter().map(|block| block.value.key);
        let cidr = blocks.max_by_key(|cidr| users(*cidr).len()).unwrap();
        let (gone, address) = users(cidr)[0];
        assert!(users(cidr).len() > 2);
        let world = World::etcd_of(&cluster);
        lose(&world, cidr, is_corrupt);
        let planned = Planned::of(world).await;

        planned.world.delete(&Key::Endpoint {
            namespace: gone.namespace().to_string(),
            name: gone.name(),
        });
        let execution = planned.run().await;
        let left: Vec<_> = execution
            .conflicts
            .iter()
            .flat_map(|c| c.addresses.clone())
            .collect();
        assert_eq!(left, [address], "{execution:?}");
        let pods = users(cidr).into_iter().map(|(_, used)| used);
        assert_recorded_except(&planned.site.observe().await, cidr, pods, address);
    }
}

/// Converts a cluster to the form of Calico versions before 3.31.
fn make_old(server: &KubeApiserver, version: &str) {
    let flavour = Flavour::Classic;
    let change = |plural: &str, change: &dyn Fn(&mut Value)| {
        for item in read(server, &flavour.path(plural))["items"].as_array().unwrap() {
            let path = format!(
                "{}/{}",
                flavour.path(plural),
                item["metadata"]["name"].as_str().unwrap()
            );
            edit(server, &path, change);
        }
    };
    change("blockaffinities", &|affinity| {
        drop(affinity["metadata"].as_object_mut().unwrap().remove("labels"))
    });
    change("clusterinformations", &|information| {
        information["spec"]["calicoVersion"] = version.into()
    });
    change("ipamblocks", &|block| {
        for field in [
            "sequenceNumber",
            "sequenceNumberForAllocation",
            "affinityClaimTime",
        ] {
            block["spec"].as_object_mut().unwrap().remove(field);
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn affinities_get_no_labels_before_calico_3_31() {
    for version in ["v3.13.5", "v3.21.6"] {
        let cluster = cluster()
            .with(Fault::BlockWithoutAffinity, 1)
            .with(Fault::AffinityPending, 1);
        let world = World::kubernetes_of(&cluster.kubernetes(Flavour::Classic));
        make_old(world.server(), version);
        let rebuilt = rebuild_all(&Site::open(world.overrides()).await).await;
        let done = |verb: Verb| {
            rebuilt
                .plan
                .changes()
                .filter(|change| change.action == verb)
                .count()
        };
        assert_eq!(
            (done(Verb::CreateAffinity), done(Verb::ConfirmAffinity)),
            (1, 1),
            "{version}"
        );
        let list = read(world.server(), &Flavour::Classic.path("blockaffinities"));
        let labelled = |item: &&Value| item["metadata"]["labels"].is_object();
        assert_eq!(
            list["items"].as_array().unwrap().iter().filter(labelled).count(),
            0,
            "{version}"
        );
    }
}
