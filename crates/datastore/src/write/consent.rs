//! Proof that the operator agreed.

use std::fmt;

/// What the operator is asked to agree to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The GUID of the cluster.
    pub cluster: String,
    /// Where the datastore is, without secrets.
    pub location: String,
    /// Number of addresses that are released, assigned or rewritten.
    pub addresses: usize,
    /// Number of blocks that change.
    pub blocks: usize,
    /// Number of handles that change.
    pub handles: usize,
    /// Number of other objects that change.
    pub others: usize,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cluster = if self.cluster.is_empty() { "without GUID" } else { &self.cluster };
        write!(
            f,
            "Change {} addresses, {} blocks and {} handles of cluster {cluster} at {}?",
            self.addresses, self.blocks, self.handles, self.location
        )
    }
}

/// How the operator agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    /// By an answer at a terminal.
    Typed,
    /// By an option of the call.
    Option,
}

/// Proof that the operator agreed to a [`Question`]. Nothing but the two ways to agree makes one, and
/// without one there is no [`Writer`](super::Writer).
#[derive(Clone, Debug)]
pub struct Consent {
    question: Question,
    given: Given,
}

impl Consent {
    /// Reads what was typed at a terminal as the answer to `question`: `yes` or `y`, in any case. All
    /// else, an empty line included, is no consent.
    pub fn from_answer(question: Question, answer: &str) -> Option<Self> {
        let agreed = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
        agreed.then_some(Self { question, given: Given::Typed })
    }

    /// The operator has, or has not, agreed in advance by the option `--yes`.
    pub fn from_option(question: Question, yes: bool) -> Option<Self> {
        yes.then_some(Self { question, given: Given::Option })
    }

    /// What was agreed to.
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// True where somebody typed the answer.
    pub fn was_typed(&self) -> bool {
        self.given == Given::Typed
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
            others: 0,
        }
    }

    #[test]
    fn only_a_clear_yes_is_consent() {
        for answer in ["y", "yes", " YES\n", "Y\r\n"] {
            assert!(Consent::from_answer(question(), answer).is_some_and(|c| c.was_typed()), "{answer:?}");
        }
        for answer in ["", "\n", "n", "no", "yess", "ja", "true"] {
            assert!(Consent::from_answer(question(), answer).is_none(), "{answer:?}");
        }
        assert!(Consent::from_option(question(), false).is_none());
        assert!(Consent::from_option(question(), true).is_some_and(|c| !c.was_typed()));
    }

    #[test]
    fn the_question_names_cluster_place_and_numbers() {
        assert_eq!(
            question().to_string(),
            "Change 12 addresses, 3 blocks and 11 handles of cluster 0f0e1d2c at https://10.0.0.5:2379?"
        );
    }
}
