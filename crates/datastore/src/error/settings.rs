//! Errors of connection settings, made where the reason is found.

use calipam_model::hint::{Call, Hint};

use super::hints::ENDPOINTS;

/// The reason why settings cannot be used, and what helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SettingsError {
    pub kind: SettingsErrorKind,
    message: String,
    hint: Hint,
}

/// The kinds of errors that callers tell apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsErrorKind {
    /// A usage error of any other kind.
    Invalid,
    /// A file cannot be read, which is no usage error.
    Unreadable,
    /// The datastore type is neither `etcdv3`, `etcdv2` nor `kubernetes`.
    UnknownDatastore(String),
    /// The datastore is etcd, but no endpoint is set.
    NoEndpoints,
}

impl SettingsError {
    pub(crate) fn invalid(message: impl Into<String>, hint: impl Into<Hint>) -> Self {
        Self {
            kind: SettingsErrorKind::Invalid,
            message: message.into(),
            hint: hint.into(),
        }
    }

    pub(crate) fn unreadable(message: impl Into<String>, hint: impl Into<Hint>) -> Self {
        Self {
            kind: SettingsErrorKind::Unreadable,
            ..Self::invalid(message, hint)
        }
    }

    /// The error for a datastore type that calipam does not know.
    pub(crate) fn unknown_datastore(name: &str) -> Self {
        let hint =
            "DATASTORE_TYPE (field datastoreType) is `etcdv3` or `kubernetes`; `etcdv2` for Calico 2.x";
        let kind = SettingsErrorKind::UnknownDatastore(name.to_owned());
        Self {
            kind,
            ..Self::invalid(format!("unknown datastore type {name:?}"), hint)
        }
    }

    /// The error for settings of etcd without endpoints.
    pub fn no_endpoints() -> Self {
        let hint = Hint::new(
            "set them with ETCD_ENDPOINTS, the settings file's field etcdEndpoints, or {}",
            [Call::connected(ENDPOINTS)],
        );
        Self {
            kind: SettingsErrorKind::NoEndpoints,
            ..Self::invalid("no etcd endpoints are set", hint)
        }
    }

    /// The error for a context without the kubeconfig that would define it.
    pub fn context_alone(context: &str) -> Self {
        let hint = Hint::new(
            "name the kubeconfig that has it with KUBECONFIG or {}",
            [Call::connected(["--kubeconfig", "FILE"])],
        );
        Self::invalid(
            format!("the context {context:?} is named, but no kubeconfig is"),
            hint,
        )
    }

    pub fn hint(&self) -> Hint {
        self.hint.clone()
    }
}
