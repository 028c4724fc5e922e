//! Settings in which a pool that exists differs from the old one: what moves would be treated in another way.

use calipam_model::document::Document;
use serde::Serialize;
use serde_json::{Value, json};

/// A setting in which the new pool differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its name in `spec`.
    pub setting: &'static str,
    /// What the old pool says, or Calico assumes where it says nothing.
    pub from: String,
    pub to: String,
}

/// The settings besides CIDR, block size and `disabled`, with what Calico assumes (facts 1.7).
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

/// In which settings the pools differ.
pub fn differences(old: &Document, new: &Document) -> Vec<Difference> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let difference = |(setting, assumed): (&'static str, Value)| {
        let of = |pool: &Document| {
            let stated = pool.spec().and_then(|spec| spec.get(setting)).filter(|value| !value.is_null());
            text(stated.unwrap_or(&assumed))
        };
        let (from, to) = (of(old), of(new));
        (from != to).then_some(Difference { setting, from, to })
    };
    settings().into_iter().filter_map(difference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_stated_is_what_calico_assumes() {
        let pool = |spec: Value| Document::parse(json!({"spec": spec}).to_string().as_bytes()).unwrap();
        let plain = pool(json!({"cidr": "10.0.0.0/24"}));
        let stated = json!({"cidr": "10.1.0.0/24", "ipipMode": "Never", "natOutgoing": false, "allowedUses": ["Workload", "Tunnel"]});
        assert_eq!(differences(&plain, &pool(stated)), []);
        let found = differences(&plain, &pool(json!({"natOutgoing": true, "nodeSelector": "a == 'b'"})));
        let found: Vec<_> = found.iter().map(|d| (d.setting, &*d.from, &*d.to)).collect();
        assert_eq!(found, [("natOutgoing", "false", "true"), ("nodeSelector", "all()", "a == 'b'")]);
    }
}
