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

/// Makes [`for_cluster`] know the clusters of a fleet, each with its name and connection.
pub(crate) fn remember_fleet<'a>(clusters: impl Iterator<Item = (&'a str, &'a Overrides)>) {
    let none = Call::default();
    let call = CALL.get().unwrap_or(&none);
    let connections = clusters.map(|(name, connection)| (name.to_owned(), call.of_cluster(connection)));
    let _ = FLEET.set(connections.collect());
}

/// Does `work`, in which command lines are for a cluster of the fleet. A name that the fleet does not have, such as an
/// empty one, changes nothing.
pub(crate) fn for_cluster<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let outer = CLUSTER.get();
    CLUSTER.set(FLEET.get().and_then(|fleet| fleet.get(name)).or(outer));
    let result = work();
    CLUSTER.set(outer);
    result
}

/// Returns the call whose connection leads to the cluster that command lines are for.
fn of_cluster() -> Option<&'static Call> {
    CLUSTER.get().or_else(|| CALL.get())
}

/// Returns the options with which a command reads the same data: that of one cluster or, if the command has the options,
/// of this call's fleet.
fn same_data(words: &[&str]) -> Vec<&'static str> {
    let mut data = of_cluster().map(Call::same_data).unwrap_or_default();
    let command = words.first().and_then(|name| DEFINITION.find_subcommand(name));
    let reads_fleets = command.is_some_and(|command| option(command, "--fleet").is_some());
    if let Some(call) = CALL.get()
        && reads_fleets
        && CLUSTER.get().is_none()
    {
        data.extend(call.options(&["fleet", "routed"]));
    }
    data
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
    kubectl_for(of_cluster(), words)
}

fn kubectl_for(call: Option<&Call>, words: &str) -> String {
    format!("`{}`", of_kubectl(call, &format!("kubectl {words}")))
}

/// Formats a command line of a program that has kubectl's options, for the same cluster and without backticks. `line` is
/// quoted for a shell.
pub(crate) fn with_kubectls_options(line: &str) -> String {
    of_kubectl(of_cluster(), line)
}

fn of_kubectl(call: Option<&Call>, line: &str) -> String {
    match call {
        Some(call) => call.of_kubectl(line),
        None => line.to_owned(),
    }
}

/// Formats a command line of calicoctl for the same cluster. `words` is quoted for a shell.
pub(crate) fn calicoctl(words: &str) -> String {
    calicoctl_for(of_cluster(), words)
}

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

/// Formats this call with the additional options in `more`, and without the options whose IDs are in `without`.
pub(crate) fn again(more: &[&str], without: &[&str]) -> String {
    let Some(call) = CALL.get() else {
        return line(more.iter().copied());
    };
    line(
        call.words(without)
            .into_iter()
            .chain(more.iter().copied())
            .chain(call.connection()),
    )
}

/// Formats this call with other connection options. The options in `more` replace this call's options of the same name,
/// and its options whose IDs are in `without`. For a calicoctl call, formats the command line of a check.
pub(crate) fn connected(more: &[&str], without: &[&str]) -> String {
    let Some(call) = CALL.get() else {
        return line(["check"].iter().chain(more).copied());
    };
    let ids: Vec<String> = more
        .iter()
        .filter_map(|word| Some(word.strip_prefix("--")?.replace('-', "_")))
        .collect();
    let replaced: Vec<&str> = ids
        .iter()
        .map(String::as_str)
        .chain(without.iter().copied())
        .collect();
    let mut words = call.words(&[]);
    if words.is_empty() {
        words.push("check");
    }
    line(
        words
            .into_iter()
            .chain(call.connection_but(&replaced))
            .chain(more.iter().copied()),
    )
}

/// Formats this call as a dry run, which is the default of some commands.
pub(crate) fn dry_run() -> String {
    let plans = CALL
        .get()
        .is_some_and(|call| matches!(call.words(&[])[..], ["rebuild" | "migrate", ..]));
    let dry_run: &[&str] = if plans { &[] } else { &["--dry-run"] };
    again(dry_run, &["apply", "yes", "dry_run", "max_changes"])
}

/// Formats this call with another journal; `None` for a calicoctl call, which has no option for the journal.
pub(crate) fn with_journal() -> Option<String> {
    let is_ours = CALL.get().is_none_or(Call::is_known);
    is_ours.then(|| again(&["--journal", "FILE"], &["journal"]))
}

/// Formats a command line without the connection options of this call, for a command that reads no data or itself names
/// the data.
pub(crate) fn command_elsewhere(words: &[&str]) -> String {
    line(words.iter().copied())
}

/// Formats a command line for a document. It does not depend on how calipam was called, unless the document is about a
/// fleet: then it names the cluster.
fn command_in_document(words: &[&str]) -> String {
    let data = if FLEET.get().is_some() {
        same_data(words)
    } else {
        Vec::new()
    };
    format!(
        "{} {}",
        Applet::Calipam.command_prefix(),
        shell_words(words.iter().copied().chain(data))
    )
}

/// Formats the command line that prints all findings of this call's clusters, in a document.
pub(crate) fn findings_in_document() -> String {
    command_in_document(&["check", "-o", "json"])
}

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
    let mut last: Vec<String> = Vec::new();
    let mut is_value = false;
    for word in words {
        let looks_like_option = word.starts_with('-') && word != "-";
        match line.last_mut() {
            Some(option) if is_value && looks_like_option => *option = format!("{option}={word}"),
            _ if is_value || !looks_like_option => line.push(word.to_owned()),
            _ if option(command, word).is_some() => line.push(word.to_owned()),
            _ => last.push(word.to_owned()),
        }
        command = command.find_subcommand(word).unwrap_or(command);
        let takes_value = |arg: &Arg| arg.get_num_args().is_some_and(|values| values.min_values() > 0);
        is_value = !is_value && !word.contains('=') && option(command, word).is_some_and(takes_value);
    }
    if !last.is_empty() {
        line.push("--".to_owned());
        line.append(&mut last);
    }
    line
}

/// Finds an option of a command; `None` if the word is not one.
fn option<'c>(command: &'c clap::Command, word: &str) -> Option<&'c Arg> {
    let is_named = |arg: &&Arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long() == long.split('=').next(),
        None => word
            .strip_prefix('-')
            .is_some_and(|short| arg.get_short() == short.chars().next()),
    };
    command.get_arguments().find(is_named)
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

    /// The call whose connection command lines repeat. A document of one cluster repeats none.
    fn cluster(self) -> Option<&'static Call> {
        match self {
            Self::Operator => of_cluster(),
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
