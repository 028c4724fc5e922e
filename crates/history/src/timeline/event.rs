//! The events of a history.

use calipam_check::Subject;
use calipam_check::claim::{Claim, describe};
use calipam_model::IpNet;
use calipam_model::attributes::AttributeRef;
use calipam_model::display::text_or_null;
use calipam_model::text::TextRef;
use serde::Serialize;

use super::when::When;

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// The first known state.
    Known,
    BlockClaimed,
    Assigned,
    /// Assigned, after the same or another owner had the address earlier in this history.
    Reused,
    AttributesChanged,
    Released,
    Cooling,
    OwnerChanged,
    ClaimedAgain,
    BlockReleased,
    /// The value cannot be decoded, so the change is unknown.
    Undecodable,
    /// An unknown field of the block has changed.
    FieldChanged,
    AffinityChanged,
    AffinityGone,
    HandleChanged,
    HandleGone,
    EndpointCreated,
    EndpointChanged,
    EndpointGone,
    PodCreated,
    PodChanged,
    PodGone,
}

impl EventKind {
    /// Returns a human-readable description.
    pub fn words(self) -> String {
        let words = match self {
            Self::OwnerChanged => "block changed owner",
            Self::ClaimedAgain => "block claimed again",
            Self::Undecodable => "cannot be decoded",
            Self::AffinityChanged => "affinity",
            Self::HandleChanged => "handle",
            _ => return self.to_string().replace('-', " "),
        };
        words.to_owned()
    }
}

calipam_model::display_serialized!(EventKind);

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    Etcd,
    /// A calipam journal: etcd no longer has the revision, or no export shows the change.
    Journal,
    /// A difference between two exports; changes that were undone in between are unknown.
    Archive,
}

/// A calipam run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The command, such as `release --leaked`.
    pub command: String,
    /// The start of the run, RFC 3339.
    pub started_at: String,
    /// The file name of the journal.
    pub journal: String,
}

/// The holder of an address, from the address's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub allocated_to: String,
    pub node: Option<String>,
    pub handle: Option<String>,
    /// The recorded attribute `timestamp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub released_at: Option<String>,
}

impl Holder {
    /// Describes the holder in a record, with the record's own texts. An empty node or handle counts as missing.
    pub(crate) fn of(record: &AttributeRef<'_>) -> Self {
        let (kind, allocated_to) = match Claim::of(record) {
            Claim::Cooling => ("cooling", String::new()),
            Claim::WindowsReserved => ("windows-reserved", String::new()),
            claim => describe(&claim, record),
        };
        let text = |value: Option<TextRef<'_>>| value.map(|text| text.to_string());
        Self {
            kind,
            allocated_to,
            node: text(record.get("node")).filter(|node| !node.is_empty()),
            handle: text(record.handle()).filter(|handle| !handle.is_empty()),
            timestamp: text(record.get("timestamp")),
            released_at: text(record.released_at()),
        }
    }

    /// True if the holder is an owner; false if the address is cooling down or reserved.
    pub(crate) fn is_owner(&self) -> bool {
        !matches!(self.kind, "cooling" | "windows-reserved")
    }
}

/// An event of an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The revision in etcd. For the first known state, the revision of the last change to the object. `None` if
    /// unknown.
    #[serde(serialize_with = "text_or_null", skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    pub time: When,
    pub what: EventKind,
    pub subject: Subject,
    /// The block of the address, if the event is about an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<IpNet>,
    /// The holder of the address before the event. `after` is the holder after the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Holder>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Holder>,
    /// Human-readable details.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The calipam run that made the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Run>,
    pub origin: Origin,
}

impl Event {
    /// Creates an event, of which neither the time nor the states are known yet.
    pub(crate) fn new(what: EventKind, subject: Subject, detail: String) -> Self {
        Self {
            revision: None,
            time: When::default(),
            what,
            subject,
            block: None,
            before: None,
            after: None,
            detail,
            by: None,
            origin: Origin::Etcd,
        }
    }
}
