//! IP pools and IP reservations (facts 1.7, 1.8).

use ipnet::IpNet;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::DecodeError;
use crate::cidr;
use crate::resource::{Metadata, Parsed, read};
use crate::selector::{Selector, SelectorError};
use crate::stored::FieldDefect;

/// A permitted use of a pool's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolUse {
    /// Pods.
    Workload,
    /// Node tunnels.
    Tunnel,
    /// LoadBalancer services; never combined with other uses.
    LoadBalancer,
}

impl PoolUse {
    /// The name in `allowedUses`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Workload => "Workload",
            Self::Tunnel => "Tunnel",
            Self::LoadBalancer => "LoadBalancer",
        }
    }

    /// The use with this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Workload, Self::Tunnel, Self::LoadBalancer]
            .into_iter()
            .find(|known| known.name() == name)
    }
}

/// The annotation in which a temporary pool stores its [`Successor`] as JSON.
pub const TEMPORARY_FOR: &str = "calipam.io/temporary-for";

/// The pool that follows a temporary one: everything that uses the temporary pool moves there in the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Successor {
    pub name: String,
    pub cidr: IpNet,
    pub block_size: u8,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub name: String,
    pub cidr: IpNet,
    /// The CIDR as it is stored, if that is not how [`Self::cidr`] is printed.
    pub spelling: Option<Box<str>>,
    /// Prefix length of new blocks: 26 and 122 by default. It can be longer than an address
    /// ([`Self::has_impossible_blocks`]).
    pub block_size: u8,
    /// `spec.disabled`.
    pub disabled: bool,
    /// True if `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// The reason in the condition `Allocatable` if the condition is false, such as `CIDROverlap` (Calico 3.32 and
    /// later); empty if it has none. `None` if Calico may allocate from the pool.
    pub not_allocatable: Option<String>,
    /// Selects the nodes that may use the pool; `all()` by default.
    pub node_selector: String,
    /// Selects the namespaces that may use the pool; empty for all (Calico 3.31 and later).
    pub namespace_selector: String,
    /// The permitted uses of the pool's addresses.
    pub allowed_uses: Vec<PoolUse>,
    /// True if `assignmentMode` is `Automatic` or absent: addresses are assigned even to requests that do not name the
    /// pool.
    pub automatic: bool,
    /// `ipipMode` and `vxlanMode`: true if nodes send packets to the pool's addresses through tunnels, always or across
    /// subnets.
    pub ipip: bool,
    pub vxlan: bool,
    pub created: Option<Timestamp>,
    /// The pool that follows this one, if it is a temporary pool from `migrate`.
    pub temporary_for: Option<Successor>,
}

impl Pool {
    /// Reads a pool's JSON; the name comes from the key.
    ///
    /// # Errors
    /// If the text is not JSON, a field has the wrong type, or `cidr` or `blockSize` is invalid.
    pub fn parse(name: &str, json: &[u8]) -> Result<Parsed<Self>, DecodeError> {
        let (metadata, spec, status) = read::<PoolSpec>(json)?;
        let text = spec.cidr.ok_or_else(|| DecodeError::missing("spec.cidr"))?;
        // Calico ignores a pool whose CIDR has no prefix length.
        let cidr = cidr::parse_pool(&text);
        let cidr = cidr.ok_or_else(|| DecodeError::not_a_cidr("spec.cidr", &text))?;
        let default_size = if cidr::is_v4(cidr) { 26 } else { 122 };
        let block_size = match spec.block_size.unwrap_or(0) {
            0 => default_size,
            size => u8::try_from(size).map_err(|_| {
                DecodeError(format!(
                    "`spec.blockSize` is {size}, which is not a prefix length"
                ))
            })?,
        };
        let conditions = status.conditions.unwrap_or_default();
        let refusal = conditions.iter().find(|condition| {
            condition.kind.as_deref() == Some("Allocatable") && condition.status.as_deref() == Some("False")
        });
        let mut defects = Vec::new();
        let temporary_for = read_successor(&metadata, &mut defects);
        let value = Self {
            name: name.to_owned(),
            cidr,
            spelling: Some(text)
                .filter(|text| *text != cidr.to_string())
                .map(String::into_boxed_str),
            block_size,
            disabled: spec.disabled.unwrap_or(false),
            deleting: metadata.deletion_timestamp.is_some(),
            not_allocatable: refusal.map(|condition| condition.reason.clone().unwrap_or_default()),
            node_selector: spec
                .node_selector
                .filter(|selector| !selector.is_empty())
                .unwrap_or_else(|| "all()".to_owned()),
            namespace_selector: spec.namespace_selector.unwrap_or_default(),
            allowed_uses: parse_uses(spec.allowed_uses.unwrap_or_default()),
            automatic: spec.assignment_mode.is_none_or(|mode| mode == "Automatic"),
            ipip: is_encapsulated(spec.ipip_mode),
            vxlan: is_encapsulated(spec.vxlan_mode),
            created: metadata.created(),
            temporary_for,
        };
        if value.has_impossible_blocks() {
            let reason = format!("{block_size} is not a prefix length of the pool's addresses");
            defects.push(FieldDefect::new("spec.blockSize", reason));
        }
        Ok(Parsed {
            value,
            defects,
            created: metadata.created(),
        })
    }

    /// The CIDR as Calico prints it in messages about the pool.
    pub fn stored_cidr(&self) -> String {
        match &self.spelling {
            Some(text) => text.to_string(),
            None => self.cidr.to_string(),
        }
    }

    /// True if Calico allocates from the pool: it is allocatable, and neither disabled nor being deleted.
    pub fn is_enabled(&self) -> bool {
        !self.disabled && !self.deleting && self.not_allocatable.is_none()
    }

    /// True if the prefix length of the pool's blocks is longer than an address. Calico's allocator uses the blocks that
    /// such a pool has, and crashes when it wants another one.
    pub fn has_impossible_blocks(&self) -> bool {
        self.block_size > self.cidr.max_prefix_len()
    }

    /// True if the pool is too small for even one block.
    pub fn is_smaller_than_block(&self) -> bool {
        self.block_size < self.cidr.prefix_len()
    }

    /// The nodes that get addresses from the pool if a request names no pool.
    ///
    /// # Errors
    /// If the selector does not parse. Calico then refuses every request that names no pool.
    pub fn selected_nodes(&self) -> Result<Selector, SelectorError> {
        Selector::parse(&self.node_selector)
    }

    /// The namespaces whose pods get addresses from the pool if a request names no pool.
    ///
    /// # Errors
    /// As in [`Self::selected_nodes`].
    pub fn selected_namespaces(&self) -> Result<Selector, SelectorError> {
        Selector::parse(&self.namespace_selector)
    }

    /// True if the pool serves only pods of namespaces with certain labels.
    pub fn selects_namespaces(&self) -> bool {
        !self.namespace_selector.is_empty()
    }

    /// True if the pool permits the use.
    pub fn allows(&self, wanted: PoolUse) -> bool {
        self.allowed_uses.contains(&wanted)
    }
}

fn is_encapsulated(mode: Option<String>) -> bool {
    mode.is_some_and(|mode| mode == "Always" || mode == "CrossSubnet")
}

/// Reads the annotation of a temporary pool; `None` if there is none. One that cannot be read is a defect.
fn read_successor(metadata: &Metadata, defects: &mut Vec<FieldDefect>) -> Option<Successor> {
    let text = metadata.annotation(TEMPORARY_FOR)?;
    match serde_json::from_str(&text) {
        Ok(successor) => Some(successor),
        Err(error) => {
            let reason = format!("{TEMPORARY_FOR}: {error}");
            defects.push(FieldDefect::new("metadata.annotations", reason));
            None
        }
    }
}

fn parse_uses(texts: Vec<String>) -> Vec<PoolUse> {
    if texts.is_empty() {
        return vec![PoolUse::Workload, PoolUse::Tunnel];
    }
    texts.iter().filter_map(|text| PoolUse::parse(text)).collect()
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PoolSpec {
    cidr: Option<String>,
    block_size: Option<i64>,
    disabled: Option<bool>,
    node_selector: Option<String>,
    namespace_selector: Option<String>,
    allowed_uses: Option<Vec<String>>,
    assignment_mode: Option<String>,
    ipip_mode: Option<String>,
    vxlan_mode: Option<String>,
    /// Read only because Calico, too, cannot decode a pool in which it has another type.
    #[serde(rename = "natOutgoing")]
    _nat_outgoing: Option<bool>,
    /// Read for the same reason.
    #[serde(rename = "disableBGPExport")]
    _disable_bgp_export: Option<bool>,
}

/// An IP reservation: addresses that are not assigned automatically.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    pub name: String,
    /// The reserved addresses.
    pub cidrs: Vec<IpNet>,
}

impl Reservation {
    /// Reads a reservation's JSON; the name comes from the key. Omits and reports entries that are not CIDRs.
    pub fn parse(name: &str, json: &[u8]) -> Result<Parsed<Self>, DecodeError> {
        #[derive(Default, Deserialize)]
        struct Spec {
            #[serde(rename = "reservedCIDRs")]
            reserved: Option<Vec<String>>,
        }
        let (metadata, spec, _) = read::<Spec>(json)?;
        let mut cidrs = Vec::new();
        let mut defects = Vec::new();
        for text in spec.reserved.unwrap_or_default() {
            // Calico silently ignores empty entries.
            if text.trim().is_empty() {
                continue;
            }
            if let Some(cidr) = cidr::parse_reserved(&text) {
                cidrs.push(cidr);
            } else {
                let reason = format!("{text:?} is not a CIDR");
                defects.push(FieldDefect::new("spec.reservedCIDRs", reason));
            }
        }
        Ok(Parsed {
            value: Self {
                name: name.to_owned(),
                cidrs,
            },
            defects,
            created: metadata.created(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_with_impossible_blocks_is_a_pool() {
        let parse = |spec: &str| Pool::parse("p", format!(r#"{{"spec":{spec}}}"#).as_bytes());
        let parsed = parse(r#"{"cidr":"10.0.0.0/16","blockSize":122}"#).unwrap();
        assert!(parsed.value.has_impossible_blocks());
        let fields: Vec<&str> = parsed
            .defects
            .iter()
            .map(|defect| defect.field.as_str())
            .collect();
        assert_eq!(
            (parsed.value.block_size, &fields[..]),
            (122, &["spec.blockSize"][..])
        );

        let parsed = parse(r#"{"cidr":"FD00::/112","blockSize":122}"#).unwrap();
        assert!(!parsed.value.has_impossible_blocks() && parsed.defects.is_empty());
        assert_eq!(parsed.value.stored_cidr(), "FD00::/112");
        for size in [-1, 256] {
            let spec = format!(r#"{{"cidr":"10.0.0.0/16","blockSize":{size}}}"#);
            assert!(parse(&spec).is_err(), "{size}");
        }
    }
}
