//! Questions about an address, pod, node or handle, answered as by `show` from the data of the last successful check
//! or, if the cluster is followed, from later data.

use std::borrow::Cow;
use std::io;
use std::net::IpAddr;

use calipam_check::Scope;
use calipam_check::views::{self, PodName};
use calipam_model::cidr::parse_address;
use calipam_model::snapshot::Snapshot;
use calipam_workflow::Names;
use maud::PreEscaped;
use percent_encoding::percent_decode_str;

use crate::format::Format;
use crate::render::page::Page;
use crate::render::show::{AddressDetails, View, ViewDocument};
use crate::render::{document, html};

/// A question about an object of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Address(IpAddr),
    Pod(PodName),
    Node(String),
    Handle(String),
    /// Text from the form: an address, a pod, a node or a handle.
    Any(String),
}

/// The paths of questions, for error messages.
pub(super) const FORMS: &str =
    "/api/v1/ip/ADDRESS, /api/v1/pod/NAMESPACE/NAME, /api/v1/node/NAME and /api/v1/handle/ID";

impl Question {
    /// Parses the path of a question; `None` for other paths and invalid names.
    pub(super) fn of_path(path: &str) -> Option<Self> {
        let (kind, name) = path.strip_prefix("/api/v1/")?.split_once('/')?;
        match kind {
            "ip" => parse_address(&decoded(name)?).map(Self::Address),
            "pod" => {
                let (namespace, name) = name.split_once('/')?;
                Some(Self::Pod((decoded(namespace)?, decoded(name)?)))
            }
            "node" => decoded(name).map(Self::Node),
            "handle" => decoded(name).map(Self::Handle),
            _ => None,
        }
    }

    /// Parses the query of the form on the page: `q=TEXT`.
    pub(super) fn of_query(query: &str) -> Option<Self> {
        let text = query.split('&').find_map(|part| part.strip_prefix("q="))?;
        let text = decoded(&text.replace('+', " "))?;
        Some(Self::Any(text.trim().to_owned()))
    }

    /// Returns the document of `show`; `None` if the cluster does not have the object.
    pub(super) fn answer(&self, snapshot: &Snapshot, format: Format) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::Address(address) => {
                let view = views::address(snapshot, *address);
                write(&AddressDetails { view: &view, events: &[] }, snapshot, format)
            }
            Self::Pod(pod) => {
                let list = views::addresses(snapshot, &Scope::default(), std::slice::from_ref(pod));
                if list.addresses.is_empty() {
                    return Ok(None);
                }
                write(&list, snapshot, format)
            }
            Self::Node(name) => {
                let Ok(scope) = Names::of_node(name).scope(&[snapshot]) else { return Ok(None) };
                write(&views::addresses(snapshot, &scope, &[]), snapshot, format)
            }
            Self::Handle(id) => match views::handle(snapshot, id) {
                Some(view) => write(&view, snapshot, format),
                None => Ok(None),
            },
            Self::Any(text) => {
                let answer = Self::of_text(text, snapshot).answer(snapshot, format)?;
                Ok(answer.map(|answer| match format {
                    Format::Html => {
                        html::answer(text, &PreEscaped(String::from_utf8_lossy(&answer).into())).into()
                    }
                    _ => answer,
                }))
            }
        }
    }

    /// Parses an address, a pod by namespace and name, or the name of a node; anything else is a handle.
    fn of_text(text: &str, snapshot: &Snapshot) -> Self {
        if let Some(address) = parse_address(text) {
            return Self::Address(address);
        }
        match text.split_once('/') {
            Some((namespace, name)) => Self::Pod((namespace.to_owned(), name.to_owned())),
            None => match Names::of_node(text).scope(&[snapshot]) {
                Ok(_) => Self::Node(text.to_owned()),
                Err(_) => Self::Handle(text.to_owned()),
            },
        }
    }
}

fn write(view: &impl View, snapshot: &Snapshot, format: Format) -> io::Result<Option<Vec<u8>>> {
    let document = ViewDocument::new(view, snapshot);
    let mut text = Vec::new();
    match format {
        Format::Html => text = html::text_of(&document).into_string().into(),
        _ => document::write(&document, format, Page::default(), &mut text)?,
    }
    Ok(Some(text))
}

/// Decodes a part of a URL; `None` if it is not UTF-8.
fn decoded(part: &str) -> Option<String> {
    percent_decode_str(part).decode_utf8().ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_what_is_typed() {
        let pod = || Some(Question::Pod(("a b".into(), "c".into())));
        assert_eq!(Question::of_path("/api/v1/pod/a%20b/c"), pod());
        assert_eq!(Question::of_path("/api/v1/ip/fd00::1"), parse_address("fd00::1").map(Question::Address));
        assert_eq!(Question::of_path("/api/v1/handle/a%2Fb"), Some(Question::Handle("a/b".into())));
        for path in [
            "/api/v1/ip/10.0.0",
            "/api/v1/pod/a",
            "/api/v1/pool/a",
            "/api/v2/ip/10.0.0.1",
            "/api/v1/node/%ff",
            "/",
        ] {
            assert_eq!(Question::of_path(path), None, "{path}");
        }
        assert_eq!(Question::of_query("x=1&q=+a%2Fb+"), Some(Question::Any("a/b".into())));
        assert_eq!(Question::of_query("p=1"), None);
    }
}
