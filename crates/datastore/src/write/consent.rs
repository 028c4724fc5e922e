//! Proof of the operator's consent.

use std::fmt;

/// The question to the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    pub cluster: String,
    /// The location of the datastore, without secrets.
    pub location: String,
    /// Number of addresses to release, assign or rewrite.
    pub addresses: usize,
    /// Number of blocks to change.
    pub blocks: usize,
    /// Number of handles to change.
    pub handles: usize,
    /// Number of other objects to change.
    pub others: usize,
    /// Number of pods to evict, if nothing else changes.
    pub pods: Option<usize>,
    /// True if nothing but the lock of the datastore is removed.
    pub unlocks: bool,
}

impl fmt::Display for Question {
    /// Writes the question whether to make the changes, with the number of objects of each kind.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cluster = if self.cluster.is_empty() {
            "without GUID"
        } else {
            &self.cluster
        };
        let action = if self.unlocks {
            "Unlock".to_owned()
        } else if let Some(pods) = self.pods {
            let noun = if pods == 1 { "pod" } else { "pods" };
            format!("Evict {pods} {noun} of")
        } else {
            format!("Change {} of", self.objects())
        };
        write!(f, "{action} cluster {cluster} at {}?", self.location)
    }
}

impl Question {
    /// Formats the objects that change, such as `12 addresses, 3 blocks and 11 handles`.
    fn objects(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        for (count, singular, plural) in [
            (self.addresses, "address", "addresses"),
            (self.blocks, "block", "blocks"),
            (self.handles, "handle", "handles"),
        ] {
            if count > 0 {
                let noun = if count == 1 { singular } else { plural };
                parts.push(format!("{count} {noun}"));
            }
        }
        if self.others > 0 {
            let other = if parts.is_empty() { "" } else { "other " };
            let objects = if self.others == 1 { "object" } else { "objects" };
            parts.push(format!("{} {other}{objects}", self.others));
        }

        let last = parts.pop().unwrap_or_else(|| "nothing".into());
        if parts.is_empty() {
            last
        } else {
            format!("{} and {last}", parts.join(", "))
        }
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
        let location = location.into();
        let question = Question {
            location,
            addresses: 1,
            blocks: 1,
            handles: 1,
            ..Question::default()
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

    fn question() -> Question {
        Question {
            cluster: "0f0e1d2c".into(),
            location: "https://10.0.0.5:2379".into(),
            addresses: 12,
            blocks: 3,
            handles: 11,
            ..Question::default()
        }
    }

    #[test]
    fn only_a_clear_yes_is_consent() {
        for answer in ["y", "yes", " YES\n", "Y\r\n"] {
            assert!(
                Consent::from_answer(question(), answer).is_some_and(|c| c.was_typed()),
                "{answer:?}"
            );
        }
        for answer in ["", "\n", "n", "no", "yess", "ja", "true"] {
            assert!(Consent::from_answer(question(), answer).is_none(), "{answer:?}");
        }
        assert!(Consent::from_option(question(), false).is_none());
        assert!(Consent::from_option(question(), true).is_some_and(|c| !c.was_typed()));
    }

    #[test]
    fn the_question_names_cluster_place_and_numbers() {
        let place = "of cluster 0f0e1d2c at https://10.0.0.5:2379?";
        assert_eq!(
            question().to_string(),
            format!("Change 12 addresses, 3 blocks and 11 handles {place}")
        );
        let pool = Question {
            addresses: 0,
            blocks: 0,
            handles: 0,
            others: 1,
            ..question()
        };
        assert_eq!(pool.to_string(), format!("Change 1 object {place}"));
        let lock = Question {
            unlocks: true,
            ..pool.clone()
        };
        assert_eq!(
            lock.to_string(),
            "Unlock cluster 0f0e1d2c at https://10.0.0.5:2379?"
        );
        let pods = Question {
            pods: Some(24),
            ..pool
        };
        assert_eq!(pods.to_string(), format!("Evict 24 pods {place}"));
        let undo = Question {
            addresses: 0,
            blocks: 1,
            handles: 1,
            others: 2,
            ..question()
        };
        assert_eq!(
            undo.to_string(),
            format!("Change 1 block, 1 handle and 2 other objects {place}")
        );
    }
}
