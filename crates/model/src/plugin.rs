//! The CNI plugin that a node uses, according to the data: Calico's or calipam's.

use jiff::Timestamp;
use serde::Serialize;

use crate::attributes::AttributeRef;
use crate::time::format_go_utc;

/// The annotation in which an installer records a node's plugin: the plugin's output with `-v`.
pub const INSTALLED: &str = "calipam.io/cni-plugin";

/// The nanoseconds below a millisecond in the times that calipam's plugin records. Calico's plugin records all
/// nanoseconds, and has this arbitrary number once in a million times. Calico prints the time but never decodes it.
const CALIPAM_NANOSECONDS: i128 = 225_472;
const MILLISECOND: i128 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Plugin {
    Calico,
    Calipam,
}

/// The first word of the output of calipam's plugin with `-v`.
const NAME_OF_CALIPAM: &str = "calipam";

impl Plugin {
    /// The plugin in an installer's annotation. A node without the annotation has Calico's.
    pub fn installed(annotation: Option<&str>) -> Self {
        let name = annotation.and_then(|version| version.split_whitespace().next());
        if name == Some(NAME_OF_CALIPAM) {
            Self::Calipam
        } else {
            Self::Calico
        }
    }

    /// The plugin that made a record, and the recorded time; `None` for records without a time or a node, such as
    /// tunnel records.
    pub fn of(record: AttributeRef<'_>) -> Option<(Timestamp, Self)> {
        record.get("node")?;
        let time = record.allocated_at()?;
        let plugin = if time.as_nanosecond().rem_euclid(MILLISECOND) == CALIPAM_NANOSECONDS {
            Self::Calipam
        } else {
            Self::Calico
        };
        Some((time, plugin))
    }
}

/// The attribute `timestamp` for an assignment by calipam's plugin.
pub fn timestamp(now: Timestamp) -> String {
    let nanos = now.as_nanosecond();
    let marked = nanos - nanos.rem_euclid(MILLISECOND) + CALIPAM_NANOSECONDS;
    format_go_utc(i64::try_from(marked).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::{Attribute, AttributeTable};

    fn of(entries: &[(&str, &str)]) -> Option<(String, Plugin)> {
        let mut table = AttributeTable::default();
        table.push(&Attribute::new(Some("net.c"), entries.iter().copied()));
        Plugin::of(table.get(0).unwrap()).map(|(at, plugin)| (at.to_string(), plugin))
    }

    #[test]
    fn a_record_shows_which_plugin_made_it() {
        let now: Timestamp = "2026-05-01T10:12:00.120999999Z".parse().unwrap();
        let text = timestamp(now);
        assert_eq!(text, "2026-05-01 10:12:00.120225472 +0000 UTC");
        let record = [("node", "a"), ("timestamp", text.as_str())];
        assert_eq!(
            of(&record),
            Some(("2026-05-01T10:12:00.120225472Z".into(), Plugin::Calipam))
        );
        for calicos in [
            "2026-05-01 10:12:00.120225473 +0000 UTC",
            "2026-05-01 10:12:00 +0000 UTC",
        ] {
            assert_eq!(
                of(&[("node", "a"), ("timestamp", calicos)]).unwrap().1,
                Plugin::Calico
            );
        }
        for of_nobody in [
            &[("node", "a")][..],
            &[("node", "a"), ("timestamp", "x")],
            &[("timestamp", &text)],
        ] {
            assert_eq!(of(of_nobody), None, "{of_nobody:?}");
        }
        assert!(timestamp("1960-01-01T00:00:00.5Z".parse().unwrap()).ends_with("00.500225472 +0000 UTC"));
    }
}
