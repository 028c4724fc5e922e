//! ADD's result in the format of each version (facts of the plugin, section 12).

use calipam_assign::plugin::Added;
use ipnet::IpNet;
use serde::Serialize;

use super::{CniError, Version, to_json};

/// Returns ADD's result as the text for stdout, in the format of a protocol version.
///
/// # Errors
/// In the oldest versions, if there is no address because none was requested.
pub fn print(added: &Added, version: Version) -> Result<Vec<u8>, CniError> {
    let mut printed = Printed {
        cni_version: version.text(),
        ..Printed::default()
    };
    // Until 0.4.0, each address names its family, and the result has a field for DNS.
    let is_before_1_0_0 = version <= Version::V0_4_0;
    if is_before_1_0_0 {
        printed.dns = Some(Empty {});
    }

    if version <= Version::V0_2_0 {
        if added.addresses.is_empty() {
            return Err(CniError::internal("cannot convert: no valid IP addresses"));
        }
        // Only the first address of each family has a place.
        for address in &added.addresses {
            let of_family = if address.addr().is_ipv4() {
                &mut printed.ip4
            } else {
                &mut printed.ip6
            };
            of_family.get_or_insert_with(|| OfFamily {
                ip: *address,
                routes: routes_to(*address, added),
            });
        }
        return Ok(to_json(&printed));
    }

    for address in &added.addresses {
        let family = if address.addr().is_ipv4() { "4" } else { "6" };
        printed.ips.push(Ip {
            version: if is_before_1_0_0 { Some(family) } else { None },
            address: *address,
        });
        printed.routes.extend(routes_to(*address, added));
    }
    Ok(to_json(&printed))
}

/// Returns the route to an address that receives traffic.
fn routes_to(address: IpNet, added: &Added) -> Vec<Route> {
    if added.is_routed {
        vec![Route { dst: address }]
    } else {
        Vec::new()
    }
}

/// The result in the format of any version.
#[derive(Default, Serialize)]
struct Printed {
    #[serde(rename = "cniVersion")]
    cni_version: &'static str,
    /// The first address of each family, in versions 0.1.0 and 0.2.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    ip4: Option<OfFamily>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip6: Option<OfFamily>,
    /// All addresses, in later versions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<Ip>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
    /// An empty object, before version 1.0.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    dns: Option<Empty>,
}

#[derive(Serialize)]
struct OfFamily {
    ip: IpNet,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
}

#[derive(Serialize)]
struct Ip {
    /// `4` or `6`, in versions 0.3.0 to 0.4.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    address: IpNet,
}

#[derive(Serialize)]
struct Route {
    dst: IpNet,
}

#[derive(Serialize)]
struct Empty {}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn result() -> Added {
        let address = |ip: &str, prefix| IpNet::new(ip.parse().unwrap(), prefix).unwrap();
        let addresses = vec![address("10.7.0.2", 29), address("fd00:7::1", 125)];
        Added {
            addresses,
            is_routed: true,
        }
    }

    fn printed(result: &Added, version: Version) -> Value {
        serde_json::from_slice(&print(result, version).unwrap()).unwrap()
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
        let nothing = Added {
            addresses: Vec::new(),
            is_routed: false,
        };
        assert_eq!(printed(&nothing, Version::V1_0_0), json!({"cniVersion": "1.0.0"}));
        let expected = json!({"cniVersion": "0.3.1", "dns": {}});
        assert_eq!(printed(&nothing, Version::V0_3_1), expected);
        let target = Added {
            is_routed: false,
            ..result()
        };
        assert_eq!(printed(&target, Version::V1_0_0)["routes"], Value::Null);
        assert_eq!(
            printed(&target, Version::V0_2_0)["ip4"],
            json!({"ip": "10.7.0.2/29"})
        );
    }

    #[test]
    fn the_text_is_calicos() {
        let one = Added {
            addresses: vec!["10.7.0.2/32".parse().unwrap()],
            is_routed: true,
        };
        let text = String::from_utf8(print(&one, Version::V0_3_1).unwrap()).unwrap();
        let start =
            "{\n    \"cniVersion\": \"0.3.1\",\n    \"ips\": [\n        {\n            \"version\": \"4\",";
        assert!(
            text.starts_with(start) && text.ends_with("\"dns\": {}\n}"),
            "{text}"
        );
    }
}
