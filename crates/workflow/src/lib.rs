//! The work of commands without their user interface: reading and checking a cluster, planning, trying the plan in
//! memory, asking the operator, and writing. Each function turns a request into a result; messages and questions go to
//! an [`Operator`].

mod archive;
mod assign;
mod check;
mod configure;
mod diff;
mod failure;
mod history;
mod live;
mod migrate;
mod object;
mod operator;
mod preflight;
mod rates;
mod read;
mod rebuild;
mod record;
mod release;
mod reports;
mod run;
mod scope;
mod second_read;
mod split;
mod undo;
mod unfinished;
mod write;

pub use self::archive::{
    ArchivedState, Archiving, archive, archive_history, export, note_last_use, state_at, states_around,
};
pub use self::assign::{AssignRequest, assign};
pub use self::check::{CheckResult, Criteria, advise};
pub use self::configure::{ConfigureRequest, configure};
pub use self::diff::{Pair, Side, diff, read_pair, scope};
pub use self::failure::{Failure, FailureForm, Kind, Result};
pub use self::history::{History, Reach, Span, history, last_events};
pub use self::live::{Live, LiveCounts, LiveStart, SharedSnapshot, Step};
pub use self::migrate::{
    Estimate, Eviction, Group, MigrateRequest, Migrated, Moving, Pin, Surveyed, migrate,
};
pub use self::object::Object;
pub use self::operator::{Access, Activity, Event, Meter, Operator, Pending, Proposal};
pub use self::rates::{rates, rates_of_etcd, trends};
pub use self::read::{
    cluster_information, guid, read, read_around, read_around_handle, read_as, read_sources,
};
pub use self::rebuild::{RebuildRequest, rebuild};
pub use self::record::record;
pub use self::release::{ReleaseRequest, release};
pub use self::reports::{UnusableReport, no_report};
pub use self::run::{Intent, Writing};
pub use self::scope::{Found, Names, UnknownPool, matching, nearest, nearest_pod};
pub use self::second_read::check_and_confirm;
pub use self::split::{PoolName, SplitRequest, split};
pub use self::undo::{Undone, undo};
pub use self::unfinished::Unfinished;
pub use self::write::{Executed, Repaired, is_writing};
