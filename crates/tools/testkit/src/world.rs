//! An etcd or an API server whose objects a test writes by hand. Objects are named by Calico's keys.

use calipam_datastore::Datastore;
use calipam_datastore::settings::{Overrides, Settings};
use calipam_model::key::{DEFAULT, Key};
use serde_json::{Value, json};

use crate::allocator::Target;
use crate::cluster::{Cluster, KubeCluster};
use crate::datastore;
use crate::kube::{self, Flavour, Kinds, Lease, form};
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
        let world = Self::kubernetes(cluster.flavour());
        cluster.write_to_server(world.server()).expect("the server takes the cluster");
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

    /// Runs `work` on the datastore of allocators.
    pub fn at<T>(&self, work: impl FnOnce(Target<'_>) -> T) -> T {
        match self {
            Self::Etcd(etcd) => work(Target::Etcd(&etcd.endpoint())),
            Self::Kubernetes(server, flavour) => work(Target::Kubernetes(server, *flavour)),
            Self::EtcdWithKubernetes(etcd, server) => {
                work(Target::EtcdAndKubernetes(&etcd.endpoint(), server))
            }
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
        match self {
            Self::Etcd(etcd) | Self::EtcdWithKubernetes(etcd, _) => {
                etcd.put(&key.to_string(), in_etcd(key, value).to_string()).expect("etcd stores it");
            }
            Self::Kubernetes(server, flavour) => {
                let place = Place::of(*flavour, key);
                kube::create(server, &place.folder, &[place.object(*flavour, key, value)])
                    .expect("an answer");
            }
        }
    }

    /// The value of an object, which on an API server is the `spec` of Calico's objects.
    ///
    /// # Panics
    /// Panics if the server cannot be read.
    pub fn get(&self, key: &Key) -> Option<Value> {
        match self {
            Self::Etcd(etcd) | Self::EtcdWithKubernetes(etcd, _) => {
                let all = etcd.entries_below(&key.to_string()).expect("etcd answers");
                let (value, _) = all.get(&key.to_string())?;
                Some(serde_json::from_slice(value).expect("values of tests are JSON"))
            }
            Self::Kubernetes(server, flavour) => {
                let place = Place::of(*flavour, key);
                let mut object = kube::find(server, &place.path())?;
                Some(place.value(&mut object).take())
            }
        }
    }

    /// Changes the value of an object, or deletes the object if `edit` makes the value null.
    ///
    /// # Panics
    /// Panics if there is no such object, or if the server refuses the change.
    pub fn edit(&self, key: &Key, edit: impl FnOnce(&mut Value)) {
        let mut value = self.get(key).unwrap_or_else(|| panic!("there is no {key}"));
        edit(&mut value);
        match self {
            _ if value.is_null() => self.delete(key),
            Self::Etcd(_) | Self::EtcdWithKubernetes(..) => self.create(key, &value),
            Self::Kubernetes(server, flavour) => {
                let place = Place::of(*flavour, key);
                kube::edit(server, &place.path(), |object| *place.value(object) = value);
            }
        }
    }

    /// Deletes an object, as a crash or a person could.
    ///
    /// # Panics
    /// Panics if there is no such object.
    pub fn delete(&self, key: &Key) {
        match self {
            Self::Etcd(etcd) | Self::EtcdWithKubernetes(etcd, _) => {
                assert_eq!(etcd.delete(&key.to_string()).expect("etcd answers"), 1, "{key}");
            }
            Self::Kubernetes(server, flavour) => kube::delete(server, &Place::of(*flavour, key).path()),
        }
    }
}

/// The value with the fields that all resources have.
fn in_etcd(key: &Key, value: &Value) -> Value {
    let (kind, name) = match key {
        Key::Pool(name) => ("IPPool", name),
        Key::Reservation(name) => ("IPReservation", name),
        Key::ClusterInformation(name) => ("ClusterInformation", name),
        Key::KubeControllersConfiguration(name) => ("KubeControllersConfiguration", name),
        Key::Node(name) => ("Node", name),
        _ => return value.clone(),
    };
    named(value.clone(), "projectcalico.org/v3", kind, name)
}

fn named(mut object: Value, api_version: &str, kind: &str, name: &str) -> Value {
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object["metadata"]["name"] = name.into();
    object
}

/// The place of an object on an API server.
struct Place {
    folder: String,
    name: String,
    api_version: String,
    kind: &'static str,
    /// True if the value in etcd corresponds to the `spec`.
    is_spec: bool,
}

impl Place {
    fn of(flavour: Flavour, key: &Key) -> Self {
        let calicos = |plural: &str, kind: &'static str, name: &str, is_spec: bool| Self {
            folder: flavour.path(plural),
            name: name.to_owned(),
            api_version: flavour.api_version(),
            kind,
            is_spec,
        };
        let core = |folder: String, kind: &'static str, name: &str| Self {
            folder,
            name: name.to_owned(),
            api_version: "v1".to_owned(),
            kind,
            is_spec: false,
        };
        let (config, config_kind) = flavour.ipam_config();
        match key {
            Key::Block(cidr) => calicos("ipamblocks", "IPAMBlock", &form::block_name(*cidr), true),
            Key::Handle(id) => calicos("ipamhandles", "IPAMHandle", &id.to_lowercase(), true),
            Key::Affinity(key) => {
                let name = form::affinity_name(&key.node, key.cidr);
                calicos("blockaffinities", "BlockAffinity", &name, true)
            }
            Key::IpamConfig => calicos(config, config_kind, DEFAULT, true),
            Key::Pool(name) => calicos("ippools", "IPPool", name, false),
            Key::Reservation(name) => calicos("ipreservations", "IPReservation", name, false),
            Key::ClusterInformation(name) => {
                calicos("clusterinformations", "ClusterInformation", name, false)
            }
            Key::KubeControllersConfiguration(name) => {
                calicos("kubecontrollersconfigurations", "KubeControllersConfiguration", name, false)
            }
            Key::Node(name) => core("/api/v1/nodes".to_owned(), "Node", name),
            Key::Pod { namespace, name } => core(format!("/api/v1/namespaces/{namespace}/pods"), "Pod", name),
            other => panic!("{other} is not on an API server"),
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
    fn object(&self, flavour: Flavour, key: &Key, value: &Value) -> Value {
        let parts = match key {
            Key::Block(cidr) => form::block(flavour, *cidr, value),
            Key::Handle(id) => form::handle(id, value),
            Key::Affinity(key) => form::affinity(flavour, &key.kind.to_string(), &key.node, key.cidr, value),
            _ if self.is_spec => {
                Ok(form::Parts { name: self.name.clone(), labels: None, spec: value.clone() })
            }
            _ => return named(value.clone(), &self.api_version, self.kind, &self.name),
        };
        let form::Parts { labels, spec, .. } = parts.expect("the schema accepts it");
        let object = json!({"metadata": {"labels": labels}, "spec": spec});
        named(object, &self.api_version, self.kind, &self.name)
    }
}
