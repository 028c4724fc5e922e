//! The request of a LoadBalancer service for addresses, as Calico's controller reads it (facts 2.13).

use std::net::IpAddr;

use ipnet::IpNet;

use crate::cidr;
use crate::config::LoadBalancerController;
use crate::json;
use crate::pool::{Pool, PoolUse};

/// The class of services that Calico serves.
pub const CALICO_CLASS: &str = "calico";
/// The annotations with which a service requests pools and addresses: JSON lists.
pub const POOLS_V4: &str = "projectcalico.org/ipv4pools";
pub const POOLS_V6: &str = "projectcalico.org/ipv6pools";
pub const ADDRESSES: &str = "projectcalico.org/loadBalancerIPs";
/// The field of the Kubernetes API for the same purpose, which only newer controllers read.
pub const SPEC_ADDRESS: &str = "spec.loadBalancerIP";

/// Everything of a LoadBalancer service that Calico's controller reads, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceRequest {
    /// `spec.loadBalancerClass`.
    pub class: Option<String>,
    /// The annotation [`POOLS_V4`].
    pub pools_v4: Option<String>,
    /// The annotation [`POOLS_V6`].
    pub pools_v6: Option<String>,
    /// The annotation [`ADDRESSES`].
    pub addresses: Option<String>,
    /// `spec.loadBalancerIP`; empty if it is not set.
    pub spec_address: String,
    /// True if `spec.ipFamilies` contains IPv4.
    pub v4: bool,
    /// True if `spec.ipFamilies` contains IPv6.
    pub v6: bool,
    /// True if `spec.ipFamilyPolicy` is `PreferDualStack` or `RequireDualStack`: two addresses are enough, and not one.
    pub dual_stack: bool,
}

/// The pools and addresses that a service names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The CIDRs in the annotation [`POOLS_V4`]; `None` without the annotation.
    pub pools_v4: Option<Vec<IpNet>>,
    /// The CIDRs in the annotation [`POOLS_V6`]; `None` without the annotation.
    pub pools_v6: Option<Vec<IpNet>>,
    /// The addresses in the annotation [`ADDRESSES`], at most one of each family. If empty, the service names none.
    pub addresses: Vec<IpAddr>,
}

/// An annotation that the controller cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{calico}")]
pub struct Unreadable {
    /// The name of the annotation or field.
    pub field: &'static str,
    /// The controller's error.
    pub calico: String,
}

impl ServiceRequest {
    /// True if the service asks Calico for addresses by an annotation, or by a field that this controller reads.
    pub fn asks_for_addresses(&self, controller: LoadBalancerController) -> bool {
        self.is_annotated() || controller.reads_spec_address && !self.spec_address.is_empty()
    }

    /// True if the class is Calico's, or an annotation asks Calico for addresses. In that case, no other controller
    /// should serve the service.
    pub fn names_calico(&self) -> bool {
        self.is_annotated() || self.class.as_deref() == Some(CALICO_CLASS)
    }

    fn is_annotated(&self) -> bool {
        let annotations = [&self.pools_v4, &self.pools_v6, &self.addresses];
        annotations.into_iter().flatten().any(|text| !text.is_empty())
    }

    /// Reads the annotations. Pools are named by CIDR, or by a name among `pools`.
    ///
    /// # Errors
    /// If the controller cannot read an annotation. It then leaves the service as it is.
    pub fn wishes(&self, pools: &[&Pool]) -> Result<Wishes, Unreadable> {
        let mut wishes = Wishes::default();
        if let Some(text) = &self.pools_v4 {
            let cidrs = named_pools(text, pools, Family::V4);
            wishes.pools_v4 = Some(cidrs.map_err(|calico| Unreadable::new(POOLS_V4, calico))?);
        }
        if let Some(text) = &self.pools_v6 {
            let cidrs = named_pools(text, pools, Family::V6);
            wishes.pools_v6 = Some(cidrs.map_err(|calico| Unreadable::new(POOLS_V6, calico))?);
        }
        wishes.addresses = self.named_addresses()?;
        Ok(wishes)
    }

    /// Reads the annotation [`ADDRESSES`]: at most one address of each family.
    ///
    /// # Errors
    /// If the controller cannot read it.
    pub fn named_addresses(&self) -> Result<Vec<IpAddr>, Unreadable> {
        match &self.addresses {
            Some(text) => named_addresses(text).map_err(|calico| Unreadable::new(ADDRESSES, calico)),
            None => Ok(Vec::new()),
        }
    }

    /// Reads `spec.loadBalancerIP`; `None` if it is not set.
    ///
    /// # Errors
    /// If the controller cannot read it.
    pub fn spec_wish(&self) -> Result<Option<IpAddr>, Unreadable> {
        let text = &self.spec_address;
        if text.is_empty() {
            return Ok(None);
        }
        let Some(address) = cidr::parse_go_address(text) else {
            let calico = format!("invalid IP in spec.loadBalancerIP: {text}");
            return Err(Unreadable::new(SPEC_ADDRESS, calico));
        };
        Ok(Some(address))
    }
}

impl Unreadable {
    fn new(field: &'static str, calico: String) -> Self {
        Self { field, calico }
    }
}

impl LoadBalancerController {
    /// The pools that the controller knows: those for LoadBalancers, even disabled ones.
    pub fn pools<'p>(self, all: impl Iterator<Item = &'p Pool>) -> Vec<&'p Pool> {
        let is_known = |pool: &&Pool| {
            pool.allows(PoolUse::LoadBalancer) && !(pool.deleting && self.leaves_deleted_pools)
        };
        all.filter(is_known).collect()
    }
}

#[derive(Clone, Copy)]
enum Family {
    V4,
    V6,
}

/// Reads a JSON list of CIDRs or names of pools. The errors are those of the controller.
fn named_pools(text: &str, pools: &[&Pool], family: Family) -> Result<Vec<IpNet>, String> {
    let names = json::string_list(text)?;
    names.iter().map(|name| named_pool(name, pools, family)).collect()
}

/// Finds the pool that an entry names, by CIDR or by name. The errors are those of the controller.
fn named_pool(entry: &str, pools: &[&Pool], family: Family) -> Result<IpNet, String> {
    let mut cidr = cidr::parse_pool(entry);
    if cidr.is_none() {
        let pool = pools.iter().find(|pool| pool.name == entry);
        cidr = pool.map(|pool| pool.cidr);
    }
    let Some(cidr) = cidr else {
        return Err(format!(
            "error parsing pool {entry:?}: invalid CIDR address: {entry}"
        ));
    };

    match (family, cidr) {
        (Family::V4, IpNet::V4(_)) | (Family::V6, IpNet::V6(_)) => Ok(cidr),
        (Family::V4, IpNet::V6(_)) => Err(format!("\"{}\" isn't a IPv4 address", cidr.addr())),
        (Family::V6, IpNet::V4(_)) => Err(format!("\"{}\" isn't a IPv6 address", cidr.addr())),
    }
}

/// Reads the addresses that a service names, at most one of each family. The errors are those of the controller.
fn named_addresses(text: &str) -> Result<Vec<IpAddr>, String> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for text in json::string_list(text)? {
        let Some(address) = cidr::parse_go_address(&text) else {
            return Err(format!("could not parse {text} as a valid IP address"));
        };
        addresses.push(address);
    }

    let v4 = addresses.iter().filter(|address| address.is_ipv4()).count();
    let v6 = addresses.len() - v4;
    if v4 > 1 || v6 > 1 {
        return Err(format!(
            "at max only one ipv4 and one ipv6 address can be specified. Received {v4} ipv4 and {v6} ipv6 addresses"
        ));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, cidr: &str) -> Pool {
        let json = format!(r#"{{"spec": {{"cidr": "{cidr}", "allowedUses": ["LoadBalancer"]}}}}"#);
        Pool::parse(name, json.as_bytes()).unwrap().value
    }

    #[test]
    fn pools_are_named_by_cidr_or_name() {
        let (v4, v6) = (pool("lb4", "10.99.0.0/22"), pool("lb6", "fd99::/118"));
        let request = |v4: &str, v6: Option<&str>| ServiceRequest {
            pools_v4: Some(v4.into()),
            pools_v6: v6.map(Into::into),
            ..ServiceRequest::default()
        };
        let wishes = |request: ServiceRequest| request.wishes(&[&v4, &v6]).map_err(|error| error.to_string());
        let both = wishes(request(r#"["lb4", "10.98.0.0/24"]"#, Some(r#"["lb6"]"#))).unwrap();
        let of_v4: Vec<IpNet> = ["10.99.0.0/22", "10.98.0.0/24"]
            .map(|cidr| cidr.parse().unwrap())
            .into();
        assert_eq!((both.pools_v4, both.pools_v6), (Some(of_v4), Some(vec![v6.cidr])));
        assert_eq!(wishes(request("null", None)).unwrap().pools_v4, Some(Vec::new()));
        for (text, error) in [
            (
                r#"["nope"]"#,
                r#"error parsing pool "nope": invalid CIDR address: nope"#,
            ),
            (r#"["lb6"]"#, r#""fd99::" isn't a IPv4 address"#),
            ("lb4", "invalid character 'l' looking for beginning of value"),
            ("", "unexpected end of JSON input"),
        ] {
            assert_eq!(wishes(request(text, None)), Err(error.to_owned()), "{text}");
        }
        let wrong = request("[]", Some(r#"["lb4"]"#)).wishes(&[&v4]).unwrap_err();
        assert_eq!(
            (wrong.field, wrong.calico.as_str()),
            (POOLS_V6, "\"10.99.0.0\" isn't a IPv6 address")
        );
    }

    #[test]
    fn a_service_names_at_most_one_address_of_each_family() {
        let wishes = |text: &str| {
            let addresses = Some(text.to_owned());
            ServiceRequest {
                addresses,
                ..ServiceRequest::default()
            }
            .wishes(&[])
            .map(|wishes| wishes.addresses)
        };
        let read = |texts: &[&str]| Ok(texts.iter().map(|text| text.parse().unwrap()).collect());
        assert_eq!(
            wishes(r#"["10.9.0.1", "fd99::1"]"#),
            read(&["10.9.0.1", "fd99::1"])
        );
        assert_eq!(wishes(r#"["::ffff:10.9.0.1"]"#), read(&["10.9.0.1"]));
        assert_eq!(wishes("[]"), read(&[]));
        assert_eq!(
            wishes(r#"["x"]"#).unwrap_err().calico,
            "could not parse x as a valid IP address"
        );
        let two = wishes(r#"["10.9.0.1", "10.9.0.2"]"#).unwrap_err().calico;
        assert!(two.ends_with("Received 2 ipv4 and 0 ipv6 addresses"), "{two}");
        let field = ServiceRequest {
            spec_address: "x".into(),
            ..ServiceRequest::default()
        };
        assert_eq!(
            field.spec_wish().unwrap_err().calico,
            "invalid IP in spec.loadBalancerIP: x"
        );
    }
}
