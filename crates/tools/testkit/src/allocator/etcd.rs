//! Keys of etcd, read and written as Calico's client does (facts 1.15).

use std::net::IpAddr;

use etcd_client::{Client, Compare, CompareOp, Error, GetOptions, KeyValue, Txn, TxnOp};
use tokio::runtime::{Builder, Runtime};

use super::pods::Pods;
use super::store::{Datastore, Ending, List, Place, Read, Result, Version};
use crate::cluster::wire::{go_json, key};
use crate::cluster::{ClusterSpec, Holder, endpoint_of};
use crate::servers::{KubeApiserver, ServerError};

/// The prefix of the allocator's own objects.
const IPAM: &str = "/calico/ipam/v2";

/// A connection to etcd and, if the cluster has one, to its API server. The CNI plugin then writes endpoints to etcd
/// and leaves the pods alone.
pub(super) struct EtcdKeys {
    runtime: Runtime,
    client: Client,
    spec: ClusterSpec,
    pods: Option<Pods>,
}

impl EtcdKeys {
    /// Connects. Must not be called from within an async runtime.
    pub(super) fn connect(endpoint: &str, server: Option<&KubeApiserver>, spec: ClusterSpec) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ServerError::io("cannot start a runtime for the etcd client"))?;
        let client = runtime.block_on(Client::connect([endpoint], None))?;
        Ok(Self { runtime, client, spec, pods: server.map(Pods::connect).transpose()? })
    }

    fn read(&mut self, key: &str) -> Result<Option<(Vec<u8>, i64)>> {
        let response = self.runtime.block_on(self.client.get(key, None))?;
        Ok(response.kvs().first().map(|kv| (kv.value().to_vec(), kv.mod_revision())))
    }

    /// Writes if the condition holds, and returns the revision of the write.
    fn change(&mut self, when: Compare, operation: TxnOp) -> Result<Option<i64>> {
        let transaction = Txn::new().when([when]).and_then([operation]);
        let response = self.runtime.block_on(self.client.txn(transaction))?;
        let revision = response.header().map(|header| header.revision());
        Ok(revision.filter(|_| response.succeeded()))
    }
}

/// The key or the prefix of the keys of a list, and whether it is a prefix.
fn keys_of(list: List<'_>) -> (String, bool) {
    match list {
        List::Config => (format!("{IPAM}/config"), false),
        List::Node(name) => (key::node(name), false),
        List::Pools => (key::resource("ippools", ""), true),
        List::Reservations => (key::resource("ipreservations", ""), true),
        List::Blocks => (format!("{IPAM}/assignment/"), true),
        List::Affinities(Some(node)) => (format!("{IPAM}/host/{node}/"), true),
        List::Affinities(None) => (format!("{IPAM}/host/"), true),
    }
}

fn key_of(place: Place<'_>) -> String {
    match place {
        Place::Block(net) => key::block(net),
        Place::Affinity(node, net) => key::affinity("host", node, net),
        Place::Handle(id) => key::handle(id),
    }
}

fn is_at(key: &str, version: &Version) -> Compare {
    let Version::Etcd(revision) = version else { panic!("a version of another datastore: {version:?}") };
    Compare::mod_revision(key, CompareOp::Equal, *revision)
}

impl Datastore for EtcdKeys {
    fn get(&mut self, place: Place<'_>) -> Result<Option<Read>> {
        let read = self.read(&key_of(place))?;
        Ok(read.map(|(value, revision)| (value, Version::Etcd(revision))))
    }

    fn create(&mut self, place: Place<'_>, value: Vec<u8>) -> Result<Option<Version>> {
        let key = key_of(place);
        let absent = Compare::version(key.as_str(), CompareOp::Equal, 0);
        Ok(self.change(absent, TxnOp::put(key, value, None))?.map(Version::Etcd))
    }

    fn update(&mut self, place: Place<'_>, value: Vec<u8>, version: &Version) -> Result<Option<Version>> {
        let key = key_of(place);
        Ok(self.change(is_at(&key, version), TxnOp::put(key, value, None))?.map(Version::Etcd))
    }

    fn delete(&mut self, place: Place<'_>, version: &Version) -> Result<bool> {
        let key = key_of(place);
        Ok(self.change(is_at(&key, version), TxnOp::delete(key, None))?.is_some())
    }

    fn list(&mut self, list: List<'_>) -> Result<Vec<(String, Read)>> {
        let (key, is_prefix) = keys_of(list);
        let options = is_prefix.then(|| GetOptions::new().with_prefix());
        let response = self.runtime.block_on(self.client.get(key, options))?;
        let read = |kv: &KeyValue| {
            let path = String::from_utf8_lossy(kv.key()).into_owned();
            (path, (kv.value().to_vec(), Version::Etcd(kv.mod_revision())))
        };
        Ok(response.kvs().iter().map(read).collect())
    }

    fn announce(&mut self, holder: &Holder) -> Result<()> {
        self.pods.as_mut().map_or(Ok(()), |pods| pods.announce(holder))
    }

    fn publish(&mut self, holder: &Holder, address: IpAddr) -> Result<()> {
        let endpoint = endpoint_of(&self.spec, holder, &[address]);
        let key = endpoint.key();
        let absent = Compare::version(key.as_str(), CompareOp::Equal, 0);
        let created = self.change(absent, TxnOp::put(key, go_json(&endpoint), None))?;
        assert!(created.is_some(), "no two pods of a test have one name");
        self.pods.as_mut().map_or(Ok(()), |pods| pods.set_address(holder, address))
    }

    fn withdraw(&mut self, holder: &Holder, ending: Ending) -> Result<()> {
        if let Some(pods) = &mut self.pods {
            pods.begin_end(holder, ending)?;
        }
        let deletion = self.client.delete(holder.endpoint_key(), None);
        self.runtime.block_on(deletion).map(drop).map_err(|error: Error| error.into())
    }

    fn clean_up(&mut self, holder: &Holder, ending: Ending) -> Result<()> {
        self.pods.as_mut().map_or(Ok(()), |pods| pods.end(holder, ending))
    }
}
