//! Sends Kubernetes the same kinds of requests as the plugin, concurrently where the plugin does. Where the plugin
//! replaces a block of its node, this program creates a block, so that concurrent calls do not conflict.

use calipam_model::affinity::{AffinityKey, AffinityType};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, ObjectList, PostParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use crate::{Call, Failed};

const CALICO: &str = "crd.projectcalico.org";
/// Addresses per block.
const SIZE: usize = 64;

pub(crate) async fn send(call: &Call) -> Result<(), Failed> {
    let path = call.configuration["kubernetes"]["kubeconfig"]
        .as_str()
        .unwrap_or_default();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?;
    let own = Own {
        client: Client::try_from(config)?,
        name: format!("floor.{}", call.container),
    };
    match call.command.as_str() {
        "CLAIM" => own.claim().await,
        "DEL" => own.del().await,
        _ => own.add(call).await,
    }
}

/// The objects that a call writes.
struct Own {
    client: Client,
    name: String,
}

impl Own {
    /// Sends the requests of an ADD: seven concurrent reads, a read of the block, and two writes.
    async fn add(&self, call: &Call) -> Result<(), Failed> {
        let key = AffinityKey {
            kind: AffinityType::Host,
            node: "a".to_owned(),
            cidr: "0.0.0.0/0".parse()?,
        };
        let labels = key
            .labels()
            .map(|(name, value)| format!("{name}={value}"))
            .join(",");
        tokio::try_join!(
            self.get("", "Namespace", "default"),
            self.get(CALICO, "IPAMConfig", "default"),
            self.list("IPReservation", ""),
            self.list("IPPool", ""),
            self.list("BlockAffinity", &labels),
            self.get("", "Node", "a"),
            self.get(CALICO, "IPAMHandle", &self.name),
        )?;
        let _held = call.hold_lock()?;
        self.get(CALICO, "IPAMBlock", "10-7-0-0-26").await?;
        self.create("IPAMHandle", self.handle()).await?;
        self.create("IPAMBlock", self.block()).await.map(drop)
    }

    /// Sends the writes of an ADD that claims a block: the affinity twice, the block, the affinity again, the handle,
    /// and the block again.
    async fn claim(&self) -> Result<(), Failed> {
        let spec = json!({"cidr": "10.7.0.0/26", "node": "a", "state": "pending", "deleted": "false"});
        let affinity = self.create("BlockAffinity", spec).await?;
        let affinity = self.put(affinity, "state", "pending".into()).await?;
        let block = self.create("IPAMBlock", self.block()).await?;
        self.put(affinity, "state", "confirmed".into()).await?;
        self.create("IPAMHandle", self.handle()).await?;
        self.put(block, "sequenceNumber", 1.into()).await.map(drop)
    }

    /// Sends the requests of a DEL: three concurrent reads, a read of the block, and three writes, since deleting a
    /// handle takes two.
    async fn del(&self) -> Result<(), Failed> {
        let (handle, ..) = tokio::try_join!(
            self.get(CALICO, "IPAMHandle", &self.name),
            self.get(CALICO, "IPAMConfig", "default"),
            self.get(CALICO, "IPAMHandle", "default.web-0"),
        )?;
        let block = self.get(CALICO, "IPAMBlock", &self.name).await?;
        self.put(block.ok_or("no block")?, "sequenceNumber", 1.into())
            .await?;
        self.put(handle.ok_or("no handle")?, "deleted", true.into())
            .await?;
        self.kind(CALICO, "IPAMHandle")
            .delete(&self.name, &DeleteParams::default())
            .await?;
        Ok(())
    }

    fn kind(&self, group: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        Api::all_with(self.client.clone(), &resource)
    }

    async fn get(&self, group: &str, kind: &str, name: &str) -> kube::Result<Option<DynamicObject>> {
        self.kind(group, kind).get_opt(name).await
    }

    /// Lists the objects of a kind of Calico with some labels.
    async fn list(&self, kind: &str, labels: &str) -> kube::Result<ObjectList<DynamicObject>> {
        self.kind(CALICO, kind)
            .list(&ListParams::default().labels(labels))
            .await
    }

    async fn create(&self, kind: &str, spec: Value) -> Result<DynamicObject, Failed> {
        let object = json!({"apiVersion": format!("{CALICO}/v1"), "kind": kind,
            "metadata": {"name": self.name}, "spec": spec});
        let object = serde_json::from_value(object)?;
        Ok(self
            .kind(CALICO, kind)
            .create(&PostParams::default(), &object)
            .await?)
    }

    /// Replaces an object that was read, with another value in one field. Returns the new object.
    async fn put(
        &self,
        mut object: DynamicObject,
        field: &str,
        value: Value,
    ) -> Result<DynamicObject, Failed> {
        object.data["spec"][field] = value;
        let kind = &object.types.as_ref().ok_or("no kind")?.kind;
        Ok(self
            .kind(CALICO, kind)
            .replace(&self.name, &PostParams::default(), &object)
            .await?)
    }

    fn handle(&self) -> Value {
        json!({"handleID": self.name, "block": {"10.7.0.0/26": 1}, "deleted": false})
    }

    fn block(&self) -> Value {
        json!({"cidr": "10.7.0.0/26", "affinity": "host:a", "strictAffinity": false, "deleted": false,
            "allocations": vec![Value::Null; SIZE], "unallocated": (0..SIZE).collect::<Vec<_>>(),
            "attributes": [{"handle_id": self.name, "secondary": {"node": "a", "namespace": "default",
                "pod": "web-0", "timestamp": "2026-01-01 00:00:00.000000000 +0000 UTC"}}]})
    }
}
