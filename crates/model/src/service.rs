//! LoadBalancer services and KubeVirt machines (facts 2.13, 2.14).

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;

use crate::config::AssignIps;
use crate::digest;
use crate::key::Key;

/// Maximum length of an object name, and therefore of a handle.
const MAX_HANDLE: usize = 253;

/// A service of type `LoadBalancer`, or another one with cluster IPs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    pub namespace: String,
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// True if `metadata.deletionTimestamp` is set: the service was deleted, but a finalizer still holds it.
    pub deleting: bool,
    /// `spec.loadBalancerClass`.
    pub class: Option<String>,
    /// True if the service requests addresses from Calico: one of the annotations `projectcalico.org/ipv4pools`,
    /// `…/ipv6pools`, `…/loadBalancerIPs` is not empty, or `spec.loadBalancerIP` is set.
    pub requests_addresses: bool,
    /// True if the class is Calico's, or one of the annotations that `requests_addresses` lists is not empty. In that
    /// case, no other controller should serve the service.
    pub names_calico: bool,
    /// `status.loadBalancer.ingress[].ip`, without entries that have only a host name.
    pub ingress: Vec<IpAddr>,
    /// True if the type is not `LoadBalancer`, so only the cluster IPs matter.
    pub is_internal: bool,
    /// `spec.clusterIPs`.
    pub cluster_ips: Vec<IpAddr>,
}

impl Service {
    pub fn key(&self) -> Key {
        Key::Service { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The handle with which Calico's controller records the addresses (facts 4.2).
    pub fn handle(&self) -> String {
        let identity = format!("{}-{}-{}", self.name, self.namespace, self.uid).to_lowercase();
        let digest = URL_SAFE_NO_PAD.encode(digest::sha256(identity));
        let mut handle = format!("lb-{}", digest.replace(['-', '_', '.'], ""));
        handle.truncate(MAX_HANDLE);
        handle
    }

    /// True if Calico's controller serves the service when it is configured with `assign`. Does not check that a pool
    /// has addresses for it.
    pub fn is_managed(&self, assign: AssignIps) -> bool {
        let class = self.class.as_deref().unwrap_or("");
        let ours = class == "calico";
        let is_asked = match assign {
            AssignIps::AllServices => true,
            AssignIps::RequestedServicesOnly => self.requests_addresses,
        };
        !self.is_internal && (ours || class.is_empty() && is_asked)
    }
}

/// A KubeVirt machine: a VirtualMachine or a VirtualMachineInstance. Its address outlives its pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    pub namespace: String,
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// True for an instance of a VirtualMachine with the same name. Without that VirtualMachine, the instance keeps no
    /// address.
    pub is_owned: bool,
    /// True for a VirtualMachineInstance.
    pub is_instance: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_facts() {
        let uid = "8d3d8a3e-8b8c-4c55-9c0a-0a2f1d6f7b11".to_owned();
        let service = Service { namespace: "default".into(), name: "web".into(), uid, ..Service::default() };
        assert_eq!(service.handle(), "lb-gJQ1RAoOYNAQTWk3dC76lcU6rH4TdxLLDONLknY5xk");
    }

    #[test]
    fn services_are_managed_by_their_class_and_request() {
        let service = |class: Option<&str>, requests_addresses| {
            let class = class.map(Into::into);
            Service { class, requests_addresses, ..Service::default() }
        };
        use AssignIps::{AllServices, RequestedServicesOnly};
        for (class, requests_addresses, assign, managed) in [
            (None, false, AllServices, true),
            (Some("calico"), false, AllServices, true),
            (Some("other"), true, AllServices, false),
            (None, false, RequestedServicesOnly, false),
            (None, true, RequestedServicesOnly, true),
            (Some("calico"), false, RequestedServicesOnly, true),
            (Some("other"), true, RequestedServicesOnly, false),
        ] {
            let service = service(class, requests_addresses);
            assert_eq!(service.is_managed(assign), managed, "{class:?} {requests_addresses} {assign:?}");
            assert!(!Service { is_internal: true, ..service }.is_managed(assign));
        }
    }
}
