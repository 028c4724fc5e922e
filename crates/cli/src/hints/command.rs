//! Command lines in hints, as the user would type them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{LazyLock, OnceLock};

use calipam_datastore::settings::Overrides;
use calipam_model::words::joined;
use clap::Arg;
use clap::error::ErrorKind;

use super::call::Call;
use crate::applet::Applet;
use crate::args;
use crate::render::text::shell_word;

static NAME: OnceLock<&'static str> = OnceLock::new();
static CALL: OnceLock<Call> = OnceLock::new();
/// The connections of the clusters that this call reads, by name, if it reads a fleet.
static FLEET: OnceLock<BTreeMap<String, Call>> = OnceLock::new();

thread_local! {
    /// The cluster of the fleet for which this thread formats command lines.
    static CLUSTER: Cell<Option<&'static Call>> = const { Cell::new(None) };
}

/// The definition of the command line.
static DEFINITION: LazyLock<clap::Command> = LazyLock::new(|| {
    let mut definition = args::command();
    definition.build();
    definition
});

/// Makes hints repeat the name that the program was called by.
pub(crate) fn remember_name(applet: Applet) {
    // This fails only in tests, which may have set the name before.
    let _ = NAME.set(applet.command_prefix());
}

/// Makes hints repeat the connection options of this call. Some hints repeat the complete call.
pub(crate) fn remember_call(definition: &clap::Command, matches: &clap::ArgMatches) {
    let _ = CALL.set(Call::new(definition, matches));
}

/// Makes hints repeat the connection of a calicoctl call.
pub(crate) fn remember_connection(connection: &Overrides) {
    let _ = CALL.set(Call::of_connection(connection));
}

/// Remembers the clusters of a fleet for the rest of the process, each with its name and connection, so that
/// [`for_cluster`] can name them.
pub(crate) fn remember_fleet<'a>(clusters: impl Iterator<Item = (&'a str, &'a Overrides)>) {
    let unknown_call = Call::default();
    let call = CALL.get().unwrap_or(&unknown_call);
    let mut connections = BTreeMap::new();
    for (name, connection) in clusters {
        connections.insert(name.to_owned(), call.of_cluster(connection));
    }
    let _ = FLEET.set(connections);
}

/// Does `work`, in which command lines are for a cluster of the fleet. A name that the fleet does not have, such as an
/// empty one, changes nothing.
pub(crate) fn for_cluster<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let outer = CLUSTER.get();
    if let Some(fleet) = FLEET.get()
        && let Some(cluster) = fleet.get(name)
    {
        CLUSTER.set(Some(cluster));
    }
    let result = work();
    CLUSTER.set(outer);
    result
}

/// Returns the call whose connection leads to the cluster that command lines are for.
fn call_for_cluster() -> Option<&'static Call> {
    CLUSTER.get().or_else(|| CALL.get())
}

/// Returns the options with which a command reads the same data: that of one cluster or, if the command has the
/// options, of this call's fleet.
fn same_data(words: &[&str]) -> Vec<&'static str> {
    let mut options = match call_for_cluster() {
        Some(call) => call.same_data(),
        None => Vec::new(),
    };
    // A command line for one cluster of the fleet does not name the fleet.
    if CLUSTER.get().is_none()
        && takes_fleet(words)
        && let Some(call) = CALL.get()
    {
        options.extend(call.options(&["fleet", "routed"]));
    }
    options
}

/// True if the command with these words has the option `--fleet`.
fn takes_fleet(words: &[&str]) -> bool {
    let command = words.first().and_then(|name| DEFINITION.find_subcommand(name));
    command.is_some_and(|command| find_option(command, "--fleet").is_some())
}

/// True if this call has connection options.
pub(crate) fn names_connection() -> bool {
    CALL.get().is_some_and(|call| !call.connection().is_empty())
}

/// Formats a command line for the same cluster, quoted for a shell: the program's name, `words`, and the connection
/// options of the cluster.
pub(crate) fn command(words: &[&str]) -> String {
    line(words.iter().copied().chain(same_data(words)))
}

/// Formats a command line of kubectl for the same cluster. `words` is quoted for a shell.
pub(crate) fn kubectl(words: &str) -> String {
    kubectl_for(call_for_cluster(), words)
}

/// Formats a command line of kubectl with the connection of a call.
fn kubectl_for(call: Option<&Call>, words: &str) -> String {
    format!("`{}`", with_connection(call, &format!("kubectl {words}")))
}

/// Formats a command line of a program that has kubectl's options, for the same cluster and without backticks. `line`
/// is quoted for a shell.
pub(crate) fn with_kubectls_options(line: &str) -> String {
    with_connection(call_for_cluster(), line)
}

/// Adds the connection options of `call` to a command line of kubectl.
fn with_connection(call: Option<&Call>, line: &str) -> String {
    match call {
        Some(call) => call.of_kubectl(line),
        None => line.to_owned(),
    }
}

/// Formats a command line of calicoctl for the same cluster. `words` is quoted for a shell.
pub(crate) fn calicoctl(words: &str) -> String {
    calicoctl_for(call_for_cluster(), words)
}

/// Formats a command line of calicoctl with the connection of a call.
fn calicoctl_for(call: Option<&Call>, words: &str) -> String {
    let line = format!("calicoctl {words}");
    match call {
        Some(call) => format!("`{}`", call.of_calicoctl(&line)),
        None => format!("`{line}`"),
    }
}

/// Formats the command line that shows an address.
pub(super) fn show_address(address: &IpAddr) -> String {
    command(&["show", "--ip", &address.to_string()])
}

/// Formats the command line that lists all findings.
pub(super) fn list_findings() -> String {
    command(&["check", "-o", "wide"])
}

/// Like [`command`], but also repeats the options of this call whose IDs are in `kept`, such as options that select
/// nodes.
pub(crate) fn command_with(words: &[&str], kept: &[&str]) -> String {
    let kept = CALL.get().map(|call| call.options(kept)).unwrap_or_default();
    line(words.iter().copied().chain(kept).chain(same_data(words)))
}

/// Like [`command_with`], with the output redirected to a file.
pub(crate) fn into_file(words: &[&str], kept: &[&str], file: &str) -> String {
    format!(
        "{} > {}`",
        command_with(words, kept).trim_end_matches('`'),
        shell_word(file)
    )
}

/// Formats this call as a command line with the additional options in `added`, and without the options whose IDs are in
/// `without`. If this call is not known, formats only `added`.
pub(crate) fn this_call(added: &[&str], without: &[&str]) -> String {
    let Some(call) = CALL.get() else {
        return line(added.iter().copied());
    };
    let mut words = call.words(without);
    words.extend(added);
    words.extend(call.connection());
    line(words.into_iter())
}

/// Formats this call with other connection options. The options in `added` replace this call's options of the same
/// name, and its options whose IDs are in `without`. For a calicoctl call, formats the command line of a check.
pub(crate) fn connected(added: &[&str], without: &[&str]) -> String {
    let Some(call) = CALL.get() else {
        return line(["check"].iter().chain(added).copied());
    };

    let mut added_ids: Vec<String> = Vec::new();
    for word in added {
        if let Some(name) = word.strip_prefix("--") {
            added_ids.push(name.replace('-', "_"));
        }
    }
    let mut replaced: Vec<&str> = added_ids.iter().map(String::as_str).collect();
    replaced.extend(without);

    let mut words = call.words(&[]);
    if words.is_empty() {
        words.push("check");
    }
    words.extend(call.connection_but(&replaced));
    words.extend(added);
    line(words.into_iter())
}

/// Formats this call as a dry run, which is the default of some commands.
pub(crate) fn dry_run() -> String {
    let plans_by_default = CALL
        .get()
        .is_some_and(|call| matches!(call.words(&[])[..], ["rebuild" | "migrate", ..]));
    let added: &[&str] = if plans_by_default { &[] } else { &["--dry-run"] };
    this_call(added, &["apply", "yes", "dry_run", "max_changes"])
}

/// Formats this call with `--journal FILE`, in place of the journal that it names. Returns `None` for a call of
/// calicoctl, which has no such option.
pub(crate) fn with_journal_option() -> Option<String> {
    // Of a call of calicoctl, only the connection is known.
    let is_calicoctl = CALL.get().is_some_and(|call| !call.is_known());
    if is_calicoctl {
        return None;
    }
    Some(this_call(&["--journal", "FILE"], &["journal"]))
}

/// Formats a command line without the connection options of this call, for a command that reads no data or itself names
/// the data.
pub(crate) fn command_elsewhere(words: &[&str]) -> String {
    line(words.iter().copied())
}

/// Formats a command line of calipam for a document. Documents of one cluster are the same however calipam was called,
/// so the command line has no connection options. In a document of a fleet, the connection options name the cluster.
fn command_in_document(words: &[&str]) -> String {
    let mut words = words.to_vec();
    if FLEET.get().is_some() {
        let connection = same_data(&words);
        words.extend(connection);
    }
    let name = Applet::Calipam.command_prefix();
    format!("{name} {}", shell_words(words.into_iter()))
}

/// Formats the command line that prints all findings of this call's clusters, in a document.
pub(crate) fn findings_in_document() -> String {
    command_in_document(&["check", "-o", "json"])
}

/// Formats a command line with the name that this program was called by, in backticks.
fn line<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let name = NAME.get().copied().unwrap_or(Applet::Calipam.command_prefix());
    format!("`{name} {}`", shell_words(words))
}

/// Quotes words for a shell.
fn shell_words<'a>(words: impl Iterator<Item = &'a str>) -> String {
    joined(arranged(words).iter().map(|word| shell_word(word)), " ")
}

/// Arranges words so that they can be parsed. Values that look like options, such as the name of a node, become part of
/// their option's word, or follow `--` at the end.
fn arranged<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut command = &*DEFINITION;
    let mut line: Vec<String> = Vec::new();
    let mut after_dashes: Vec<String> = Vec::new();
    // True for a word after an option that takes a value.
    let mut is_value = false;
    for word in words {
        let looks_like_option = word.starts_with('-') && word != "-";
        if is_value
            && looks_like_option
            && let Some(option) = line.last_mut()
        {
            *option = format!("{option}={word}");
        } else if is_value || !looks_like_option || find_option(command, word).is_some() {
            line.push(word.to_owned());
        } else {
            after_dashes.push(word.to_owned());
        }
        command = command.find_subcommand(word).unwrap_or(command);
        is_value = !is_value && is_value_next(command, word);
    }
    if !after_dashes.is_empty() {
        line.push("--".to_owned());
        line.append(&mut after_dashes);
    }
    line
}

/// True if a word is an option of a command whose value is the next word.
fn is_value_next(command: &clap::Command, word: &str) -> bool {
    let takes_value = |option: &Arg| {
        option
            .get_num_args()
            .is_some_and(|values| values.min_values() > 0)
    };
    !word.contains('=') && find_option(command, word).is_some_and(takes_value)
}

/// Finds an option of a command; `None` if the word is not one.
fn find_option<'c>(command: &'c clap::Command, word: &str) -> Option<&'c Arg> {
    let mut options = command.get_arguments();
    if let Some(long) = word.strip_prefix("--") {
        // The word can also have the value: `--name=value`.
        let name = long.split('=').next();
        return options.find(|option| option.get_long() == name);
    }
    // The word `-` stands for standard input.
    let short = word.strip_prefix('-')?.chars().next()?;
    options.find(|option| option.get_short() == Some(short))
}

/// True for the words of a command line of this program, whose values may be placeholders.
pub(super) fn is_command(words: &[&str]) -> bool {
    let words = arranged(words.iter().copied());
    // An option that the command does not have is taken for a name, and follows `--`.
    let mut names = words.iter().skip_while(|word| *word != "--").skip(1);
    if names.any(|name| name.starts_with("--")) {
        return false;
    }

    let line = [Applet::Calipam.command_prefix().to_owned()]
        .into_iter()
        .chain(words);
    match DEFINITION.clone().try_get_matches_from(line) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ValueValidation,
    }
}

/// The reader of a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The person who made this call.
    Operator,
    /// A program that reads a document, or a person who reads it elsewhere or later.
    Document,
}

impl Reader {
    /// Formats a command line for the same cluster.
    pub(crate) fn command(self, words: &[&str]) -> String {
        self.command_with(words, &[])
    }

    /// Like [`Self::command`]. For the operator, also repeats the options of this call whose IDs are in `kept`.
    pub(crate) fn command_with(self, words: &[&str], kept: &[&str]) -> String {
        match self {
            Self::Operator => command_with(words, kept),
            Self::Document => format!("`{}`", command_in_document(words)),
        }
    }

    /// Formats a command line of kubectl for the same cluster. `words` is quoted for a shell.
    pub(crate) fn kubectl(self, words: &str) -> String {
        kubectl_for(self.cluster(), words)
    }

    /// Formats a command line of calicoctl for the same cluster. `words` is quoted for a shell.
    pub(crate) fn calicoctl(self, words: &str) -> String {
        calicoctl_for(self.cluster(), words)
    }

    /// Returns the call whose connection command lines repeat. A document of one cluster repeats none.
    fn cluster(self) -> Option<&'static Call> {
        match self {
            Self::Operator => call_for_cluster(),
            Self::Document => CLUSTER.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(
            line(["release", "--leaked"].into_iter()),
            "`calipam release --leaked`"
        );
        let words = ["undo", "it's", "--datastore", "my export"];
        assert_eq!(
            line(words.into_iter()),
            "`calipam undo 'it'\\''s' --datastore 'my export'`"
        );
    }

    #[test]
    fn a_dash_alone_is_not_an_option() {
        let check = DEFINITION.find_subcommand("check").unwrap();
        assert!(find_option(check, "-").is_none() && find_option(check, "--").is_none());
        assert!(find_option(check, "-o").is_some() && find_option(check, "--output=json").is_some());
    }

    /// A name can look like an option, even like one of this program.
    #[test]
    fn command_lines_parse_whatever_the_names_are() {
        for (words, expected) in [
            (
                &["release", "--node", "-x", "--dry-run"][..],
                "`calipam release --node=-x --dry-run`",
            ),
            (
                &["release", "--node", "--yes", "--yes"],
                "`calipam release --node=--yes --yes`",
            ),
            (
                &["show", "-x", "--etcd-endpoints", "http://a:1"],
                "`calipam show --etcd-endpoints http://a:1 -- -x`",
            ),
            (
                &["check", "-o", "wide", "-d", "-"],
                "`calipam check -o wide -d -`",
            ),
            (&["migrate", "--from", "-- x"], "`calipam migrate '--from=-- x'`"),
            (
                &["show", "--watch", "--blocks"],
                "`calipam show --watch --blocks`",
            ),
        ] {
            assert_eq!(line(words.iter().copied()), expected);
        }
    }
}
