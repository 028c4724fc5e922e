//! Following a datastore, with real servers.

mod etcd;
mod kubernetes;
mod lagging;

use std::sync::Arc;

use calipam_check::Options;
use calipam_datastore::Datastore;
use calipam_datastore::write::{Consent, Question};
use calipam_testkit::datastore;
use calipam_testkit::servers::Etcd;
use calipam_workflow::{
    Access, Activity, Criteria, Event, Failure, Live, LiveStart, Meter, Names, Operator, Pending, Proposal,
};
use jiff::SignedDuration;

/// An operator. `as_writing_starts` runs after the last read and before the first write.
struct Person<F> {
    agrees: bool,
    as_writing_starts: F,
}

/// An operator who is absent, and does not agree.
const UNATTENDED: Person<fn()> = Person {
    agrees: false,
    as_writing_starts: || (),
};

fn unattended(datastore: &Datastore) -> Access<'_> {
    Access::new(datastore, &UNATTENDED)
}

impl<F: Fn() + Sync> Operator for Person<F> {
    fn tell(&self, _: Event<'_>) {}

    fn start(&self, activity: Activity) -> Arc<dyn Meter> {
        if activity == Activity::Writing {
            (self.as_writing_starts)();
        }
        Arc::new(NoMeter)
    }

    fn show(&self, _: Proposal<'_>) -> Result<(), Failure> {
        Ok(())
    }

    fn can_agree(&self) -> Result<(), Failure> {
        if self.agrees {
            Ok(())
        } else {
            Err(Failure::declined())
        }
    }

    fn ask(&self, question: Question) -> Pending<'_, Result<Option<Consent>, Failure>> {
        let consent = Consent::from_option(question, self.agrees);
        Box::pin(async { Ok(consent) })
    }
}

struct NoMeter;

impl Meter for NoMeter {
    fn set(&self, _: u64, _: u64) {}

    fn end(&self) {}
}

async fn open_etcd(etcd: &Etcd) -> Datastore {
    datastore::open(datastore::etcd(etcd.endpoint())).await
}

/// Begins to follow a datastore. Findings are due after `settle` seconds.
async fn begin(datastore: &Datastore, settle: i64) -> Live {
    let start = Live::begin(unattended(datastore), &criteria(settle), Names::default()).await;
    match start.unwrap() {
        LiveStart::Followed(live) => *live,
        LiveStart::NotFollowed(reason) => panic!("{reason}"),
    }
}

/// Criteria without a grace period; findings that an operation could explain have to last for `settle` seconds.
fn criteria(settle: i64) -> Criteria {
    let options = Options {
        grace: Some(SignedDuration::ZERO),
        ..Options::default()
    };
    Criteria {
        options,
        recheck_after: SignedDuration::from_secs(settle),
    }
}
