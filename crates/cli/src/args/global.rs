//! Options of every command, for the connection and the output.

use std::ffi::OsString;
use std::path::PathBuf;

use anstream::ColorChoice;
use calipam_datastore::settings::Overrides;
use clap::ValueHint::{FilePath, Url};
use clap::{ArgAction, Args, ValueEnum};

use super::kubectl::{CONNECTION, KubectlArgs};
use crate::format::Format;

/// Options of every command.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Global {
    /// Output format
    #[arg(
        short,
        long,
        value_enum,
        default_value_t,
        global = true,
        value_name = "FORMAT"
    )]
    pub output: Format,
    /// Log to stderr what is read and from where; -vv logs every request
    #[arg(short, long, action = ArgAction::Count, global = true, conflicts_with = "quiet")]
    pub verbose: u8,
    /// Print no progress, notes or hints; a failure keeps its hint
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Use colors: `auto` (on a terminal), `always` or `never`
    #[arg(
        long,
        value_enum,
        default_value_t,
        global = true,
        value_name = "WHEN",
        hide_possible_values = true
    )]
    pub color: When,

    /// `etcd`, `etcdv2` (Calico 2.x), `kubernetes`, or a file: an export, an etcd snapshot, or
    /// kubectl's JSON output; `-` reads stdin
    #[arg(short, long, global = true, value_name = "SOURCE", value_hint = FilePath, help_heading = CONNECTION)]
    pub datastore: Option<String>,
    /// calicoctl's configuration file [default: /etc/calico/calicoctl.cfg]
    #[arg(short, long, global = true, value_name = "FILE", value_hint = FilePath, help_heading = CONNECTION)]
    pub config: Option<PathBuf>,
    /// etcd URLs, comma-separated
    #[arg(long, global = true, value_name = "URLS", value_hint = Url, help_heading = CONNECTION)]
    pub etcd_endpoints: Option<String>,
    /// CA certificate for etcd
    #[arg(long, global = true, value_name = "FILE", value_hint = FilePath, help_heading = CONNECTION)]
    pub etcd_cacert: Option<PathBuf>,
    /// Client certificate for etcd
    #[arg(long, global = true, value_name = "FILE", value_hint = FilePath, help_heading = CONNECTION)]
    pub etcd_cert: Option<PathBuf>,
    /// Key of the client certificate for etcd
    #[arg(long, global = true, value_name = "FILE", value_hint = FilePath, help_heading = CONNECTION)]
    pub etcd_key: Option<PathBuf>,
    /// The kubeconfig; with etcd, also used to read pods and services
    #[arg(long, global = true, value_name = "FILE", value_hint = FilePath, help_heading = CONNECTION)]
    pub kubeconfig: Option<String>,
    /// The context; kubectl's other options, such as --cluster, work too
    #[arg(id = "context", long = "context", global = true, value_name = "NAME", help_heading = CONNECTION)]
    pub contexts: Vec<String>,
    /// kubectl's options for the connection.
    #[command(flatten)]
    pub kubectl: KubectlArgs,
    /// The name of the datastore in documents, if it is a file that the user did not name.
    #[arg(skip)]
    pub shown_as: Option<String>,
}

/// The use of colors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless NO_COLOR, CLICOLOR_FORCE, CLICOLOR or TERM say otherwise
    #[default]
    Auto,
    /// In files and pipes as well
    Always,
    /// Not at all
    Never,
}

impl When {
    /// Finds the value of `--color` before the command line is parsed, since the parser's errors are also colored.
    pub(crate) fn of_command_line(arguments: &[OsString]) -> Self {
        value_in_words(arguments.iter().cloned(), "color", None).unwrap_or_default()
    }

    /// Applies this choice to all output, including clap's.
    pub(crate) fn apply(self) {
        match self {
            Self::Auto => ColorChoice::Auto,
            Self::Always => ColorChoice::Always,
            Self::Never => ColorChoice::Never,
        }
        .write_global();
    }
}

/// Finds the last valid value of an option on a command line that may otherwise be invalid, such as the format in which
/// the failure of that command line is printed. Returns `None` if the option has no valid value.
pub(crate) fn value_in_words<V: ValueEnum>(
    words: impl Iterator<Item = OsString>,
    long: &str,
    short: Option<char>,
) -> Option<V> {
    let mut words = words
        .map(|word| word.to_string_lossy().into_owned())
        .take_while(|word| word != "--");
    let mut last_valid = None;
    while let Some(word) = words.next() {
        let value = match find_value(&word, long, short) {
            Some(ValuePlace::SameWord(value)) => Some(value.to_owned()),
            Some(ValuePlace::NextWord) => words.next(),
            None => None,
        };
        if let Some(valid) = value.and_then(|value| V::from_str(&value, false).ok()) {
            last_valid = Some(valid);
        }
    }
    last_valid
}

/// The place of an option's value on the command line.
enum ValuePlace<'w> {
    /// `--output=json`, `-ojson`
    SameWord(&'w str),
    /// `--output json`, `-o json`
    NextWord,
}

/// Finds the place of an option's value; `None` if the word does not have this option.
fn find_value<'w>(word: &'w str, long: &str, short: Option<char>) -> Option<ValuePlace<'w>> {
    if let Some(name) = word.strip_prefix("--") {
        let rest = name.strip_prefix(long)?;
        if rest.is_empty() {
            return Some(ValuePlace::NextWord);
        }
        // Without `=`, this is another option, with a longer name.
        return rest.strip_prefix('=').map(ValuePlace::SameWord);
    }
    match joined_value(word, short?)? {
        "" => Some(ValuePlace::NextWord),
        value => Some(ValuePlace::SameWord(value.trim_start_matches('='))),
    }
}

/// Returns the text after a short option in a word, such as `json` in `-vojson`; `None` if the word has no such option.
fn joined_value(word: &str, short: char) -> Option<&str> {
    let (flags, value) = word.strip_prefix('-')?.split_once(short)?;
    // These options take no value. After another letter, `short` belongs to the value of that letter's option.
    flags.chars().all(|flag| "qvy".contains(flag)).then_some(value)
}

impl Global {
    /// True if the options name several contexts or use wildcards.
    pub(crate) fn names_several(&self) -> bool {
        self.contexts.len() > 1 || self.contexts.iter().any(|name| name.contains(['*', '?']))
    }

    /// Returns the connection settings of the command line.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            config: self.config.clone(),
            kubeconfig: self.kubeconfig.clone(),
            context: self.contexts.first().cloned(),
            etcd_endpoints: self.etcd_endpoints.clone(),
            etcd_cacert: self.etcd_cacert.clone(),
            etcd_cert: self.etcd_cert.clone(),
            etcd_key: self.etcd_key.clone(),
            datastore: self.datastore.clone(),
            shown_as: self.shown_as.clone(),
            connect_timeout: None,
            kubectl: self.kubectl.options(),
            unattended: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_chosen_before_the_command_line_is_read() {
        let of =
            |words: &[&str]| When::of_command_line(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of(&["calipam", "check"]), When::Auto);
        assert_eq!(of(&["calipam", "--color", "always", "check"]), When::Always);
        assert_eq!(
            of(&["calipam", "check", "--color=never", "--fial-on"]),
            When::Never
        );
        for unknown in [
            &["--color"][..],
            &["--color=sometimes"],
            &["--", "--color=always"],
        ] {
            assert_eq!(of(unknown), When::Auto, "{unknown:?}");
        }
    }

    #[test]
    fn the_format_is_found_on_a_wrong_command_line() {
        let of = |line: &str| value_in_words(line.split(' ').map(Into::into), "output", Some('o'));
        for line in [
            "-o json chek",
            "check -ojson",
            "check --outpt x -qo json",
            "--output=json",
            "x --output json",
        ] {
            assert_eq!(of(line), Some(Format::Json), "{line}");
        }
        for line in [
            "check",
            "check -o xml",
            "check --only json",
            "explain -- -o json",
            "check -dojson",
            "-o",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
        assert_eq!(of("check -o json -o=yaml"), Some(Format::Yaml));
    }
}
