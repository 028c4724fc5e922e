//! Reads calicoctl's configuration file, in YAML or JSON. Unknown fields are errors (facts 7.1).

use std::path::Path;

use serde_yaml::{Mapping, Value};

use super::fields::{FIELDS, Values, check, similar};
use crate::error::SettingsError;

const API_VERSION: &str = "projectcalico.org/v3";
const KIND: &str = "CalicoAPIConfig";

/// Reads the file's text. As in Go, field names are case-insensitive.
///
/// # Errors
/// If the text is not YAML, has a field that calicoctl does not know, an invalid value, or another version or kind.
/// Apart from version and kind, the errors contain no values, which may be secret.
pub(super) fn parse(path: &Path, text: &[u8]) -> Result<Values, SettingsError> {
    let bad = |reason: String| bad(path, &reason);
    let document: Value = serde_yaml::from_slice(text).map_err(|e| bad(syntax(&e)))?;
    let Value::Mapping(document) = document else {
        return Err(bad("it has no fields".into()));
    };
    let mut version = None;
    let mut kind = None;
    let mut spec = None;
    for (name, value) in named(&document, &bad)? {
        match name.to_ascii_lowercase().as_str() {
            "apiversion" => version = value.as_str(),
            "kind" => kind = value.as_str(),
            "metadata" => {}
            "spec" => spec = Some(value),
            _ => return Err(unknown(path, name)),
        }
    }
    for (field, expected, found) in [("apiVersion", API_VERSION, version), ("kind", KIND, kind)] {
        if found != Some(expected) {
            return Err(bad(format!(
                "`{field}` must be {expected}, not {:?}",
                found.unwrap_or_default()
            )));
        }
    }
    match spec {
        None | Some(Value::Null) => Ok(Values::default()),
        Some(Value::Mapping(spec)) => read_spec(path, spec),
        Some(_) => Err(bad("`spec` must contain fields".into())),
    }
}

/// Reads the fields of `spec` in a settings file. Names are compared without case.
fn read_spec(path: &Path, spec: &Mapping) -> Result<Values, SettingsError> {
    let bad = |reason: String| bad(path, &reason);
    let mut values = Values::default();
    for (name, value) in named(spec, &bad)? {
        let Some(field) = FIELDS.iter().find(|f| f.name.eq_ignore_ascii_case(name)) else {
            return Err(unknown(path, name));
        };
        let text = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            // YAML reads an unquoted password of digits as a number; Calico uses its text.
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            Value::Sequence(_) | Value::Mapping(_) | Value::Tagged(_) => {
                return Err(bad(format!("`spec.{}` must be a single value", field.name)));
            }
        };
        check(field, &text).map_err(|expected| bad(format!("`spec.{}` must be {expected}", field.name)))?;
        values.set(field, text);
    }
    Ok(values)
}

/// Returns the entries of a mapping; an error if a name is not a string.
fn named<'m>(
    mapping: &'m Mapping,
    bad: &impl Fn(String) -> SettingsError,
) -> Result<Vec<(&'m str, &'m Value)>, SettingsError> {
    let entry = |(name, value): (&'m Value, &'m Value)| Some((name.as_str()?, value));
    mapping
        .iter()
        .map(entry)
        .collect::<Option<_>>()
        .ok_or_else(|| bad("a field name is not text".into()))
}

fn bad(path: &Path, reason: &str) -> SettingsError {
    let hint = "expected a calicoctl configuration file, with apiVersion projectcalico.org/v3, kind CalicoAPIConfig and a spec";
    SettingsError::invalid(format!("{}: {reason}", path.display()), hint)
}

/// The error for a field that calicoctl does not know either.
fn unknown(path: &Path, name: &str) -> SettingsError {
    let message = format!("{}: unknown field `{name}`", path.display());
    match similar(name) {
        Some(similar) => SettingsError::invalid(message, format!("did you mean `{similar}`?")),
        None => SettingsError::invalid(message, "the fields are those of calicoctl's configuration file"),
    }
}

/// The position of a YAML error, or the name of a duplicate field, without the file's values.
fn syntax(error: &serde_yaml::Error) -> String {
    let message = error.to_string();
    match error.location() {
        _ if message.starts_with("duplicate entry") => message,
        Some(at) => format!("invalid YAML at line {}, column {}", at.line(), at.column()),
        None => "invalid YAML".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: &str) -> Result<Values, SettingsError> {
        let text =
            format!("apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n{spec}");
        parse(Path::new("calicoctl.cfg"), text.as_bytes())
    }

    #[test]
    fn yaml_and_json_are_read() {
        let values =
            read("  datastoreType: etcdv3\n  etcdendpoints: http://a:1\n  etcdPassword: 0815\n").unwrap();
        assert_eq!(values.text("etcdEndpoints"), Some("http://a:1"));
        assert!(values.text("etcdPassword").is_some());
        let json =
            br#"{"apiVersion":"projectcalico.org/v3","kind":"CalicoAPIConfig","spec":{"usePodCIDR":true}}"#;
        assert!(parse(Path::new("x"), json).unwrap().flag("usePodCIDR"));
        assert!(read("").unwrap().text("etcdEndpoints").is_none());
    }

    #[test]
    fn a_misspelt_field_is_named() {
        let error = read("  etcdEndpoint: http://a:1\n").err().unwrap();
        assert_eq!(error.to_string(), "calicoctl.cfg: unknown field `etcdEndpoint`");
        assert_eq!(error.hint().text, "did you mean `etcdEndpoints`?");
        let error = parse(Path::new("x"), b"apiVersion: projectcalico.org/v3\nspecs: {}\n")
            .err()
            .unwrap();
        assert_eq!(error.to_string(), "x: unknown field `specs`");
    }

    #[test]
    fn errors_hold_no_values() {
        for spec in [
            "  etcdPassword: [hunter2]\n",
            "  usePodCIDR: hunter2\n",
            "  etcdPassword: \"hunter2\n",
            "  etcdPassword: hunter2\n  etcdPassword: hunter2\n",
            "  - hunter2\n",
        ] {
            let error = read(spec).err().unwrap();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn other_versions_and_kinds_are_errors() {
        for text in [
            "",
            "kind: CalicoAPIConfig\n",
            "apiVersion: v1\nkind: CalicoAPIConfig\n",
            "[]",
            "apiVersion: projectcalico.org/v3\nkind: IPPool\n",
        ] {
            let error = parse(Path::new("x"), text.as_bytes()).err().unwrap();
            assert!(error.hint().text.contains("CalicoAPIConfig"), "{text}: {error}");
        }
    }
}
