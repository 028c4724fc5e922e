//! `split`: splits a pool into several smaller ones.

use calipam_model::IpNet;
use calipam_model::hint::{Call, Hint};
use calipam_model::key::Key;
use calipam_model::pool::Pool;
use calipam_model::snapshot::{Snapshot, Versioned};

use calipam_model::writable::Object;
use calipam_plan::Refused;
use calipam_plan::split::{self, Split, SplitRefusal};

use crate::failure::{Failure, Result};
use crate::operator::Access;
use crate::read::read;
use crate::run::{Intent, Run};
use crate::scope::unknown_pool;
use crate::write::Repaired;

/// The name or the CIDR of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolName {
    Name(String),
    Cidr(IpNet),
}

/// A request to split a pool.
#[derive(Clone, Debug)]
pub struct SplitRequest {
    pub pool: PoolName,
    /// The number of parts: a power of two above 1.
    pub parts: u32,
    /// True to refuse the split unless the datastore is locked, as calicoctl does.
    pub needs_lock: bool,
    /// True to disable the pool first, as calicoctl does.
    pub disables_first: bool,
    pub intent: Intent,
}

/// Reads the cluster, plans, shows the plan, asks the operator, and splits the pool. Blocks stay unchanged.
///
/// # Errors
/// If an object cannot be read or written, the pool cannot be split, or the operator does not agree.
pub async fn split(access: Access<'_>, request: &SplitRequest) -> Result<Repaired> {
    let run = Run::on_live(access, &request.intent, ["split a pool", "a split"])?;
    let snapshot = read(access).await?;
    let is_locked = snapshot.is_locked();
    if request.needs_lock && !is_locked {
        let hint = Hint::new(
            "lock it with {}; `calipam split` locks it itself",
            [Call::calicoctl(["datastore", "migrate", "lock"])],
        );
        let refused = Refused::new("the datastore is not locked").hint(hint);
        return Err(SplitRefusal::NotLocked(refused).into());
    }

    let pool = find_pool(&snapshot, &request.pool)?;
    let stored = access
        .datastore
        .stored_object(Key::Pool(pool.name.clone()))
        .await?;
    let Some(Object::Pool(document)) = stored.and_then(|stored| stored.object) else {
        // The pool was deleted after it was listed.
        return Err(unknown_pool(&[&snapshot], &pool.name));
    };
    let settings = Split {
        parts: request.parts,
        disables_first: request.disables_first,
    };
    let plan = split::plan(&snapshot, pool, &document, settings)?;

    // Kubernetes has no transactions, and no pod may start or stop while the pools are written. Therefore the datastore
    // is locked, unless it is locked already, as calicoctl requires.
    let mut intent = request.intent.clone();
    if let Some(writing) = &mut intent.writing {
        writing.lock = !is_locked;
    }
    let run = Run {
        intent: &intent,
        ..run
    };
    let passed = None;
    run.write(plan, passed).await
}

impl PoolName {
    /// Returns true if it names the pool.
    fn is_of(&self, pool: &Pool) -> bool {
        match self {
            Self::Name(name) => pool.name == *name,
            // The operator may give any address of the network with its length.
            Self::Cidr(cidr) => pool.cidr == cidr.trunc(),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Cidr(cidr) => cidr.to_string(),
        }
    }
}

/// Finds the pool that is to be split, by its name or its CIDR.
fn find_pool<'s>(snapshot: &'s Snapshot, name: &PoolName) -> Result<&'s Pool> {
    let mut matching = Vec::new();
    for Versioned { value: pool, .. } in &snapshot.pools {
        if name.is_of(pool) {
            matching.push(pool);
        }
    }

    match matching[..] {
        [] => Err(unknown_pool(&[snapshot], &name.text())),
        [pool] => Ok(pool),
        [first, second, ..] => {
            let message = format!("the pools {} and {} have the same CIDR", first.name, second.name);
            Err(Failure::refused(message).hint(Hint::new(
                "name the pool: {}",
                [Call::again_with(["--name", "NAME"]).without(&["name", "cidr"])],
            )))
        }
    }
}
