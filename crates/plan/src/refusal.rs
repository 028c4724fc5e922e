//! Refusals of plans, made where the reason is found.

use calipam_model::hint::Hint;
use calipam_model::pool::{Pool, PoolUse};

/// The result of a part of a plan.
pub(crate) type Result<T, E = Refused> = std::result::Result<T, E>;

/// The reason why a plan is refused, and what helps. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    message: String,
    pub hint: Option<Hint>,
}

impl Refused {
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    #[must_use]
    pub fn hint(self, hint: impl Into<Hint>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

/// Refuses a pool that Calico would not create again, with other CIDRs: one with a namespace selector that is usable for
/// tunnels.
pub(crate) fn require_copyable(pool: &Pool) -> Result<()> {
    if !pool.selects_namespaces() || !pool.allows(PoolUse::Tunnel) {
        return Ok(());
    }
    Err(Refused::new(format!(
        "the pool {} has a namespaceSelector and allows the use Tunnel: Calico refuses to create a pool with both",
        pool.name
    ))
    .hint("set its allowedUses to Workload alone, or remove the namespaceSelector"))
}
