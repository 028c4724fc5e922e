//! Converts a cluster to Kubernetes (facts section 2): custom resources instead of keys, pods instead of endpoints, and
//! the services and machines that etcd does not have.
//!
//! The conversion follows `docs/calico-ipam.md`; nothing here uses calipam's model.

mod aggregated;
mod beside;
mod list;
mod names;
mod node;
mod pod;
mod resources;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use self::names::{Place, is_object_name};
pub(in crate::cluster) use self::pod::pod as pod_of;
use crate::cluster::{Cluster, ClusterSpec, Form, GroundTruth};
use crate::kube::{Flavour, form};

/// A generated cluster as Kubernetes objects.
#[derive(Clone, Debug)]
pub struct KubeCluster {
    flavour: Flavour,
    objects: Vec<KubeObject>,
    left_out: Vec<LeftOut>,
    truth: GroundTruth,
    /// Subjects of findings in etcd, and their names in Kubernetes.
    subjects: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub struct KubeObject {
    /// The plural of its kind, in lower case.
    pub plural: &'static str,
    /// The object, without `resourceVersion`, which the server sets.
    pub json: Value,
}

/// An etcd key without an object in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The key; bytes that are not text are replaced.
    pub key: String,
    /// The reason why Kubernetes cannot store the key.
    pub reason: String,
}

impl KubeObject {
    fn metadata(&self, field: &str) -> &str {
        self.json["metadata"][field].as_str().unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.metadata("name")
    }

    /// The object's namespace; empty for kinds without namespaces.
    pub fn namespace(&self) -> &str {
        self.metadata("namespace")
    }

    /// `<plural>/[<namespace>/]<name>`, the name of an undecodable object in findings.
    pub fn path(&self) -> String {
        match self.namespace() {
            "" => format!("{}/{}", self.plural, self.name()),
            namespace => format!("{}/{namespace}/{}", self.plural, self.name()),
        }
    }
}

impl Cluster {
    /// Converts the cluster to Kubernetes, in one of Calico's two API groups. The result is deterministic.
    ///
    /// A node keeps its Calico name. Endpoints of other orchestrators become pods with the same sandbox, so that their
    /// addresses stay in use.
    pub fn kubernetes(&self, flavour: Flavour) -> KubeCluster {
        let mut maker = Maker {
            cluster: self,
            flavour,
            objects: Vec::new(),
            left_out: Vec::new(),
            subjects: BTreeMap::new(),
            taken: BTreeSet::new(),
        };
        self.for_each_entry(|key, value| {
            if !self.kubernetes_only.lacks(key) {
                maker.entry(key, value);
            }
        });
        for (plural, object) in self.kubernetes_only.objects() {
            let plural = names::known_plural(plural).expect("a kind that is known");
            maker.objects.push(KubeObject { plural, json: object.clone() });
        }
        let truth = maker.truth();
        let Maker { objects, left_out, subjects, .. } = maker;
        KubeCluster { flavour, objects, left_out, truth, subjects }
    }
}

impl KubeCluster {
    /// The API group of its custom resources.
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// All objects, Calico's first.
    pub fn objects(&self) -> &[KubeObject] {
        &self.objects
    }

    /// The etcd keys without an object. If one of them contains a fault, this cluster lacks the fault.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// The subject in Kubernetes for a `subject` in etcd: keys become paths of objects, and endpoints become pods.
    /// Other subjects are unchanged.
    pub fn subject<'s>(&'s self, subject: &'s str) -> &'s str {
        self.subjects.get(subject).map_or(subject, String::as_str)
    }

    /// The findings that a check must report, with their subjects in Kubernetes.
    pub fn truth(&self) -> &GroundTruth {
        &self.truth
    }
}

/// The plural and the object for a key, or the reason why there is no object.
type Made = Result<(&'static str, Value), String>;

struct Maker<'c> {
    cluster: &'c Cluster,
    flavour: Flavour,
    objects: Vec<KubeObject>,
    left_out: Vec<LeftOut>,
    subjects: BTreeMap<String, String>,
    taken: BTreeSet<String>,
}

impl Maker<'_> {
    fn entry(&mut self, key: &[u8], value: &[u8]) {
        let made = match std::str::from_utf8(key) {
            Ok(key) => self.make(key, value),
            Err(_) => Err("its key is no text".to_owned()),
        };
        let key = String::from_utf8_lossy(key).into_owned();
        let made = made.and_then(|(plural, mut json)| {
            self.cluster.kubernetes_only.patch(&key, &mut json);
            let object = KubeObject { plural, json };
            let usable = is_object_name(object.name()) && self.taken.insert(object.path());
            if usable {
                Ok(object)
            } else {
                Err(format!("no object, or another one, can be {}", object.path()))
            }
        });
        match made {
            Ok(object) => {
                self.remember(&key, value, &object);
                self.objects.push(object);
            }
            Err(reason) => self.left_out.push(LeftOut { key, reason }),
        }
    }

    fn make(&self, key: &str, value: &[u8]) -> Made {
        let place = Place::of(key)?;
        // The value of a Calico 2.x affinity may be empty.
        let value = if value.is_empty() { b"{}".as_slice() } else { value };
        let value: Value = serde_json::from_slice(value).map_err(|_| "its value is no JSON".to_owned())?;
        if !value.is_object() {
            return Err("its value is no JSON object".to_owned());
        }
        match place {
            Place::Block(net) => {
                self.ipam("ipamblocks", "IPAMBlock", form::block(self.flavour, net, &value)?)
            }
            Place::Affinity { kind, holder, net } => {
                let made = form::affinity(self.flavour, kind, holder, net, &value)?;
                self.ipam("blockaffinities", "BlockAffinity", made)
            }
            Place::Handle(id) => self.ipam("ipamhandles", "IPAMHandle", form::handle(id, &value)?),
            Place::IpamConfig => self.ipam_config(&value),
            Place::Resource("nodes") => Ok(("nodes", node::node(&value))),
            Place::Resource("workloadendpoints") => Ok(("pods", pod::pod(&value)?)),
            Place::Resource(plural) => self.resource(plural, &value),
        }
    }

    /// Creates an object of a kind for which etcd stores neither UID nor creation time.
    fn ipam(&self, plural: &'static str, kind: &str, made: form::Parts) -> Made {
        let form::Parts { name, labels, spec } = made;
        let mut metadata = metadata_of(&self.cluster.spec, plural, &name);
        let mut inner = json!({});
        if let Some(labels) = labels {
            inner["labels"] = labels.clone();
            metadata["labels"] = labels;
        }
        Ok((plural, self.object(kind, metadata, &inner, spec)))
    }

    /// The allocator's settings, which are one object in Kubernetes.
    fn ipam_config(&self, value: &Value) -> Made {
        let (plural, kind) = self.flavour.ipam_config();
        let metadata = metadata_of(&self.cluster.spec, plural, "default");
        let inner = json!({"creationTimestamp": metadata["creationTimestamp"]});
        let spec = resources::ipam_config(self.flavour, value)?;
        Ok((plural, self.object(kind, metadata, &inner, spec)))
    }

    /// A custom resource. `inner` is Calico's own metadata, which is an annotation in the classic group.
    fn object(&self, kind: &str, mut metadata: Value, inner: &Value, spec: Value) -> Value {
        if self.flavour == Flavour::Classic {
            metadata["annotations"] = json!({names::METADATA: inner.to_string()});
        }
        json!({"apiVersion": self.flavour.api_version(), "kind": kind, "metadata": metadata, "spec": spec})
    }

    /// Creates a resource that is the same as in etcd, with its UID and creation time if etcd has them.
    fn resource(&self, plural: &str, value: &Value) -> Made {
        let (plural, kind, spec) = resources::resource(self.flavour, plural, value)?;
        let stored = &value["metadata"];
        let name = stored["name"].as_str().ok_or("it has no name")?;
        let mut metadata = metadata_of(&self.cluster.spec, plural, name);
        for field in ["uid", "creationTimestamp"] {
            if stored[field].is_string() {
                metadata[field] = stored[field].clone();
            }
        }
        let inner = json!({"creationTimestamp": metadata["creationTimestamp"]});
        let mut object = self.object(kind, metadata, &inner, spec);
        if let Some(status) = value.get("status") {
            object["status"] = status.clone();
        }
        Ok((plural, object))
    }

    fn remember(&mut self, key: &str, value: &[u8], object: &KubeObject) {
        self.subjects.insert(key.to_owned(), object.path());
        if object.plural == "pods"
            && let Ok(endpoint) = serde_json::from_slice::<Value>(value)
        {
            let name = endpoint["metadata"]["name"].as_str().unwrap_or_default();
            let subject = format!("{}/{}", object.namespace(), object.name());
            self.subjects.insert(format!("{}/{name}", object.namespace()), subject);
        }
    }

    /// The findings with their subjects in Kubernetes.
    fn truth(&self) -> GroundTruth {
        let rename = |subject: &str| self.subjects.get(subject).map_or(subject, String::as_str).to_owned();
        let mut truth = self.cluster.truth_of(Form::of(self.flavour)).renamed(rename);
        truth.rename_detail("spec.ipNetworks", "cni.projectcalico.org/podIPs");
        truth
    }
}

/// The `metadata` of an object created long ago.
fn metadata_of(spec: &ClusterSpec, plural: &str, name: &str) -> Value {
    let bytes = plural.bytes().chain(name.bytes());
    let thing = bytes.fold(13, |hash: u64, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let metadata = spec.metadata(name, &mut spec.rng(thing));
    json!({"name": name, "uid": metadata.uid, "creationTimestamp": metadata.creation_timestamp})
}
