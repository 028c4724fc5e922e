//! LoadBalancer services (facts 2.13), and all other services with cluster IPs.

use std::borrow::Cow;
use std::net::IpAddr;

use calipam_model::service::Service;
use calipam_model::snapshot::{FieldDefect, Snapshot, Versioned};
use serde::{Deserialize, Serialize};

use super::list_splitter::Encoding;
use super::meta::{Part, Parts, Wanted};
use super::wire::{decode, text};
use super::{Added, Result, export};

/// Annotations with which a service asks for addresses from Calico.
const ASKS: [&str; 3] =
    ["projectcalico.org/ipv4pools", "projectcalico.org/ipv6pools", "projectcalico.org/loadBalancerIPs"];

/// The class of services that Calico serves.
const CLASS: &str = "calico";

const WANTED: Wanted = Wanted { labels: false, annotations: &ASKS, owners: false };

type ServiceObject<'a> = Parts<'a, Spec<'a>, Status<'a>>;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Spec<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, rename = "loadBalancerIP")]
    ip: Cow<'a, str>,
    #[serde(borrow, rename = "loadBalancerClass", skip_serializing_if = "Option::is_none")]
    class: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "clusterIP", skip_serializing_if = "str::is_empty")]
    cluster_ip: Cow<'a, str>,
    #[serde(borrow, rename = "clusterIPs", skip_serializing_if = "Vec::is_empty")]
    cluster_ips: Vec<Cow<'a, str>>,
}

impl Spec<'_> {
    fn is_load_balancer(&self) -> bool {
        self.kind == "LoadBalancer"
    }

    /// The cluster IPs. A service without any has the text `None` or no text.
    fn cluster_ips(&self) -> impl Iterator<Item = IpAddr> {
        let all =
            [&self.cluster_ip].into_iter().filter(|_| self.cluster_ips.is_empty()).chain(&self.cluster_ips);
        all.filter_map(|text| text.parse().ok())
    }

    fn is_wanted(&self) -> bool {
        self.is_load_balancer() || self.cluster_ips().next().is_some()
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Status<'a> {
    #[serde(borrow)]
    load_balancer: LoadBalancer<'a>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct LoadBalancer<'a> {
    #[serde(borrow)]
    ingress: Vec<Ingress<'a>>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Ingress<'a> {
    #[serde(borrow)]
    ip: Cow<'a, str>,
}

/// Adds a service, if it is of type `LoadBalancer` or has a cluster IP.
pub(crate) fn add_service(snapshot: &mut Snapshot, object: &[u8], encoding: Encoding) -> Added {
    let service = ServiceObject::read(object, encoding, WANTED)?;
    Ok(if service.spec.is_wanted() { add(snapshot, &service) } else { Vec::new() })
}

/// Reduces a service to the part for an export, if it is of type `LoadBalancer` or has a cluster IP.
pub(crate) fn export_service(object: &[u8], encoding: Encoding) -> Result<Option<Vec<u8>>> {
    let mut service = ServiceObject::read(object, encoding, WANTED)?;
    if !service.spec.is_wanted() {
        return Ok(None);
    }
    service.metadata = service.metadata.for_export(WANTED);
    export("Service", service)
}

fn add(snapshot: &mut Snapshot, object: &ServiceObject<'_>) -> Vec<FieldDefect> {
    let meta = &object.metadata;
    let asked = |name: &&str| meta.annotation(name).is_some_and(|text| !text.is_empty());
    let mut service = Service {
        namespace: meta.namespace.to_string(),
        name: meta.name.to_string(),
        uid: meta.uid.to_string(),
        created: meta.created_at(),
        deleting: meta.deleted.is_some(),
        class: object.spec.class.as_ref().map(ToString::to_string),
        asks: ASKS.iter().any(asked) || !object.spec.ip.is_empty(),
        names_calico: ASKS.iter().any(asked) || object.spec.class.as_deref() == Some(CLASS),
        ingress: Vec::new(),
        is_internal: !object.spec.is_load_balancer(),
        cluster_ips: object.spec.cluster_ips().collect(),
    };
    let mut defects = Vec::new();
    // Entries that have only a host name have no address.
    for Ingress { ip } in object.status.load_balancer.ingress.iter().filter(|i| !i.ip.is_empty()) {
        match ip.parse() {
            Ok(address) => service.ingress.push(address),
            Err(_) => {
                let reason = format!("{ip:?} is not an address");
                defects.push(FieldDefect::new("status.loadBalancer.ingress", reason));
            }
        }
    }
    snapshot.newest_creation = snapshot.newest_creation.max(service.created);
    snapshot.services.push(Versioned { value: service, revision: meta.revision() });
    defects
}

impl<'a> Part<'a> for Spec<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self> {
        decode!(message, spec: Self, value, {
            3 => spec.cluster_ip = text(value)?,
            4 => spec.kind = text(value)?,
            8 => spec.ip = text(value)?,
            18 => spec.cluster_ips.push(text(value)?),
            21 => spec.class = Some(text(value)?),
        })
    }
}

impl<'a> Part<'a> for Status<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self> {
        decode!(message, status: Self, value, { 1 => status.load_balancer.ingress.extend(ingress(value.bytes())?) })
    }
}

fn ingress(balancer: &[u8]) -> Result<Vec<Ingress<'_>>> {
    decode!(balancer, found: Vec<Ingress<'_>>, value, { 1 => found.extend(addresses(value.bytes())?) })
}

fn addresses(ingress: &[u8]) -> Result<Vec<Ingress<'_>>> {
    decode!(ingress, found: Vec<Ingress<'_>>, value, { 1 => found.push(Ingress { ip: text(value)? }) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u64, content: &[u8]) -> Vec<u8> {
        let tag = number << 3 | 2;
        let tag = if tag < 128 { vec![tag as u8] } else { vec![tag as u8 | 128, (tag >> 7) as u8] };
        [&tag[..], &[content.len() as u8], content].concat()
    }

    #[test]
    fn addresses_in_the_cluster_are_read_of_every_service() {
        let spec =
            [field(3, b"10.96.0.1"), field(4, b"ClusterIP"), field(18, b"10.96.0.1"), field(18, b"fd00::1")];
        let metadata = [field(1, b"kubernetes"), field(3, b"default")].concat();
        let protobuf = [field(1, &metadata), field(2, &spec.concat())].concat();
        let mut snapshot = Snapshot::default();
        add_service(&mut snapshot, &protobuf, Encoding::Protobuf).unwrap();
        let exported = export_service(&protobuf, Encoding::Protobuf).unwrap().unwrap();
        add_service(&mut snapshot, &exported, Encoding::Json).unwrap();
        let one = br#"{"metadata": {"name": "kubernetes", "namespace": "default"}, "spec": {"type": "NodePort", "clusterIP": "10.96.0.1"}}"#;
        add_service(&mut snapshot, one, Encoding::Json).unwrap();
        let headless = br#"{"metadata": {"name": "db"}, "spec": {"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"]}}"#;
        add_service(&mut snapshot, headless, Encoding::Json).unwrap();
        assert_eq!(export_service(headless, Encoding::Json).unwrap(), None);
        let counts: Vec<usize> =
            snapshot.services.iter().map(|service| service.value.cluster_ips.len()).collect();
        assert_eq!((&counts[..], &snapshot.defects[..]), (&[2, 2, 1][..], &[][..]));
        assert!(snapshot.services.iter().all(|service| service.value.is_internal));
        let ours = br#"{"metadata": {"name": "a"}, "spec": {"type": "LoadBalancer", "loadBalancerClass": "calico"}}"#;
        add_service(&mut snapshot, ours, Encoding::Json).unwrap();
        let ours = &snapshot.services[3].value;
        assert!(ours.names_calico && !ours.asks && !ours.is_internal);
    }
}
