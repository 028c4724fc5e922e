//! Converts a cluster to Kubernetes (facts section 2): custom resources instead of keys, pods instead of endpoints, and
//! the services and machines that etcd does not have.
//!
//! The conversion follows `docs/calico-ipam.md`; nothing here uses calipam's model.

mod list;
mod objects;
mod variants;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use self::objects::node_of;
pub(in crate::cluster) use self::objects::pod_of;
use crate::cluster::layout::hash;
use crate::cluster::wire::key;
use crate::cluster::{Cluster, Form, GroundTruth};
use crate::kube::Flavour;
use crate::kube::form::{self, MAX_NAME, is_cidr};

/// The annotation with Calico's own metadata in the classic API group.
const METADATA: &str = "projectcalico.org/metadata";

/// A generated cluster as Kubernetes objects.
#[derive(Clone, Debug)]
pub struct KubeCluster {
    /// The API group of its custom resources.
    pub flavour: Flavour,
    /// All objects, Calico's first.
    pub objects: Vec<KubeObject>,
    /// The etcd keys without an object; bytes that are not text are replaced. If one of them contains a fault, this
    /// cluster lacks the fault.
    pub left_out: Vec<String>,
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
        let maker = Maker {
            cluster: self,
            flavour,
        };
        let objects = Vec::new();
        let left_out = Vec::new();
        let subjects = BTreeMap::new();
        let mut made = KubeCluster {
            flavour,
            objects,
            left_out,
            truth: GroundTruth::default(),
            subjects,
        };
        let mut taken = BTreeSet::new();
        self.for_each_entry(|key, value| {
            let key = String::from_utf8_lossy(key).into_owned();
            if self.kubernetes_only.absent.contains(&key) {
                return;
            }
            let is_usable = |new: &KubeObject| is_object_name(new.name()) && taken.insert(new.path());
            match maker.make(&key, value).filter(is_usable) {
                Some(object) => made.add(key, object),
                None => made.left_out.push(key),
            }
        });
        for (plural, object) in self.kubernetes_only.objects() {
            made.objects.push(KubeObject {
                plural,
                json: object.clone(),
            });
        }
        made.truth = self
            .truth_of(Form::of(flavour))
            .renamed(|subject| made.subject(subject).to_owned());
        made.truth
            .rename_detail("spec.ipNetworks", "cni.projectcalico.org/podIPs");
        made
    }
}

impl KubeCluster {
    /// Adds the object of a key, which also gives findings their subjects.
    fn add(&mut self, key: String, object: KubeObject) {
        if let Some(endpoint) = key.strip_prefix(key::ENDPOINTS) {
            let pod = format!("{}/{}", object.namespace(), object.name());
            self.subjects.insert(endpoint.to_owned(), pod);
        }
        self.subjects.insert(key, object.path());
        self.objects.push(object);
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

/// The plural and the object for a key; `None` if Kubernetes cannot store it.
type Made = Option<(&'static str, Value)>;

struct Maker<'c> {
    cluster: &'c Cluster,
    flavour: Flavour,
}

impl Maker<'_> {
    fn make(&self, key: &str, value: &[u8]) -> Option<KubeObject> {
        // The value of a Calico 2.x affinity may be empty.
        let value = if value.is_empty() { b"{}".as_slice() } else { value };
        let value = serde_json::from_slice(value).ok().filter(Value::is_object)?;
        let (plural, mut json) = self.convert(key, &value)?;
        self.cluster.kubernetes_only.patch(key, &mut json);
        Some(KubeObject { plural, json })
    }

    fn convert(&self, key: &str, value: &Value) -> Made {
        if let Some(resource) = key.strip_prefix("/calico/resources/v3/projectcalico.org/") {
            return match resource.split('/').next()? {
                "nodes" => Some(("nodes", node_of(value))),
                "workloadendpoints" => Some(("pods", pod_of(value)?)),
                // In Kubernetes, the settings are one object, which is made from those of the allocator.
                "ipamconfigurations" => None,
                plural => self.resource(plural, value),
            };
        }
        if key == key::IPAM_CONFIG {
            self.ipam_config(value)
        } else {
            self.ipam(key, value)
        }
    }

    /// Creates an object of a kind for which etcd stores neither UID nor creation time.
    fn ipam(&self, key: &str, value: &Value) -> Made {
        let (plural, form::Parts { name, labels, spec }) = form::of(self.flavour, key, value)?;
        let mut metadata = self.metadata(plural, &name);
        let mut inner = json!({});
        if let Some(labels) = labels {
            inner["labels"] = labels.clone();
            metadata["labels"] = labels;
        }
        Some((plural, self.object(plural, metadata, &inner, spec)))
    }

    /// The allocator's settings, which are one object in Kubernetes.
    fn ipam_config(&self, value: &Value) -> Made {
        let (plural, _) = self.flavour.ipam_config();
        let metadata = self.metadata(plural, "default");
        let inner = json!({"creationTimestamp": metadata["creationTimestamp"]});
        Some((
            plural,
            self.object(plural, metadata, &inner, ipam_config_spec(self.flavour, value)?),
        ))
    }

    /// A custom resource. `inner` is Calico's own metadata, which is an annotation in the classic group.
    fn object(&self, plural: &str, mut metadata: Value, inner: &Value, spec: Value) -> Value {
        if self.flavour == Flavour::Classic {
            metadata["annotations"] = json!({METADATA: inner.to_string()});
        }
        let name = metadata["name"].as_str().unwrap_or_default().to_owned();
        self.flavour
            .named(json!({"metadata": metadata, "spec": spec}), plural, &name)
    }

    /// Creates a resource that is the same as in etcd, with its UID and creation time if etcd has them.
    fn resource(&self, plural: &str, value: &Value) -> Made {
        let (plural, ..) = self.flavour.kind(plural)?;
        let spec = resource_spec(self.flavour, plural, &value["spec"])?;
        let stored = &value["metadata"];
        let mut metadata = self.metadata(plural, stored["name"].as_str()?);
        for field in ["uid", "creationTimestamp"] {
            if stored[field].is_string() {
                metadata[field] = stored[field].clone();
            }
        }
        let inner = json!({"creationTimestamp": metadata["creationTimestamp"]});
        let mut object = self.object(plural, metadata, &inner, spec);
        if let Some(status) = value.get("status") {
            object["status"] = status.clone();
        }
        Some((plural, object))
    }

    /// The `metadata` of an object created long ago.
    fn metadata(&self, plural: &str, name: &str) -> Value {
        let thing = hash(13, &format!("{plural}{name}"));
        self.cluster
            .spec
            .metadata(name, &mut self.cluster.spec.rng(thing))
    }
}

/// The `spec` of a pool, a reservation, the cluster information or the settings of Calico's controllers, if the schema
/// accepts it.
fn resource_spec(flavour: Flavour, plural: &str, stored: &Value) -> Option<Value> {
    let mut spec = stored.is_object().then(|| stored.clone())?;
    let one = (plural == "ippools").then(|| &spec["cidr"]);
    let many = spec["reservedCIDRs"].as_array().into_iter().flatten();
    let mut cidrs = one.into_iter().chain(many);
    if flavour == Flavour::Native && !cidrs.all(|cidr| cidr.as_str().is_some_and(is_cidr)) {
        return None;
    }
    if let Some(kind) = spec["clusterType"].as_str() {
        spec["clusterType"] = format!("{kind},kdd").into();
    }
    Some(spec)
}

/// The `spec` of the allocator's settings. A field that etcd omits is false there, and must be explicit here.
fn ipam_config_spec(flavour: Flavour, value: &Value) -> Option<Value> {
    let mut spec = json!({});
    for (from, to) in [
        ("strict_affinity", "strictAffinity"),
        ("auto_allocate_blocks", "autoAllocateBlocks"),
    ] {
        spec[to] = value.get(from).map_or(Some(false), Value::as_bool)?.into();
    }
    for field in [
        "maxBlocksPerHost",
        "kubeVirtVMAddressPersistence",
        "ipCooldownSeconds",
    ] {
        if let Some(set) = value.get(field) {
            spec[field] = set.clone();
        }
    }
    // The native schema has a default for this field.
    if flavour == Flavour::Native && spec.get("maxBlocksPerHost").is_none() {
        spec["maxBlocksPerHost"] = 0.into();
    }
    Some(spec)
}

/// True for a valid name of a Kubernetes object: small letters, digits, dashes and dots.
fn is_object_name(name: &str) -> bool {
    let is_end = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_label = |label: &str| {
        label.starts_with(is_end) && label.ends_with(is_end) && label.chars().all(|c| is_end(c) || c == '-')
    };
    name.len() <= MAX_NAME && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_names() {
        for (name, legal) in [
            ("node-1", true),
            ("a.b--c", true),
            ("A", false),
            ("a\r\nb", false),
            ("a..b", false),
            ("-a", false),
        ] {
            assert_eq!(is_object_name(name), legal, "{name:?}");
        }
    }
}
