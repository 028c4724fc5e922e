//! Errors of datastores. They have typed causes and contain no secrets, and most have a hint.

mod cause;
mod failure;
mod hints;
mod settings;

use std::collections::BTreeMap;

use calipam_model::hint::Hint;
use calipam_model::words::joined;

pub use self::cause::Cause;
pub(crate) use self::cause::{Attempt, innermost, sources};
pub use self::failure::{Failure, Server};
pub(crate) use self::hints::{ENDPOINTS, etcd_instead, other_context, read_snapshot};
pub use self::settings::{SettingsError, SettingsErrorKind};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a datastore could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// There is no way to connect to Kubernetes.
    #[error(
        "cannot use Kubernetes: no kubeconfig is named, there is none at ~/.kube/config, and calipam is not running in \
         a pod ({0})"
    )]
    NoCluster(String),
    /// The kubeconfig, or another setting of the connection, is invalid.
    #[error("cannot use {what}: {reason}")]
    Kubeconfig {
        /// The invalid setting, such as a kubeconfig or a certificate.
        what: String,
        reason: String,
    },
    /// The kubeconfig, or a certificate, key or token file, cannot be read.
    #[error("cannot read {what}: {reason}")]
    KubeconfigFile { what: String, reason: String },
    /// None of the etcd endpoints could be used.
    #[error("cannot use etcd: {}", tries(.0))]
    Connect(Vec<Tried>),
    #[error("{endpoint}: cannot read {what}: {failure}")]
    Request {
        server: Server,
        /// The endpoint without user and password.
        endpoint: String,
        /// The data being read.
        what: String,
        failure: Failure,
    },
    /// A write failed. It may still have taken effect, unless the server rejected it.
    #[error("{endpoint}: cannot write {what}: {failure}")]
    Write {
        server: Server,
        /// The endpoint without user and password.
        endpoint: String,
        /// The data being written.
        what: String,
        failure: Failure,
    },
    /// The user lacks these permissions in Kubernetes.
    #[error(
        "{endpoint}: the user{} lacks permissions: {}",
        user.as_ref().map(|name| format!(" {name}")).unwrap_or_default(), joined(Permission::rules(missing).iter().map(Rule::in_words), "; ")
    )]
    Permission {
        endpoint: String,
        /// The name of the user, if the API server reports it.
        user: Option<String>,
        missing: Vec<Permission>,
    },
    /// Past revisions exist only in etcd v3.
    #[error("{location}: cannot be read at a past revision: it is not etcd")]
    NoRevisions { location: String },
    /// etcd has no Calico keys.
    #[error("{location}: holds no Calico data: there is no key under /calico/")]
    NoCalico { location: String },
    /// A reason that no caller tells apart.
    #[error("{message}")]
    Other { message: String, hint: Hint },
    #[error(transparent)]
    File(#[from] calipam_files::Error),
}

/// An etcd endpoint, and the reason why it could not be used.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The endpoint without user and password.
    pub endpoint: String,
    pub failure: Failure,
}

/// An RBAC permission.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// The API group; empty for the core one.
    pub group: String,
    /// The plural of the kind.
    pub resource: String,
    pub verb: &'static str,
}

/// A rule of a role: permissions for some verbs on some resources in one API group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule<'a> {
    pub group: &'a str,
    pub resources: Vec<&'a str>,
    pub verbs: Vec<&'a str>,
}

impl Permission {
    /// The rules that grant the given permissions, ordered by group.
    pub fn rules(permissions: &[Self]) -> Vec<Rule<'_>> {
        let mut verbs_by_resource: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for Self {
            group,
            resource,
            verb,
        } in permissions
        {
            verbs_by_resource.entry((group, resource)).or_default().push(verb);
        }

        // Resources of a group with the same verbs share a rule.
        let mut resources_by_verbs: BTreeMap<(&str, Vec<&str>), Vec<&str>> = BTreeMap::new();
        for ((group, resource), verbs) in verbs_by_resource {
            resources_by_verbs
                .entry((group, verbs))
                .or_default()
                .push(resource);
        }

        let mut rules = Vec::new();
        for ((group, verbs), resources) in resources_by_verbs {
            rules.push(Rule {
                group,
                resources,
                verbs,
            });
        }
        rules
    }
}

impl Rule<'_> {
    /// Formats the rule for a message: `get, list ipamblocks (crd.projectcalico.org)`.
    fn in_words(&self) -> String {
        let verbs = self.verbs.join(", ");
        let resources = self.resources.join(", ");
        if self.group.is_empty() {
            format!("{verbs} {resources}")
        } else {
            format!("{verbs} {resources} ({})", self.group)
        }
    }

    /// Formats the rule as YAML, as an entry of a ClusterRole.
    fn yaml(&self) -> String {
        let Self {
            group,
            resources,
            verbs,
        } = self;
        let verbs = verbs.join(", ");
        format!("- {{apiGroups: [{group:?}], resources: {resources:?}, verbs: [{verbs}]}}")
    }
}

impl Error {
    /// Any other reason, with what helps.
    pub(crate) fn other(message: impl Into<String>, hint: impl Into<Hint>) -> Self {
        Self::Other {
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// True if the user must change the command line or the settings, which leads to exit code 2. All other errors lead
    /// to exit code 3, even an unreadable settings file.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Settings(error) => error.kind != SettingsErrorKind::Unreadable,
            Self::Kubeconfig { .. } => true,
            _ => false,
        }
    }

    /// True if another connection may succeed, perhaps to another endpoint.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Request { failure, .. } if failure.is_transient())
    }

    /// True if the same request may succeed a little later.
    pub fn may_pass(&self) -> bool {
        match self {
            // Only a proxy rejects reads in this way, and may accept them later.
            Self::Request {
                failure: Failure::Conflict(_) | Failure::Refused { .. },
                ..
            } => true,
            Self::Request { failure, .. } | Self::Write { failure, .. } => failure.may_pass(),
            _ => false,
        }
    }

    /// True if a request should be tried again after a pause.
    pub(crate) fn may_retry(&self) -> bool {
        self.may_pass() && !self.is_given_up()
    }

    /// True if the run has waited for the server as long as it may, so that it does not try again.
    pub fn is_given_up(&self) -> bool {
        match self {
            Self::Request { failure, .. } | Self::Write { failure, .. } => failure.is_given_up(),
            Self::Connect(tried) => tried.iter().any(|tried| tried.failure.is_given_up()),
            _ => false,
        }
    }

    /// True if a request failed since the server gave no answer within a time limit.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Request { failure, .. } | Self::Write { failure, .. } if failure.is_unanswered())
            || self.is_given_up()
    }

    /// True if the server rejects this object, but may accept others.
    pub fn is_refusal(&self) -> bool {
        let is_about_object =
            |failure: &Failure| matches!(failure, Failure::Refused { .. } | Failure::TooManyRequests);
        matches!(self, Self::Write { failure, .. } if is_about_object(failure))
    }

    /// True if the server has confirmed that it did not write, so the write cannot take effect later.
    pub fn is_certainly_unwritten(&self) -> bool {
        let said_so = |failure: &Failure| {
            matches!(
                failure,
                Failure::NoSpace
                    | Failure::TooManyOperations
                    | Failure::AuthNeeded
                    | Failure::PermissionDenied(_)
            )
        };
        self.is_refusal() || matches!(self, Self::Write { failure, .. } if said_so(failure))
    }
}

/// Joins the failures at all endpoints, each after its endpoint.
fn tries(tried: &[Tried]) -> String {
    let failures = tried
        .iter()
        .map(|attempt| format!("{}: {}", attempt.endpoint, attempt.failure));
    joined(failures, "; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_endpoints_are_named_and_only_settings_are_usage_errors() {
        let tried = |endpoint: &str, failure| Tried {
            endpoint: endpoint.into(),
            failure,
        };
        let error = Error::Connect(vec![
            tried("https://a:2379", Cause::Refused.into()),
            tried("https://b:2379", Failure::WrongPassword),
        ]);
        assert_eq!(
            error.to_string(),
            "cannot use etcd: https://a:2379: connection refused; https://b:2379: the user name or password is wrong"
        );
        assert!(!error.is_usage() && Error::from(SettingsError::no_endpoints()).is_usage());
    }
}
