//! Workload endpoints: the addresses that pods use, as Calico records them (facts 1.10).

mod read;

use std::net::{IpAddr, Ipv4Addr};

use self::read::{RawEndpoint, read, text};
use crate::DecodeError;
use crate::cidr;
use crate::key::Key;
use crate::names::{is_endpoint_name, push_endpoint_name};
use crate::packing::take_sized;
use crate::resource::Parsed;
use crate::stored::FieldDefect;
use crate::text::{TextRef, boxed_texts, text_at};
use crate::time::parse_time;

/// A workload endpoint, reduced to its addresses and the user of the addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// The fields in the order of [`Field`], packed. The name is empty if the other fields imply it.
    text: Box<[u8]>,
    addresses: Addresses,
}

/// An endpoint's addresses. Nearly all endpoints have one IPv4 address.
#[derive(Clone, Debug, PartialEq)]
enum Addresses {
    One(Ipv4Addr),
    Many(Box<[IpAddr]>),
}

#[derive(Clone, Copy)]
enum Field {
    Namespace,
    Name,
    Node,
    Orchestrator,
    Pod,
    Endpoint,
    ContainerId,
    Workload,
}

const FIELDS: usize = Field::Workload as usize + 1;

/// The parts of an [`Endpoint`]; missing fields are empty.
#[derive(Clone, Debug, Default)]
pub struct EndpointParts<'a> {
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// `spec.node`.
    pub node: &'a str,
    /// `spec.orchestrator`.
    pub orchestrator: &'a str,
    /// `spec.pod`.
    pub pod: &'a str,
    /// `spec.endpoint`.
    pub endpoint: &'a str,
    /// `spec.containerID`.
    pub container_id: &'a str,
    /// `spec.workload`.
    pub workload: &'a str,
}

/// An endpoint's user and node. Missing strings are empty.
#[derive(Clone, Copy, Debug)]
pub struct EndpointTexts<'a> {
    pub namespace: TextRef<'a>,
    /// `spec.node`.
    pub node: TextRef<'a>,
    /// `spec.pod`.
    pub pod: TextRef<'a>,
    /// `spec.containerID`.
    pub container_id: TextRef<'a>,
    /// `spec.workload`.
    pub workload: TextRef<'a>,
}

impl Endpoint {
    pub fn key(&self) -> Key {
        Key::Endpoint {
            namespace: self.namespace().to_string(),
            name: self.name(),
        }
    }

    /// Packs the parts of an endpoint. To save memory, leaves out a name that Calico makes of the other parts, as it
    /// does for nearly all endpoints.
    pub fn new(parts: &EndpointParts<'_>, addresses: &[IpAddr]) -> Self {
        let EndpointParts {
            namespace,
            name,
            node,
            orchestrator,
            pod,
            endpoint,
            container_id,
            workload,
        } = *parts;
        let is_name_implied = is_endpoint_name(name, [node, orchestrator, pod, endpoint]);
        let stored_name = if is_name_implied { "" } else { name };
        // `Field` gives the positions.
        let fields = [
            namespace,
            stored_name,
            node,
            orchestrator,
            pod,
            endpoint,
            container_id,
            workload,
        ];
        let addresses = match addresses {
            [IpAddr::V4(one)] => Addresses::One(*one),
            many => Addresses::Many(many.into()),
        };
        Self {
            text: boxed_texts(&fields),
            addresses,
        }
    }

    /// Reads a workload endpoint's JSON; namespace and name come from the key. Omits and reports entries in
    /// `ipNetworks` that are not addresses. Also returns the creation time.
    pub fn parse(namespace: &str, name: &str, json: &[u8]) -> Result<Parsed<Self>, DecodeError> {
        let RawEndpoint { metadata, spec } = read(json)?;
        // Nearly all endpoints have one address, so there is a list only if there are more.
        let mut first = None;
        let mut many = Vec::new();
        let mut defects = Vec::new();
        for network in spec.networks.first.iter().chain(&spec.networks.others) {
            let Some(address) = cidr::parse_address(&network.0) else {
                let reason = format!("{:?} is not an address", network.0);
                defects.push(FieldDefect::new("spec.ipNetworks", reason));
                continue;
            };
            let Some(first) = first else {
                first = Some(address);
                continue;
            };
            if many.is_empty() {
                many.push(first);
            }
            many.push(address);
        }
        let addresses = if many.is_empty() { first.as_slice() } else { &many };

        let parts = EndpointParts {
            namespace,
            name,
            node: text(&spec.node),
            orchestrator: text(&spec.orchestrator),
            pod: text(&spec.pod),
            endpoint: text(&spec.endpoint),
            container_id: text(&spec.container_id),
            workload: text(&spec.workload),
        };
        let created = metadata.created.and_then(|time| parse_time(&time.0));
        Ok(Parsed {
            value: Self::new(&parts, addresses),
            defects,
            created,
        })
    }

    pub fn namespace(&self) -> TextRef<'_> {
        self.field(Field::Namespace)
    }

    /// The object's name.
    pub fn name(&self) -> String {
        let mut name = String::new();
        self.push_name(&mut name);
        name
    }

    /// Appends the object's name.
    pub fn push_name(&self, out: &mut String) {
        let name = self.field(Field::Name);
        if !name.is_empty() {
            return name.push_to(out);
        }
        let parts = [Field::Node, Field::Orchestrator, Field::Pod, Field::Endpoint];
        let [node, orchestrator, pod, endpoint] = parts.map(|part| self.field(part).plain());
        push_endpoint_name(out, [&node, &orchestrator, &pod, &endpoint]);
    }

    /// The workload that [`EndpointName::parse`](crate::names::EndpointName::parse) finds in the object's name, without
    /// building the name. `None` if the name does not follow from the fields, or is not split into the same fields.
    pub fn workload_in_name(&self) -> Option<TextRef<'_>> {
        let fields = self.fields();
        if !fields[Field::Name as usize].is_empty() {
            return None;
        }
        for part in [Field::Node, Field::Orchestrator, Field::Pod, Field::Endpoint] {
            // A dash that starts a part is taken for the end of the part before it.
            if matches!(fields[part as usize].packed(), [] | [b'-', ..]) {
                return None;
            }
        }
        Some(fields[Field::Pod as usize])
    }

    /// The node; empty if the object does not name one.
    pub fn node(&self) -> TextRef<'_> {
        self.field(Field::Node)
    }

    /// `k8s` for pods.
    pub fn orchestrator(&self) -> TextRef<'_> {
        self.field(Field::Orchestrator)
    }

    /// True for OpenStack endpoints, whose addresses come from Neutron rather than from IPAM.
    pub fn is_of_openstack(&self) -> bool {
        self.orchestrator() == *"openstack"
    }

    /// The pod; empty if the orchestrator is not Kubernetes.
    pub fn pod(&self) -> TextRef<'_> {
        self.field(Field::Pod)
    }

    /// The interface, usually `eth0`.
    pub fn interface(&self) -> TextRef<'_> {
        self.field(Field::Endpoint)
    }

    /// The ID of the pod's sandbox; can be empty.
    pub fn container_id(&self) -> TextRef<'_> {
        self.field(Field::ContainerId)
    }

    /// The workload name, for orchestrators other than Kubernetes; usually empty.
    pub fn workload(&self) -> TextRef<'_> {
        self.field(Field::Workload)
    }

    #[inline]
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        // Both kinds have to become the same type of iterator.
        let (one, many) = match &self.addresses {
            Addresses::One(address) => (Some(IpAddr::V4(*address)), [].as_slice()),
            Addresses::Many(many) => (None, &**many),
        };
        one.into_iter().chain(many.iter().copied())
    }

    pub fn address_count(&self) -> usize {
        match &self.addresses {
            Addresses::One(_) => 1,
            Addresses::Many(many) => many.len(),
        }
    }

    /// The strings that a check needs from every endpoint, read in one pass over the fields.
    pub fn texts(&self) -> EndpointTexts<'_> {
        let fields = self.fields();
        let field = |field: Field| fields[field as usize];
        EndpointTexts {
            namespace: field(Field::Namespace),
            node: field(Field::Node),
            pod: field(Field::Pod),
            container_id: field(Field::ContainerId),
            workload: field(Field::Workload),
        }
    }

    /// All fields, read in one pass.
    fn fields(&self) -> [TextRef<'_>; FIELDS] {
        let mut rest = &*self.text;
        [(); FIELDS].map(|()| TextRef::from_packed(take_sized(&mut rest)))
    }

    fn field(&self, field: Field) -> TextRef<'_> {
        text_at(&self.text, field as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{EndpointName, endpoint_name};

    #[test]
    fn the_workload_in_a_name_is_the_one_that_the_name_is_split_into() {
        let texts = ["", "a", "-a", "a-", "web-0", "virt-launcher-0123456789abcdef0123"];
        let mut known = 0;
        for node in texts {
            for pod in texts {
                for interface in texts {
                    let parts = EndpointParts {
                        name: &endpoint_name(node, "k8s", pod, interface),
                        node,
                        orchestrator: "k8s",
                        pod,
                        endpoint: interface,
                        ..EndpointParts::default()
                    };
                    let endpoint = Endpoint::new(&parts, &[]);
                    if let Some(workload) = endpoint.workload_in_name() {
                        let split = EndpointName::parse(parts.name).unwrap();
                        assert_eq!(workload, *split.workload, "{}", parts.name);
                        known += 1;
                    }
                    let other = Endpoint::new(&EndpointParts { name: "x", ..parts }, &[]);
                    assert!(other.workload_in_name().is_none());
                }
            }
        }
        assert_eq!(
            known,
            4 * 4 * 4,
            "of every text that is neither empty nor starts with a dash"
        );
    }

    #[test]
    fn the_example_of_the_facts() {
        let json = br#"{"kind":"WorkloadEndpoint","metadata":{"name":"x"},"spec":{"orchestrator":"k8s","node":"node-1",
            "containerID":"3f9a6c0b7d2e","pod":"nginx-6799fc88d8-abcde","endpoint":"eth0","ports":[{"a":1}],
            "ipNetworks":["10.244.1.1/32","fd00::1/128","10.0.0/8"]}}"#;
        let name = "node--1-k8s-nginx--6799fc88d8--abcde-eth0";
        let Parsed {
            value: endpoint,
            defects,
            ..
        } = Endpoint::parse("default", name, json).unwrap();
        assert_eq!(endpoint.name(), name);
        assert!(endpoint.field(Field::Name).is_empty());
        assert!(endpoint.pod() == *"nginx-6799fc88d8-abcde" && endpoint.container_id() == *"3f9a6c0b7d2e");
        let addresses: Vec<_> = endpoint.addresses().map(|a| a.to_string()).collect();
        assert_eq!(addresses, ["10.244.1.1", "fd00::1"]);
        assert_eq!(defects.len(), 1);
        assert_eq!(defects[0].field, "spec.ipNetworks");
        let EndpointTexts {
            namespace,
            node,
            pod,
            container_id,
            workload,
        } = endpoint.texts();
        let one_by_one = [
            endpoint.namespace(),
            endpoint.node(),
            endpoint.pod(),
            endpoint.container_id(),
            endpoint.workload(),
        ];
        assert_eq!([namespace, node, pod, container_id, workload], one_by_one);
        assert!(namespace == *"default" && node == *"node-1" && workload.is_empty());
    }

    #[test]
    fn a_name_that_cannot_be_derived_is_kept() {
        let endpoint = Endpoint::parse("default", "odd", br#"{"spec":{"node":"n"}}"#)
            .unwrap()
            .value;
        assert_eq!(endpoint.name(), "odd");
        assert_eq!(endpoint.addresses().count(), 0);
        assert!(Endpoint::parse("default", "odd", br#"{"spec":[]}"#).is_err());
    }
}
