//! Tables of pages: lists, facts, and the evidence of findings.

use maud::{Markup, html};
use serde::Serialize;
use serde_json::Value;

use super::{compact, long};
use crate::render::table::Grid;
use crate::render::text::{escape, joined};

/// Creates the head of a table: the titles of text columns, of number columns after them, and of the `last` text
/// columns.
pub(in crate::render) fn head(texts: &[&str], numbers: &[&str], last: &[&str]) -> Markup {
    html! {
        thead { tr {
            @for title in texts { th scope="col" { (title) } }
            @for title in numbers { th.number scope="col" { (title) } }
            @for title in last { th scope="col" { (title) } }
        } }
    }
}

/// Creates the table of a list. Titles are in lower case after the first letter.
pub(in crate::render) fn grid(mut list: Grid) -> Markup {
    list.drop_empty();
    let heads: Vec<_> = list
        .heads()
        .map(|(title, is_number)| (capital(title), is_number))
        .collect();
    let table = html! {
        table.cards {
            thead { tr { @for (title, is_number) in &heads { th class=(class_of_cell(*is_number, title)) scope="col" { (title) } } } }
            tbody { @for row in list.rows() { tr {
                @for (cell, (title, is_number)) in row.iter().zip(&heads) {
                    td class=(class_of_cell(*is_number, cell)) data-head=(title) { (cell) }
                }
            } } }
        }
    };
    html! { div.scroll { (compact(table)) } }
}

/// Returns the CSS classes of a cell in a list.
fn class_of_cell(is_number: bool, text: &str) -> &'static str {
    if is_number {
        "number"
    } else if long(text).is_some() {
        "name long"
    } else {
        "name"
    }
}

/// Returns a title in lower case after the first letter, unless it has a word that is always in capitals.
fn capital(title: &str) -> String {
    if title.contains("CIDR") || title.chars().any(char::is_lowercase) {
        return title.to_owned();
    }
    let mut letters = title.chars();
    let mut capitalized = String::new();
    capitalized.extend(letters.next());
    capitalized.extend(letters.flat_map(char::to_lowercase));
    capitalized
}

/// Creates a table of names and their values. `titles` are the titles of the values, if each name has several.
pub(in crate::render) fn facts(
    titles: &[&str],
    rows: impl IntoIterator<Item = (impl AsRef<str>, Vec<Markup>)>,
) -> Markup {
    html! {
        table.facts {
            @if !titles.is_empty() { thead { tr { td {} @for title in titles { th scope="col" { (title) } } } } }
            tbody { @for (name, values) in rows { tr {
                th scope="row" { (escape(name.as_ref())) }
                @for value in values { td { (value) } }
            } } }
        }
    }
}

/// Creates the table of a finding's evidence. Each row contains the name and value of a field, and the fields of an
/// object form a group of rows.
pub(in crate::render) fn evidence(evidence: &impl Serialize) -> Markup {
    // The keys of all maps in evidence are strings, so this cannot fail.
    let evidence = serde_json::to_value(evidence).unwrap_or_default();
    let mut groups = Vec::new();
    add_groups("", &evidence, &mut groups);
    compact(html! {
        table.facts {
            @for (title, rows) in groups { tbody {
                @if !title.is_empty() { tr { th colspan="2" scope="rowgroup" { (escape(title.trim())) } } }
                @for (name, value) in rows { tr { th scope="row" { (escape(name)) } td { (escape(&value)) } } }
            } }
        }
    })
}

/// The title of an object, and its fields except those that are objects themselves.
type Group<'v> = (String, Vec<(&'v str, String)>);

/// Adds a group with the plain fields of an object, and further groups for the objects in it.
fn add_groups<'v>(title: &str, value: &'v Value, groups: &mut Vec<Group<'v>>) {
    let mut plain = Vec::new();
    let mut objects = Vec::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        // A list is of objects if its first element is one.
        if value.is_object() || value[0].is_object() {
            objects.push((name, value));
        } else {
            plain.push((name.as_str(), words_of_value(value)));
        }
    }
    if !plain.is_empty() {
        groups.push((title.to_owned(), plain));
    }

    for (name, value) in objects {
        let title = format!("{title} {name}");
        match value {
            Value::Array(items) => add_list(&title, items, groups),
            object => add_groups(&title, object, groups),
        }
    }
}

/// Adds the groups of each object of a list. Several objects are numbered.
fn add_list<'v>(title: &str, objects: &'v [Value], groups: &mut Vec<Group<'v>>) {
    if let [only] = objects {
        return add_groups(title, only, groups);
    }
    for (index, object) in objects.iter().enumerate() {
        let number = index + 1;
        add_groups(&format!("{title} {number}"), object, groups);
    }
}

/// Formats a value for people.
fn words_of_value(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => joined(items.iter().map(words_of_value), ", "),
        Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn evidence_is_a_group_for_each_object() {
        let value = json!({"b": [{"c": "<"}, {"c": [1, 2]}], "a": null, "d": {"e": [{"f": true}]}, "g": []});
        let table = evidence(&value).into_string();
        let texts: Vec<&str> = table
            .split(['<', '>'])
            .skip(2)
            .step_by(2)
            .filter(|text| !text.is_empty())
            .collect();
        let expected = [
            "a", "none", "g", "none", "b 1", "c", "&lt;", "b 2", "c", "1, 2", "d e", "f", "yes",
        ];
        assert_eq!(texts, expected, "{table}");
    }
}
