//! Other clients write between planning and execution. A step is abandoned only if a change breaks one of its
//! preconditions.

use calipam_datastore::Datastore;
use calipam_datastore::settings::Overrides;
use calipam_model::IpNet;
use calipam_model::key::Key;
use calipam_plan::rebuild::{self, Request};
use calipam_plan::{Basis, Plan, Verb};
use calipam_repair::{Execution, Options as Running, execute};
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use calipam_testkit::kube::{Flavour, Kinds, lease};
use calipam_testkit::servers::{Etcd, KubeApiserver};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::support::{open, options, rebuild_all};
use crate::cluster::{consent, journal_path, observe};

struct World {
    etcd: Etcd,
    store: Datastore,
    plan: Plan,
    cluster: String,
}

impl World {
    /// A cluster in etcd with one fault, and the plan that repairs it.
    async fn with(fault: Fault) -> Self {
        let etcd = Etcd::start().unwrap();
        let cluster = Cluster::small(ClusterSpec::new(31).at(Timestamp::now())).with(fault, 1);
        cluster.write_to_etcd(&etcd.endpoint()).unwrap();
        let overrides = Overrides { etcd_endpoints: Some(etcd.endpoint()), ..Overrides::default() };
        let store = open(overrides).await;
        Self::plan(etcd, store).await
    }

    async fn plan(etcd: Etcd, store: Datastore) -> Self {
        let snapshot = observe(&store).await;
        let report = calipam_check::check(&snapshot, &options());
        let basis = Basis::new(&snapshot, &report, &options());
        let plan = rebuild::plan(&basis, &Request::default());
        let cluster = snapshot.cluster.as_ref().unwrap().guid.clone();
        Self { etcd, store, plan, cluster }
    }

    /// The subject of the first change with this verb in the plan.
    fn subject(&self, verb: Verb) -> String {
        let change = self.plan.changes().find(|change| change.action == verb);
        change.unwrap_or_else(|| panic!("{:?}", self.plan.actions)).subject.to_string()
    }

    async fn get(&self, key: &str) -> Option<Value> {
        let answer = self.etcd.client().await.unwrap().get(key, None).await.unwrap();
        answer.kvs().first().map(|kv| serde_json::from_slice(kv.value()).unwrap())
    }

    async fn put(&self, key: &str, value: &Value) {
        self.etcd.client().await.unwrap().put(key, value.to_string(), None).await.unwrap();
    }

    async fn run(&self) -> Execution {
        let folder = tempfile::tempdir().unwrap();
        let options = Running::new("a test", journal_path(folder.path(), "run"));
        let steps = self.plan.clone().divide().1;
        execute(&self.store, &self.cluster, steps, consent(&self.cluster), &options).await.unwrap()
    }
}

fn block_key(cidr: &str) -> String {
    format!("/calico/ipam/v2/assignment/ipv4/block/{}", cidr.replace('/', "-"))
}

fn affinity_key(subject: &str) -> (String, String) {
    let (node, cidr) = subject.split_once('/').unwrap();
    let key = format!("/calico/ipam/v2/host/{node}/ipv4/block/{}", cidr.replace('/', "-"));
    (key, cidr.to_owned())
}

/// Assigns the last free address of a block under a handle.
fn give_out(block: &mut Value, handle: &str) {
    let ordinal = block["unallocated"].as_array_mut().unwrap().pop().unwrap().as_u64().unwrap();
    let record =
        json!({"handle_id": handle, "secondary": {"namespace": "default", "pod": "new", "node": "node-1"}});
    let records = block["attributes"].as_array_mut().unwrap();
    records.push(record);
    let index = records.len() - 1;
    block["allocations"][ordinal as usize] = index.into();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_affinity_is_confirmed_while_addresses_of_its_block_come_and_go() {
    let world = World::with(Fault::AffinityPending).await;
    let (affinity, cidr) = affinity_key(&world.subject(Verb::ConfirmAffinity));
    let mut block = world.get(&block_key(&cidr)).await.unwrap();
    give_out(&mut block, "k8s-pod-network.new");
    world.put(&block_key(&cidr), &block).await;
    let execution = world.run().await;
    assert!(execution.is_complete(), "{execution:?}");
    assert_eq!(world.get(&affinity).await.unwrap()["state"], "confirmed");

    // The block was claimed again.
    let world = World::with(Fault::AffinityPending).await;
    block["affinity_claim_time"] = "2030-01-01T00:00:00Z".into();
    world.put(&block_key(&cidr), &block).await;
    let execution = world.run().await;
    assert_eq!(execution.conflicts.len(), 1, "{execution:?}");
    assert_ne!(world.get(&affinity).await.unwrap()["state"], "confirmed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_affinity_stays_where_its_node_has_created_the_block_meanwhile() {
    let world = World::with(Fault::AffinityPendingWithoutBlock).await;
    let subject = world.subject(Verb::DeleteAffinity);
    let (affinity, cidr) = affinity_key(&subject);
    assert_eq!(world.get(&block_key(&cidr)).await, None);
    let node = subject.split_once('/').unwrap().0;
    let block = json!({
        "cidr": cidr, "affinity": format!("host:{node}"), "allocations": vec![Value::Null; 64],
        "unallocated": (0..64).collect::<Vec<_>>(), "attributes": [], "sequenceNumber": 1, "deleted": false,
    });
    world.put(&block_key(&cidr), &block).await;
    let execution = world.run().await;
    assert_eq!(execution.conflicts.len(), 1, "{execution:?}");
    assert!(world.get(&affinity).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_is_deleted_or_created_only_while_the_blocks_say_so() {
    // The CNI plugin has written the handle, and now writes the block.
    let world = World::with(Fault::OrphanHandle).await;
    let id = world.subject(Verb::DeleteHandle);
    let key = format!("/calico/ipam/v2/handle/{id}");
    let named = world.get(&key).await.unwrap();
    let cidr = named["block"].as_object().unwrap().keys().next().unwrap().clone();
    let mut block = world.get(&block_key(&cidr)).await.unwrap();
    give_out(&mut block, &id);
    world.put(&block_key(&cidr), &block).await;
    let execution = world.run().await;
    assert_eq!(execution.conflicts.len(), 1, "{execution:?}");
    assert_eq!(world.get(&key).await, Some(named));

    // The CNI plugin frees the address whose handle is missing.
    let world = World::with(Fault::MissingHandle).await;
    let id = world.subject(Verb::CreateHandle);
    let snapshot = observe(&world.store).await;
    let holds = |block: &&calipam_model::block::Block| block.handles().any(|(_, handle)| handle == *id);
    let blocks = snapshot.blocks.iter().filter_map(|block| block.value.content.sound());
    for found in blocks.filter(holds) {
        let mut freed = found.clone();
        let ordinals: Vec<u32> =
            found.handles().filter(|(_, handle)| *handle == *id).map(|(ordinal, _)| ordinal).collect();
        freed.update(|edit| edit.release(&ordinals));
        let key = calipam_model::key::Key::Block(found.cidr()).to_string();
        world.put(&key, &serde_json::to_value(&freed).unwrap()).await;
    }
    let execution = world.run().await;
    assert_eq!(execution.conflicts.len(), 1, "{execution:?}");
    assert_eq!(world.get(&format!("/calico/ipam/v2/handle/{id}")).await, None);
}

/// A block that is created again, or that lost its records, is written without the address of a workload that was
/// deleted in the meantime.
#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_an_endpoint_that_has_gone_is_left_out_of_a_whole_block() {
    for is_corrupt in [false, true] {
        let etcd = Etcd::start().unwrap();
        let cluster = Cluster::small(ClusterSpec::new(31).at(Timestamp::now()));
        cluster.write_to_etcd(&etcd.endpoint()).unwrap();
        let overrides = Overrides { etcd_endpoints: Some(etcd.endpoint()), ..Overrides::default() };
        let store = open(overrides).await;
        let before = observe(&store).await;
        let users = |cidr: IpNet| {
            let endpoints = before.endpoints.iter().map(|endpoint| &endpoint.value);
            let all = endpoints.flat_map(|endpoint| endpoint.addresses().map(move |a| (endpoint, a)));
            all.filter(|(_, address)| cidr.contains(address)).collect::<Vec<_>>()
        };
        let blocks = before.blocks.iter().map(|block| block.value.key);
        let cidr = blocks.max_by_key(|cidr| users(*cidr).len()).unwrap();
        let (gone, address) = users(cidr)[0];
        assert!(users(cidr).len() > 2);
        let key = Key::Block(cidr).to_string();
        let mut client = etcd.client().await.unwrap();
        if is_corrupt {
            let stored = client.get(key.as_str(), None).await.unwrap();
            let mut block: Value = serde_json::from_slice(stored.kvs()[0].value()).unwrap();
            block["attributes"] = json!([]);
            client.put(key, block.to_string(), None).await.unwrap();
        } else {
            client.delete(key, None).await.unwrap();
        }

        let world = World::plan(etcd, store).await;
        let endpoint = Key::Endpoint { namespace: gone.namespace().to_string(), name: gone.name() };
        client.delete(endpoint.to_string(), None).await.unwrap();
        let execution = world.run().await;
        let left: Vec<_> = execution.conflicts.iter().flat_map(|c| c.addresses.clone()).collect();
        assert_eq!(left, [address], "{execution:?}");
        let after = observe(&world.store).await;
        let block = after.blocks.iter().find(|block| block.value.key == cidr).unwrap().value.content.sound();
        for (_, used) in users(cidr) {
            assert_eq!(block.unwrap().allocation_of(used).is_some(), used != address, "{used}");
        }
        for (_, id) in block.unwrap().handles() {
            let handle = after.handles.iter().find(|handle| handle.value.id() == id);
            assert_eq!(handle.unwrap().value.count(cidr), 1, "{id}");
        }
    }
}

/// Converts a cluster to the form of Calico versions before 3.31.
fn make_old(server: &KubeApiserver, version: &str) {
    let flavour = Flavour::Classic;
    let change = |plural: &str, change: &dyn Fn(&mut Value)| {
        let list = server.request("GET", &flavour.path(plural), "").unwrap();
        let list: Value = serde_json::from_str(&list.body).unwrap();
        for item in list["items"].as_array().unwrap() {
            let mut item = item.clone();
            change(&mut item);
            let path = format!("{}/{}", flavour.path(plural), item["metadata"]["name"].as_str().unwrap());
            let answer = server.request("PUT", &path, &item.to_string()).unwrap();
            assert_eq!(answer.status, 200, "{}", answer.body);
        }
    };
    change("blockaffinities", &|affinity| {
        drop(affinity["metadata"].as_object_mut().unwrap().remove("labels"))
    });
    change("clusterinformations", &|information| information["spec"]["calicoVersion"] = version.into());
    change("ipamblocks", &|block| {
        for field in ["sequenceNumber", "sequenceNumberForAllocation", "affinityClaimTime"] {
            block["spec"].as_object_mut().unwrap().remove(field);
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn affinities_get_no_labels_before_calico_3_31() {
    for version in ["v3.13.5", "v3.21.6"] {
        let server = lease(Kinds::CalicoAndKubevirt(Flavour::Classic)).unwrap();
        let cluster = Cluster::small(ClusterSpec::new(31).at(Timestamp::now()))
            .with(Fault::BlockWithoutAffinity, 1)
            .with(Fault::AffinityPending, 1);
        cluster.kubernetes(Flavour::Classic).write_to_server(&server).unwrap();
        make_old(&server, version);
        let overrides = Overrides {
            datastore: Some("kubernetes".into()),
            kubeconfig: Some(server.kubeconfig().display().to_string()),
            ..Overrides::default()
        };
        let store = open(overrides).await;
        let rebuilt = rebuild_all(&store).await;
        let done = |verb: Verb| rebuilt.plan.changes().filter(|change| change.action == verb).count();
        assert_eq!((done(Verb::CreateAffinity), done(Verb::ConfirmAffinity)), (1, 1), "{version}");
        let list = server.request("GET", &Flavour::Classic.path("blockaffinities"), "").unwrap();
        let list: Value = serde_json::from_str(&list.body).unwrap();
        let labelled = |item: &&Value| item["metadata"]["labels"].is_object();
        assert_eq!(list["items"].as_array().unwrap().iter().filter(labelled).count(), 0, "{version}");
    }
}
