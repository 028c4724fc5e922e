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
    let document: Value =
        serde_yaml::from_slice(text).map_err(|error| unusable(path, &yaml_problem(&error)))?;
    let Value::Mapping(document) = document else {
        return Err(unusable(path, "it has no fields"));
    };
    let mut version = None;
    let mut kind = None;
    let mut spec = None;
    for (name, value) in fields_by_name(path, &document)? {
        match name.to_ascii_lowercase().as_str() {
            "apiversion" => version = value.as_str(),
            "kind" => kind = value.as_str(),
            "metadata" => {}
            "spec" => spec = Some(value),
            _ => return Err(unknown_field(path, name)),
        }
    }

    for (field, expected, found) in [("apiVersion", API_VERSION, version), ("kind", KIND, kind)] {
        if found != Some(expected) {
            let found = found.unwrap_or_default();
            return Err(unusable(
                path,
                &format!("`{field}` must be {expected}, not {found:?}"),
            ));
        }
    }
    match spec {
        None | Some(Value::Null) => Ok(Values::default()),
        Some(Value::Mapping(spec)) => read_spec(path, spec),
        Some(_) => Err(unusable(path, "`spec` must contain fields")),
    }
}

/// Reads the fields of `spec` in a settings file. Names are compared without case.
fn read_spec(path: &Path, spec: &Mapping) -> Result<Values, SettingsError> {
    let mut values = Values::default();
    for (name, value) in fields_by_name(path, spec)? {
        let known_field = FIELDS.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        let Some(field) = known_field else {
            return Err(unknown_field(path, name));
        };
        let text = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            // YAML reads an unquoted password of digits as a number; Calico uses its text.
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            Value::Sequence(_) | Value::Mapping(_) | Value::Tagged(_) => {
                let reason = format!("`spec.{}` must be a single value", field.name);
                return Err(unusable(path, &reason));
            }
        };
        if let Err(expected) = check(field, &text) {
            let reason = format!("`spec.{}` must be {expected}", field.name);
            return Err(unusable(path, &reason));
        }
        values.set(field, text);
    }
    Ok(values)
}

/// Returns the names and values of a mapping; an error if a name is not a string.
fn fields_by_name<'m>(path: &Path, mapping: &'m Mapping) -> Result<Vec<(&'m str, &'m Value)>, SettingsError> {
    let mut fields = Vec::new();
    for (name, value) in mapping {
        let Some(name) = name.as_str() else {
            return Err(unusable(path, "a field name is not text"));
        };
        fields.push((name, value));
    }
    Ok(fields)
}

/// The error for a file that calicoctl would not accept either.
fn unusable(path: &Path, reason: &str) -> SettingsError {
    let hint = "expected a calicoctl configuration file, with apiVersion projectcalico.org/v3, kind CalicoAPIConfig and a spec";
    SettingsError::invalid(format!("{}: {reason}", path.display()), hint)
}

/// The error for a field that calicoctl does not know either.
fn unknown_field(path: &Path, name: &str) -> SettingsError {
    let message = format!("{}: unknown field `{name}`", path.display());
    match similar(name) {
        Some(similar) => SettingsError::invalid(message, format!("did you mean `{similar}`?")),
        None => SettingsError::invalid(message, "the fields are those of calicoctl's configuration file"),
    }
}

/// The position of a YAML error, or the name of a duplicate field, without the file's values.
fn yaml_problem(error: &serde_yaml::Error) -> String {
    let message = error.to_string();
    if message.starts_with("duplicate entry") {
        return message;
    }
    match error.location() {
        Some(place) => format!("invalid YAML at line {}, column {}", place.line(), place.column()),
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
