//! Conversion of allocator and datastore errors for a runtime, with a code that says whether a retry can help.

use std::time::Duration;

use calipam_assign::plugin::Failure;
use calipam_assign::{Error, StoreError};

use crate::protocol::{CniError, Code};

/// Converts a failure of the plugin to the error for the runtime. Its code says whether a later attempt can succeed.
pub(crate) fn from_plugin(failure: Failure<CniError>) -> CniError {
    let may_pass = match &failure {
        // A look-up already fails with an error for the runtime.
        Failure::LookUp(error) => return error.clone(),
        Failure::TooSlow(_) => true,
        Failure::Allocator(error) => may_pass(error),
        Failure::Existing { error, .. } | Failure::Owner { error, .. } => may_pass(error),
        Failure::Short { .. } | Failure::NothingToMigrate(_) => false,
    };
    CniError::new(code(may_pass), failure.to_string())
}

/// Converts an allocator error. The code is 999 as in Calico, or 11 if a retry can help.
pub(crate) fn from_allocator(error: &Error) -> CniError {
    CniError::new(code(may_pass(error)), error.to_string())
}

pub(crate) fn from_datastore(error: &calipam_datastore::Error) -> CniError {
    CniError::new(code(datastore_may_pass(error)), error.to_string())
}

pub(crate) fn too_slow(limit: Duration) -> CniError {
    from_plugin(Failure::TooSlow(limit))
}

fn code(may_pass: bool) -> Code {
    if may_pass {
        Code::TryAgainLater
    } else {
        Code::Internal
    }
}

/// True if a later attempt can succeed, since the error came from other clients or from the connection.
fn may_pass(error: &Error) -> bool {
    match error {
        Error::TooManyConflicts | Error::InProgress { .. } | Error::BlockChanged(_) => true,
        Error::Store(StoreError::Unavailable(source)) => source
            .downcast_ref::<calipam_datastore::Error>()
            .is_some_and(datastore_may_pass),
        Error::Store(error) => error.is_lost_race(),
        _ => false,
    }
}

fn datastore_may_pass(error: &calipam_datastore::Error) -> bool {
    match error {
        calipam_datastore::Error::Connect(tried) => tried.iter().any(|tried| tried.failure.may_pass()),
        error => error.may_pass(),
    }
}

#[cfg(test)]
mod tests {
    use calipam_datastore::{Cause, Failure, Server, Tried};

    use super::*;

    fn connect(failures: Vec<Failure>) -> calipam_datastore::Error {
        let tried = |failure| Tried {
            endpoint: "http://a:2379".into(),
            failure,
        };
        calipam_datastore::Error::Connect(failures.into_iter().map(tried).collect())
    }

    #[test]
    fn transient_errors_have_code_11() {
        let dead = from_datastore(&connect(vec![Failure::WrongPassword, Cause::Refused.into()]));
        assert!(
            dead.code == Code::TryAgainLater && dead.msg.contains("connection refused"),
            "{dead}"
        );
        let write = calipam_datastore::Error::Write {
            server: Server::Etcd,
            endpoint: "http://a:2379".into(),
            what: "a".into(),
            failure: Cause::TimedOut(10).into(),
        };
        let error = Error::Store(StoreError::Unavailable(Box::new(write)));
        assert_eq!(from_allocator(&error).code, Code::TryAgainLater);
        assert_eq!(from_allocator(&Error::TooManyConflicts).code.number(), 11);
        assert_eq!(too_slow(Duration::from_secs(90)).code.number(), 11);
    }

    #[test]
    fn permanent_errors_have_code_999() {
        assert_eq!(
            from_datastore(&connect(vec![Failure::WrongPassword])).code,
            Code::Internal
        );
        let error = Error::AlreadyAssigned("10.0.0.1".parse().unwrap());
        let text = "resource already exists: 10.0.0.1 with error: Address already assigned in block";
        assert_eq!(from_allocator(&error), CniError::internal(text));
        assert_eq!(from_allocator(&Error::BlockLimit).code, Code::Internal);
    }
}
