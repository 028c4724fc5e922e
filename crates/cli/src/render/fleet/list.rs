//! The output of a command for several clusters, with a document for each.

use std::collections::BTreeMap;
use std::io::{self, Write};

use calipam_model::IpNet;
use serde::Serialize;
use serde_json::Value;

use crate::exit::Outcome;
use crate::format::Format;
use crate::render::document::{Document, Printed, unsupported};
use crate::render::page::Text;
use crate::render::text::{escape, joined};

/// The documents of the clusters.
#[derive(Default)]
pub(crate) struct FleetList {
    pub clusters: Vec<ListOfCluster>,
    /// The errors of clusters that could not be read, by cluster.
    pub unreadable: BTreeMap<String, String>,
    /// The clusters that have only an earlier state.
    pub only_old: Vec<String>,
    /// The clusters that have only a later state.
    pub only_new: Vec<String>,
    /// The outcome of clusters without relevant results, such as clusters without a change. Most clusters of a fleet
    /// have this outcome, so a short table omits them.
    pub omits: Option<Outcome>,
    /// Sums over all clusters, as text.
    pub sums: Vec<String>,
    /// Ranges that no cluster uses, if they were requested.
    pub free: Option<Vec<IpNet>>,
    pub notes: Vec<String>,
}

/// A cluster, and its document in the output format.
pub(crate) struct ListOfCluster {
    pub cluster: String,
    pub group: Option<String>,
    pub outcome: Outcome,
    pub printed: Printed,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FleetListJson<'a> {
    notes: &'a [String],
    unreadable: Vec<OneUnreadable<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    only_old: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    only_new: &'a [String],
    clusters: Vec<OneCluster<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    free_ranges: Option<&'a [IpNet]>,
}

#[derive(Serialize)]
struct OneCluster<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    document: &'a Value,
}

/// A cluster that could not be read, with the reason.
#[derive(Serialize)]
struct OneUnreadable<'a> {
    cluster: &'a str,
    reason: &'a str,
}

impl Document for FleetList {
    const KIND: &'static str = "FleetList";

    fn text(&self, text: &mut Text) {
        let wide = text.page.wide;
        let shown = self.clusters.iter().filter(|of| wide || self.omits != Some(of.outcome));
        let texts = shown.filter_map(|of| match &of.printed {
            Printed::Text(own) => Some((of.cluster.as_str(), own.clone())),
            _ => None,
        });
        text.clusters(texts.collect());
        if self.clusters.is_empty() && self.omits.is_none() {
            text.line("No cluster has the named objects");
        }
        let free = self.free.as_deref().map(|free| match free {
            [] => "No such range is free in all clusters".to_owned(),
            free => format!("Free in all clusters: {}", joined(free, ", ")),
        });
        let only_in = |names: &[String], place| {
            (!names.is_empty()).then(|| format!("Only in {place}: {}", names.join(", ")))
        };
        let only_in = [only_in(&self.only_old, "OLD"), only_in(&self.only_new, "NEW")];
        let only_in: Vec<String> = only_in.into_iter().flatten().collect();
        text.notes(&[&only_in[..], &self.sums[..], free.as_slice(), &self.notes[..]].concat());
    }

    fn schema(&self) -> impl Serialize {
        let clusters = self.clusters.iter().filter_map(|of| match &of.printed {
            Printed::Value(document) => {
                Some(OneCluster { name: &of.cluster, group: of.group.as_deref(), document })
            }
            _ => None,
        });
        let unreadable = self.unreadable.iter().map(|(cluster, reason)| OneUnreadable { cluster, reason });
        FleetListJson {
            notes: &self.notes,
            unreadable: unreadable.collect(),
            only_old: &self.only_old,
            only_new: &self.only_new,
            clusters: clusters.collect(),
            free_ranges: self.free.as_deref(),
        }
    }

    fn report(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        for of in &self.clusters {
            let Printed::Names(names) = &of.printed else { return Err(unsupported(self.kind(), format)) };
            names.lines().try_for_each(|name| writeln!(out, "{}/{name}", escape(&of.cluster)))?;
        }
        Ok(())
    }
}
