//! Workload endpoints (facts 1.10).

use std::net::IpAddr;

use serde::Serialize;

use super::{Resource, key};

/// A workload endpoint.
pub type Endpoint = Resource<EndpointSpec>;

/// The `spec` of a workload endpoint.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSpec {
    /// `k8s` for pods.
    pub orchestrator: String,
    /// The workload, for orchestrators other than Kubernetes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub workload: String,
    /// The Calico node.
    pub node: String,
    /// The ID of the sandbox.
    #[serde(rename = "containerID", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// The interface in the sandbox.
    pub endpoint: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub service_account_name: String,
    /// Addresses with full-length masks.
    pub ip_networks: Vec<String>,
    /// Floating addresses, which IPAM does not track.
    #[serde(rename = "ipNATs", skip_serializing_if = "Vec::is_empty")]
    pub ip_nats: Vec<Nat>,
    pub profiles: Vec<String>,
    /// The interface on the host.
    pub interface_name: String,
    pub mac: String,
}

/// A floating address.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Nat {
    /// The address in the sandbox.
    #[serde(rename = "internalIP")]
    pub internal: IpAddr,
    /// The floating address.
    #[serde(rename = "externalIP")]
    pub external: IpAddr,
}

/// An address in the form of `ipNetworks`.
pub(super) fn network(address: IpAddr) -> String {
    format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })
}

impl Endpoint {
    pub fn set_addresses(&mut self, addresses: &[IpAddr]) {
        self.spec.ip_networks = addresses.iter().copied().map(network).collect();
    }

    pub fn add_address(&mut self, address: IpAddr) {
        self.spec.ip_networks.push(network(address));
    }

    pub fn key(&self) -> String {
        key::endpoint(&self.metadata.namespace, &self.metadata.name)
    }

    /// The subject of findings about the endpoint: `namespace/name`.
    pub fn subject(&self) -> String {
        format!("{}/{}", self.metadata.namespace, self.metadata.name)
    }
}
