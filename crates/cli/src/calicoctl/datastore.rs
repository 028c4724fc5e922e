//! The commands `datastore migrate lock` and `datastore migrate unlock`.

use calipam_datastore::write::{Consent, ObjectCounts, ProposedChange, Question};
use calipam_repair::{LockAction, set_lock};
use calipam_workflow::Access;

use super::Call;
use crate::exit::Result;

/// Locks or unlocks the datastore. As with calicoctl, the command itself is the consent.
pub(super) fn run(action: LockAction, call: Call<'_>) -> Result<()> {
    call.with(async |Access { datastore, .. }| {
        // The lock is a field of ClusterInformation, `datastoreReady`.
        let change = ProposedChange::Objects(ObjectCounts {
            others: 1,
            ..ObjectCounts::default()
        });
        let question = Question {
            cluster: calipam_workflow::guid(datastore).await?,
            location: datastore.location(),
            change,
        };
        set_lock(datastore, Consent::from_command(question), action).await?;
        Ok(())
    })?;

    call.print(if action == LockAction::Take {
        "Datastore locked.\n"
    } else {
        "Datastore unlocked.\n"
    })
}
