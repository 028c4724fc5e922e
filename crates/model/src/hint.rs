//! Hints about the next action, for errors and notes in every crate. A hint has its command lines as words; only the
//! command-line program, which knows the current call, makes text of them.

use std::borrow::Cow;

/// A string with one `{}` for each call, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    pub text: Cow<'static, str>,
    pub calls: Vec<Call>,
}

impl Hint {
    pub fn new(text: impl Into<Cow<'static, str>>, calls: impl Into<Vec<Call>>) -> Self {
        Self {
            text: text.into(),
            calls: calls.into(),
        }
    }
}

impl From<&'static str> for Hint {
    fn from(text: &'static str) -> Self {
        Self::new(text, [])
    }
}

impl From<String> for Hint {
    fn from(text: String) -> Self {
        Self::new(text, [])
    }
}

/// A command line of the program, as words, or a name that must be escaped for a terminal. The command-line program
/// quotes the words for a shell, and adds the connection options of the current call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Name(String),
    /// A command that reads the same data as the current call.
    Command(Vec<String>),
    /// A command that reads no data, or itself names its data.
    Elsewhere(Vec<String>),
    /// A command of kubectl for the cluster of the current call.
    Kubectl(Vec<String>),
    /// A command of calicoctl for the cluster of the current call.
    Calicoctl(Vec<String>),
    /// The current call with more options, and without those whose IDs are in `without`.
    Again {
        with: Vec<String>,
        without: &'static [&'static str],
    },
    /// The current call with other connection options, which replace those of the same name, and without those whose
    /// IDs are in `without`.
    Connected {
        with: Vec<String>,
        without: &'static [&'static str],
    },
    /// The current call as a dry run, which is the default of some commands.
    DryRun,
    /// The ways to choose the journal's location: an option of the current call, if there is one, and environment
    /// variables.
    JournalPlace,
}

impl Call {
    /// A command that reads the same data as the current call.
    pub fn to<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Self {
        Self::Command(owned(words))
    }

    /// A command that reads no data, or itself names its data.
    pub fn elsewhere<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Self {
        Self::Elsewhere(owned(words))
    }

    /// A command of kubectl for the cluster of the current call.
    pub fn kubectl<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Self {
        Self::Kubectl(owned(words))
    }

    /// A command of calicoctl for the cluster of the current call.
    pub fn calicoctl<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Self {
        Self::Calicoctl(owned(words))
    }

    /// The current call.
    pub fn again() -> Self {
        Self::Again {
            with: Vec::new(),
            without: &[],
        }
    }

    /// The current call with more options.
    pub fn again_with<W: Into<String>>(options: impl IntoIterator<Item = W>) -> Self {
        Self::Again {
            with: owned(options),
            without: &[],
        }
    }

    /// The current call with other connection options, which replace those of the same name.
    pub fn connected<W: Into<String>>(options: impl IntoIterator<Item = W>) -> Self {
        Self::Connected {
            with: owned(options),
            without: &[],
        }
    }

    /// Leaves out the options of the current call whose IDs, the names of their fields, are in `ids`.
    #[must_use]
    pub fn without(mut self, ids: &'static [&'static str]) -> Self {
        if let Self::Again { without, .. } | Self::Connected { without, .. } = &mut self {
            *without = ids;
        }
        self
    }
}

fn owned<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Vec<String> {
    words.into_iter().map(Into::into).collect()
}
