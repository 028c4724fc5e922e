//! What a change may concern.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::endpoint::{Endpoint, EndpointTexts};
use calipam_model::pod::Pod;
use calipam_model::snapshot::{Snapshot, StoredBlock};
use calipam_model::text::TextRef;

use super::layout::is_rearranged;
use super::places::Entries;
use crate::owner::{each_identity, identity, texts_of_pod};
use crate::rules::hash_of_name;

/// What changes of objects may concern: of each object what it was and what it is now.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    /// A change may concern everything.
    pub(super) everything: bool,
    /// See [`is_rearranged`].
    pub(super) is_rearranged: bool,
    pub(super) blocks: BTreeSet<IpNet>,
    pub(super) addresses: BTreeSet<IpAddr>,
    /// Hashes of IDs.
    pub(super) handles: HashSet<u64>,
    /// [Identities](identity) of pods, by their names.
    pub(super) pods: HashSet<Vec<u8>>,
    /// Every identity by which a record can name an endpoint or pod.
    pub(super) claimable: HashSet<Vec<u8>>,
    /// Endpoints and pods by the names that findings have for them.
    pub(super) workloads: HashSet<String>,
    /// Nodes that endpoints and pods name.
    pub(super) nodes: HashSet<String>,
    /// What is not there any more, and what is there now.
    pub(super) gone: Entries,
    pub(super) come: Entries,
}

impl Touched {
    /// Everything.
    pub fn everything() -> Self {
        Self { everything: true, ..Self::default() }
    }

    /// What is concerned where the objects `before` have become those of `now`: all that have changed, and no others.
    pub fn between(before: &Snapshot, now: &Snapshot) -> Self {
        let (gone, come) = (Entries::of(before), Entries::of(now));
        let mut touched = Self { gone, come, is_rearranged: is_rearranged(before, now), ..Self::default() };
        for objects in [before, now] {
            touched.everything |= reaches_far(objects);
            objects.blocks.iter().for_each(|block| touched.note_block(&block.value));
            let ids = objects.handles.iter().map(|handle| handle.value.id());
            touched.handles.extend(ids.map(|id| hash_of_name(id.cut_at_carriage_return())));
            objects.endpoints.iter().for_each(|endpoint| touched.note_endpoint(&endpoint.value));
            objects.pods.iter().for_each(|pod| touched.note_pod(&pod.value));
        }
        // Nodes are written for reasons that do not matter here.
        let [before, now] = [before, now].map(|objects| objects.nodes.iter().map(|node| &node.value));
        touched.everything |= !before.eq(now);
        touched
    }

    /// Takes note of more.
    pub fn add(&mut self, other: Self) {
        self.everything |= other.everything;
        self.is_rearranged |= other.is_rearranged;
        self.blocks.extend(other.blocks);
        self.addresses.extend(other.addresses);
        self.handles.extend(other.handles);
        self.pods.extend(other.pods);
        self.claimable.extend(other.claimable);
        self.workloads.extend(other.workloads);
        self.nodes.extend(other.nodes);
        self.gone.extend(other.gone);
        self.come.extend(other.come);
    }

    fn note_block(&mut self, block: &StoredBlock) {
        self.blocks.insert(block.key);
        match block.content.sound() {
            Some(sound) => {
                let ids = sound.handles().map(|(_, id)| id.cut_at_carriage_return());
                self.handles.extend(ids.map(hash_of_name));
            }
            None => self.everything = true,
        }
    }

    pub(super) fn note_endpoint(&mut self, endpoint: &Endpoint) {
        let texts = endpoint.texts();
        self.addresses.extend(endpoint.addresses());
        self.workloads.insert(format!("{}/{}", texts.namespace, endpoint.name()));
        self.note_texts(&texts);
    }

    pub(super) fn note_pod(&mut self, pod: &Pod) {
        self.addresses.extend(pod.evidence().iter().map(|(address, _)| *address));
        self.workloads.insert(format!("{}/{}", pod.namespace(), pod.name()));
        self.note_texts(&texts_of_pod(pod));
    }

    fn note_texts(&mut self, texts: &EndpointTexts<'_>) {
        self.nodes.insert(texts.node.to_string());
        let mut key = Vec::new();
        each_identity(&mut key, texts, |identity| {
            self.claimable.insert(identity.to_vec());
        });
        self.pods.extend(pod_of(&mut key, texts.namespace, texts.pod).map(<[u8]>::to_vec));
    }
}

/// The identity of a pod by its name; `None` where an endpoint is of none.
pub(super) fn pod_of<'k>(key: &'k mut Vec<u8>, namespace: TextRef<'_>, pod: TextRef<'_>) -> Option<&'k [u8]> {
    identity(key, namespace, pod);
    (!pod.is_empty()).then_some(key)
}

/// True for objects of kinds that are few, and on which any finding may depend; and for what cannot be decoded.
fn reaches_far(objects: &Snapshot) -> bool {
    let lists = [
        objects.pools.len(),
        objects.reservations.len(),
        objects.services.len(),
        objects.machines.len(),
        objects.defects.len(),
    ];
    lists.iter().any(|length| *length > 0)
        || objects.ipam_config.is_some()
        || objects.ipam_configuration.is_some()
        || objects.cluster.is_some()
        || objects.kube_controllers.is_some()
}
