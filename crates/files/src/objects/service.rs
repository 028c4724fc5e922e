//! Services: what Calico's controller reads of those of type `LoadBalancer`, and the cluster IPs of all.

use std::net::IpAddr;

use calipam_model::service::Service;
use calipam_model::service::request::{self, ServiceRequest};
use calipam_model::snapshot::{FieldDefect, Snapshot, Versioned};

use super::list_splitter::Encoding;
use super::meta::{Labels, Parts, Wanted};
use super::wire::{Text, message};
use super::{Added, Result, export};

const WANTED: Wanted = Wanted {
    labels: Labels::None,
    annotations: &[request::POOLS_V4, request::POOLS_V6, request::ADDRESSES],
    owners: false,
};

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
        #[serde(skip_serializing_if = "str::is_empty")]
        17 "ipFamilyPolicy" family_policy: Text<'a>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        19 "ipFamilies" families: Vec<Text<'a>>,
    }
}

message! { Status { 1 "loadBalancer" load_balancer: LoadBalancer<'a> } }
message! { LoadBalancer { 1 "ingress" ingress: Vec<Ingress<'a>> } }
message! {
    Ingress {
        1 "ip" ip: Text<'a>,
        #[serde(skip_serializing_if = "str::is_empty")]
        2 "hostname" hostname: Text<'a>,
    }
}

impl Spec<'_> {
    fn is_load_balancer(&self) -> bool {
        *self.kind == *"LoadBalancer"
    }

    /// The cluster IPs. In a service without cluster IPs, the field is `None` or empty.
    fn cluster_ips(&self) -> impl Iterator<Item = IpAddr> {
        // Services from before dual-stack clusters have only the first field.
        let texts = if self.cluster_ips.is_empty() {
            std::slice::from_ref(&self.cluster_ip)
        } else {
            self.cluster_ips.as_slice()
        };
        texts.iter().filter_map(|text| text.parse().ok())
    }

    /// True if the service is to have an address of a family. Services from before dual-stack clusters name no family,
    /// and have that of their cluster IP.
    fn has_family(&self, name: &str, is_of_family: fn(&IpAddr) -> bool) -> bool {
        if !self.families.is_empty() {
            return self.families.iter().any(|family| **family == *name);
        }
        let cluster_ips: Vec<IpAddr> = self.cluster_ips().collect();
        if cluster_ips.is_empty() {
            return name == "IPv4";
        }
        cluster_ips.iter().any(is_of_family)
    }
}

/// Adds a service.
pub(crate) fn add_service(snapshot: &mut Snapshot, object: &[u8], encoding: Encoding) -> Added {
    let service = ServiceObject::read(object, encoding, WANTED)?;
    Ok(add(snapshot, &service))
}

/// Reduces a service to the part that an export keeps.
pub(crate) fn export_service(object: &[u8], encoding: Encoding) -> Result<Option<Vec<u8>>> {
    let mut service = ServiceObject::read(object, encoding, WANTED)?;
    service.metadata = service.metadata.for_export(WANTED);
    export("Service", service)
}

/// Adds a service to the snapshot. Returns its fields that cannot be read.
fn add(snapshot: &mut Snapshot, object: &ServiceObject<'_>) -> Vec<FieldDefect> {
    let meta = &object.metadata;
    let ingress = &object.status.load_balancer.ingress;
    let mut defects = Vec::new();
    let is_load_balancer = object.spec.is_load_balancer();
    let request = if is_load_balancer {
        request_of(object)
    } else {
        ServiceRequest::default()
    };
    let service = Service {
        namespace: meta.namespace.to_string(),
        name: meta.name.to_string(),
        uid: meta.uid.to_string(),
        created: meta.created_at(),
        deleting: meta.deleted.is_some(),
        request,
        ingress: ingress_addresses(ingress, &mut defects),
        has_hostname: ingress.iter().any(|entry| !entry.hostname.is_empty()),
        is_internal: !is_load_balancer,
        cluster_ips: object.spec.cluster_ips().collect(),
    };
    snapshot.newest_creation = snapshot.newest_creation.max(service.created);
    snapshot.services.push(Versioned {
        value: service,
        revision: meta.revision(),
    });
    defects
}

/// Returns the addresses at which a load balancer is reached. Adds those that cannot be read to `defects`.
fn ingress_addresses(ingress: &[Ingress<'_>], defects: &mut Vec<FieldDefect>) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    // Entries that have only a host name have no address.
    for Ingress { ip, .. } in ingress.iter().filter(|entry| !entry.ip.is_empty()) {
        match ip.parse() {
            Ok(address) => addresses.push(address),
            Err(_) => {
                let reason = format!("{:?} is not an address", &**ip);
                defects.push(FieldDefect::new("status.loadBalancer.ingress", reason));
            }
        }
    }
    addresses
}

/// Reads what a service asks the controller for.
fn request_of(object: &ServiceObject<'_>) -> ServiceRequest {
    let spec = &object.spec;
    let annotation = |name| object.metadata.annotation(name).map(str::to_owned);
    let v4 = spec.has_family("IPv4", IpAddr::is_ipv4);
    let v6 = spec.has_family("IPv6", IpAddr::is_ipv6);
    ServiceRequest {
        class: spec.class.as_deref().map(str::to_owned),
        pools_v4: annotation(request::POOLS_V4),
        pools_v6: annotation(request::POOLS_V6),
        addresses: annotation(request::ADDRESSES),
        spec_address: spec.ip.to_string(),
        v4,
        v6,
        dual_stack: match &*spec.family_policy {
            "" => v4 && v6,
            policy => policy != "SingleStack",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u64, content: &[u8]) -> Vec<u8> {
        let tag = number << 3 | 2;
        let tag = if tag < 128 {
            vec![tag as u8]
        } else {
            vec![tag as u8 | 128, (tag >> 7) as u8]
        };
        [&tag[..], &[content.len() as u8], content].concat()
    }

    #[test]
    fn addresses_in_the_cluster_are_read_of_every_service() {
        let spec = [
            field(3, b"10.96.0.1"),
            field(4, b"ClusterIP"),
            field(18, b"10.96.0.1"),
            field(18, b"fd00::1"),
        ];
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
        let exported = export_service(headless, Encoding::Json).unwrap().unwrap();
        add_service(&mut snapshot, &exported, Encoding::Json).unwrap();
        let counts: Vec<usize> = snapshot
            .services
            .iter()
            .map(|service| service.value.cluster_ips.len())
            .collect();
        assert_eq!(
            (&counts[..], &snapshot.defects[..]),
            (&[2, 2, 1, 0, 0][..], &[][..])
        );
        assert!(snapshot.services.iter().all(|service| service.value.is_internal));
        let ours = br#"{"metadata": {"name": "a"}, "spec": {"type": "LoadBalancer", "loadBalancerClass": "calico"}}"#;
        add_service(&mut snapshot, ours, Encoding::Json).unwrap();
        let ours = &snapshot.services.last().unwrap().value;
        assert!(ours.request.names_calico() && ours.request.v4 && !ours.is_internal);
    }

    #[test]
    fn an_export_keeps_the_entire_request() {
        let object = serde_json::json!({
            "metadata": {"name": "web", "namespace": "shop", "annotations": {
                "projectcalico.org/ipv4pools": "[\"lb\"]", "projectcalico.org/ipv6pools": "",
                "projectcalico.org/loadBalancerIPs": "x", "other": "y"}},
            "spec": {"type": "LoadBalancer", "loadBalancerIP": "10.9.0.1", "loadBalancerClass": "calico",
                "ipFamilies": ["IPv6"], "ipFamilyPolicy": "PreferDualStack"},
            "status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}, {"ip": "10.9.0.1"}]}},
        });
        let object = object.to_string();
        let mut snapshot = Snapshot::default();
        add_service(&mut snapshot, object.as_bytes(), Encoding::Json).unwrap();
        let exported = export_service(object.as_bytes(), Encoding::Json)
            .unwrap()
            .unwrap();
        assert!(!String::from_utf8(exported.clone()).unwrap().contains("other"));
        add_service(&mut snapshot, &exported, Encoding::Json).unwrap();
        let [read, of_export] = &snapshot.services[..] else {
            panic!()
        };
        assert_eq!(read.value, of_export.value);
        let request = ServiceRequest {
            class: Some("calico".into()),
            pools_v4: Some("[\"lb\"]".into()),
            pools_v6: Some(String::new()),
            addresses: Some("x".into()),
            spec_address: "10.9.0.1".into(),
            v4: false,
            v6: true,
            dual_stack: true,
        };
        assert_eq!(read.value.request, request);
        assert!(read.value.has_hostname && read.value.ingress.len() == 1);
    }

    #[test]
    fn a_service_without_families_has_those_of_its_cluster_addresses() {
        let families = |more: &str| {
            let object =
                format!(r#"{{"metadata": {{"name": "a"}}, "spec": {{"type": "LoadBalancer"{more}}}}}"#);
            let mut snapshot = Snapshot::default();
            add_service(&mut snapshot, object.as_bytes(), Encoding::Json).unwrap();
            let request = &snapshot.services[0].value.request;
            [request.v4, request.v6, request.dual_stack]
        };
        assert_eq!(families(""), [true, false, false]);
        assert_eq!(families(r#", "clusterIP": "fd00::7""#), [false, true, false]);
        assert_eq!(
            families(r#", "clusterIPs": ["fd00::7", "10.96.0.9"]"#),
            [true, true, true]
        );
    }
}
