//! The commands `datastore migrate lock` and `datastore migrate unlock`.

use calipam_datastore::write::{Consent, Question};
use calipam_repair::{LockAction, set_lock};
use calipam_workflow::Access;

use super::Call;
use crate::exit::Result;

pub(super) fn run(action: LockAction, call: Call<'_>) -> Result<()> {
    call.with(async |Access { datastore, .. }| {
        let question = Question {
            cluster: calipam_workflow::guid(datastore).await?,
            location: datastore.location(),
            others: 1,
            ..Question::default()
        };
        if let Some(consent) = Consent::from_option(question, true) {
            set_lock(datastore, consent, action).await?;
        }
        Ok(())
    })?;
    call.print(if action == LockAction::Take {
        "Datastore locked.\n"
    } else {
        "Datastore unlocked.\n"
    })
}
