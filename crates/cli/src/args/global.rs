//! Options of every command: where the data is, and how to print.

use std::ffi::OsString;
use std::path::PathBuf;

use anstream::ColorChoice;
use calipam_datastore::redact_url;
use calipam_datastore::settings::Overrides;
use clap::{ArgAction, Args, ValueEnum, ValueHint};

use super::kubectl::KubectlArgs;

/// The heading of the options that say where the data is.
pub const CONNECTION: &str = "Connection";

/// Options of every command.
#[derive(Clone, Debug, Default, Args)]
pub struct Global {
    /// Output format
    #[arg(short, long, value_enum, default_value_t, global = true, value_name = "FORMAT")]
    pub output: Format,
    /// Say on stderr what is read and from where; twice for every request
    #[arg(short, long, action = ArgAction::Count, global = true, conflicts_with = "quiet")]
    pub verbose: u8,
    /// Print no progress and no hints
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// When to print colours; `auto` is on a terminal, unless NO_COLOR or CLICOLOR_FORCE says otherwise
    #[arg(
        long,
        value_enum,
        default_value_t,
        global = true,
        value_name = "WHEN",
        hide_possible_values = true
    )]
    pub color: When,
    /// As `--color never`.
    #[arg(long, global = true, hide = true, conflicts_with = "color")]
    pub no_color: bool,

    /// `etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl
    #[arg(
        short,
        long,
        global = true,
        value_name = "etcd|kubernetes|PATH",
        value_hint = ValueHint::FilePath,
        help_heading = CONNECTION
    )]
    pub datastore: Option<String>,
    /// Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]
    #[arg(
        short,
        long,
        global = true,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        help_heading = CONNECTION
    )]
    pub config: Option<PathBuf>,
    /// URLs of etcd, comma-separated
    #[arg(long, global = true, value_name = "URLS", value_hint = ValueHint::Url, help_heading = CONNECTION)]
    pub etcd_endpoints: Option<String>,
    /// CA certificate of etcd
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        help_heading = CONNECTION
    )]
    pub etcd_cacert: Option<PathBuf>,
    /// Client certificate for etcd
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        help_heading = CONNECTION
    )]
    pub etcd_cert: Option<PathBuf>,
    /// Key of the client certificate for etcd
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        help_heading = CONNECTION
    )]
    pub etcd_key: Option<PathBuf>,
    /// The kubeconfig; with etcd, it adds pods and services to what is read
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        help_heading = CONNECTION
    )]
    pub kubeconfig: Option<String>,
    /// The context in the kubeconfig
    #[arg(long, global = true, value_name = "NAME", help_heading = CONNECTION)]
    pub context: Option<String>,
    /// kubectl's options for the connection.
    #[command(flatten)]
    pub kubectl: KubectlArgs,
}

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people
    #[default]
    Table,
    /// The table with everything in it
    Wide,
    /// YAML, schema calipam/v1
    Yaml,
    /// JSON, schema calipam/v1
    Json,
    /// Of a check: the subjects of the findings, one a line
    Name,
    /// Of a check: metrics in the text format of Prometheus
    Prometheus,
    /// Of a check: JUnit's XML, a test case for each rule
    Junit,
    /// Of a check: SARIF 2.1.0
    Sarif,
    /// Of a check: a page for a browser, with a map of the pools
    Html,
}

impl Format {
    /// True where only the report of a check has the format.
    pub fn is_for_reports(self) -> bool {
        match self {
            Self::Table | Self::Wide | Self::Yaml | Self::Json => false,
            Self::Name | Self::Prometheus | Self::Junit | Self::Sarif | Self::Html => true,
        }
    }
}

/// When to print colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal, as NO_COLOR, CLICOLOR_FORCE, CLICOLOR and TERM have it
    #[default]
    Auto,
    /// In files and pipes as well
    Always,
    /// Not at all
    Never,
}

impl When {
    /// What a command line says, before it is read: the errors of reading it have colours, too.
    pub fn of_command_line(arguments: &[OsString]) -> Self {
        let mut when = Self::default();
        let mut words = arguments.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--");
        while let Some(word) = words.next() {
            let value = match word {
                "--no-color" => Some("never"),
                "--color" => words.next(),
                _ => word.strip_prefix("--color="),
            };
            when = value.and_then(|value| Self::from_str(value, false).ok()).unwrap_or(when);
        }
        when
    }

    /// Makes it hold for all that is printed, by clap as well.
    pub fn apply(self) {
        match self {
            Self::Auto => ColorChoice::Auto,
            Self::Always => ColorChoice::Always,
            Self::Never => ColorChoice::Never,
        }
        .write_global();
    }
}

impl Global {
    /// What the command line says about the connection.
    pub fn overrides(&self) -> Overrides {
        Overrides {
            config: self.config.clone(),
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            etcd_endpoints: self.etcd_endpoints.clone(),
            etcd_cacert: self.etcd_cacert.clone(),
            etcd_cert: self.etcd_cert.clone(),
            etcd_key: self.etcd_key.clone(),
            datastore: self.datastore.clone(),
            connect_timeout: None,
            kubectl: self.kubectl.options(),
            unattended: false,
        }
    }

    /// The connection options of this call, as words of a command line. Passwords in URLs are left out.
    pub fn connection(&self) -> Vec<String> {
        let path = |path: &PathBuf| path.display().to_string();
        let urls = |urls: &String| urls.split(',').map(redact_url).collect::<Vec<_>>().join(",");
        let options = [
            ("--datastore", self.datastore.clone()),
            ("--config", self.config.as_ref().map(path)),
            ("--etcd-endpoints", self.etcd_endpoints.as_ref().map(urls)),
            ("--etcd-cacert", self.etcd_cacert.as_ref().map(path)),
            ("--etcd-cert", self.etcd_cert.as_ref().map(path)),
            ("--etcd-key", self.etcd_key.as_ref().map(path)),
            ("--kubeconfig", self.kubeconfig.clone()),
            ("--context", self.context.clone()),
        ];
        let given = options.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?]));
        given.flatten().chain(self.kubectl.words()).collect()
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
        assert_eq!(of(&["calipam", "check", "--color=never", "--fial-on"]), When::Never);
        assert_eq!(of(&["calipam", "--no-color"]), When::Never);
        for unknown in [&["--color"][..], &["--color=sometimes"], &["--", "--color=always"]] {
            assert_eq!(of(unknown), When::Auto, "{unknown:?}");
        }
    }

    #[test]
    fn a_connection_has_no_password() {
        let global = Global {
            etcd_endpoints: Some("https://root:hunter2@a:2379,https://b:2379".into()),
            context: Some("prod".into()),
            ..Global::default()
        };
        let expected = ["--etcd-endpoints", "https://a:2379,https://b:2379", "--context", "prod"];
        assert_eq!(global.connection(), expected);
    }
}
