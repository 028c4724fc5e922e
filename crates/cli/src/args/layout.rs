//! The layout of help: each command shows its own options first, and hides options that it does not use.

use std::ffi::OsString;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, ValueEnum};

use super::kubectl::CONNECTION;
use super::kubectl::KubectlArgs;
use super::release::TARGETS;
use crate::format::Format;
use crate::hints;

const GLOBAL: &str = "Global options";

/// Commands that read no data.
const READ_NOTHING: [&str; 2] = ["completion", "install-links"];

/// The help of `--node` in `release`, in which the node can also be the target.
const OF_RELEASED_NODE: &str = "On its own: everything that belongs to this deleted node. With another target: only what concerns this node, deleted or not. Can be \
     repeated; wildcards `*`, `?`";

/// Moves the global options behind each command's own options, and hides options that a command does not use. Calls
/// [`Command::build`].
pub(crate) fn tidy(mut command: Command) -> Command {
    command.build();
    tidy_subcommands(&mut command, &KubectlArgs::ids())
}

/// Tidies the help of the commands below a command, at any depth: the order of their options, the formats that they
/// have, and the options that the short help leaves out. `kubectl` has the IDs of kubectl's options, which fill a
/// screen.
fn tidy_subcommands(command: &mut Command, kubectl: &[String]) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    // clap changes a command by value.
    let mut command = std::mem::take(command).mut_args(|arg| match arg.get_id().as_str() {
        "output" => arg.value_parser(FormatParser(&Format::COMMON)),
        id if kubectl.iter().any(|option| option == id) => arg.hide_short_help(true),
        _ => arg,
    });
    for name in names {
        command = command.mut_subcommand(name, |mut sub| {
            if sub.has_subcommands() {
                tidy_subcommands(&mut sub, kubectl)
            } else {
                own_options_first(sub, kubectl)
            }
        });
    }
    command
}

/// Puts a command's own options before those that all commands have, and hides options that it does not use.
fn own_options_first(command: Command, kubectl: &[String]) -> Command {
    let name = command.get_name().to_owned();
    let reads_datastore = !READ_NOTHING.contains(&name.as_str());
    let formats = Format::of_command(&name);
    command.mut_args(|arg| {
        let id = arg.get_id().as_str();
        let is_of_kubectl = kubectl.iter().any(|option| option == id);
        match id {
            "output" if formats.is_empty() => arg.hide(true),
            "output" => arg.value_parser(FormatParser(formats)).help_heading(GLOBAL),
            "verbose" | "quiet" | "color" | "help" => arg.help_heading(GLOBAL),
            _ if !reads_datastore && arg.get_help_heading() == Some(CONNECTION) => arg.hide(true),
            _ if is_of_kubectl => arg.hide_short_help(true),
            "nodes" if name == "release" => arg.help(OF_RELEASED_NODE).help_heading(TARGETS),
            "nodes" | "selector" if name == "show" => {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                arg.help(format!("{help}. On its own: the addresses on the selected nodes"))
            }
            // Only `check` compares clusters with each other.
            "routed" if name != "check" => arg.hide(true),
            // Keeps the help short: `simulate` seldom reads a cluster.
            "config" | "etcd_cacert" | "etcd_cert" | "etcd_key" | "kubeconfig" if name == "simulate" => {
                arg.hide_short_help(true)
            }
            // Keeps the help within two screens.
            "parallel" | "cluster_timeout" if name == "history" => arg.hide(true),
            _ => arg,
        }
    })
}

/// A parser that accepts every format, since `-o` can come before the command, but suggests only the formats of one
/// command.
#[derive(Clone, Copy, Debug)]
struct FormatParser(&'static [Format]);

impl TypedValueParser for FormatParser {
    type Value = Format;

    /// Parses a format that the command supports. The error of another one lists the supported ones.
    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<Format, clap::Error> {
        if let Some(format) = value.to_str().and_then(|name| Format::from_str(name, false).ok()) {
            return Ok(format);
        }
        // This parser fails, and its error lists the formats of the command.
        let parser = PossibleValuesParser::new(self.0.iter().filter_map(Format::to_possible_value));
        parser.parse_ref(command, arg, value).map(|_| Format::default())
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().filter_map(Format::to_possible_value)))
    }
}

/// True if the command line requests the complete help.
pub(crate) fn asks_for_help(arguments: &[OsString]) -> bool {
    let mut words = arguments.iter().skip(1).take_while(|word| *word != "--");
    words.any(|word| word == "--help" || word == "help")
}

/// Gives the `--help` of every command the layout of `-h`, and adds examples and notes. clap's own layout would use
/// three lines for each option. Only the help of a command with subcommands shows kubectl's options.
pub(crate) fn with_help(mut command: Command) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    let is_program = !names.is_empty();
    for name in names {
        command = command.mut_subcommand(name, with_help);
    }

    let mut full = command
        .clone()
        .mut_args(|arg| match arg.get_long_help().cloned() {
            Some(help) => arg.help(help),
            None if is_program => arg.hide_short_help(false),
            None => arg,
        });
    if let Some(text) = command.get_after_long_help() {
        full = full.after_help(text.clone());
    }
    if let Some(about) = command.get_long_about() {
        full = full.about(about.clone());
    }
    command.override_help(full.render_help())
}

/// Replaces clap's suggestion for an unknown option, such as a similar option, with the commands that have this option.
/// Returns other errors unchanged, and those about an option that no command has.
pub(crate) fn name_commands(definition: &Command, mut error: clap::Error) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let Some(long) = option.strip_prefix("--") else {
        return error;
    };

    let mut names: Vec<&str> = Vec::new();
    for command in definition.get_subcommands() {
        let has_option = command
            .get_arguments()
            .any(|arg| !arg.is_hide_set() && arg.get_long() == Some(long));
        if has_option && !command.is_hide_set() {
            names.push(command.get_name());
        }
    }
    let Some((first, others)) = names.split_first() else {
        return error;
    };

    let mut tip = format!("{} has this option", hints::command_elsewhere(&[first, option]));
    match others {
        [] => {}
        [other] => tip.push_str(&format!("; so does {other}")),
        [others @ .., last] => tip.push_str(&format!("; so do {} and {last}", others.join(", "))),
    }
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::SuggestedSubcommand);
    // clap's usage would show the option with a similar name.
    error.remove(ContextKind::Usage);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}
