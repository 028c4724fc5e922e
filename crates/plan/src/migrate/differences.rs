//! Settings in which the new pool differs from the old one, if the new pool exists already. The new settings apply to
//! pods that move.

use calipam_model::document::Document;
use serde::Serialize;
use serde_json::{Value, json};

/// A setting in which the new pool differs from the old one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The name of the setting in `spec`.
    pub setting: &'static str,
    /// The value of the old pool, or Calico's default.
    pub from: String,
    pub to: String,
}

/// Returns the compared settings with Calico's defaults: all but CIDR, block size and `disabled` (facts 1.7).
fn settings() -> [(&'static str, Value); 8] {
    [
        ("ipipMode", json!("Never")),
        ("vxlanMode", json!("Never")),
        ("natOutgoing", json!(false)),
        ("disableBGPExport", json!(false)),
        ("nodeSelector", json!("all()")),
        ("namespaceSelector", json!("")),
        ("allowedUses", json!(["Workload", "Tunnel"])),
        ("assignmentMode", json!("Automatic")),
    ]
}

/// Returns the settings in which the pools differ.
pub fn differences(old: &Document, new: &Document) -> Vec<Difference> {
    let mut differences = Vec::new();
    for (setting, default) in settings() {
        let from = text_of(old, setting, &default);
        let to = text_of(new, setting, &default);
        if from != to {
            differences.push(Difference { setting, from, to });
        }
    }
    differences
}

/// Returns the value of a setting in a pool's `spec`, or else the default, as text.
fn text_of(pool: &Document, setting: &str, default: &Value) -> String {
    let stated = pool.spec().and_then(|spec| spec.get(setting));
    let value = stated.filter(|value| !value.is_null()).unwrap_or(default);
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_settings_have_the_defaults_of_calico() {
        let pool = |spec: Value| Document::parse(json!({"spec": spec}).to_string().as_bytes()).unwrap();
        let plain = pool(json!({"cidr": "10.0.0.0/24"}));
        let stated = json!({"cidr": "10.1.0.0/24", "ipipMode": "Never", "natOutgoing": false, "allowedUses": ["Workload", "Tunnel"]});
        assert_eq!(differences(&plain, &pool(stated)), []);
        let found = differences(
            &plain,
            &pool(json!({"natOutgoing": true, "nodeSelector": "a == 'b'"})),
        );
        let found: Vec<_> = found.iter().map(|d| (d.setting, &*d.from, &*d.to)).collect();
        assert_eq!(
            found,
            [
                ("natOutgoing", "false", "true"),
                ("nodeSelector", "all()", "a == 'b'")
            ]
        );
    }
}
