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

/// The IDs of the connection options that name files.
const OPTIONS_OF_FILES: [&str; 5] = ["config", "etcd_cacert", "etcd_cert", "etcd_key", "kubeconfig"];

/// The help of `--node` in `release`, in which the node can also be the target.
const OF_RELEASED_NODE: &str = "On its own: everything that belongs to this deleted node. With another target: only what concerns this node, deleted or not. Can be \
     repeated; wildcards `*`, `?`";

/// Moves the global options behind each command's own options, and hides options that a command does not use. Calls
/// [`Command::build`].
pub(crate) fn tidy(mut command: Command) -> Command {
    command.build();
    tidy_subcommands(command, &KubectlArgs::ids())
}

/// Tidies the help of the commands below a command, at any depth: the order of their options, the formats that they
/// have, and the options that the short help leaves out. `kubectl` has the IDs of kubectl's options, which fill a
/// screen.
fn tidy_subcommands(command: Command, kubectl: &[String]) -> Command {
    let command = command.mut_args(|arg| match arg.get_id().as_str() {
        "output" => arg.value_parser(FormatParser(&Format::COMMON)),
        id if kubectl.iter().any(|option| option == id) => arg.hide_short_help(true),
        _ => arg,
    });
    command.mut_subcommands(|sub| {
        if sub.has_subcommands() {
            tidy_subcommands(sub, kubectl)
        } else {
            own_options_first(sub, kubectl)
        }
    })
}

/// Puts a command's own options before those that all commands have, and hides options that it does not use.
fn own_options_first(command: Command, kubectl: &[String]) -> Command {
    let name = command.get_name().to_owned();
    let reads_datastore = !READ_NOTHING.contains(&name.as_str());
    let formats = Format::of_command(&name);
    command.mut_args(|arg| match arg.get_id().as_str() {
        "output" if formats.is_empty() => arg.hide(true),
        "output" => arg.value_parser(FormatParser(formats)).help_heading(GLOBAL),
        "verbose" | "quiet" | "color" | "help" => arg.help_heading(GLOBAL),
        _ if !reads_datastore && arg.get_help_heading() == Some(CONNECTION) => arg.hide(true),
        // kubectl's options would fill the screen.
        id if kubectl.iter().any(|option| option == id) => arg.hide_short_help(true),
        _ => adapt_help(arg, &name),
    })
}

/// Changes the help of an option that differs between commands, for the command of this name.
fn adapt_help(arg: Arg, command: &str) -> Arg {
    let id = arg.get_id().as_str();
    // Only `check` compares clusters with each other.
    if id == "routed" && command != "check" {
        return arg.hide(true);
    }
    match command {
        "release" if id == "nodes" => arg.help(OF_RELEASED_NODE).help_heading(TARGETS),
        "show" if ["nodes", "selector"].contains(&id) => {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            arg.help(format!("{help}. On its own: the addresses on the selected nodes"))
        }
        // Keeps the help short: `simulate` seldom reads a cluster.
        "simulate" if OPTIONS_OF_FILES.contains(&id) => arg.hide_short_help(true),
        // Keeps the help within two screens.
        "history" if ["parallel", "cluster_timeout"].contains(&id) => arg.hide(true),
        _ => arg,
    }
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
    command = command.mut_subcommands(with_help);

    let shows_all_options = command.has_subcommands();
    let mut full = command
        .clone()
        .mut_args(|arg| match arg.get_long_help().cloned() {
            Some(help) => arg.help(help),
            None if shows_all_options => arg.hide_short_help(false),
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
    let Some(name) = unknown_option(&error) else {
        return error;
    };
    let commands = commands_with_option(definition, name);
    let Some((first, others)) = commands.split_first() else {
        return error;
    };

    let example = hints::command_elsewhere(&[first, &format!("--{name}")]);
    let mut tip = format!("{example} has this option");
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

/// Returns the name of the unknown long option that an error is about, without its dashes; `None` for other errors.
fn unknown_option(error: &clap::Error) -> Option<&str> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) => option.strip_prefix("--"),
        _ => None,
    }
}

/// Returns the names of the commands whose help shows a long option.
fn commands_with_option<'c>(definition: &'c Command, name: &str) -> Vec<&'c str> {
    let mut names = Vec::new();
    for command in definition.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let mut options = command.get_arguments().filter(|arg| !arg.is_hide_set());
        if options.any(|option| option.get_long() == Some(name)) {
            names.push(command.get_name());
        }
    }
    names
}
