//! The keys and values of Calico's data in both datastores. For Kubernetes, they are those in the API server's etcd.

use calipam_model::IpNet;
use calipam_model::key::{ENDPOINT_PREFIX, HANDLE_PREFIX, Key};
use calipam_model::snapshot::DatastoreKind;

/// The keys and values of one datastore.
pub(crate) struct Form {
    pub datastore: DatastoreKind,
    /// The prefix of the keys of endpoints or pods.
    pub pods: &'static str,
    /// JSON pointers to the pod's name, its container and its address in the value of an endpoint or pod.
    pub fields: [&'static str; 3],
    /// The prefix of the keys of handles.
    pub handles: &'static str,
    pub block_key: fn(IpNet) -> String,
    /// True if a value contains the block as its `spec`.
    pub has_specs: bool,
}

pub(crate) const ETCD: Form = Form {
    datastore: DatastoreKind::Etcd,
    pods: ENDPOINT_PREFIX,
    fields: ["/spec/pod", "/spec/containerID", "/spec/ipNetworks/0"],
    handles: HANDLE_PREFIX,
    block_key: |cidr| Key::Block(cidr).to_string(),
    has_specs: false,
};

pub(crate) const KUBERNETES: Form = Form {
    datastore: DatastoreKind::Kubernetes,
    pods: "/registry/pods/",
    fields: [
        "/metadata/name",
        "/metadata/annotations/cni.projectcalico.org~1containerID",
        "/metadata/annotations/cni.projectcalico.org~1podIP",
    ],
    handles: "/registry/crd.projectcalico.org/ipamhandles/",
    block_key: |cidr| {
        format!("/registry/crd.projectcalico.org/ipamblocks/{}", cidr.to_string().replace(['.', '/'], "-"))
    },
    has_specs: true,
};
