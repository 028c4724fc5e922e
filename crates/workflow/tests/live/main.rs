//! Following a datastore, with real servers.

mod etcd;
mod kubernetes;
mod lagging;

use std::sync::Arc;

use calipam_check::Options;
use calipam_datastore::Datastore;
use calipam_datastore::settings::{LocalFiles, Overrides, Settings};
use calipam_datastore::write::{Consent, Question};
use calipam_workflow::{Activity, Criteria, Event, Failure, Meter, Operator, Pending, Proposal};
use jiff::SignedDuration;

/// An operator who is absent, and does not agree.
struct Unattended;

impl Operator for Unattended {
    fn tell(&self, _: Event<'_>) {}

    fn start(&self, _: Activity) -> Arc<dyn Meter> {
        Arc::new(Self)
    }

    fn show(&self, _: Proposal<'_>) -> Result<(), Failure> {
        Ok(())
    }

    fn can_agree(&self) -> Result<(), Failure> {
        Err(Failure::declined())
    }

    fn ask(&self, _: Question) -> Pending<'_, Result<Consent, Failure>> {
        Box::pin(async { Err(Failure::declined()) })
    }
}

impl Meter for Unattended {
    fn set(&self, _: u64, _: u64) {}

    fn end(&self) {}
}

async fn open(overrides: &Overrides) -> Datastore {
    let settings = Settings::resolve(overrides, &Default::default(), &LocalFiles).unwrap();
    Datastore::open(&settings).await.unwrap()
}

/// Criteria without a grace period; findings that an operation could explain have to last for `settle` seconds.
fn criteria(settle: i64) -> Criteria {
    let options = Options { grace: Some(SignedDuration::ZERO), ..Options::default() };
    Criteria { options, recheck_after: SignedDuration::from_secs(settle) }
}
