//! What `show` prints.

mod address;
mod capacity;
mod compare;
mod lists;
mod map;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::slice;

use calipam_check::{ClusterIdentity, note_of_other_ipam};
use calipam_model::snapshot::{Coverage, Snapshot, Source};
use serde::Serialize;
use serde_json::Value;

use super::check::unread;
use super::document::{Detail, Document, unsupported};
use super::header;
use super::table::{Grid, Page};
use super::text::escape;
use super::wrap::on_page;
use crate::format::Format;

pub(crate) use self::address::AddressDetails;
pub(crate) use self::capacity::{cool_down, percent, pool_row, pools_with_bars};
pub(crate) use self::compare::agrees;

/// What `show` prints of a cluster.
pub(crate) trait View: Serialize {
    const KIND: &'static str;
    /// What `-o name` names: the kind of thing; the list in the schema that has them, or nothing if the document is about
    /// one; and the field that has the name.
    const NAMED: [&'static str; 3];

    /// What people read; see [`Document::text`].
    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()>;

    /// What programs read.
    fn schema(&self) -> impl Serialize {
        self
    }
}

/// A view with the cluster that it is of, and what was read for it.
pub(crate) struct Shown<'a, V> {
    cluster: ClusterIdentity,
    coverage: &'a BTreeMap<Source, Coverage>,
    /// Calico IPAM does not serve pods.
    note: Option<&'static str>,
    view: &'a V,
}

impl<'a, V: View> Shown<'a, V> {
    pub(crate) fn new(view: &'a V, snapshot: &'a Snapshot) -> Self {
        let (cluster, note) = (ClusterIdentity::of(snapshot), note_of_other_ipam(snapshot));
        Self { cluster, coverage: &snapshot.coverage, note, view }
    }
}

#[derive(Serialize)]
struct OfCluster<'a, T> {
    cluster: &'a ClusterIdentity,
    coverage: &'a BTreeMap<Source, Coverage>,
    #[serde(flatten)]
    view: T,
}

impl<V: View> Document for Shown<'_, V> {
    fn kind(&self) -> &'static str {
        V::KIND
    }

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        if page.rows_only {
            return self.view.text(detail, page, out);
        }
        writeln!(out, "{}", on_page(&header::cluster(&self.cluster), 0, page))?;
        if let (Detail::Full, Some(unread)) = (detail, unread(self.coverage, self.cluster.datastore)) {
            let unread = unread.replacen("not read", "Not read", 1);
            writeln!(out, "{}", on_page(&escape(&unread), 0, page))?;
        }
        if let Some(note) = self.note {
            writeln!(out, "{}", on_page(note, 0, page))?;
        }
        writeln!(out)?;
        self.view.text(detail, page, out)
    }

    fn schema(&self) -> impl Serialize {
        OfCluster { cluster: &self.cluster, coverage: self.coverage, view: self.view.schema() }
    }

    fn report(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        if format != Format::Name {
            return Err(unsupported(V::KIND, format));
        }
        let [kind, list, field] = V::NAMED;
        let content = serde_json::to_value(self.view.schema())?;
        let things = content.get(list).and_then(Value::as_array);
        let names = things.map_or(slice::from_ref(&content), Vec::as_slice).iter();
        names
            .filter_map(|thing| thing.get(field)?.as_str().filter(|name| !name.is_empty()))
            .try_for_each(|name| writeln!(out, "{kind}/{}", escape(name)))
    }
}

/// Writes a table, and the lines below it.
fn table(grid: Grid, notes: &[String], page: Page, out: &mut dyn Write) -> io::Result<()> {
    grid.write(out)?;
    if page.rows_only {
        return Ok(());
    }
    if !notes.is_empty() {
        writeln!(out)?;
    }
    notes.iter().try_for_each(|note| writeln!(out, "{}", on_page(&escape(note), 0, page)))
}

/// A text, or a dash for none.
fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// A value, or a dash for none.
fn text_or_dash(value: Option<impl std::fmt::Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| or_dash(&value.to_string()).to_owned())
}
