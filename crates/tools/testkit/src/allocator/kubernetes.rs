//! Custom resources of an API server, read and written as Calico's client does (facts 2.8, 2.9).

use std::net::IpAddr;

use serde_json::{Value, json};

use super::pods::Pods;
use super::store::{Datastore, Ending, List, Place, Read, Result, Version};
use crate::cluster::Holder;
use crate::cluster::wire::key;
use crate::kube::Flavour;
use crate::kube::form::{self, HOSTNAME_HASH, Parts, affinity_name, block_name};
use crate::servers::{KubeApiserver, Response};

/// A connection to an API server.
pub(super) struct KubeObjects {
    pods: Pods,
    flavour: Flavour,
}

impl KubeObjects {
    pub(super) fn connect(server: &KubeApiserver, flavour: Flavour) -> Result<Self> {
        Ok(Self { pods: Pods::connect(server)?, flavour })
    }

    fn ask(&mut self, method: &'static str, path: &str, body: &Value, statuses: &[u16]) -> Result<Response> {
        self.pods.ask(method, path, body, statuses)
    }

    fn collection(&self, place: Place<'_>) -> String {
        self.flavour.path(match place {
            Place::Block(_) => "ipamblocks",
            Place::Affinity(..) => "blockaffinities",
            Place::Handle(_) => "ipamhandles",
        })
    }

    fn path(&self, place: Place<'_>) -> String {
        format!("{}/{}", self.collection(place), name_of(place))
    }

    /// The object to write; without a version it is a new one.
    fn object(&self, place: Place<'_>, value: &[u8], version: Option<&Version>) -> Value {
        let value = form::object(value);
        let (kind, made) = match place {
            Place::Block(net) => ("IPAMBlock", form::block(self.flavour, net, &value)),
            Place::Handle(id) => ("IPAMHandle", form::handle(id, &value)),
            Place::Affinity(node, net) => {
                ("BlockAffinity", form::affinity(self.flavour, "host", node, net, &value))
            }
        };
        let Parts { name, labels, spec } = made.expect("the schema takes what the allocator writes");

        // Calico keeps its own metadata in an annotation, which is empty except in affinities.
        let mut metadata = json!({"name": name, "annotations": {"projectcalico.org/metadata": "{}"}});
        if let Some(labels) = labels {
            metadata["labels"] = labels;
        }
        if let Some(version) = version {
            metadata["resourceVersion"] = parts(version).0.into();
        }
        json!({"apiVersion": self.flavour.api_version(), "kind": kind, "metadata": metadata, "spec": spec})
    }

    fn list_path(&self, list: List<'_>) -> String {
        match list {
            List::Config => format!("{}/default", self.flavour.path(self.flavour.ipam_config().0)),
            List::Node(name) => format!("/api/v1/nodes/{name}"),
            List::Pools => self.flavour.path("ippools"),
            List::Reservations => self.flavour.path("ipreservations"),
            List::Blocks => self.flavour.path("ipamblocks"),
            List::Affinities(None) => self.flavour.path("blockaffinities"),
            List::Affinities(Some(node)) => {
                let selector = format!("{HOSTNAME_HASH}%3D{}", form::hostname_hash(node));
                format!("{}?labelSelector={selector}", self.flavour.path("blockaffinities"))
            }
        }
    }

    /// An object that may be missing.
    fn one(&mut self, list: List<'_>) -> Result<Vec<(String, Read)>> {
        let response = self.ask("GET", &self.list_path(list), &Value::Null, &[200, 404])?;
        let found = (response.status == 200).then(|| listed(list, &parse(&response.body)));
        Ok(found.into_iter().collect())
    }

    fn put(&mut self, place: Place<'_>, object: &Value) -> Result<Option<Version>> {
        let response = self.ask("PUT", &self.path(place), object, &[200, 404, 409])?;
        Ok((response.status == 200).then(|| version_of(&parse(&response.body))))
    }

    /// Deletes in two steps: sets the mark, which is the compare-and-swap, then deletes the marked object.
    fn delete_in_steps(&mut self, place: Place<'_>, mut object: Value) -> Result<bool> {
        object["spec"]["deleted"] = match place {
            Place::Affinity(..) => form::affinity_flag(self.flavour, true),
            _ => true.into(),
        };
        let Some(marked) = self.put(place, &object)? else { return Ok(false) };
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": parts(&marked).1}});
        // Another client that found the mark may have completed the deletion.
        self.ask("DELETE", &self.path(place), &options, &[200, 404, 409])?;
        Ok(true)
    }
}

fn name_of(place: Place<'_>) -> String {
    match place {
        Place::Block(net) => block_name(net),
        Place::Affinity(node, net) => affinity_name(node, net),
        Place::Handle(id) => id.to_lowercase(),
    }
}

/// An object with its path and value as in etcd.
fn listed(list: List<'_>, object: &Value) -> (String, Read) {
    let spec = &object["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let net = || spec["cidr"].as_str().and_then(|cidr| cidr.parse().ok()).expect("a CIDR");
    let name = text(&object["metadata"]["name"]);
    let (path, value) = match list {
        List::Config => {
            let config = json!({"strict_affinity": spec["strictAffinity"], "auto_allocate_blocks": spec["autoAllocateBlocks"]});
            ("/calico/ipam/v2/config".to_owned(), config.to_string().into_bytes())
        }
        List::Node(_) => (key::node(&name), object.to_string().into_bytes()),
        List::Pools => (key::pool(&name), object.to_string().into_bytes()),
        List::Reservations => (key::resource("ipreservations", &name), object.to_string().into_bytes()),
        List::Blocks => (key::block(net()), form::block_value(spec)),
        List::Affinities(_) => {
            (key::affinity("host", &text(&spec["node"]), net()), form::affinity_value(spec))
        }
    };
    (path, (value, version_of(object)))
}

fn parse(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("not JSON ({error}): {body}"))
}

fn version_of(object: &Value) -> Version {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    Version::Kubernetes(text("resourceVersion"), text("uid"))
}

/// `resourceVersion` and `uid`.
fn parts(version: &Version) -> (&str, &str) {
    match version {
        Version::Kubernetes(version, uid) => (version, uid),
        Version::Etcd(_) => panic!("a version of another datastore: {version:?}"),
    }
}

impl Datastore for KubeObjects {
    /// If the object is marked as deleted, completes the deletion, and finds no object.
    fn get(&mut self, place: Place<'_>) -> Result<Option<Read>> {
        let response = self.ask("GET", &self.path(place), &Value::Null, &[200, 404])?;
        if response.status == 404 {
            return Ok(None);
        }
        let object = parse(&response.body);
        if form::is_deleted(&object["spec"]) {
            let mut again = object;
            if let Some(metadata) = again["metadata"].as_object_mut() {
                metadata.remove("managedFields");
            }
            self.delete_in_steps(place, again)?;
            return Ok(None);
        }
        let value = match place {
            Place::Block(_) => form::block_value(&object["spec"]),
            Place::Handle(_) => form::handle_value(&object["spec"]),
            Place::Affinity(..) => form::affinity_value(&object["spec"]),
        };
        Ok(Some((value, version_of(&object))))
    }

    fn create(&mut self, place: Place<'_>, value: Vec<u8>) -> Result<Option<Version>> {
        let object = self.object(place, &value, None);
        let response = self.ask("POST", &self.collection(place), &object, &[201, 409])?;
        Ok((response.status == 201).then(|| version_of(&parse(&response.body))))
    }

    fn update(&mut self, place: Place<'_>, value: Vec<u8>, version: &Version) -> Result<Option<Version>> {
        let object = self.object(place, &value, Some(version));
        self.put(place, &object)
    }

    fn delete(&mut self, place: Place<'_>, version: &Version) -> Result<bool> {
        let response = self.ask("GET", &self.path(place), &Value::Null, &[200, 404])?;
        if response.status == 404 {
            return Ok(false);
        }
        // The mark is written to the object at the version that was read; any other version is refused.
        let mut object = parse(&response.body);
        object["metadata"]["resourceVersion"] = parts(version).0.into();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        self.delete_in_steps(place, object)
    }

    fn list(&mut self, list: List<'_>) -> Result<Vec<(String, Read)>> {
        if let List::Config | List::Node(_) = list {
            return self.one(list);
        }
        let answer = parse(&self.ask("GET", &self.list_path(list), &Value::Null, &[200])?.body);
        let items = answer["items"].as_array().into_iter().flatten();
        // Calico omits affinities that are marked as deleted from lists.
        let is_left_out =
            |object: &&Value| matches!(list, List::Affinities(_)) && form::is_deleted(&object["spec"]);
        Ok(items.filter(|object| !is_left_out(object)).map(|object| listed(list, object)).collect())
    }

    fn announce(&mut self, holder: &Holder) -> Result<()> {
        self.pods.announce(holder)
    }

    fn publish(&mut self, holder: &Holder, address: IpAddr) -> Result<()> {
        self.pods.annotate(holder, address)?;
        self.pods.set_address(holder, address)
    }

    fn withdraw(&mut self, holder: &Holder, ending: Ending) -> Result<()> {
        self.pods.begin_end(holder, ending)?;
        if ending == Ending::Lost { Ok(()) } else { self.pods.blank(holder) }
    }

    fn clean_up(&mut self, holder: &Holder, ending: Ending) -> Result<()> {
        self.pods.end(holder, ending)
    }
}
