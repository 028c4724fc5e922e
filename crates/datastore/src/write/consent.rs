//! Proof of the operator's consent.

use std::fmt;

use calipam_model::words::{count, join};

/// The question to the operator, whether to change a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub cluster: String,
    /// The location of the datastore, without secrets.
    pub location: String,
    pub change: ProposedChange,
}

/// The change that the operator is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposedChange {
    /// Objects of the datastore are written.
    Objects(ObjectCounts),
    /// Pods are evicted, and nothing else changes.
    Eviction { pods: usize },
    /// The lock of the datastore is removed, and nothing else changes.
    Unlock,
}

/// The numbers of objects to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Number of addresses to release, assign or rewrite.
    pub addresses: usize,
    pub blocks: usize,
    pub handles: usize,
    /// Number of other objects.
    pub others: usize,
}

impl fmt::Display for Question {
    /// Writes the question whether to make the changes, with the number of objects of each kind.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cluster = if self.cluster.is_empty() {
            "without GUID"
        } else {
            &self.cluster
        };
        let action = match self.change {
            ProposedChange::Objects(objects) => format!("Change {objects} of"),
            ProposedChange::Eviction { pods } => format!("Evict {} of", count(pods, "pod", "pods")),
            ProposedChange::Unlock => "Unlock".to_owned(),
        };
        write!(f, "{action} cluster {cluster} at {}?", self.location)
    }
}

impl Question {
    /// The number of objects of the datastore that may be written after a yes.
    pub fn objects(&self) -> usize {
        match self.change {
            ProposedChange::Objects(ObjectCounts {
                addresses: _,
                blocks,
                handles,
                others,
            }) => blocks + handles + others,
            ProposedChange::Eviction { .. } => 0,
            // The lock is a field of ClusterInformation.
            ProposedChange::Unlock => 1,
        }
    }
}

impl fmt::Display for ObjectCounts {
    /// Formats the numbers, such as `12 addresses, 3 blocks and 11 handles`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        if self.addresses > 0 {
            parts.push(count(self.addresses, "address", "addresses"));
        }
        if self.blocks > 0 {
            parts.push(count(self.blocks, "block", "blocks"));
        }
        if self.handles > 0 {
            parts.push(count(self.handles, "handle", "handles"));
        }
        if self.others > 0 && parts.is_empty() {
            parts.push(count(self.others, "object", "objects"));
        } else if self.others > 0 {
            parts.push(count(self.others, "other object", "other objects"));
        }

        if parts.is_empty() {
            return f.write_str("nothing");
        }
        f.write_str(&join(&parts))
    }
}

/// Proof that the operator agreed to a [`Question`]. There are only four ways to create it, and without it there is no
/// [`Writer`](super::Writer).
#[derive(Clone, Debug)]
pub struct Consent {
    question: Question,
    was_typed: bool,
}

impl Consent {
    /// Consent by an answer to `question` that was typed at a terminal: `yes` or `y`, in upper or lower case. Anything
    /// else, even an empty line, is not consent.
    pub fn from_answer(question: Question, answer: &str) -> Option<Self> {
        let agreed = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
        agreed.then_some(Self {
            question,
            was_typed: true,
        })
    }

    /// Consent in advance by an option; `None` without the option.
    pub fn from_option(question: Question, yes: bool) -> Option<Self> {
        yes.then_some(Self {
            question,
            was_typed: false,
        })
    }

    /// Consent by a command whose call is the consent, since it asks no question.
    pub fn from_command(question: Question) -> Self {
        Self {
            question,
            was_typed: false,
        }
    }

    /// Consent by the call of a container runtime, which the operator has set up. It covers one change of one address
    /// at `location`.
    pub fn from_runtime(location: impl Into<String>) -> Self {
        let question = Question {
            cluster: String::new(),
            location: location.into(),
            change: ProposedChange::Objects(ObjectCounts {
                addresses: 1,
                blocks: 1,
                handles: 1,
                others: 0,
            }),
        };
        Self {
            question,
            was_typed: false,
        }
    }

    /// The question that the operator agreed to.
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// True if the answer was typed at a terminal.
    pub fn was_typed(&self) -> bool {
        self.was_typed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(change: ProposedChange) -> Question {
        Question {
            cluster: "0f0e1d2c".into(),
            location: "https://10.0.0.5:2379".into(),
            change,
        }
    }

    const RELEASE: ProposedChange = ProposedChange::Objects(ObjectCounts {
        addresses: 12,
        blocks: 3,
        handles: 11,
        others: 0,
    });

    #[test]
    fn only_a_clear_yes_is_consent() {
        for answer in ["y", "yes", " YES\n", "Y\r\n"] {
            assert!(
                Consent::from_answer(question(RELEASE), answer).is_some_and(|c| c.was_typed()),
                "{answer:?}"
            );
        }
        for answer in ["", "\n", "n", "no", "yess", "ja", "true"] {
            assert!(
                Consent::from_answer(question(RELEASE), answer).is_none(),
                "{answer:?}"
            );
        }
        assert!(Consent::from_option(question(RELEASE), false).is_none());
        assert!(Consent::from_option(question(RELEASE), true).is_some_and(|c| !c.was_typed()));
    }

    #[test]
    fn the_question_names_cluster_place_and_numbers() {
        let of_cluster = "of cluster 0f0e1d2c at https://10.0.0.5:2379?";
        let pool = ObjectCounts {
            others: 1,
            ..ObjectCounts::default()
        };
        let undo = ObjectCounts {
            blocks: 1,
            handles: 1,
            others: 2,
            ..ObjectCounts::default()
        };
        for (change, text) in [
            (
                RELEASE,
                format!("Change 12 addresses, 3 blocks and 11 handles {of_cluster}"),
            ),
            (
                ProposedChange::Objects(pool),
                format!("Change 1 object {of_cluster}"),
            ),
            (
                ProposedChange::Objects(undo),
                format!("Change 1 block, 1 handle and 2 other objects {of_cluster}"),
            ),
            (
                ProposedChange::Eviction { pods: 1234 },
                format!("Evict 1,234 pods {of_cluster}"),
            ),
            (
                ProposedChange::Unlock,
                "Unlock cluster 0f0e1d2c at https://10.0.0.5:2379?".to_owned(),
            ),
        ] {
            assert_eq!(question(change).to_string(), text);
        }
    }
}
