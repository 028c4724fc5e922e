//! ADD's result in the format of each version (facts of the plugin, section 12).

use std::net::IpAddr;

use serde::Serialize;

use super::{CniError, Version, to_json};

/// An address with its prefix length. Host bits are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub ip: IpAddr,
    pub prefix: u8,
}

impl Address {
    /// An address on its own: /32 or /128.
    pub fn single(ip: IpAddr) -> Self {
        Self { ip, prefix: if ip.is_ipv4() { 32 } else { 128 } }
    }

    fn text(self) -> String {
        format!("{}/{}", self.ip, self.prefix)
    }
}

/// The addresses that the container gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpamResult {
    /// IPv4 first.
    pub addresses: Vec<Address>,
    /// False for the target of a live migration, which does not get traffic yet.
    pub routed: bool,
}

impl IpamResult {
    pub fn routed(addresses: Vec<Address>) -> Self {
        Self { addresses, routed: true }
    }

    /// Checks that the result can be printed in the format of a version.
    ///
    /// # Errors
    /// In the oldest versions, if there is no address because none was requested.
    pub fn check(&self, version: Version) -> Result<(), CniError> {
        if self.addresses.is_empty() && version <= Version::V0_2_0 {
            return Err(CniError::internal("cannot convert: no valid IP addresses"));
        }
        Ok(())
    }

    /// Returns the text for stdout.
    pub fn print(&self, version: Version) -> Vec<u8> {
        match version {
            Version::V0_1_0 | Version::V0_2_0 => to_json(&self.by_family(version)),
            Version::V0_3_0 | Version::V0_3_1 | Version::V0_4_0 => to_json(&self.with_versions(version)),
            Version::V1_0_0 | Version::V1_1_0 => to_json(&self.listed(version)),
        }
    }

    fn routes(&self) -> Vec<Route> {
        let routed = self.addresses.iter().filter(|_| self.routed);
        routed.map(|address| Route { dst: address.text() }).collect()
    }

    fn listed(&self, version: Version) -> Listed {
        let ips = self.addresses.iter().map(|address| Bare { address: address.text() }).collect();
        Listed { cni_version: version.text(), ips, routes: self.routes() }
    }

    fn with_versions(&self, version: Version) -> WithVersions {
        let family = |ip: IpAddr| if ip.is_ipv4() { "4" } else { "6" };
        let ips = self.addresses.iter().map(|a| Versioned { version: family(a.ip), address: a.text() });
        WithVersions { cni_version: version.text(), ips: ips.collect(), routes: self.routes(), dns: Empty {} }
    }

    fn by_family(&self, version: Version) -> ByFamily {
        let family = |is_v4: bool| {
            let address = self.addresses.iter().find(|address| address.ip.is_ipv4() == is_v4)?;
            let routes = self.routed.then(|| Route { dst: address.text() });
            Some(Family { ip: address.text(), routes: routes.into_iter().collect() })
        };
        ByFamily { cni_version: version.text(), ip4: family(true), ip6: family(false), dns: Empty {} }
    }
}

#[derive(Serialize)]
struct Route {
    dst: String,
}

#[derive(Serialize)]
struct Empty {}

/// The format of version 1.0.0 and later.
#[derive(Serialize)]
struct Listed {
    #[serde(rename = "cniVersion")]
    cni_version: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<Bare>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
}

#[derive(Serialize)]
struct Bare {
    address: String,
}

/// The format of versions 0.3.0 to 0.4.0.
#[derive(Serialize)]
struct WithVersions {
    #[serde(rename = "cniVersion")]
    cni_version: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<Versioned>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
    dns: Empty,
}

#[derive(Serialize)]
struct Versioned {
    version: &'static str,
    address: String,
}

/// The format of versions 0.1.0 and 0.2.0.
#[derive(Serialize)]
struct ByFamily {
    #[serde(rename = "cniVersion")]
    cni_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip4: Option<Family>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip6: Option<Family>,
    dns: Empty,
}

#[derive(Serialize)]
struct Family {
    ip: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn result() -> IpamResult {
        let address = |ip: &str, prefix| Address { ip: ip.parse().unwrap(), prefix };
        IpamResult::routed(vec![address("10.7.0.2", 29), address("fd00:7::1", 125)])
    }

    fn printed(result: &IpamResult, version: Version) -> Value {
        serde_json::from_slice(&result.print(version)).unwrap()
    }

    #[test]
    fn each_version_has_its_form() {
        let routes = json!([{"dst": "10.7.0.2/29"}, {"dst": "fd00:7::1/125"}]);
        for version in [Version::V1_0_0, Version::V1_1_0] {
            let expected = json!({"cniVersion": version.text(),
                "ips": [{"address": "10.7.0.2/29"}, {"address": "fd00:7::1/125"}], "routes": routes});
            assert_eq!(printed(&result(), version), expected);
        }
        for version in [Version::V0_3_0, Version::V0_3_1, Version::V0_4_0] {
            let expected = json!({"cniVersion": version.text(), "dns": {}, "routes": routes,
                "ips": [{"version": "4", "address": "10.7.0.2/29"}, {"version": "6", "address": "fd00:7::1/125"}]});
            assert_eq!(printed(&result(), version), expected);
        }
        for version in [Version::V0_1_0, Version::V0_2_0] {
            let expected = json!({"cniVersion": version.text(), "dns": {},
                "ip4": {"ip": "10.7.0.2/29", "routes": [{"dst": "10.7.0.2/29"}]},
                "ip6": {"ip": "fd00:7::1/125", "routes": [{"dst": "fd00:7::1/125"}]}});
            assert_eq!(printed(&result(), version), expected);
        }
    }

    #[test]
    fn empty_fields_are_left_out() {
        assert_eq!(printed(&IpamResult::default(), Version::V1_0_0), json!({"cniVersion": "1.0.0"}));
        assert_eq!(
            printed(&IpamResult::default(), Version::V0_3_1),
            json!({"cniVersion": "0.3.1", "dns": {}})
        );
        let target = IpamResult { routed: false, ..result() };
        assert_eq!(printed(&target, Version::V1_0_0)["routes"], Value::Null);
        assert_eq!(printed(&target, Version::V0_2_0)["ip4"], json!({"ip": "10.7.0.2/29"}));
    }

    #[test]
    fn the_text_is_calicos() {
        let one = IpamResult::routed(vec![Address::single("10.7.0.2".parse().unwrap())]);
        let text = String::from_utf8(one.print(Version::V0_3_1)).unwrap();
        let start =
            "{\n    \"cniVersion\": \"0.3.1\",\n    \"ips\": [\n        {\n            \"version\": \"4\",";
        assert!(text.starts_with(start) && text.ends_with("\"dns\": {}\n}"), "{text}");
    }
}
