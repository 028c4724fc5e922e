//! The end times of a pod's containers.

use std::borrow::Cow;

use calipam_model::time::parse_time;
use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serializer};
use serde_json::json;

use super::Result;
use super::meta::seconds;
use super::wire::{Take, decode, each};
use crate::protobuf::Value;

/// The state of a container in `status.containerStatuses`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Container {
    /// Running, according to the kubelet.
    Running,
    /// Waiting, perhaps for its first start.
    #[default]
    Waiting,
    /// Ended; `None` if the kubelet does not know when.
    Ended(Option<Timestamp>),
}

/// The time at which the last of the containers ended; `None` if one could be running, a time is unknown, or none has
/// ended.
pub(crate) fn all_ended_at<'a>(containers: impl IntoIterator<Item = &'a Container>) -> Option<Timestamp> {
    let mut last_end = None;
    for container in containers {
        match container {
            Container::Running | Container::Ended(None) => return None,
            Container::Waiting => {}
            Container::Ended(end) => last_end = last_end.max(*end),
        }
    }
    last_end
}

/// Writes the containers with a known end in the form of `status.containerStatuses`.
pub(crate) fn to_json<S: Serializer>(containers: &[Container], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(containers.iter().filter_map(|container| match container {
        Container::Ended(Some(at)) => Some(json!({"state": {"terminated": {"finishedAt": at.to_string()}}})),
        _ => None,
    }))
}

/// Reads `status.containerStatuses` and similar fields. Of each container, only its state is kept.
pub(crate) fn from_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Container>, D::Error> {
    #[derive(Deserialize)]
    struct Status<'a> {
        #[serde(borrow)]
        state: Option<State<'a>>,
    }
    #[derive(Deserialize)]
    struct State<'a> {
        running: Option<IgnoredAny>,
        #[serde(borrow)]
        terminated: Option<Terminated<'a>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Terminated<'a> {
        #[serde(borrow)]
        finished_at: Option<Cow<'a, str>>,
    }
    let statuses = Option::<Vec<Status<'_>>>::deserialize(deserializer)?.unwrap_or_default();
    let container = |status: Status<'_>| {
        let Some(State { running, terminated }) = status.state else {
            return Container::Waiting;
        };
        if let Some(ended) = terminated {
            return Container::Ended(ended.finished_at.as_deref().and_then(parse_time));
        }
        if running.is_some() {
            Container::Running
        } else {
            Container::Waiting
        }
    };
    Ok(statuses.into_iter().map(container).collect())
}

/// Number of the field of a `ContainerStatus` with the container's state.
const STATE: u32 = 2;
/// Numbers of the fields of a `ContainerState`.
const RUNNING: u32 = 2;
const TERMINATED: u32 = 3;

impl<'a> Take<'a> for Container {
    /// Reads a `ContainerStatus` message.
    fn take(&mut self, status: Value<'a>) -> Result<()> {
        each(status.bytes(), |field, state| {
            if field == STATE {
                self.read_state(state.bytes())?;
            }
            Ok(())
        })
    }
}

impl Container {
    /// Reads a `ContainerState` message. Without one of its fields, the container is waiting.
    fn read_state(&mut self, message: &[u8]) -> Result<()> {
        each(message, |field, value| {
            match field {
                RUNNING => *self = Self::Running,
                TERMINATED => *self = Self::Ended(finished_at(value.bytes())?),
                _ => {}
            }
            Ok(())
        })
    }
}

/// Reads `ContainerStateTerminated.finishedAt`. A time that is not set is an empty message.
fn finished_at(message: &[u8]) -> Result<Option<Timestamp>> {
    decode!(message, at: Option<Timestamp>, value, {
        6 => at = Some(seconds(value.bytes())?).filter(|s| *s > 0).and_then(|s| Timestamp::from_second(s).ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &serde_json::Value) -> Option<String> {
        all_ended_at(&from_json(json).unwrap()).map(|at| at.to_string())
    }

    #[test]
    fn the_last_end_counts_where_all_have_ended() {
        let ended = |at: &str| json!({"name": "a", "ready": false, "state": {"terminated": {"exitCode": 1, "finishedAt": at}}});
        let early = ended("2026-05-01T10:00:00Z");
        let late = ended("2026-05-01T11:00:00Z");
        let waiting = json!({"state": {"waiting": {"reason": "PodInitializing"}}});
        let running = json!({"state": {"running": {"startedAt": "2026-05-01T10:00:00Z"}}});
        let unseen =
            json!({"state": {"terminated": {"reason": "ContainerStatusUnknown", "finishedAt": null}}});
        let last = Some("2026-05-01T11:00:00Z".to_owned());
        assert_eq!(read(&json!([late, early])), last);
        assert_eq!(read(&json!([waiting, late])), last);
        assert_eq!(read(&json!([late, {"name": "no state"}])), last);
        for unknown in [
            json!([]),
            json!(null),
            json!([waiting]),
            json!([late, running]),
            json!([late, unseen]),
        ] {
            assert_eq!(read(&unknown), None, "{unknown}");
        }
        let ended = Container::Ended("2026-05-01T11:00:00Z".parse().ok());
        let kept = to_json(&[ended], serde_json::value::Serializer).unwrap();
        assert_eq!(read(&kept), last);
    }
}
