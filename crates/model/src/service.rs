//! LoadBalancer services and KubeVirt machines (facts 2.13, 2.14).

pub mod request;

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;

use self::request::ServiceRequest;
use crate::config::{AssignIps, LoadBalancerController};
use crate::digest;
use crate::key::Key;
use crate::names::MAX_OBJECT_NAME;

/// A service. Calico's controller gives addresses to those of type `LoadBalancer`.
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
    /// Everything that Calico's controller reads of the service.
    pub request: ServiceRequest,
    /// `status.loadBalancer.ingress[].ip`, without entries that have only a host name.
    pub ingress: Vec<IpAddr>,
    /// True if an entry of `status.loadBalancer.ingress` has a host name, as those of clouds have.
    pub has_hostname: bool,
    /// True if the type is not `LoadBalancer`, so only the cluster IPs matter.
    pub is_internal: bool,
    /// `spec.clusterIPs`.
    pub cluster_ips: Vec<IpAddr>,
}

impl Service {
    pub fn key(&self) -> Key {
        Key::Service {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
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
        handle.truncate(MAX_OBJECT_NAME);
        handle
    }

    /// True if Calico's controller serves the service. Does not check that a pool has addresses for it.
    pub fn is_managed(&self, controller: LoadBalancerController) -> bool {
        if self.is_internal {
            return false;
        }
        // Newer controllers decide by the class alone, if the service has one.
        if controller.knows_classes
            && let Some(class) = &self.request.class
        {
            return class == request::CALICO_CLASS;
        }
        match controller.assign {
            AssignIps::AllServices => true,
            AssignIps::RequestedServicesOnly => self.request.asks_for_addresses(controller),
        }
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
        let service = Service {
            namespace: "default".into(),
            name: "web".into(),
            uid,
            ..Service::default()
        };
        assert_eq!(service.handle(), "lb-gJQ1RAoOYNAQTWk3dC76lcU6rH4TdxLLDONLknY5xk");
    }

    #[test]
    fn services_are_managed_by_their_class_and_request() {
        use AssignIps::{AllServices, RequestedServicesOnly};
        let by_annotation = ServiceRequest {
            pools_v4: Some("[\"lb\"]".into()),
            ..ServiceRequest::default()
        };
        let by_field = ServiceRequest {
            spec_address: "192.0.2.1".into(),
            ..ServiceRequest::default()
        };
        let blank = ServiceRequest {
            addresses: Some(String::new()),
            ..ServiceRequest::default()
        };
        let none = ServiceRequest::default();
        for (class, request, assign, managed) in [
            (None, &none, AllServices, true),
            (Some("calico"), &none, AllServices, true),
            (Some("other"), &by_annotation, AllServices, false),
            (Some(""), &none, AllServices, false),
            (None, &none, RequestedServicesOnly, false),
            (None, &blank, RequestedServicesOnly, false),
            (None, &by_annotation, RequestedServicesOnly, true),
            (None, &by_field, RequestedServicesOnly, true),
            (Some("calico"), &none, RequestedServicesOnly, true),
            (Some("other"), &by_annotation, RequestedServicesOnly, false),
        ] {
            let request = ServiceRequest {
                class: class.map(Into::into),
                ..request.clone()
            };
            let service = Service {
                request,
                ..Service::default()
            };
            let controller = LoadBalancerController {
                assign,
                ..LoadBalancerController::default()
            };
            assert_eq!(service.is_managed(controller), managed, "{service:?} {assign:?}");
            assert!(
                !Service {
                    is_internal: true,
                    ..service
                }
                .is_managed(controller)
            );
        }
    }

    #[test]
    fn older_controllers_know_no_class_and_no_field() {
        let of = |version, assign| LoadBalancerController::of(Some(version), assign);
        let other = Service {
            request: ServiceRequest {
                class: Some("other".into()),
                ..ServiceRequest::default()
            },
            ..Service::default()
        };
        let by_field = Service {
            request: ServiceRequest {
                spec_address: "192.0.2.1".into(),
                ..ServiceRequest::default()
            },
            ..Service::default()
        };
        for (version, other_class, field) in [
            ((3, 30, 2), true, false),
            ((3, 30, 3), false, false),
            ((3, 31, 7), false, false),
            ((3, 32, 1), false, false),
            ((3, 32, 2), false, true),
            ((3, 33, 0), false, true),
        ] {
            let all = of(version, AssignIps::AllServices);
            assert_eq!(other.is_managed(all), other_class, "{version:?}");
            let requested = of(version, AssignIps::RequestedServicesOnly);
            assert_eq!(by_field.is_managed(requested), field, "{version:?}");
        }
    }
}
