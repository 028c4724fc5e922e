//! Addresses in a pod's status and annotations.

use std::collections::HashMap;
use std::net::IpAddr;

use serde_json::Value;

use super::{PodParts, evidence};
use crate::cidr;
use crate::json::string_list;
use crate::stored::FieldDefect;

/// The number of addresses up to which a scan is faster than a lookup.
const FEW: usize = 16;

/// The addresses in a pod object, each with the sources that name it.
#[derive(Default)]
pub(super) struct Named {
    pub addresses: Vec<(IpAddr, evidence::Bits)>,
    /// The position of each address, once there are many.
    positions: HashMap<IpAddr, usize>,
    pub defects: Vec<FieldDefect>,
}

impl Named {
    /// Adds the addresses that a pod names, with the field that names each of them.
    pub(super) fn read(&mut self, parts: &PodParts<'_>) {
        if parts.status_ips.is_empty() {
            self.add_list("status.podIP", parts.status_ip, evidence::STATUS);
        }
        for ip in &parts.status_ips {
            self.add_list("status.podIPs", ip, evidence::STATUS);
        }
        let cni_ips = parts
            .cni_ips
            .filter(|ips| !ips.is_empty())
            .or(parts.cni_ip)
            .unwrap_or("");
        self.add_list("cni.projectcalico.org/podIPs", cni_ips, evidence::CNI);
        self.add_list(
            "vpc.amazonaws.com/pod-ips",
            parts.aws_ips.unwrap_or(""),
            evidence::AWS,
        );
        let annotations = &parts.request.annotations;
        self.add_requested(&annotations.no_ipam, evidence::NO_IPAM);
        self.add_requested(
            annotations.floating.as_deref().unwrap_or_default(),
            evidence::FLOATING,
        );
        self.add_network_status("k8s.v1.cni.cncf.io/network-status", parts.network_status);
        self.add_network_status("k8s.v1.cni.cncf.io/networks-status", parts.networks_status);
    }

    /// Adds the addresses of a list with commas. Reports `field` for each part of the list that is no address.
    fn add_list(&mut self, field: &str, list: &str, sources: evidence::Bits) {
        for text in list.split(',').map(str::trim) {
            if text.is_empty() {
                continue;
            }
            if let Some(address) = cidr::parse_address(text) {
                self.add_address(address, sources);
            } else {
                let reason = format!("{text:?} is not an address");
                self.defects.push(FieldDefect::new(field, reason));
            }
        }
    }

    /// Adds the addresses in an annotation of Multus. The field is reported if it cannot be read.
    fn add_network_status(&mut self, field: &str, json: Option<&str>) {
        let Some(json) = json.filter(|json| !json.trim().is_empty()) else {
            return;
        };
        let networks: Value = match serde_json::from_str(json) {
            Ok(networks) => networks,
            Err(error) => {
                let reason = format!("not JSON: {error}");
                self.defects.push(FieldDefect::new(field, reason));
                return;
            }
        };
        for (text, sources) in ips_of(&networks) {
            self.add_list(field, text, sources);
        }
    }

    /// Adds the addresses that a pod requests with an annotation, which contains a JSON list of strings. Adds nothing if
    /// the annotation is no such list: Calico then refuses the pod, so the pod uses none of them.
    fn add_requested(&mut self, annotation: &str, sources: evidence::Bits) {
        let Ok(texts) = string_list(annotation) else {
            return;
        };
        for text in texts {
            if let Some(address) = cidr::parse_address(&text) {
                self.add_address(address, sources);
            }
        }
    }

    /// Adds an address, or further sources that name it.
    fn add_address(&mut self, address: IpAddr, sources: evidence::Bits) {
        if let Some(position) = self.position_of(address) {
            let (_, all_sources) = &mut self.addresses[position];
            *all_sources |= sources;
            return;
        }
        if !self.positions.is_empty() {
            self.positions.insert(address, self.addresses.len());
        }
        self.addresses.push((address, sources));
    }

    /// Returns the position of an address; `None` if it was not added yet. A pod has one or two, but an annotation can
    /// name tens of thousands, which are searched by a map.
    fn position_of(&mut self, address: IpAddr) -> Option<usize> {
        if self.addresses.len() < FEW {
            return self.addresses.iter().position(|(added, _)| *added == address);
        }
        if self.positions.is_empty() {
            for (position, (added, _)) in self.addresses.iter().enumerate() {
                self.positions.insert(*added, position);
            }
        }
        self.positions.get(&address).copied()
    }
}

/// The `ips` of every object in a JSON list. The default network's entry repeats the pod's addresses.
fn ips_of(networks: &Value) -> Vec<(&str, evidence::Bits)> {
    let mut ips = Vec::new();
    for network in networks.as_array().into_iter().flatten() {
        let is_default = network["default"].as_bool() == Some(true);
        let sources = if is_default {
            evidence::NETWORK_STATUS
        } else {
            evidence::NETWORK_STATUS | evidence::SECONDARY
        };
        let texts = network["ips"].as_array().into_iter().flatten();
        for text in texts.filter_map(Value::as_str) {
            ips.push((text, sources));
        }
    }
    ips
}
