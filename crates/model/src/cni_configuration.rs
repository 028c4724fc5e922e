//! The CNI configuration of a node, in a file such as `/etc/cni/net.d/10-calico.conflist` (facts of the plugin, section
//! 3). It is not in the datastore.

use serde::Deserialize;

use crate::DecodeError;

/// The parts of a node's CNI configuration that decide about the addresses of pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CniConfiguration {
    /// True for IPv4 and IPv6 if the configuration asks for an address (`ipam.assign_ipv4`, `ipam.assign_ipv6`).
    pub families: [bool; 2],
    /// `ipam.ipv4_pools` and `ipam.ipv6_pools`: names and CIDRs, for pods that name no pools themselves.
    pub pools: [Vec<String>; 2],
    /// `feature_control.ip_addrs_no_ipam`, which is off by default.
    pub allows_no_ipam: bool,
    /// `feature_control.floating_ips`, which is off by default.
    pub allows_floating: bool,
    /// `windows_use_single_network`, which Calico reads on every system: true if the node may have one block of each
    /// family. `None` if the configuration is not known.
    pub single_block: Option<bool>,
}

impl Default for CniConfiguration {
    /// Calico's default: one IPv4 address of any pool, and no feature that has to be switched on.
    fn default() -> Self {
        Self {
            families: [true, false],
            pools: Default::default(),
            allows_no_ipam: false,
            allows_floating: false,
            single_block: None,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Network {
    #[serde(rename = "type")]
    kind: String,
    ipam: Ipam,
    feature_control: Features,
    windows_use_single_network: bool,
    /// The plugins of a list; empty for the configuration of a single plugin.
    plugins: Vec<Network>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Ipam {
    #[serde(rename = "type")]
    kind: String,
    assign_ipv4: Option<String>,
    assign_ipv6: Option<String>,
    ipv4_pools: Option<Vec<String>>,
    ipv6_pools: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Features {
    ip_addrs_no_ipam: bool,
    floating_ips: bool,
}

impl CniConfiguration {
    /// Reads a network configuration, or a list with Calico's plugin in it.
    ///
    /// # Errors
    /// If the text is not JSON, a field has the wrong type, or Calico's plugin or its IPAM is not in it.
    pub fn parse(json: &[u8]) -> Result<Self, DecodeError> {
        let mut network: Network = serde_json::from_slice(json)?;
        let plugins = std::mem::take(&mut network.plugins);
        let mut candidates = std::iter::once(network).chain(plugins);
        let Some(calico) = candidates.find(|plugin| plugin.kind == "calico") else {
            return Err(DecodeError("it has no plugin of type `calico`".to_owned()));
        };
        let ipam = calico.ipam;
        if ipam.kind != "calico-ipam" {
            return Err(DecodeError(format!(
                "`ipam.type` is {:?}, not `calico-ipam`",
                ipam.kind
            )));
        }

        Ok(Self {
            families: [
                ipam.assign_ipv4.as_deref() != Some("false"),
                ipam.assign_ipv6.as_deref() == Some("true"),
            ],
            pools: [
                ipam.ipv4_pools.unwrap_or_default(),
                ipam.ipv6_pools.unwrap_or_default(),
            ],
            allows_no_ipam: calico.feature_control.ip_addrs_no_ipam,
            allows_floating: calico.feature_control.floating_ips,
            single_block: Some(calico.windows_use_single_network),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_single_plugins_are_read() {
        let plugin = r#"{"type":"calico","ipam":{"type":"calico-ipam","assign_ipv6":"true","ipv4_pools":["a"]},
            "feature_control":{"floating_ips":true},"windows_use_single_network":true}"#;
        let expected = CniConfiguration {
            families: [true, true],
            pools: [vec!["a".to_owned()], vec![]],
            allows_no_ipam: false,
            allows_floating: true,
            single_block: Some(true),
        };
        assert_eq!(CniConfiguration::parse(plugin.as_bytes()).unwrap(), expected);
        let list = format!(r#"{{"name":"k8s-pod-network","plugins":[{plugin},{{"type":"portmap"}}]}}"#);
        assert_eq!(CniConfiguration::parse(list.as_bytes()).unwrap(), expected);
        let plain = br#"{"type":"calico","ipam":{"type":"calico-ipam"}}"#;
        let by_default = CniConfiguration {
            single_block: Some(false),
            ..CniConfiguration::default()
        };
        assert_eq!(CniConfiguration::parse(plain).unwrap(), by_default);
    }

    #[test]
    fn other_configurations_are_refused() {
        for (text, reason) in [
            (
                r#"{"plugins":[{"type":"flannel"}]}"#,
                "no plugin of type `calico`",
            ),
            (
                r#"{"type":"calico","ipam":{"type":"host-local"}}"#,
                "`ipam.type` is \"host-local\"",
            ),
            (
                r#"{"type":"calico","ipam":{"type":"calico-ipam","assign_ipv6":true}}"#,
                "invalid type",
            ),
            ("x", "expected value"),
        ] {
            let error = CniConfiguration::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
