//! The state of a migration in YAML and JSON.

use calipam_model::IpNet;
use calipam_model::pool::Pool;
use calipam_plan::migrate::{Detour, Difference, Leftovers, NodeCapacity, Phase, User};
use calipam_workflow::{Estimate, Group, Pin, Surveyed};
use serde::Serialize;

use super::{SurveyDocument, command, notes};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownPool<'a> {
    name: &'a str,
    cidr: IpNet,
    block_size: u8,
    disabled: bool,
}

impl<'a> From<&'a Pool> for ShownPool<'a> {
    fn from(pool: &'a Pool) -> Self {
        Self { name: &pool.name, cidr: pool.cidr, block_size: pool.block_size, disabled: pool.disabled }
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShownSurvey<'a> {
    from: ShownPool<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<ShownPool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detour: Option<Detour<'a>>,
    phase: Phase,
    left: &'a Leftovers,
    capacity: &'a [NodeCapacity],
    #[serde(skip_serializing_if = "<[NodeCapacity]>::is_empty")]
    capacity_back: &'a [NodeCapacity],
    users: &'a [User],
    workloads: Vec<ShownGroup<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eviction: Option<&'a Estimate>,
    pins: &'a [Pin],
    differences: &'a [Difference],
    unread: Vec<String>,
}

impl<'a> SurveyDocument<'a> {
    pub(super) fn shown(&self) -> ShownSurvey<'a> {
        let Surveyed { survey, moving } = self.0;
        let shown = |group, moving| ShownGroup { group, command: command(group, moving) };
        let groups =
            moving.iter().flat_map(|moving| moving.workloads.iter().map(move |group| shown(group, moving)));
        ShownSurvey {
            from: (&survey.migration.old).into(),
            to: survey.migration.new.as_ref().map(ShownPool::from),
            detour: survey.migration.detour(),
            phase: survey.phase,
            left: &survey.left,
            capacity: &survey.capacity,
            capacity_back: &survey.capacity_back,
            users: &survey.users,
            workloads: groups.collect(),
            eviction: moving.as_ref().and_then(|moving| moving.estimate.as_ref()),
            pins: moving.as_ref().map_or(&[], |moving| &moving.pins),
            differences: &survey.differences,
            unread: notes(self.0),
        }
    }
}
