//! The keys and values of Calico's data in both datastores. That of Kubernetes is in the API server's etcd.

use calipam_model::IpNet;
use calipam_model::key::{ENDPOINT_PREFIX, HANDLE_PREFIX, Key};

/// The form of a datastore.
pub(crate) struct Form {
    /// The prefix of the keys of endpoints or pods.
    pub pods: &'static str,
    /// Pointers to the name of a pod, its container and its address in the value of an endpoint or pod.
    pub fields: [&'static str; 3],
    /// The prefix of the keys of handles.
    pub handles: &'static str,
    pub block_key: fn(IpNet) -> String,
    /// True if a block is the `spec` of its value.
    pub has_specs: bool,
}

pub(crate) const ETCD: Form = Form {
    pods: ENDPOINT_PREFIX,
    fields: ["/spec/pod", "/spec/containerID", "/spec/ipNetworks/0"],
    handles: HANDLE_PREFIX,
    block_key: |cidr| Key::Block(cidr).to_string(),
    has_specs: false,
};

pub(crate) const KUBERNETES: Form = Form {
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
