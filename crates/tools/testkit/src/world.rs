//! An etcd or an API server whose objects a test writes by hand. Objects are named by Calico's keys.

use calipam_datastore::Datastore;
use calipam_datastore::settings::{Overrides, Settings};
use calipam_model::key::{DEFAULT, Key};
use serde_json::{Value, json};

use crate::allocator::Target;
use crate::cluster::{Cluster, KubeCluster};
use crate::datastore;
use crate::kube::{self, Flavour, Kinds, Lease, form, named};
use crate::servers::{Etcd, KubeApiserver};

/// The servers of one cluster.
#[derive(Debug)]
pub enum World {
    Etcd(Box<Etcd>),
    Kubernetes(Box<Lease>, Flavour),
    /// An etcd, and an API server that has only the pods and nodes of Kubernetes.
    EtcdWithKubernetes(Box<Etcd>, Box<Lease>),
}

impl World {
    /// Starts an etcd without keys.
    ///
    /// # Panics
    /// Panics if it does not start.
    pub fn etcd() -> Self {
        Self::Etcd(Box::new(Etcd::start().expect("etcd starts")))
    }

    /// Leases an API server with the kinds of Calico and KubeVirt, and without objects.
    ///
    /// # Panics
    /// Panics if it does not start.
    pub fn kubernetes(flavour: Flavour) -> Self {
        let server = kube::lease(Kinds::CalicoAndKubevirt(flavour)).expect("the API server starts");
        Self::Kubernetes(Box::new(server), flavour)
    }

    /// Starts an etcd with a cluster.
    ///
    /// # Panics
    /// Panics if it does not start.
    pub fn etcd_of(cluster: &Cluster) -> Self {
        Self::Etcd(Box::new(Etcd::of(cluster).expect("etcd starts")))
    }

    /// Leases an API server, and creates the objects of a cluster through it.
    ///
    /// # Panics
    /// Panics if it does not start, or refuses an object.
    pub fn kubernetes_of(cluster: &KubeCluster) -> Self {
        let world = Self::kubernetes(cluster.flavour);
        cluster
            .write_to_server(world.server())
            .expect("the server takes the cluster");
        world
    }

    /// Starts an etcd without keys, next to an API server without Calico's kinds.
    ///
    /// # Panics
    /// Panics if one does not start.
    pub fn etcd_with_kubernetes() -> Self {
        Self::beside_kubernetes(Etcd::start().expect("etcd starts"))
    }

    pub(crate) fn beside_kubernetes(etcd: Etcd) -> Self {
        let server = kube::lease(Kinds::Kubernetes).expect("the API server starts");
        Self::EtcdWithKubernetes(Box::new(etcd), Box::new(server))
    }

    /// The options that select this datastore.
    pub fn overrides(&self) -> Overrides {
        match self {
            Self::Etcd(etcd) => datastore::etcd(etcd.endpoint()),
            Self::Kubernetes(server, _) => datastore::kubernetes(&server.kubeconfig()),
            Self::EtcdWithKubernetes(etcd, server) => {
                datastore::etcd_with_kubernetes(etcd.endpoint(), &server.kubeconfig())
            }
        }
    }

    pub fn settings(&self) -> Settings {
        datastore::settings(&self.overrides())
    }

    pub async fn open(&self) -> Datastore {
        datastore::open(self.overrides()).await
    }

    /// The datastore for allocators.
    pub fn target(&self) -> Target<'_> {
        match self {
            Self::Etcd(etcd) => Target::Etcd(etcd),
            Self::Kubernetes(server, flavour) => Target::Kubernetes(server, *flavour),
            Self::EtcdWithKubernetes(etcd, server) => Target::EtcdAndKubernetes(etcd, server),
        }
    }

    /// The API server.
    ///
    /// # Panics
    /// Panics if there is none.
    pub fn server(&self) -> &KubeApiserver {
        match self {
            Self::Kubernetes(server, _) | Self::EtcdWithKubernetes(_, server) => server,
            Self::Etcd(_) => panic!("etcd has no API server"),
        }
    }

    /// The etcd with Calico's data.
    ///
    /// # Panics
    /// Panics if the data is on an API server.
    pub fn keys(&self) -> &Etcd {
        match self {
            Self::Etcd(etcd) | Self::EtcdWithKubernetes(etcd, _) => etcd,
            Self::Kubernetes(..) => panic!("only etcd has keys"),
        }
    }

    /// Creates an object of Calico from its value in etcd. Resources need no more than their `spec` and labels.
    ///
    /// # Panics
    /// Panics if the server refuses the object.
    pub fn create(&self, key: &Key, value: &Value) {
        let Some((server, place)) = self.place(key) else {
            let object = match resource(key) {
                Some((plural, name)) => {
                    let (_, kind, _) = Flavour::Native.kind(plural).expect("a kind of a cluster");
                    named(value.clone(), "projectcalico.org/v3", kind, name)
                }
                None => value.clone(),
            };
            self.keys()
                .put(&key.to_string(), object.to_string())
                .expect("etcd stores it");
            return;
        };
        kube::create(server, &place.folder, &[place.object(key, value)]).expect("an answer");
    }

    /// The value of an object, which on an API server is the `spec` of Calico's objects.
    ///
    /// # Panics
    /// Panics if the server cannot be read.
    pub fn get(&self, key: &Key) -> Option<Value> {
        if let Some((server, place)) = self.place(key) {
            return Some(place.value(&mut kube::find(server, &place.path())?).take());
        }
        let all = self.keys().entries_below(&key.to_string()).expect("etcd answers");
        let (value, _) = all.get(&key.to_string())?;
        Some(serde_json::from_slice(value).expect("values of tests are JSON"))
    }

    /// Changes the value of an object, or deletes the object if `edit` makes the value null.
    ///
    /// # Panics
    /// Panics if there is no such object, or if the server refuses the change.
    pub fn edit(&self, key: &Key, edit: impl FnOnce(&mut Value)) {
        let mut value = self.get(key).unwrap_or_else(|| panic!("there is no {key}"));
        edit(&mut value);
        match self.place(key) {
            _ if value.is_null() => self.delete(key),
            None => self.create(key, &value),
            Some((server, place)) => {
                kube::edit(server, &place.path(), |object| *place.value(object) = value);
            }
        }
    }

    /// Deletes an object, as a crash or a person could.
    ///
    /// # Panics
    /// Panics if there is no such object.
    pub fn delete(&self, key: &Key) {
        match self.place(key) {
            None => assert_eq!(
                self.keys().delete(&key.to_string()).expect("etcd answers"),
                1,
                "{key}"
            ),
            Some((server, place)) => kube::delete(server, &place.path()),
        }
    }

    /// The place of an object, if Calico's data is on an API server.
    fn place(&self, key: &Key) -> Option<(&KubeApiserver, Place)> {
        match self {
            Self::Kubernetes(server, flavour) => Some((server, Place::of(*flavour, key))),
            Self::Etcd(_) | Self::EtcdWithKubernetes(..) => {
                assert!(!matches!(key, Key::Pod { .. }), "{key} is not in etcd");
                None
            }
        }
    }
}

/// Converts a value in etcd to an object on an API server. Returns the object's path and the object.
///
/// # Panics
/// Panics if Calico has no such object on API servers.
pub fn on_server(flavour: Flavour, key: &Key, value: &Value) -> (String, Value) {
    let place = Place::of(flavour, key);
    (place.path(), place.object(key, value))
}

/// Plural and name of an object whose value has metadata in every datastore.
fn resource(key: &Key) -> Option<(&'static str, &str)> {
    Some(match key {
        Key::Pool(name) => ("ippools", name),
        Key::Reservation(name) => ("ipreservations", name),
        Key::ClusterInformation(name) => ("clusterinformations", name),
        Key::KubeControllersConfiguration(name) => ("kubecontrollersconfigurations", name),
        Key::Node(name) => ("nodes", name),
        Key::Pod { name, .. } => ("pods", name),
        _ => return None,
    })
}

/// The place of an object on an API server.
struct Place {
    flavour: Flavour,
    folder: String,
    plural: &'static str,
    name: String,
    /// True if the value in etcd corresponds to the `spec`.
    is_spec: bool,
}

impl Place {
    fn of(flavour: Flavour, key: &Key) -> Self {
        let found = resource(key);
        let (plural, name) = match key {
            Key::Block(cidr) => ("ipamblocks", form::block_name(*cidr)),
            Key::Handle(id) => ("ipamhandles", id.to_lowercase()),
            Key::Affinity(key) => ("blockaffinities", form::affinity_name(&key.node, key.cidr)),
            Key::IpamConfig => (flavour.ipam_config().0, DEFAULT.to_owned()),
            other => {
                let (plural, name) = found.unwrap_or_else(|| panic!("{other} is not on an API server"));
                (plural, name.to_owned())
            }
        };
        let namespace = if let Key::Pod { namespace, .. } = key {
            namespace
        } else {
            ""
        };
        let folder = flavour.folder(plural, namespace);
        Self {
            flavour,
            folder,
            plural,
            name,
            is_spec: found.is_none(),
        }
    }

    fn path(&self) -> String {
        format!("{}/{}", self.folder, self.name)
    }

    /// The part of an object that corresponds to the value in etcd.
    fn value<'v>(&self, object: &'v mut Value) -> &'v mut Value {
        if self.is_spec { &mut object["spec"] } else { object }
    }

    /// The object with the same content as a value in etcd.
    fn object(&self, key: &Key, value: &Value) -> Value {
        let object = match key {
            _ if !self.is_spec => value.clone(),
            Key::IpamConfig => json!({ "spec": value }),
            key => {
                let made = form::of(self.flavour, &key.to_string(), value);
                let (_, form::Parts { labels, spec, .. }) = made.expect("the schema accepts it");
                json!({"metadata": {"labels": labels}, "spec": spec})
            }
        };
        self.flavour.named(object, self.plural, &self.name)
    }
}
