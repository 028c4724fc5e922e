//! Answers to questions about an address, pod, node or handle, with the same content as the output of `show`. The data
//! is that of the last successful check or, if the cluster is followed, later data.

use std::borrow::Cow;

use calipam_check::{Scope, views};
use calipam_model::cidr::parse_address;
use calipam_model::names::namespaced;
use calipam_model::snapshot::Snapshot;
use calipam_workflow::{Failure, Object, Result};
use percent_encoding::percent_decode_str;

use crate::format::Format;
use crate::hints;
use crate::render::page::Page;
use crate::render::show::{AddressDetails, View, ViewDocument, of_handle};
use crate::render::{document, html};

/// The paths of questions, for error messages.
pub(super) const FORMS: &str =
    "/api/v1/ip/ADDRESS, /api/v1/pod/NAMESPACE/NAME, /api/v1/node/NAME and /api/v1/handle/ID";

/// Parses the path of a question about an object, such as `/api/v1/pod/default/web-0`; `None` for other paths and
/// invalid names.
pub(super) fn parse_path(path: &str) -> Option<Object> {
    let (kind, name) = path.strip_prefix("/api/v1/")?.split_once('/')?;
    match kind {
        "ip" => parse_address(&decoded(name)?).map(Object::Address),
        "pod" => {
            let (namespace, name) = namespaced(name)?;
            Some(Object::Pod((decoded(namespace)?, decoded(name)?)))
        }
        "node" => decoded(name).map(Object::Node),
        "handle" => decoded(name).map(Object::Handle),
        _ => None,
    }
}

/// Parses the query of the form on the page, `q=TEXT`, in which a form writes `+` for a space. The kind of the object
/// is found out later. Returns `None` for an empty text.
pub(super) fn parse_query(query: &str) -> Option<Object> {
    let encoded = query.split('&').find_map(|part| part.strip_prefix("q="))?;
    let entered = decoded(&encoded.replace('+', " "))?;
    let text = entered.trim();
    if text.is_empty() {
        return None;
    }
    Some(Object::Text(text.to_owned()))
}

/// Returns the document that `show` would print for an object. The title of the page is the text that was entered in
/// the form.
///
/// # Errors
/// If the cluster does not have the object.
pub(super) fn answer(object: Object, snapshot: &Snapshot, format: Format) -> Result<Vec<u8>> {
    let title = if let Object::Text(text) = &object {
        text.clone()
    } else {
        String::new()
    };

    // The form has no options to resolve ambiguity: text in the form of an address is an address, even if a node has
    // that name.
    let object = object.by_form().find(snapshot)?;
    let scope = match object.names() {
        Some(names) => names.scope(&[snapshot])?,
        None => Scope::default(),
    };
    let answer = Answer {
        title,
        snapshot,
        format,
    };
    answer.format_object(&object, &scope)
}

/// An answer to a question.
struct Answer<'a> {
    title: String,
    snapshot: &'a Snapshot,
    format: Format,
}

impl Answer<'_> {
    /// Formats what the snapshot has about an object. `scope` is that of the object.
    fn format_object(&self, object: &Object, scope: &Scope) -> Result<Vec<u8>> {
        let snapshot = self.snapshot;
        match object {
            Object::Address(address) => {
                let view = views::address(snapshot, *address);
                self.format_view(&AddressDetails::new(&view, &[]))
            }
            Object::Pod((namespace, name)) => {
                let pod = (namespace.clone(), name.clone());
                let list = views::addresses(snapshot, scope, &[pod]);
                if list.addresses.is_empty() {
                    let message = format!("no address is known for the pod {namespace}/{name}");
                    return Err(Failure::refused(message));
                }
                self.format_view(&list)
            }
            Object::Node(_) => self.format_view(&views::addresses(snapshot, scope, &[])),
            Object::Pool(_) => self.format_view(&views::pools(snapshot).within(scope)),
            Object::Network(_) => self.format_view(&views::blocks(snapshot).within(scope)),
            Object::Handle(id) | Object::Text(id) => {
                let Some(view) = views::handle(snapshot, id) else {
                    return Err(Failure::refused(format!("handle {id:?} not found")));
                };
                self.format_view(&of_handle(&view))
            }
        }
    }

    /// Formats a view. A page also has the command that prints the same.
    fn format_view(&self, view: &impl View) -> Result<Vec<u8>> {
        let document = ViewDocument::new(view, self.snapshot);
        if self.format == Format::Html {
            let command = hints::command(&["show", &self.title]);
            let content = html::with_command(&html::text_of(&document), &command);
            return Ok(html::answer(&self.title, &content).into());
        }
        let mut text = Vec::new();
        document::write(&document, self.format, Page::default(), &mut text)
            .map_err(Failure::io("format the answer"))?;
        Ok(text)
    }
}

/// Decodes a part of a URL; `None` if the result is not UTF-8.
fn decoded(part: &str) -> Option<String> {
    percent_decode_str(part).decode_utf8().ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_form_queries() {
        let pod = || Some(Object::Pod(("a b".into(), "c".into())));
        assert_eq!(parse_path("/api/v1/pod/a%20b/c"), pod());
        assert_eq!(
            parse_path("/api/v1/ip/fd00::1"),
            parse_address("fd00::1").map(Object::Address)
        );
        assert_eq!(
            parse_path("/api/v1/handle/a%2Fb"),
            Some(Object::Handle("a/b".into()))
        );
        let others = "/api/v1/ip/10.0.0 /api/v1/pod/a /api/v1/pool/a /api/v2/ip/10.0.0.1 /api/v1/node/%ff /";
        for path in others.split(' ') {
            assert_eq!(parse_path(path), None, "{path}");
        }
        assert_eq!(parse_query("x=1&q=+a%2Fb+"), Some(Object::Text("a/b".into())));
        assert_eq!(parse_query("p=1"), None);
    }
}
