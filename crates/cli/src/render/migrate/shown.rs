//! The document of the state of a migration.

use calipam_model::IpNet;
use calipam_model::pool::Pool;
use calipam_plan::migrate::{Detour, Difference, Leftovers, NodeCapacity, Phase, User};
use calipam_workflow::{Estimate, Group, Moving, Pin, Surveyed};
use serde::Serialize;

use super::{command, notes};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownPool<'a> {
    name: &'a str,
    cidr: IpNet,
    block_size: u8,
    disabled: bool,
}

impl<'a> From<&'a Pool> for ShownPool<'a> {
    /// Shows a pool by its name and its blocks.
    fn from(pool: &'a Pool) -> Self {
        Self {
            name: &pool.name,
            cidr: pool.cidr,
            block_size: pool.block_size,
            disabled: pool.disabled,
        }
    }
}

#[derive(Serialize)]
struct ShownGroup<'a> {
    #[serde(flatten)]
    group: &'a Group,
    /// The command that moves the group's pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

/// The state of a migration.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SurveyDocument<'a> {
    #[serde(skip)]
    pub(super) surveyed: &'a Surveyed,
    from: ShownPool<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<ShownPool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detour: Option<Detour<'a>>,
    pub(super) phase: Phase,
    left: &'a Leftovers,
    capacity: &'a [NodeCapacity],
    #[serde(skip_serializing_if = "<[NodeCapacity]>::is_empty")]
    capacity_back: &'a [NodeCapacity],
    users: &'a [User],
    workloads: Vec<ShownGroup<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eviction: Option<&'a Estimate>,
    pub(super) pins: &'a [Pin],
    differences: &'a [Difference],
    pub(super) unread: Vec<String>,
}

impl<'a> SurveyDocument<'a> {
    /// Shows the survey of a migration as a document.
    pub(crate) fn new(surveyed: &'a Surveyed) -> Self {
        let Surveyed { survey, moving } = surveyed;
        Self {
            surveyed,
            from: (&survey.migration.old).into(),
            to: survey.migration.new.as_ref().map(ShownPool::from),
            detour: survey.migration.detour(),
            phase: survey.phase,
            left: &survey.leftovers,
            capacity: &survey.capacity,
            capacity_back: &survey.capacity_back,
            users: &survey.users,
            workloads: moving.as_ref().map(shown_groups).unwrap_or_default(),
            eviction: moving.as_ref().and_then(|moving| moving.estimate.as_ref()),
            pins: moving.as_ref().map_or(&[], |moving| &moving.pins),
            differences: &survey.differences,
            unread: notes(surveyed),
        }
    }
}

/// Shows the workloads to move, each with the command that moves it.
fn shown_groups(moving: &Moving) -> Vec<ShownGroup<'_>> {
    let mut groups = Vec::new();
    for group in &moving.workloads {
        groups.push(ShownGroup {
            group,
            command: command(group, moving),
        });
    }
    groups
}
