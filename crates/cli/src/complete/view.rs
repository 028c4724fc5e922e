//! The definition of the command line for completion, without hidden parts. If no word has been begun, options are
//! suggested only if neither a command nor a value can follow.

use std::ffi::OsString;
use std::sync::Arc;

use clap::{Arg, ArgAction, Command};
use clap_complete::ArgValueCompleter;

use super::cluster::Cluster;
use super::request::Request;
use crate::applet::Applet;
use crate::args;

/// Returns the definition of the command line under one of the program's names, as completion sees it for one request.
pub(super) fn build(applet: Applet, request: &Request) -> Command {
    let definition = args::tidy(applet.command());
    let cluster = Arc::new(Cluster::of(applet, request));
    let view = View {
        words_before: request.words_before(),
        options_last: request.current().is_empty(),
        cluster,
    };
    view.command(&definition).name(applet.executable())
}

struct View<'a> {
    /// The words before the cursor. Hidden commands and options among them are kept.
    words_before: &'a [OsString],
    /// True if options are hidden. clap_complete suggests hidden arguments only if there is nothing else to suggest.
    options_last: bool,
    /// The source of suggestions for values.
    cluster: Arc<Cluster>,
}

impl View<'_> {
    fn is_typed(&self, word: &str) -> bool {
        self.words_before.iter().any(|typed| typed == word)
    }

    /// Copies a command without the hidden parts, except for those that are typed already: a user who knows them gets
    /// suggestions for the rest.
    fn command(&self, definition: &Command) -> Command {
        let name = definition.get_name();
        // clap would add its own options and command for help.
        let mut view = Command::new(name.to_owned())
            .visible_aliases(self.aliases(definition))
            .display_order(definition.get_display_order())
            .disable_help_flag(true)
            .disable_version_flag(true)
            .disable_help_subcommand(true);

        for sub in definition.get_subcommands() {
            if !sub.is_hide_set() || self.is_typed(sub.get_name()) {
                view = view.subcommand(self.command(sub));
            }
        }
        for arg in definition.get_arguments() {
            if !arg.is_hide_set() || self.is_arg_typed(arg) {
                view = view.arg(self.arg(arg, name));
            }
        }
        if let Some(about) = definition.get_about() {
            view = view.about(about.clone());
        }
        view
    }

    /// Returns the other names of a command: the visible ones, and those that are typed already.
    fn aliases(&self, definition: &Command) -> Vec<String> {
        let typed = definition.get_all_aliases().filter(|alias| self.is_typed(alias));
        let aliases = definition.get_visible_aliases().chain(typed);
        aliases.map(str::to_owned).collect()
    }

    /// True if an option is on the command line, with or without a value.
    fn is_arg_typed(&self, arg: &Arg) -> bool {
        let Some(long) = arg.get_long() else {
            return false;
        };
        // The word is `--name` or `--name=value`, and not a longer option.
        let option = format!("--{long}");
        for word in self.words_before.iter().filter_map(|word| word.to_str()) {
            if let Some(value) = word.strip_prefix(&option)
                && (value.is_empty() || value.starts_with('='))
            {
                return true;
            }
        }
        false
    }

    /// Copies the parts of an argument that completion uses. References to other arguments are left out, since the view
    /// may not contain those arguments.
    fn arg(&self, definition: &Arg, command: &str) -> Arg {
        let mut arg = Arg::new(definition.get_id().clone())
            .action(match definition.get_action() {
                action if action.takes_values() => action.clone(),
                // The actions for help and version need text that the view does not contain.
                _ => ArgAction::SetTrue,
            })
            .value_hint(definition.get_value_hint())
            .allow_hyphen_values(definition.is_allow_hyphen_values_set())
            .display_order(definition.get_display_order())
            .help(definition.get_help().cloned().unwrap_or_default())
            .hide(self.options_last && !definition.is_positional());

        if let Some(heading) = definition.get_help_heading() {
            arg = arg.help_heading(heading.to_owned());
        }
        if definition.is_positional() {
            arg = arg.index(definition.get_index().unwrap_or(1));
        }
        if let Some(short) = definition.get_short() {
            arg = arg
                .short(short)
                .visible_short_aliases(definition.get_visible_short_aliases().unwrap_or_default());
        }
        if let Some(long) = definition.get_long() {
            // A hidden alias is completed only if it was typed.
            let visible = definition.get_visible_aliases().unwrap_or_default();
            let mut aliases = definition.get_all_aliases().unwrap_or_default();
            aliases.retain(|alias| visible.contains(alias) || self.is_typed(&format!("--{alias}")));
            arg = arg
                .long(long.to_owned())
                .visible_aliases(aliases.into_iter().map(str::to_owned));
        }

        if definition.get_action().takes_values() {
            arg = arg.value_parser(definition.get_value_parser().clone());
            if let Some(number) = definition.get_num_args() {
                arg = arg.num_args(number);
            }
            if let Some(delimiter) = definition.get_value_delimiter() {
                arg = arg.value_delimiter(delimiter);
            }
        }

        match self.cluster.completer(definition, command) {
            Some(completer) => arg.add::<ArgValueCompleter>(completer),
            None => arg,
        }
    }
}
