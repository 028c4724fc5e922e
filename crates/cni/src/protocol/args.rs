//! `CNI_ARGS`: key-value pairs, separated by semicolons (facts of the plugin, section 4).

use std::net::IpAddr;

use calipam_model::cidr::parse_go_address;

use super::CniError;

/// The parsed arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// The address that ADD must assign.
    pub ip: Option<IpAddr>,
    /// The pod's namespace and name, if both are set. In that case the orchestrator is Kubernetes.
    pub pod: Option<(String, String)>,
    /// The namespace of a container without a pod, set by Calico's tests.
    pub test_namespace: Option<String>,
}

const IP: &str = "IP";
const IGNORE_UNKNOWN: &str = "IgnoreUnknown";
const POD_NAMESPACE: &str = "K8S_POD_NAMESPACE";
const POD_NAME: &str = "K8S_POD_NAME";
const INFRA_CONTAINER: &str = "K8S_POD_INFRA_CONTAINER_ID";
const TEST_NAMESPACE: &str = "CNI_TEST_NAMESPACE";

/// The keys that every call accepts.
const POD_KEYS: &[&str] = &[IP, IGNORE_UNKNOWN, POD_NAMESPACE, POD_NAME, INFRA_CONTAINER];
/// The keys that ADD accepts when it looks for a requested address. Other keys, such as the pod's name, are refused
/// without `IgnoreUnknown`.
const ADDRESS_KEYS: &[&str] = &[IP, IGNORE_UNKNOWN];
const TEST_KEYS: &[&str] = &[IGNORE_UNKNOWN, TEST_NAMESPACE];

impl Arguments {
    /// Parses the value of `CNI_ARGS`.
    pub fn read(text: &str) -> Result<Self, CniError> {
        let pairs = split_pairs(text)?;
        refuse_unknown(&pairs, POD_KEYS)?;
        let last_value = |key: &str| {
            let pair = pairs.iter().rev().find(|pair| pair.key == key);
            pair.map(|pair| pair.value)
        };
        // All addresses are parsed, so that a malformed one is an error even if a later one takes precedence.
        let mut ip = None;
        for pair in pairs.iter().filter(|pair| pair.key == IP) {
            ip = parse_address(pair)?;
        }

        let namespace = last_value(POD_NAMESPACE).unwrap_or("");
        let name = last_value(POD_NAME).unwrap_or("");
        let mut pod = None;
        if !namespace.is_empty() && !name.is_empty() {
            pod = Some((namespace.to_owned(), name.to_owned()));
        }

        // Calico's plugin reads this key in a second pass, and ignores the errors of that pass.
        let mut test_namespace = None;
        if refuse_unknown(&pairs, TEST_KEYS).is_ok() {
            let value = last_value(TEST_NAMESPACE).filter(|text| !text.is_empty());
            test_namespace = value.map(str::to_owned);
        }
        Ok(Self {
            ip,
            pod,
            test_namespace,
        })
    }

    /// Refuses keys that ADD does not accept when it looks for a requested address.
    pub fn check_for_add(text: &str) -> Result<(), CniError> {
        refuse_unknown(&split_pairs(text)?, ADDRESS_KEYS)
    }
}

struct Pair<'a> {
    text: &'a str,
    key: &'a str,
    value: &'a str,
}

/// Splits a text such as `K8S_POD_NAME=web-0;IgnoreUnknown=1` into pairs of key and value.
///
/// # Errors
/// If a pair does not contain exactly one `=`.
fn split_pairs(text: &str) -> Result<Vec<Pair<'_>>, CniError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut pairs = Vec::new();
    for text in text.split(';') {
        match text.split_once('=') {
            Some((key, value)) if !value.contains('=') => pairs.push(Pair { text, key, value }),
            _ => return Err(CniError::internal(format!("ARGS: invalid pair {text:?}"))),
        }
    }
    Ok(pairs)
}

/// Refuses keys that are not among `known`, unless `IgnoreUnknown` is true. If it is given several times, the last one
/// counts.
fn refuse_unknown(pairs: &[Pair<'_>], known: &[&str]) -> Result<(), CniError> {
    let mut ignores_unknown = false;
    for pair in pairs.iter().filter(|pair| pair.key == IGNORE_UNKNOWN) {
        ignores_unknown = parse_boolean(pair)?;
    }
    if ignores_unknown {
        return Ok(());
    }

    let mut unknown = Vec::new();
    for pair in pairs {
        if !known.contains(&pair.key) {
            unknown.push(format!("{:?}", pair.text));
        }
    }
    if unknown.is_empty() {
        return Ok(());
    }
    Err(CniError::internal(format!(
        "ARGS: unknown args [{}]",
        unknown.join(" ")
    )))
}

/// Parses a boolean value, in the forms that Go's CNI library accepts.
fn parse_boolean(pair: &Pair<'_>) -> Result<bool, CniError> {
    match pair.value.to_lowercase().as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        other => Err(bad(
            pair,
            &format!("boolean unmarshal error: invalid input {other}"),
        )),
    }
}

/// Parses one address; `None` for an empty value.
fn parse_address(pair: &Pair<'_>) -> Result<Option<IpAddr>, CniError> {
    if pair.value.is_empty() {
        return Ok(None);
    }
    match parse_go_address(pair.value) {
        Some(ip) => Ok(Some(ip)),
        None => Err(bad(pair, &format!("invalid IP address: {}", pair.value))),
    }
}

fn bad(pair: &Pair<'_>, reason: &str) -> CniError {
    CniError::internal(format!(
        "ARGS: error parsing value of pair {:?}: {reason}",
        pair.text
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_needs_namespace_and_name() {
        let read = |text| Arguments::read(text).unwrap();
        let pod = read("IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0;K8S_POD_UID=x").pod;
        assert_eq!(pod, Some(("ns".into(), "web-0".into())));
        assert_eq!(read("K8S_POD_NAME=web-0"), Arguments::default());
        assert_eq!(read("K8S_POD_NAME=web-0;K8S_POD_NAMESPACE=").pod, None);
        assert_eq!(
            read("IgnoreUnknown=1;CNI_TEST_NAMESPACE=t").test_namespace,
            Some("t".into())
        );
        assert_eq!(read("IP=fd00::1").ip, Some("fd00::1".parse().unwrap()));
        assert_eq!(read("IP=::ffff:10.0.0.1").ip, Some("10.0.0.1".parse().unwrap()));
        assert_eq!(read("IP=").ip, None);
        assert_eq!(read(""), Arguments::default());
    }

    #[test]
    fn bad_arguments_are_refused() {
        for (text, expected) in [
            ("a", "ARGS: invalid pair \"a\""),
            ("a=b=c", "ARGS: invalid pair \"a=b=c\""),
            ("IP=10.0.0.1;", "ARGS: invalid pair \"\""),
            (
                "K8S_POD_UID=x;a=b",
                "ARGS: unknown args [\"K8S_POD_UID=x\" \"a=b\"]",
            ),
            ("ip=10.0.0.1", "ARGS: unknown args [\"ip=10.0.0.1\"]"),
        ] {
            assert_eq!(Arguments::read(text).unwrap_err(), CniError::internal(expected));
        }
        for text in [
            "IP=10.0.0.3/24",
            "IP=10.0.0.03",
            "IP=x",
            "IgnoreUnknown=yes",
            "IgnoreUnknown=",
        ] {
            assert!(Arguments::read(text).is_err(), "{text}");
        }
        let error = Arguments::read("IP=10.0.0.3/24").unwrap_err();
        assert!(error.msg.ends_with("invalid IP address: 10.0.0.3/24"), "{error}");
    }
}
