//! The output of `show`.

mod address;
mod compare;
mod lists;
mod map;
mod pools_and_blocks;

use std::collections::BTreeMap;
use std::io::{self, Write};

use calipam_check::{ClusterIdentity, note_of_other_ipam};
use calipam_model::snapshot::{Coverage, Snapshot, Source};
use serde::Serialize;

use super::document::{Document, unsupported};
use super::header;
use super::output::Text;
use super::sources::unread;
use super::text::escape;
use crate::format::Format;

pub(crate) use self::address::{AddressDetails, Answer, Rest, of_handle};
pub(crate) use self::compare::agrees;
pub(crate) use self::pools_and_blocks::{cool_down, percent, use_of_pools};

/// The output of `show` for a cluster.
pub(crate) trait View: Serialize {
    const KIND: &'static str;
    /// The kind of the listed objects for `-o name`: `pool` in `pool/default`.
    const NAME: &'static str;

    /// Returns the names of the listed objects. Empty names are skipped.
    fn names(&self) -> impl Iterator<Item = String>;

    /// Writes the view as text; see [`Document::text`].
    fn text(&self, text: &mut Text);
}

/// The cluster of a view, and the sources that were read for it.
#[derive(Clone, Serialize)]
pub(crate) struct Origin {
    cluster: ClusterIdentity,
    coverage: BTreeMap<Source, Coverage>,
    /// A note if Calico IPAM does not serve pods.
    #[serde(skip)]
    note: Option<&'static str>,
}

impl Origin {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        Self {
            cluster: ClusterIdentity::of(snapshot),
            coverage: snapshot.coverage.clone(),
            note: note_of_other_ipam(snapshot),
        }
    }
}

/// A view with its origin.
#[derive(Serialize)]
pub(crate) struct ViewDocument<'a, V> {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub view: &'a V,
}

impl<'a, V: View> ViewDocument<'a, V> {
    /// Shows a view of a snapshot.
    pub(crate) fn new(view: &'a V, snapshot: &Snapshot) -> Self {
        Self {
            origin: Origin::of(snapshot),
            view,
        }
    }
}

impl<V: View> Document for ViewDocument<'_, V> {
    const KIND: &'static str = V::KIND;

    /// Writes the cluster, the notes and the view.
    fn text(&self, text: &mut Text) {
        let Origin {
            cluster,
            coverage,
            note,
        } = &self.origin;
        text.line(header::cluster(cluster));
        if text.page.wide
            && let Some(unread) = unread(coverage, cluster.datastore)
        {
            text.line(format!("Not read: {unread}"));
        }
        text.lines(*note);
        text.blank();
        self.view.text(text);
    }

    /// Writes the names of the view's objects; other formats are not supported.
    fn report(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        if format != Format::Name {
            return Err(unsupported(V::KIND, format));
        }
        for name in self.view.names() {
            if !name.is_empty() {
                writeln!(out, "{}/{}", V::NAME, escape(&name))?;
            }
        }
        Ok(())
    }
}
