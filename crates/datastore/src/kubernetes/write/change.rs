//! Reads and changes objects one by one. Each change requires that the object still has the version that was read
//! (facts 2.9).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use calipam_files::objects::Flavour;
use calipam_files::objects::names::object_name;
use calipam_model::block::BlockContent;
use calipam_model::config::ClusterInformation;
use calipam_model::edit::User;
use calipam_model::key::Key;
use calipam_model::snapshot::{ObjectVersion, Revision, Snapshot, Source};
use calipam_model::writable::Object;
use http::Method;
use serde_json::{Value, json};

use super::form::{self, WRITTEN_AGAIN, flag, labels, spec};
use crate::error::{Failure, Result};
use crate::kubernetes::again::{incomplete, locate, read_one};
use crate::kubernetes::client::kinds::{self, Kind};
use crate::kubernetes::client::{KubeClient, permission};
use crate::write::{Change, Precondition, Stored, Swap, is_version};

/// Checks that the user may change objects of these sources, and take the lock if `takes_lock` is true.
pub(crate) async fn require(client: &Arc<KubeClient>, sources: &[Source], takes_lock: bool) -> Result<()> {
    let mut permissions = Vec::new();
    for source in sources {
        if let Ok(kind) = kinds::find(client.api(), *source) {
            permissions.extend(["create", "delete", "update"].map(|verb| kind.permission(verb)));
        }
    }
    // The lock is in the cluster information.
    if takes_lock && let Ok(kind) = kinds::find(client.api(), Source::ClusterInformation) {
        permissions.push(kind.permission("update"));
    }
    permission::require(client, permissions).await
}

/// Reads the current state of one object, never from a cache; `None` if the object does not exist.
pub(crate) async fn stored(client: &Arc<KubeClient>, key: &Key) -> Result<Option<Stored>> {
    let Some((kind, path)) = locate(client, key) else {
        return Ok(None);
    };
    let Some((snapshot, body)) = read_one(client, &kind, &path).await? else {
        return Ok(None);
    };
    // Built-in objects are in protobuf, or in JSON if a proxy or the server does not support protobuf.
    if matches!(key, Key::Node(_) | Key::Pod { .. } | Key::Service { .. }) {
        return Ok(built_in(snapshot));
    }
    let value: Value = serde_json::from_slice(&body).map_err(|_| incomplete(client, &kind))?;
    Ok(Some(stored_custom_resource(key, snapshot, &value, body)))
}

/// Converts a built-in object to evidence.
fn built_in(mut snapshot: Snapshot) -> Option<Stored> {
    let evidence = |revision, user| {
        Some(Stored {
            revision,
            raw: Bytes::new(),
            whole: None,
            object: None,
            user,
        })
    };
    if let Some(node) = snapshot.nodes.pop() {
        return evidence(node.revision, Some(User::Node(node.value)));
    }
    if let Some(pod) = snapshot.pods.pop() {
        return evidence(pod.revision, Some(User::Pod(pod.value)));
    }
    if let Some(service) = snapshot.services.pop() {
        return evidence(service.revision, Some(User::Service(service.value)));
    }
    if !snapshot.defects.is_empty() {
        // The object exists but cannot be decoded, so its version is unknown.
        return evidence(Revision::Kubernetes(Box::default()), None);
    }
    None
}

/// Converts a custom resource, which `snapshot` contains decoded, to its stored state. If a repair can edit the object,
/// the raw value is the one that etcd would have, so that it can be compared with the value that is written. Otherwise it
/// is the response itself.
fn stored_custom_resource(key: &Key, snapshot: Snapshot, value: &Value, body: Bytes) -> Stored {
    let object = editable(key, snapshot, value);
    let raw = match &object {
        Some(object) => object.encode().into(),
        None => body.clone(),
    };
    Stored {
        revision: version(value),
        raw,
        whole: Some(body),
        object,
        user: None,
    }
}

/// The object with this key in the form that a repair edits; `None` if it cannot be decoded, is identified as another
/// one, or is of a kind that repairs do not edit.
fn editable(key: &Key, mut snapshot: Snapshot, value: &Value) -> Option<Object> {
    match key {
        Key::Block(_) => {
            let block = snapshot.blocks.pop()?.value;
            Some(Object::Block(without_strict(block.content)))
        }
        // A handle or affinity is identified by the object's value, not by its name.
        Key::Handle(id) => {
            let handle = snapshot.handles.pop()?.value;
            let is_same = handle.id() == **id;
            is_same.then_some(Object::Handle(handle))
        }
        Key::Affinity(key) => {
            let affinity = snapshot.affinities.pop()?.value;
            let is_same = affinity.key == *key;
            is_same.then_some(Object::Affinity(affinity))
        }
        Key::Pool(_) => Some(Object::Pool(form::pool(value))),
        Key::IpamConfig => Some(Object::IpamConfig(form::ipam_config(value))),
        _ => None,
    }
}

/// Removes `strictAffinity: false` from a block. The schema requires the field, so a block that was written without it
/// would not read back as it was.
pub(crate) fn without_strict(content: BlockContent) -> BlockContent {
    match content {
        BlockContent::Sound(mut block) => {
            if block.own_strict_affinity() == Some(false) {
                block.set_own_strict_affinity(None);
            }
            BlockContent::Sound(block)
        }
        corrupt @ BlockContent::Corrupt(_) => corrupt,
    }
}

/// The version of an object in JSON.
pub(crate) fn version(value: &Value) -> Revision {
    let metadata = &value["metadata"];
    let field = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
    let mut labels = BTreeMap::new();
    for (name, value) in metadata["labels"].as_object().into_iter().flatten() {
        if let Some(value) = value.as_str() {
            labels.insert(name.clone(), value.to_owned());
        }
    }
    Revision::Kubernetes(Box::new(ObjectVersion {
        resource_version: field("resourceVersion"),
        uid: field("uid"),
        labels,
    }))
}

/// Applies one change. A deletion has two steps: the object is marked as deleted if it has the expected version, and
/// then deleted by UID and version. Pools and the configuration are deleted in one step. Affinities are written with
/// labels if `labels` is true.
///
/// # Errors
/// If the server fails, rejects the request, or does not answer in time. In that case, the change may have taken place
/// in part.
pub(crate) async fn change(client: &Arc<KubeClient>, change: &Change, labels: bool) -> Result<Swap> {
    let failed = |failure| client.write_error(&object_name(change.key()), failure);
    let target = Target::locate(client, change.key(), labels).map_err(failed)?;
    let expected = match change.precondition() {
        Precondition::Absent => None,
        Precondition::At(revision) => Some(revision),
        // A write can require only one version of the object.
        Precondition::Records(..) | Precondition::NoBlockSince(_) | Precondition::Matches(_) => {
            return Ok(Swap::Conflict);
        }
    };
    match target.apply(change, expected).await {
        Ok(object) => Ok(Swap::Done(vec![object.as_ref().map(version)])),
        // The object already exists, was changed, or no longer exists.
        Err(Failure::Conflict(_) | Failure::NotFound) => Ok(Swap::Conflict),
        Err(failure) => Err(failed(failure)),
    }
}

/// The location of an object to change.
pub(crate) struct Target<'c> {
    client: &'c Arc<KubeClient>,
    kind: Kind,
    path: String,
    key: &'c Key,
    /// True if affinities are written with labels.
    labels: bool,
}

impl<'c> Target<'c> {
    /// Finds the place of an object in the API. `labels` says whether affinities get labels.
    pub(crate) fn locate(client: &'c Arc<KubeClient>, key: &'c Key, labels: bool) -> Result<Self, Failure> {
        let (kind, path) = locate(client, key).ok_or(Failure::NotFound)?;
        Ok(Self {
            client,
            kind,
            path,
            key,
            labels,
        })
    }

    /// Applies a change to the object with the expected version, or creates the object if no version is expected.
    /// Returns its new state on the server; `None` after a deletion.
    async fn apply(&self, change: &Change, expected: Option<&Revision>) -> Result<Option<Value>, Failure> {
        let Some(expected) = expected else {
            return self.swap(None, change.value()).await;
        };
        let object = self.as_read(change, expected).await?;
        if change.is_again() {
            return self.write_again(object).await.map(Some);
        }
        self.swap(Some(object), change.value()).await
    }

    /// Creates, replaces or deletes an object. Returns its new state on the server; `None` after a deletion.
    pub(crate) async fn swap(
        &self,
        read: Option<Value>,
        value: Option<impl AsRef<[u8]>>,
    ) -> Result<Option<Value>, Failure> {
        match (read, value) {
            (None, Some(value)) => self.create(value.as_ref()).await.map(Some),
            (Some(read), Some(value)) => self.replace(read, value.as_ref()).await.map(Some),
            (Some(read), None) => self.delete(read).await.map(|()| None),
            (None, None) => Err(Failure::NotFound),
        }
    }

    fn new_spec(&self, value: &[u8]) -> Result<Value, Failure> {
        let spec = spec(self.key, value, self.client.api().flavour == Flavour::Classic);
        spec.ok_or_else(|| Failure::Other("the value has no form in Kubernetes".into()))
    }

    /// Sends an object. Affinities are sent with labels if `labels` is true.
    async fn send(&self, method: Method, path: &str, mut object: Value) -> Result<Value, Failure> {
        if self.labels {
            label(&mut object, self.key);
        }
        self.client.write(method, path, &object).await?.json().await
    }

    /// Creates the object with a value, and returns it as the server has stored it. Refuses kinds that do not belong to
    /// IPAM, such as nodes: only Kubernetes and Calico create them.
    async fn create(&self, value: &[u8]) -> Result<Value, Failure> {
        let is_of_ipam = matches!(
            self.key,
            Key::Block(_) | Key::Handle(_) | Key::Affinity(_) | Key::Pool(_) | Key::IpamConfig
        );
        if !is_of_ipam {
            return Err(Failure::Other("objects of this kind are never created".into()));
        }

        let name = self.path.rsplit('/').next().unwrap_or_default();
        let flavour = self.client.api().flavour;
        let object = json!({
            "apiVersion": format!("{}/{}", flavour.group(), flavour.version()),
            "kind": self.kind.known.name,
            "metadata": form::metadata(self.key, name, value),
            "spec": self.new_spec(value)?,
        });
        self.send(Method::POST, &self.kind.path, object).await
    }

    /// Reads the whole object, so that a write keeps everything that does not change.
    ///
    /// # Errors
    /// A conflict if the object does not have the expected version.
    pub(crate) async fn read_expected(&self, expected: &Revision) -> Result<Value, Failure> {
        let object = if_at_version(self.client.value(&self.path).await?, expected);
        object.ok_or_else(|| Failure::Conflict("its version is different".into()))
    }

    /// The object to change, as it was read just before, or from a new read. The request to change it contains its
    /// version, so the server rejects the request if the object has changed since.
    async fn as_read(&self, change: &Change, expected: &Revision) -> Result<Value, Failure> {
        if let Some(whole) = change.whole()
            && let Ok(object) = serde_json::from_slice(whole)
            && let Some(object) = if_at_version(object, expected)
        {
            return Ok(object);
        }
        self.read_expected(expected).await
    }

    /// Writes an object as it was read. The server gives an object another version only if something in it changes: here
    /// an annotation, which contains the previous version.
    async fn write_again(&self, mut object: Value) -> Result<Value, Failure> {
        let version = object["metadata"]["resourceVersion"].take();
        object["metadata"]["annotations"][WRITTEN_AGAIN] = version.clone();
        object["metadata"]["resourceVersion"] = version;
        self.send(Method::PUT, &self.path, object).await
    }

    /// Replaces the object's content. If the object is marked deleted, deletes it and creates it again.
    async fn replace(&self, mut object: Value, value: &[u8]) -> Result<Value, Failure> {
        let spec = self.new_spec(value)?;
        if is_marked(&object["spec"]) && !is_marked(&spec) {
            // The client that marked the object will delete it by its UID, so the object must not be revived with the
            // same UID.
            finish_deletion(self.client, &self.path, &object).await?;
            return self.create(value).await;
        }
        object["spec"] = spec;
        if let Key::ClusterInformation(_) = self.key {
            form::annotate_as(&mut object, value);
        }
        self.send(Method::PUT, &self.path, object).await
    }

    /// Deletes an object that was read, in the same two steps as Calico, or in one step if it is a pool or the
    /// configuration.
    async fn delete(&self, object: Value) -> Result<(), Failure> {
        // Nothing in Calico would complete a two-step deletion of these kinds.
        let has_one_step = matches!(self.key, Key::Pool(_) | Key::IpamConfig);
        let is_started = is_marked(&object["spec"]);
        if has_one_step || is_started {
            return finish_deletion(self.client, &self.path, &object).await;
        }
        let marked = self.mark_deleted(object).await?;
        self.finish_own_deletion(marked).await
    }

    /// Performs the first step of a deletion: marks the object as deleted. Returns it as the server has stored it.
    async fn mark_deleted(&self, mut object: Value) -> Result<Value, Failure> {
        let is_text = matches!(self.key, Key::Affinity(_)) && self.client.api().flavour == Flavour::Classic;
        let is_deleted = true;
        object["spec"]["deleted"] = flag(is_deleted, is_text);
        if let Key::Block(_) = self.key {
            // If the second step never happens, the block must not keep its records of the released addresses.
            free_addresses(&mut object["spec"]);
        }
        match self.client.write(Method::PUT, &self.path, &object).await {
            Err(Failure::Conflict(reason)) => {
                finish_started_deletion(self.client, &self.path, &object).await;
                Err(Failure::Conflict(reason))
            }
            answer => answer?.json().await,
        }
    }

    /// Completes the deletion of an object that this change has marked as deleted, although other clients may write to
    /// it.
    async fn finish_own_deletion(&self, mut object: Value) -> Result<(), Failure> {
        for _ in 0..SECOND_STEPS {
            match finish_deletion(self.client, &self.path, &object).await {
                // If the object is missing, another client has completed the deletion.
                Ok(()) | Err(Failure::NotFound) => return Ok(()),
                // Another client has written to the object or reused its name.
                Err(Failure::Conflict(_)) => {}
                Err(failure) => return Err(failure),
            }

            let current = match self.client.value(&self.path).await {
                Err(Failure::NotFound) => return Ok(()),
                current => current?,
            };
            // The deletion is over if the name is reused, or if the object is no longer marked as deleted.
            let is_reused = current["metadata"]["uid"] != object["metadata"]["uid"];
            if is_reused || !is_marked(&current["spec"]) {
                return Ok(());
            }
            object = current;
        }
        Err(unfinished_deletion())
    }
}

/// Returns the object without `managedFields`; `None` if it does not have the expected version.
fn if_at_version(object: Value, expected: &Revision) -> Option<Value> {
    if !is_version(&version(&object), expected) {
        return None;
    }
    Some(without_managed_fields(object))
}

/// Removes `managedFields`, which no value of calipam contains.
pub(crate) fn without_managed_fields(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// Maximum attempts at the second step of a deletion while other clients write to the object.
pub(crate) const SECOND_STEPS: usize = 5;

/// The failure after [`SECOND_STEPS`] attempts.
pub(crate) fn unfinished_deletion() -> Failure {
    Failure::Conflict("it is marked deleted, but other clients keep writing to it".into())
}

/// Performs the second step of a deletion, on condition that the stored object still has the same UID and version as
/// `object`.
pub(crate) async fn finish_deletion(
    client: &Arc<KubeClient>,
    path: &str,
    object: &Value,
) -> Result<(), Failure> {
    let metadata = &object["metadata"];
    let options = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
    });
    client.write(Method::DELETE, path, &options).await.map(drop)
}

/// Completes the deletion of `object` if it has been started, perhaps by an earlier request of this client that was not
/// answered.
async fn finish_started_deletion(client: &Arc<KubeClient>, path: &str, object: &Value) {
    let Ok(current) = client.value(path).await else {
        return;
    };
    if current["metadata"]["uid"] == object["metadata"]["uid"] && is_marked(&current["spec"]) {
        // The caller sees the result at the next read.
        finish_deletion(client, path, &current).await.ok();
    }
}

pub(crate) fn is_marked(spec: &Value) -> bool {
    spec["deleted"] == true || spec["deleted"] == "true"
}

/// Frees all addresses in a block whose deletion is starting. A block that cannot be read stays unchanged.
fn free_addresses(block: &mut Value) {
    let Some(allocations) = block["allocations"].as_array() else {
        return;
    };
    let Some(unallocated) = block["unallocated"].as_array() else {
        return;
    };
    let mut free = unallocated.clone();
    for (ordinal, allocation) in allocations.iter().enumerate() {
        if !allocation.is_null() {
            free.push(ordinal.into());
        }
    }
    block["allocations"] = vec![Value::Null; allocations.len()].into();
    block["unallocated"] = free.into();
    block["attributes"] = json!([]);
}

/// True if affinities need labels: Calico 3.31 and later finds them by labels, and once one affinity has labels, all
/// others need them.
pub(crate) async fn needs_affinity_labels(client: &Arc<KubeClient>) -> Result<bool> {
    if let Some(information) = stored(client, &Key::cluster_information()).await?
        && let Ok(information) = ClusterInformation::parse(&information.raw)
        && information.finds_affinities_by_labels()
    {
        return Ok(true);
    }
    let Ok(kind) = kinds::find(client.api(), Source::Affinities) else {
        return Ok(true);
    };
    let path = format!("{}?labelSelector={HOSTNAME_HASH}&limit=1", kind.path);
    let list = client
        .value(&path)
        .await
        .map_err(|failure| client.error(kind.known.plural, failure))?;
    Ok(list["items"].as_array().is_some_and(|items| !items.is_empty()))
}

/// A label that every labeled affinity has.
const HOSTNAME_HASH: &str = "projectcalico.org/hostname-hash";

/// Sets the labels with which Calico finds an affinity.
fn label(object: &mut Value, key: &Key) {
    let wanted = labels(key);
    if wanted.is_empty() {
        return;
    }
    let metadata = &mut object["metadata"];
    if !metadata["labels"].is_object() {
        metadata["labels"] = json!({});
    }
    for (name, value) in wanted {
        metadata["labels"][name] = value;
    }
}
