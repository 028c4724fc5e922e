//! `datastore migrate lock` and `unlock`.

use calipam_datastore::Datastore;
use calipam_datastore::write::{Consent, Question};
use calipam_model::config::ClusterInformation;
use calipam_model::key::Key;
use calipam_repair::{LockAction, set_lock};

use super::print;
use crate::args::Global;
use crate::connect;
use crate::console::Console;
use crate::exit::Failure;

pub(super) fn run(action: LockAction, global: &Global, console: &Console) -> Result<(), Failure> {
    connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        let question = Question {
            cluster: information(&datastore).await?.map(|information| information.guid).unwrap_or_default(),
            location: datastore.location(),
            others: 1,
            ..Question::default()
        };
        if let Some(consent) = Consent::from_option(question, true) {
            set_lock(&datastore, consent, action).await?;
        }
        Ok(())
    })?;
    print(if action == LockAction::Take { "Datastore locked.\n" } else { "Datastore unlocked.\n" }, console)
}

/// Reads the ClusterInformation; `None` if it is missing or cannot be decoded.
pub(super) async fn information(
    datastore: &Datastore,
) -> calipam_datastore::Result<Option<ClusterInformation>> {
    let stored = datastore.stored(&[Key::ClusterInformation("default".into())]).await?.pop().flatten();
    Ok(stored.and_then(|stored| ClusterInformation::parse(&stored.raw).ok()))
}
