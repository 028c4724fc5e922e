//! An object of a cluster, as a command line names it: `10.244.1.7`, `shop/web-0`, `worker-3`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_check::views::{PodName, handle_ids};
use calipam_model::IpNet;
use calipam_model::cidr::{parse_cidr, parse_go_address, to_canonical};
use calipam_model::handle::clean_id;
use calipam_model::hint::{Call, Hint};
use calipam_model::names::namespaced;
use calipam_model::snapshot::Snapshot;

use crate::failure::{Failure, Result};
use crate::scope::{
    Names, did_you_mean, is_pattern, known_namespaces, known_nodes, nearest_pod, only_handle,
};

/// An object of a cluster, which a command line names by an option or by a bare argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    Address(IpAddr),
    /// A pool, a block or a part of them.
    Network(IpNet),
    Pod(PodName),
    Node(String),
    Pool(String),
    /// A handle, by its ID or a prefix of it.
    Handle(String),
    /// Any of the above: the form of the string or the cluster's data decides which.
    Text(String),
}

impl Object {
    /// Interprets a string that has the form of an address, a CIDR or `NAMESPACE/NAME`. Any other string is a name,
    /// which is looked up in the cluster's data. A string with the form of an address can still be a node's name;
    /// [`Self::find`] reports that it is ambiguous.
    pub fn by_form(self) -> Self {
        let Self::Text(text) = &self else { return self };
        if let Some(address) = parse_go_address(text) {
            return Self::Address(address);
        }
        if let Some(cidr) = parse_cidr(text) {
            return Self::Network(to_canonical(cidr));
        }
        match namespaced(text) {
            Some((namespace, name)) => Self::Pod((namespace.to_owned(), name.to_owned())),
            None => self,
        }
    }

    /// Returns the names that limit a list to this node, pool or network; `None` for other objects.
    pub fn names(&self) -> Option<Names> {
        match self {
            Self::Node(name) => Some(Names {
                nodes: vec![name.clone()],
                ..Names::default()
            }),
            Self::Pool(name) => Some(Names {
                pools: vec![name.clone()],
                ..Names::default()
            }),
            Self::Network(cidr) => Some(Names {
                pools: vec![cidr.to_string()],
                ..Names::default()
            }),
            _ => None,
        }
    }

    /// Completes a handle's ID, and finds the object that a string names. Objects given in any other form need not
    /// exist.
    ///
    /// # Errors
    /// If no object or several objects have the name, or several handle IDs begin with the string.
    pub fn find(self, snapshot: &Snapshot) -> Result<Self> {
        match self {
            Self::Handle(begin) => {
                let ids = handle_ids(snapshot, &begin);
                Ok(Self::Handle(whole_id(&begin, ids)?))
            }
            Self::Text(text) if is_pattern(&text) => Ok(Self::Node(text)),
            Self::Text(text) => named_object(&text, snapshot),
            Self::Network(cidr) => match snapshot.pools.iter().find(|pool| pool.value.cidr == cidr) {
                Some(pool) => Ok(Self::Pool(pool.value.name.clone())),
                None => Ok(Self::Network(cidr)),
            },
            other => Ok(other),
        }
    }
}

/// Returns the only ID with the prefix `begin`. Returns `begin` itself if it is an ID, or if no ID has this prefix.
pub(crate) fn whole_id(begin: &str, ids: BTreeSet<String>) -> Result<String> {
    if !ids.contains(clean_id(begin))
        && let Some(id) = only_handle(begin, ids)?
    {
        return Ok(id);
    }
    Ok(begin.to_owned())
}

/// One object that a string names.
struct Reading {
    /// The kind of the object with an article, such as `a node`.
    kind: &'static str,
    /// The option that names an object of this kind.
    option: &'static str,
    object: Object,
}

/// The error for a string that names several objects, with the command for each of them.
fn ambiguous(text: &str, readings: &[Reading]) -> Failure {
    let mut kinds = Vec::new();
    let mut calls = Vec::new();
    for reading in readings {
        kinds.push(reading.kind);
        calls.push(Call::again_with([reading.option, text]).without(&["object"]));
    }
    let placeholders = vec!["{}"; calls.len()].join(" or ");
    Failure::usage(format!("{text:?} is {}", kinds.join(" and ")))
        .hint(Hint::new(format!("say which: {placeholders}"), calls))
}

/// The names in a cluster.
#[derive(Default)]
pub(crate) struct KnownNames {
    pub nodes: BTreeSet<String>,
    pub pools: BTreeSet<String>,
    /// The handle IDs that begin with the name that is looked up.
    pub handles: BTreeSet<String>,
}

/// Finds the object that has the name, or the handle whose ID begins with it.
fn named_object(name: &str, snapshot: &Snapshot) -> Result<Object> {
    let pools = snapshot.pools.iter().map(|pool| pool.value.name.clone());
    let known_names = KnownNames {
        nodes: known_nodes(&[snapshot]),
        pools: pools.collect(),
        handles: handle_ids(snapshot, name),
    };
    match known_names.find(name)? {
        Some(object) => object.find(snapshot),
        None => Err(known_names.unknown(name, snapshot)),
    }
}

impl KnownNames {
    /// Returns the object that `text` names, or the handle whose ID begins with it. `None` if there is none.
    ///
    /// # Errors
    /// If several objects have the name, or several handle IDs begin with it.
    pub(crate) fn find(&self, text: &str) -> Result<Option<Object>> {
        let mut readings = self.readings(text);
        if readings.len() > 1 {
            return Err(ambiguous(text, &readings));
        }
        if let Some(reading) = readings.pop() {
            return Ok(Some(reading.object));
        }
        let handle = only_handle(text, self.handles.iter().cloned())?;
        Ok(handle.map(Object::Handle))
    }

    /// Returns each object that `text` names: what its form says, and the known objects with exactly this name.
    fn readings(&self, text: &str) -> Vec<Reading> {
        let mut readings = Vec::new();
        let mut add = |kind, option, object| {
            readings.push(Reading { kind, option, object });
        };

        let by_form = Object::Text(text.to_owned()).by_form();
        if !matches!(by_form, Object::Text(_)) {
            add("an address", "--ip", by_form);
        }
        if self.nodes.contains(text) {
            add("a node", "--node", Object::Node(text.to_owned()));
        }
        if self.pools.contains(text) {
            add("a pool", "--pool", Object::Pool(text.to_owned()));
        }
        if self.handles.contains(clean_id(text)) {
            add("a handle", "--handle", Object::Handle(text.to_owned()));
        }
        readings
    }

    /// The error for an unknown name, with the most similar known name.
    fn unknown(&self, text: &str, snapshot: &Snapshot) -> Failure {
        let failure = Failure::refused(format!("no node, pool or handle has the name {text:?}"));
        if known_namespaces(&[snapshot]).contains(text) {
            return failure.hint(Hint::new(
                "it is a namespace: {} shows what each namespace has; a pod in it is {}",
                [
                    Call::to(["show", "--namespaces"]),
                    Call::Name(format!("{text}/NAME")),
                ],
            ));
        }
        let mut known: BTreeSet<String> = self.nodes.union(&self.pools).cloned().collect();
        known.extend(nearest_pod(snapshot, "", text));
        let list = Hint::new(
            "a pod is NAMESPACE/NAME; {} lists the nodes",
            [Call::to(["show", "--nodes"])],
        );
        let hint = did_you_mean(text, &known, list);
        failure.hint(hint)
    }

    /// Returns the object that `text` names, for a history. If no object has this name now, the error suggests the
    /// options by which a deleted node or handle can still be named.
    pub(crate) fn find_past(&self, text: &str) -> Result<Object> {
        if let Some(object) = self.find(text)? {
            return Ok(object);
        }
        // The same command, with an option instead of the argument.
        let as_node = Call::again_with(["--node", text]).without(&["object"]);
        let as_handle = Call::again_with(["--handle", text]).without(&["object"]);
        let hint = Hint::new(
            "if it is gone, say what it was: {} or {}; a pod is NAMESPACE/NAME",
            [as_node, as_handle],
        );
        Err(Failure::refused(format!("no node or handle has the name {text:?} now")).hint(hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_recognized_by_its_form_or_is_a_name() {
        let name = |text: &str| Object::Text(text.into());
        for (text, expected) in [
            ("10.244.1.7", Object::Address("10.244.1.7".parse().unwrap())),
            (
                "::ffff:10.244.1.7",
                Object::Address("10.244.1.7".parse().unwrap()),
            ),
            (
                "::ffff:10.0.0.0/112",
                Object::Network("10.0.0.0/16".parse().unwrap()),
            ),
            ("fd00::1", Object::Address("fd00::1".parse().unwrap())),
            ("10.244.1.7/26", Object::Network("10.244.1.0/26".parse().unwrap())),
            ("shop/web-0", Object::Pod(("shop".into(), "web-0".into()))),
            ("worker-3", name("worker-3")),
            ("10.244", name("10.244")),
            ("a/b/c", name("a/b/c")),
            ("/web-0", name("/web-0")),
            ("", name("")),
        ] {
            assert_eq!(Object::Text(text.into()).by_form(), expected, "{text}");
        }
    }

    #[test]
    fn a_name_has_one_reading() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let known = |handles: &[&str]| KnownNames {
            nodes: set(&["a", "both"]),
            pools: set(&["b", "both"]),
            handles: set(handles),
        };
        assert_eq!(known(&[]).find("a").unwrap().unwrap(), Object::Node("a".into()));
        assert_eq!(
            known(&["net.a", "net.b"]).find("b").unwrap().unwrap(),
            Object::Pool("b".into())
        );
        assert_eq!(
            known(&["net.12"]).find("net.1").unwrap().unwrap(),
            Object::Handle("net.12".into())
        );
        let error = known(&[]).find("both").unwrap_err();
        assert_eq!(error.message, "\"both\" is a node and a pool");
        assert!(
            known(&["net.1", "net.2"])
                .find("net.")
                .unwrap_err()
                .message
                .starts_with("several handles")
        );
        assert_eq!(known(&[]).find("c").unwrap(), None);
        let by_address = KnownNames {
            nodes: set(&["10.0.0.1"]),
            ..KnownNames::default()
        };
        let error = by_address.find("10.0.0.1").unwrap_err();
        assert_eq!(error.message, "\"10.0.0.1\" is an address and a node");
        assert!(matches!(
            known(&[]).find("10.0.0.1"),
            Ok(Some(Object::Address(_)))
        ));
        // A complete name takes precedence over the prefix of another name.
        assert_eq!(
            known(&["a1", "a2"]).find("a").unwrap().unwrap(),
            Object::Node("a".into())
        );
    }
}
