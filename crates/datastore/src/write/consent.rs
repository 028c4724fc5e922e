//! Proof that the operator agreed.

use std::fmt;

/// What the operator is asked to agree to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
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
    /// Number of pods that are evicted at most.
    pub pods: usize,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cluster = if self.cluster.is_empty() { "without GUID" } else { &self.cluster };
        let kinds = [
            (self.addresses, "address", "addresses"),
            (self.blocks, "block", "blocks"),
            (self.handles, "handle", "handles"),
            (self.others, "other object", "other objects"),
            (self.pods, "pod", "pods"),
        ];
        let named = kinds.into_iter().filter(|(number, ..)| *number > 0);
        let mut parts: Vec<String> = named
            .map(|(number, one, many)| format!("{number} {}", if number == 1 { one } else { many }))
            .collect();
        let last = parts.pop().unwrap_or_else(|| "nothing".into());
        let first = if parts.is_empty() { String::new() } else { parts.join(", ") + " and " };
        write!(f, "Change {first}{last} of cluster {cluster} at {}?", self.location)
    }
}

/// How the operator agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    /// By an answer at a terminal.
    Typed,
    /// By an option of the call.
    Option,
    /// By the call itself: a container runtime asks for an address, or gives one back.
    Runtime,
}

/// Proof that the operator agreed to a [`Question`]. Nothing but the three ways to agree makes one, and
/// without one there is no [`Writer`](super::Writer).
#[derive(Clone, Debug)]
pub struct Consent {
    question: Question,
    given: Given,
}

impl Consent {
    /// Reads what was typed at a terminal as the answer to `question`: `yes` or `y`, in any case. All
    /// else, an empty line included, is not consent.
    pub fn from_answer(question: Question, answer: &str) -> Option<Self> {
        let agreed = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
        agreed.then_some(Self { question, given: Given::Typed })
    }

    /// The operator has, or has not, agreed in advance by an option.
    pub fn from_option(question: Question, yes: bool) -> Option<Self> {
        yes.then_some(Self { question, given: Given::Option })
    }

    /// The call of a container runtime, which the operator has set up: it stands for one change of one address at
    /// `location`.
    pub fn from_runtime(location: impl Into<String>) -> Self {
        let location = location.into();
        let question = Question { location, addresses: 1, blocks: 1, handles: 1, ..Question::default() };
        Self { question, given: Given::Runtime }
    }

    /// What was agreed to.
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// True if the answer was typed at a terminal.
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
            pods: 0,
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
        let place = "of cluster 0f0e1d2c at https://10.0.0.5:2379?";
        assert_eq!(question().to_string(), format!("Change 12 addresses, 3 blocks and 11 handles {place}"));
        let lock = Question { addresses: 0, blocks: 0, handles: 0, others: 1, ..question() };
        assert_eq!(lock.to_string(), format!("Change 1 other object {place}"));
        let undo = Question { addresses: 0, blocks: 1, handles: 1, others: 2, ..question() };
        assert_eq!(undo.to_string(), format!("Change 1 block, 1 handle and 2 other objects {place}"));
    }
}
