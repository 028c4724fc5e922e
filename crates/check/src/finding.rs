//! Findings: problem, subject and evidence.

mod evidence;
mod fleet;
mod no_address;
mod owner;
mod pool;

use std::fmt;
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::affinity::AffinityKey;
use calipam_model::key::Key;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

pub use self::evidence::*;
pub use self::fleet::*;
pub use self::no_address::{NoAddressEvidence, PassedOverEvidence, RefusalEvidence};
pub use self::owner::*;
pub use self::pool::*;
use crate::code::{Code, Severity};

/// The subject of a finding, in canonical form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    Address(IpAddr),
    Block(IpNet),
    Pool(IpNet),
    /// A handle, by its ID.
    Handle(String),
    /// An affinity: `node/CIDR`.
    Affinity {
        /// The node that holds the affinity.
        node: String,
        cidr: IpNet,
    },
    /// A workload endpoint or pod: `namespace/name`.
    Endpoint(String),
    /// A LoadBalancer service: `namespace/name`.
    Service(String),
    Node(String),
    /// A configuration object.
    Configuration(String),
    /// An object that cannot be decoded, by its key.
    Object(String),
    /// A cluster in a fleet, by its name there; or several nodes that get no address for the same reason, as
    /// `family/reason`.
    Cluster(String),
}

impl Subject {
    /// The kind of subject, in one word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Address(_) => "address",
            Self::Block(_) => "block",
            Self::Pool(_) => "pool",
            Self::Handle(_) => "handle",
            Self::Affinity { .. } => "affinity",
            Self::Endpoint(_) => "endpoint",
            Self::Service(_) => "service",
            Self::Node(_) => "node",
            Self::Configuration(_) => "configuration",
            Self::Object(_) => "object",
            Self::Cluster(_) => "cluster",
        }
    }

    /// The address, if the subject is one.
    pub fn address(&self) -> Option<IpAddr> {
        if let Self::Address(address) = self {
            Some(*address)
        } else {
            None
        }
    }

    /// The ID, if the subject is a handle.
    pub fn handle(&self) -> Option<&str> {
        if let Self::Handle(id) = self {
            Some(id)
        } else {
            None
        }
    }

    /// The subject of an affinity.
    pub fn affinity(key: &AffinityKey) -> Self {
        Self::Affinity {
            node: key.node.clone(),
            cidr: key.cidr,
        }
    }

    /// The address or CIDR of the subject, if it has one.
    pub fn network(&self) -> Option<IpNet> {
        match self {
            Self::Address(address) => Some((*address).into()),
            Self::Block(cidr) | Self::Pool(cidr) | Self::Affinity { cidr, .. } => Some(*cidr),
            _ => None,
        }
    }
}

impl fmt::Display for Subject {
    /// Writes the name of the object, in the form in which commands accept it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Block(cidr) | Self::Pool(cidr) => write!(f, "{cidr}"),
            Self::Affinity { node, cidr } => write!(f, "{node}/{cidr}"),
            Self::Handle(text)
            | Self::Endpoint(text)
            | Self::Service(text)
            | Self::Node(text)
            | Self::Configuration(text)
            | Self::Object(text)
            | Self::Cluster(text) => f.write_str(text),
        }
    }
}

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Subject", 2)?;
        object.serialize_field("kind", self.kind())?;
        object.serialize_field("name", &format_args!("{self}"))?;
        object.end()
    }
}

/// One finding. [`remedy`](Self::remedy) returns its repair, which the CLI describes in words.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub code: Code,
    pub severity: Severity,
    pub subject: Subject,
    /// The rule's message, without the address at its start if the finding is about an address.
    pub text: Box<str>,
    pub evidence: Evidence,
    /// The nodes that the finding concerns, ascending, for `--node`.
    pub nodes: Vec<String>,
    /// The objects that must be unchanged in the second read, since a half-done Calico operation could be about to
    /// change them. Empty if no such operation can explain the finding, which then counts at once.
    pub depends_on: Vec<Key>,
}

/// The identity of a finding in a report.
pub type FindingKey = (Code, Subject);

impl Finding {
    pub fn key(&self) -> FindingKey {
        (self.code, self.subject.clone())
    }

    pub fn key_ref(&self) -> (Code, &Subject) {
        (self.code, &self.subject)
    }

    /// Creates a finding with its usual severity, without nodes and without objects for a second read.
    pub fn new(code: Code, subject: Subject, text: impl Into<Box<str>>, evidence: Evidence) -> Self {
        Self {
            code,
            severity: code.severity(),
            subject,
            text: text.into(),
            evidence,
            nodes: Vec::new(),
            depends_on: Vec::new(),
        }
    }

    /// True if the finding's subject, a user of its address or a recorded owner is in the namespace.
    pub fn concerns_namespace(&self, namespace: &str) -> bool {
        if let Subject::Endpoint(name) | Subject::Service(name) = &self.subject
            && is_in_namespace(name, namespace)
        {
            return true;
        }
        match &self.evidence {
            Evidence::Address(evidence) => {
                let mut users = evidence.owners.iter();
                let mut records = evidence.records.iter();
                users.any(|user| is_user_in_namespace(user, namespace))
                    || records.any(|record| names_namespace(record, namespace))
            }
            Evidence::Endpoint(user) => is_user_in_namespace(user, namespace),
            _ => false,
        }
    }

    /// The message in one line.
    pub fn message(&self) -> String {
        self.to_string()
    }

    /// The message, without the address at its start if the finding is about an address.
    pub fn text(&self) -> String {
        if let Evidence::Address(evidence) = &self.evidence
            && let Some(last) = &evidence.last_in_use
        {
            return format!(
                "{}; last seen in use at {:.0}, by {}",
                self.text, last.at, last.by
            );
        }
        self.text.to_string()
    }

    /// Adds nodes that the finding concerns.
    pub fn on_nodes<T: Into<String>>(mut self, nodes: impl IntoIterator<Item = T>) -> Self {
        self.nodes.extend(nodes.into_iter().map(Into::into));
        self.nodes.sort();
        self.nodes.dedup();
        // A cluster can have a hundred thousand findings, so unused capacity would take much memory.
        self.nodes.shrink_to_fit();
        self
    }

    /// Adds objects that must be unchanged in the second read.
    pub fn depending_on(mut self, keys: impl IntoIterator<Item = Key>) -> Self {
        self.depends_on.extend(keys);
        self.depends_on.shrink_to_fit();
        self
    }

    /// Sets a severity that depends on the state. The table of codes names the rules that do this.
    pub(crate) fn with_severity(mut self, severity: Severity) -> Self {
        debug_assert!(
            self.code.has_other_severities(),
            "{} has one severity",
            self.code.name()
        );
        self.severity = severity;
        self
    }

    /// The addresses that the subject and the evidence name.
    pub fn addresses(&self) -> Vec<IpAddr> {
        match (&self.subject, &self.evidence) {
            (Subject::Address(address), _) => vec![*address],
            (_, Evidence::Handle(handle)) => handle.addresses.clone(),
            (_, Evidence::Endpoint(endpoint)) => endpoint.addresses().collect(),
            _ => Vec::new(),
        }
    }

    /// Adds the last use of the finding's address.
    pub fn note_last_use(&mut self, last: LastInUse) {
        if let Evidence::Address(evidence) = &mut self.evidence {
            evidence.last_in_use = Some(Box::new(last));
        }
    }

    /// True for a leaked address whose record names no owner. Only a person can decide whether to release such an
    /// address.
    pub fn is_owner_unknown(&self) -> bool {
        matches!(&self.evidence, Evidence::Address(evidence) if evidence.is_owner_unknown())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Subject::Address(address) = &self.subject {
            write!(f, "{address} ")?;
        }
        f.write_str(&self.text())
    }
}

impl Serialize for Finding {
    /// Writes the fields of a finding that reports contain.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Finding", 5)?;
        object.serialize_field("code", &self.code)?;
        object.serialize_field("severity", &self.severity)?;
        object.serialize_field("subject", &self.subject)?;
        object.serialize_field("message", &format_args!("{self}"))?;
        object.serialize_field("evidence", &self.evidence)?;
        object.end()
    }
}

/// Returns true if `name` is `namespace/…`.
fn is_in_namespace(name: &str, namespace: &str) -> bool {
    match name.split_once('/') {
        Some((first, _)) => first == namespace,
        None => false,
    }
}

/// Returns true if the user of an address, or its pod, is in the namespace.
fn is_user_in_namespace(user: &OwnerEvidence, namespace: &str) -> bool {
    // Nodes and tunnels are named by the node alone.
    let has_namespace = !matches!(user.kind, OwnerKind::Node | OwnerKind::Tunnel);
    has_namespace && is_in_namespace(&user.name, namespace) || is_in_namespace(&user.pod, namespace)
}

/// Returns true if the active or the alternate owner of a recorded address is in the namespace.
fn names_namespace(record: &RecordEvidence, namespace: &str) -> bool {
    let record = record.record.as_ref();
    let owners = [Some(record.owner()), record.alternate()];
    owners
        .into_iter()
        .flatten()
        .any(|owner| owner.get("namespace").is_some_and(|name| name == *namespace))
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use calipam_model::affinity::{AffinityState, AffinityType};
    use calipam_model::attributes::Attribute;
    use calipam_model::block::BlockOwner;
    use calipam_model::node::TunnelKind;
    use serde_json::{json, to_value};

    use super::*;

    fn record() -> RecordEvidence {
        RecordEvidence {
            block: "10.244.1.0/26".parse().unwrap(),
            block_owner: None,
            ordinal: 1,
            record: Attribute::default().into(),
            sequence_number: u64::MAX,
        }
    }

    #[test]
    fn missing_record_fields_are_null_or_left_out_and_the_sequence_number_is_a_string() {
        let expected = json!({
            "block": "10.244.1.0/26", "blockOwner": null, "ordinal": 1, "handle": null, "attributes": {},
            "sequenceNumber": "18446744073709551615",
        });
        assert_eq!(to_value(record()).unwrap(), expected);
        let odd = RecordEvidence {
            block_owner: Some(BlockOwner::Other("unknown".into())),
            record: Attribute {
                released_at: Some("yesterday".into()),
                ..Attribute::default()
            }
            .into(),
            ..record()
        };
        let written = to_value(odd).unwrap();
        let wanted = (&json!("unknown"), &json!("yesterday"));
        assert_eq!((&written["blockOwner"], &written["releasedAt"]), wanted);
    }

    #[test]
    fn owners_name_addresses_or_the_field_of_a_tunnel() {
        let pod = OwnerEvidence {
            fields: vec![OwnerField::Address("fd00::1".parse().unwrap())],
            ..OwnerEvidence::new(OwnerKind::Pod, "default/a".into())
        };
        let expected = json!({"kind": "pod", "name": "default/a", "fields": ["fd00::1"]});
        assert_eq!(to_value(&pod).unwrap(), expected);
        assert_eq!(pod.addresses().count(), 1);
        let tunnel = OwnerField::Tunnel(TunnelKind::Vxlan);
        assert_eq!(to_value(tunnel).unwrap(), json!("spec.ipv4VXLANTunnelAddr"));
        let order = [
            OwnerKind::Endpoint,
            OwnerKind::Node,
            OwnerKind::Pod,
            OwnerKind::Service,
            OwnerKind::Tunnel,
        ];
        assert!(order.is_sorted_by_key(|kind| (*kind, kind.to_string())));
    }

    #[test]
    fn numbers_beyond_64_bits_and_pairs_are_strings() {
        let cidr = "fd00::/48".parse().unwrap();
        let others = vec![format!("other {cidr}")];
        let pool = PoolEvidence {
            name: "v6".into(),
            others,
            in_use: Some(1 << 70),
            ..PoolEvidence::default()
        };
        let expected =
            json!({"name": "v6", "others": ["other fd00::/48"], "inUse": "1180591620717411303424"});
        assert_eq!(to_value(pool).unwrap(), expected);
        let node = NodePoolEvidence {
            limit: 7,
            ..NodePoolEvidence::default()
        };
        let expected = json!({"pool": "", "blocks": 0, "limit": 7});
        assert_eq!(to_value(node).unwrap(), expected);
        let key = AffinityKey {
            kind: AffinityType::Host,
            node: "node-1".into(),
            cidr,
        };
        let block = BlockEvidence {
            others: vec![cidr.to_string(), key.to_string()],
            pools: vec!["v6 /122".to_owned()],
            ..BlockEvidence::default()
        };
        let expected =
            json!({"owner": null, "others": ["fd00::/48", "node-1/fd00::/48"], "pools": ["v6 /122"]});
        assert_eq!(to_value(block).unwrap(), expected);
    }

    #[test]
    fn affinities_keep_values_that_calico_never_writes() {
        let evidence = AffinityEvidence {
            kind: AffinityType::Other("@".into()),
            state: AffinityState::PendingDeletion,
            block_exists: false,
            block_owner: None,
            revision: "7".into(),
        };
        let expected = json!({
            "type": "@", "state": "pendingDeletion", "blockExists": false, "blockOwner": null, "revision": "7",
        });
        assert_eq!(to_value(evidence).unwrap(), expected);
    }

    #[test]
    fn the_text_of_a_finding_leaves_the_address_out() {
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let evidence = Evidence::Address(Box::default());
        let subject = Subject::Address(address);
        let text = "allocated to a, which is gone";
        let mut finding = Finding::new(Code::LeakedAddress, subject, text, evidence);
        assert_eq!(finding.message(), "10.0.0.1 allocated to a, which is gone");
        assert_eq!(finding.text(), "allocated to a, which is gone");
        assert!(!finding.is_owner_unknown());
        let at = "2026-05-01T12:00:00Z".parse().unwrap();
        finding.note_last_use(LastInUse {
            at,
            by: "b".into(),
            not_at: at,
        });
        let seen = "; last seen in use at 2026-05-01T12:00:00Z, by b";
        assert_eq!(finding.message(), format!("10.0.0.1 {text}{seen}"));
    }
}
