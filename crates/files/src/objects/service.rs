//! LoadBalancer services (facts 2.13), and all other services with cluster IPs.

use std::net::IpAddr;

use calipam_model::service::Service;
use calipam_model::snapshot::{FieldDefect, Snapshot, Versioned};

use super::list_splitter::Encoding;
use super::meta::{Labels, Parts, Wanted};
use super::wire::{Text, message};
use super::{Added, Result, export};

/// Annotations with which a service requests addresses from Calico.
const REQUEST_ANNOTATIONS: [&str; 3] =
    ["projectcalico.org/ipv4pools", "projectcalico.org/ipv6pools", "projectcalico.org/loadBalancerIPs"];

/// The class of services that Calico serves.
const CLASS: &str = "calico";

const WANTED: Wanted = Wanted { labels: Labels::None, annotations: &REQUEST_ANNOTATIONS, owners: false };

type ServiceObject<'a> = Parts<'a, Spec<'a>, Status<'a>>;

message! {
    Spec {
        4 "type" kind: Text<'a>,
        8 "loadBalancerIP" ip: Text<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        21 "loadBalancerClass" class: Option<Text<'a>>,
        #[serde(skip_serializing_if = "str::is_empty")]
        3 "clusterIP" cluster_ip: Text<'a>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        18 "clusterIPs" cluster_ips: Vec<Text<'a>>,
    }
}

message! { Status { 1 "loadBalancer" load_balancer: LoadBalancer<'a> } }
message! { LoadBalancer { 1 "ingress" ingress: Vec<Ingress<'a>> } }
message! { Ingress { 1 "ip" ip: Text<'a> } }

impl Spec<'_> {
    fn is_load_balancer(&self) -> bool {
        *self.kind == *"LoadBalancer"
    }

    /// The cluster IPs. In a service without cluster IPs, the field is `None` or empty.
    fn cluster_ips(&self) -> impl Iterator<Item = IpAddr> {
        let all =
            [&self.cluster_ip].into_iter().filter(|_| self.cluster_ips.is_empty()).chain(&self.cluster_ips);
        all.filter_map(|text| text.parse().ok())
    }

    fn is_wanted(&self) -> bool {
        self.is_load_balancer() || self.cluster_ips().next().is_some()
    }
}

/// Adds a service, if it is of type `LoadBalancer` or has a cluster IP.
pub(crate) fn add_service(snapshot: &mut Snapshot, object: &[u8], encoding: Encoding) -> Added {
    let service = ServiceObject::read(object, encoding, WANTED)?;
    Ok(if service.spec.is_wanted() { add(snapshot, &service) } else { Vec::new() })
}

/// Reduces a service to the part that an export keeps. `None` if its type is not `LoadBalancer` and it has no cluster
/// IP.
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
        class: object.spec.class.as_deref().map(str::to_owned),
        requests_addresses: REQUEST_ANNOTATIONS.iter().any(asked) || !object.spec.ip.is_empty(),
        names_calico: REQUEST_ANNOTATIONS.iter().any(asked) || object.spec.class.as_deref() == Some(CLASS),
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
                let reason = format!("{:?} is not an address", &**ip);
                defects.push(FieldDefect::new("status.loadBalancer.ingress", reason));
            }
        }
    }
    snapshot.newest_creation = snapshot.newest_creation.max(service.created);
    snapshot.services.push(Versioned { value: service, revision: meta.revision() });
    defects
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
        assert!(ours.names_calico && !ours.requests_addresses && !ours.is_internal);
    }
}
