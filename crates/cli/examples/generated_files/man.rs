//! Man pages from the definition of the command line, with the examples and exit codes of the help.

use std::io;

use clap::builder::Resettable;
use clap::{Arg, ArgAction, Command};

/// The program and version that the pages name as their source.
const SOURCE: &str = concat!("calipam ", env!("CARGO_PKG_VERSION"));

/// The environment variables for commands that read data.
const ENVIRONMENT: [(&str, &str); 7] = [
    (
        "DATASTORE_TYPE",
        "etcdv3, etcdv2 or kubernetes, as for calicoctl. The name with the prefix CALICO_ takes precedence, here and below.",
    ),
    ("ETCD_ENDPOINTS", "etcd URLs, comma-separated."),
    (
        "ETCD_CA_CERT_FILE, ETCD_CERT_FILE, ETCD_KEY_FILE",
        "Certificates and key for etcd.",
    ),
    ("ETCD_USERNAME, ETCD_PASSWORD", "User and password for etcd."),
    (
        "KUBECONFIG",
        "The kubeconfig; with etcd, also used to read pods and services.",
    ),
    (
        "NO_COLOR, CLICOLOR_FORCE",
        "Print no colors, or print them to files and pipes as well; --color overrides both.",
    ),
    (
        "XDG_STATE_HOME",
        "The parent folder of the journals; otherwise ~/.local/state.",
    ),
];

const FILES: [(&str, &str); 3] = [
    (
        "/etc/calico/calicoctl.cfg",
        "calicoctl's configuration file; if it exists, the variables above are ignored.",
    ),
    ("~/.kube/config", "The kubeconfig, if no other is named."),
    (
        "~/.local/state/calipam/*.journal",
        "Journals of runs that wrote something, for calipam undo.",
    ),
];

/// The exit codes for commands whose help lists none.
const EXIT_STATUS: &str =
    "0 done; 1 something was refused or does not exist; 2 usage; 3 datastore or file; 4 internal.";

/// Returns the file name and text of each visible command's page.
pub(crate) fn man_pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let root = calipam::command();
    let mut names = vec![page_name(&root)];
    names.extend(visible(&root).map(page_name));
    let pages = std::iter::once(&root).chain(visible(&root));
    pages
        .map(|command| Ok((format!("{}.1", page_name(command)), page(command, &names)?)))
        .collect()
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

fn page_name(command: &Command) -> String {
    command
        .get_display_name()
        .unwrap_or(command.get_name())
        .to_owned()
}

fn page(command: &Command, names: &[String]) -> io::Result<Vec<u8>> {
    let name = page_name(command);
    let help = command.get_after_long_help().or_else(|| command.get_after_help());
    let help = Help::read(&help.map(ToString::to_string).unwrap_or_default());
    // The help text after the options is added below, under the usual headings of man pages.
    let plain = command
        .clone()
        .after_help(Resettable::Reset)
        .after_long_help(Resettable::Reset);
    let man = clap_mangen::Man::new(plain)
        .title(name.clone())
        .manual("calipam")
        .source(SOURCE)
        .date("");
    let mut begin = Vec::new();
    man.render_title(&mut begin)?;
    man.render_name_section(&mut begin)?;
    let mut text = String::from_utf8_lossy(&begin).into_owned();
    section(&mut text, "SYNOPSIS");
    text.push_str(&synopsis(command));
    section(&mut text, "DESCRIPTION");
    // The first paragraph is in the section NAME.
    let about = command
        .get_long_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    about
        .split("\n\n")
        .skip(1)
        .for_each(|lines| paragraph(&mut text, &[lines.to_owned()]));
    help.notes.iter().for_each(|note| paragraph(&mut text, note));
    let mut options = Vec::new();
    man.render_options_section(&mut options)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut options)?;
    }
    text.push_str(&String::from_utf8_lossy(&options));

    let example = format!("  {} --help", name.replacen('-', " ", 1));
    let examples = if help.examples.is_empty() {
        vec![example]
    } else {
        help.examples
    };
    section(&mut text, "EXAMPLES");
    verbatim(&mut text, &examples);
    section(&mut text, "EXIT STATUS");
    paragraph(
        &mut text,
        &[help.exit_status.unwrap_or_else(|| EXIT_STATUS.to_owned())],
    );
    section(&mut text, "ENVIRONMENT");
    ENVIRONMENT
        .iter()
        .for_each(|(name, says)| item(&mut text, name, says));
    section(&mut text, "FILES");
    FILES.iter().for_each(|(name, says)| item(&mut text, name, says));
    section(&mut text, "SEE ALSO");
    let others = names.iter().filter(|other| **other != name);
    let others: Vec<String> = others
        .map(|other| format!("\\fB{}\\fR(1)", escape(other)))
        .collect();
    text.push_str(&others.join(",\n"));
    text.push('\n');
    Ok(ascii(&text).into_bytes())
}

/// Formats the synopsis of a command: required arguments, then its own options in the order of the help. Options that
/// exclude each other are alternatives.
fn synopsis(command: &Command) -> String {
    let is_own = |arg: &&Arg| {
        !arg.is_hide_set() && !arg.is_global_set() && !["help", "version"].contains(&arg.get_id().as_str())
    };
    let own: Vec<&Arg> = command.get_arguments().filter(is_own).collect();
    let alternatives: Vec<(bool, Vec<&Arg>)> = command
        .get_groups()
        .filter(|group| !(*group).clone().is_multiple())
        .map(|group| {
            let members = group
                .get_args()
                .filter_map(|id| own.iter().copied().find(|arg| arg.get_id() == id));
            (group.is_required_set(), members.collect())
        })
        .collect();

    let mut needed = Vec::new();
    let mut options = Vec::new();
    let mut arguments = Vec::new();
    let mut said: Vec<&Arg> = Vec::new();
    for arg in &own {
        if said.contains(arg) {
            continue;
        }
        let group = alternatives.iter().find(|(_, members)| members.contains(arg));
        let (required, members) = match group {
            Some((required, members)) => (*required, members.clone()),
            None => (arg.is_required_set(), vec![*arg]),
        };
        let texts: Vec<String> = members.iter().map(|arg| as_typed(arg)).collect();
        let text = match (required, texts.as_slice()) {
            (true, [one]) => one.clone(),
            (true, _) => format!("{{{}}}", texts.join(" | ")),
            (false, _) => format!("[{}]", texts.join(" | ")),
        };
        let again = if members.iter().all(|arg| is_repeated(arg)) {
            "..."
        } else {
            ""
        };
        let place = match (required, arg.is_positional()) {
            (true, _) => &mut needed,
            (false, true) => &mut arguments,
            (false, false) => &mut options,
        };
        place.push(text + again);
        said.extend(members);
    }
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut words = [
        vec![format!("\\fB{}\\fR", escape(name))],
        needed,
        options,
        arguments,
    ]
    .concat();
    if command.has_subcommands() {
        words.push("\\fICOMMAND\\fR".into());
    }
    words.push("[\\fIGLOBAL OPTION\\fR]...".into());
    // Turns off hyphenation, and aligns the text to the left.
    format!(".nh\n.ad l\n{}\n.ad\n.hy\n", words.join("\n"))
}

fn is_repeated(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append | ArgAction::Count)
}

/// Formats an option or argument with its value.
fn as_typed(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default().iter();
    let value = names
        .map(|name| format!("\\fI{}\\fR", escape(name)))
        .collect::<Vec<_>>()
        .join(" ");
    let value = match (arg.get_action().takes_values(), arg.is_require_equals_set()) {
        (false, _) => String::new(),
        (true, true) => format!("[={value}]"),
        (true, false) if arg.is_positional() => value,
        (true, false) => format!("\\~{value}"),
    };
    match arg.get_long() {
        Some(long) => format!("\\fB\\-\\-{}\\fR{value}", escape(long)),
        None => value,
    }
}

/// The parts of the help text that follow the options.
#[derive(Default)]
struct Help {
    examples: Vec<String>,
    exit_status: Option<String>,
    /// The lines of the other paragraphs.
    notes: Vec<Vec<String>>,
}

impl Help {
    fn read(text: &str) -> Self {
        let mut help = Self::default();
        for paragraph in text
            .split("\n\n")
            .filter(|paragraph| !paragraph.trim().is_empty())
        {
            let lines: Vec<String> = paragraph.lines().map(str::to_owned).collect();
            let first = lines[0].trim();
            if first == "Examples:" || first == "Example:" {
                help.examples.extend(lines.into_iter().skip(1));
            } else if let Some(begin) = first.strip_prefix("Exit codes:") {
                let rest = lines.iter().skip(1).map(|line| line.trim());
                let words: Vec<&str> = std::iter::once(begin.trim()).chain(rest).collect();
                help.exit_status = Some(words.join(" "));
            } else {
                help.notes.push(lines);
            }
        }
        help
    }
}

fn section(text: &mut String, title: &str) {
    text.push_str(&format!(".SH \"{title}\"\n"));
}

/// Adds lines that roff prints as they are, without filling.
fn verbatim(text: &mut String, lines: &[String]) {
    text.push_str(".nf\n");
    lines
        .iter()
        .for_each(|line| text.push_str(&(escape(line) + "\n")));
    text.push_str(".fi\n");
}

/// Adds a paragraph; indented lines are not filled.
fn paragraph(text: &mut String, lines: &[String]) {
    text.push_str(".PP\n");
    for run in lines.chunk_by(|a, b| a.starts_with(' ') == b.starts_with(' ')) {
        if run[0].starts_with(' ') {
            verbatim(text, run);
        } else {
            run.iter().for_each(|line| text.push_str(&(escape(line) + "\n")));
        }
    }
}

fn item(text: &mut String, name: &str, says: &str) {
    text.push_str(&format!(".TP\n\\fB{}\\fR\n{}\n", escape(name), escape(says)));
}

/// Escapes a line for roff.
fn escape(line: &str) -> String {
    let escaped = line
        .replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('`', "\\(ga")
        .replace('\'', "\\(aq");
    if escaped.starts_with('.') {
        format!("\\&{escaped}")
    } else {
        escaped
    }
}

/// Escapes non-ASCII characters for groff.
fn ascii(text: &str) -> String {
    let each = |c: char| {
        if c.is_ascii() {
            c.to_string()
        } else {
            format!("\\[u{:04X}]", c as u32)
        }
    };
    text.chars().map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_the_sections_of_a_man_page() {
        let pages = man_pages().unwrap();
        assert!(pages.len() > 8);
        for (name, page) in pages {
            let page = String::from_utf8(page).unwrap();
            assert!(page.is_ascii(), "{name}");
            for title in [
                "SYNOPSIS",
                "DESCRIPTION",
                "EXAMPLES",
                "EXIT STATUS",
                "ENVIRONMENT",
                "FILES",
                "SEE ALSO",
            ] {
                assert_eq!(
                    page.matches(&format!(".SH \"{title}\"\n")).count(),
                    1,
                    "{title} of {name}"
                );
            }
            assert!(!page.contains(".SH EXTRA"), "{name}");
            let section = |title: &str| {
                page.split(title)
                    .nth(1)
                    .unwrap()
                    .split("\n.SH")
                    .next()
                    .unwrap()
                    .trim()
            };
            let summary = section(".SH NAME\n").split_once(" \\- ").unwrap().1;
            let description = section(".SH \"DESCRIPTION\"\n");
            assert!(!description.starts_with(".PP\n.SH"), "{name}: {description}");
            assert!(!description.contains(summary), "{name}: {description}");
            assert!(description.len() > summary.len(), "{name}: {description}");
            // The synopsis does not name global options.
            let synopsis = section(".SH \"SYNOPSIS\"\n");
            let has_global = synopsis.contains("\\-\\-etcd");
            assert!(
                synopsis.contains("GLOBAL OPTION") && !has_global,
                "{name}: {synopsis}"
            );
        }
    }

    #[test]
    fn lines_never_begin_with_a_roff_request() {
        assert_eq!(escape(".so /etc/passwd"), "\\&.so /etc/passwd");
        assert_eq!(escape("'it\\s-x"), "\\(aqit\\es\\-x");
        assert_eq!(ascii("a…"), "a\\[u2026]");
    }
}
