//! The output of a command for several clusters, with a document for each.

use std::io::{self, Write};

use calipam_model::IpNet;
use serde::Serialize;

use crate::exit::Outcome;
use crate::format::Format;
use crate::render::document::{Document, Printed, unsupported};
use crate::render::output::Text;
use crate::render::text::{escape, joined};

/// The documents of the clusters.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FleetList {
    pub notes: Vec<String>,
    /// The clusters that could not be read, by name.
    pub unreadable: Vec<Unreadable>,
    /// The clusters that have only an earlier state.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only_old: Vec<String>,
    /// The clusters that have only a later state.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only_new: Vec<String>,
    pub clusters: Vec<ListOfCluster>,
    /// Ranges that no cluster uses, if they were requested.
    #[serde(rename = "freeRanges", skip_serializing_if = "Option::is_none")]
    pub free: Option<Vec<IpNet>>,
    /// The outcome of clusters without relevant results, such as clusters without a change. Most clusters of a fleet
    /// have this outcome, so a short table omits them.
    #[serde(skip)]
    pub omits: Option<Outcome>,
    /// Sums over all clusters, as text.
    #[serde(skip)]
    pub sums: Vec<String>,
}

/// A cluster, and its document in the output format.
#[derive(Serialize)]
pub(crate) struct ListOfCluster {
    #[serde(rename = "name")]
    pub cluster: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(skip)]
    pub outcome: Outcome,
    #[serde(rename = "document")]
    pub printed: Printed,
}

/// A cluster that could not be read, with the reason.
#[derive(PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Unreadable {
    pub cluster: String,
    pub reason: String,
}

impl FleetList {
    /// Returns the documents of the clusters, each with the cluster's name. A table that is not wide omits some of
    /// them.
    fn documents(&self, wide: bool) -> Vec<(&str, Text)> {
        let mut documents = Vec::new();
        for cluster in &self.clusters {
            let is_omitted = !wide && self.omits == Some(cluster.outcome);
            if let Printed::Text(document) = &cluster.printed
                && !is_omitted
            {
                documents.push((cluster.cluster.as_str(), document.clone()));
            }
        }
        documents
    }

    /// Returns the lines below the documents: clusters that only one side of a comparison has, sums over all clusters,
    /// free ranges, and the notes.
    fn lines_below(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for (names, side) in [(&self.only_old, "OLD"), (&self.only_new, "NEW")] {
            if !names.is_empty() {
                lines.push(format!("Only in {side}: {}", names.join(", ")));
            }
        }
        lines.extend(self.sums.iter().cloned());
        lines.extend(self.line_of_free_ranges());
        lines.extend(self.notes.iter().cloned());
        lines
    }

    /// Formats the ranges that are free in all clusters; `None` if they were not requested.
    fn line_of_free_ranges(&self) -> Option<String> {
        let free = self.free.as_ref()?;
        if free.is_empty() {
            return Some("No such range is free in all clusters".to_owned());
        }
        Some(format!("Free in all clusters: {}", joined(free, ", ")))
    }
}

impl Document for FleetList {
    const KIND: &'static str = "FleetList";

    /// Writes the documents of the clusters, and then the notes about all of them.
    fn text(&self, out: &mut Text) {
        out.clusters(self.documents(out.page.wide));
        // A list that omits clusters without relevant results can be empty although some have the objects.
        if self.clusters.is_empty() && self.omits.is_none() {
            out.line("No cluster has the named objects");
        }
        out.notes(&self.lines_below());
    }

    /// Writes a line `CLUSTER/NAME` for each object, as `-o name` requests.
    fn report(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        for list in &self.clusters {
            let Printed::Names(object_names) = &list.printed else {
                return Err(unsupported(self.kind(), format));
            };
            let cluster = escape(&list.cluster);
            for name in object_names.lines() {
                writeln!(out, "{cluster}/{name}")?;
            }
        }
        Ok(())
    }
}
