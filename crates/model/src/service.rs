//! LoadBalancer services and KubeVirt machines (facts 2.13, 2.14).

use std::net::IpAddr;

use jiff::Timestamp;

use crate::config::AssignIps;

/// A service of type `LoadBalancer`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `spec.loadBalancerClass`.
    pub class: Option<String>,
    /// It asks for addresses of Calico: one of the annotations `projectcalico.org/ipv4pools`,
    /// `…/ipv6pools`, `…/loadBalancerIPs` is not empty, or `spec.loadBalancerIP` is set.
    pub asks: bool,
    /// `status.loadBalancer.ingress[].ip`. Entries with a host name only have none.
    pub ingress: Vec<IpAddr>,
}

impl Service {
    /// True where Calico's controller serves it, given which services that serves. Whether any pool
    /// offers such addresses is another matter.
    pub fn is_managed(&self, assign: AssignIps) -> bool {
        let class = self.class.as_deref().unwrap_or("");
        let ours = class == "calico";
        match assign {
            AssignIps::AllServices => ours || class.is_empty(),
            AssignIps::RequestedServicesOnly => ours || class.is_empty() && self.asks,
        }
    }
}

/// A KubeVirt machine: a VirtualMachine or a VirtualMachineInstance. Its address outlives its pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}
