//! The arguments of `calico-ipam install` and `calico-ipam uninstall`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use calipam_model::words::{joined, shell_word};

use super::folders;
use super::problem::{Problem, Result};

pub(super) const HELP: &str = include_str!("help.txt");

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// True for `install`, false for `uninstall`.
    pub is_install: bool,
    /// The words of this call: the program, the action, and the options as they were given.
    call: Vec<String>,
    bin_dir: Option<PathBuf>,
    conf_dir: Option<PathBuf>,
    pub check: bool,
    pub dry_run: bool,
    pub watch: bool,
    pub keep: bool,
    pub listen: Option<SocketAddr>,
    pub node: Option<String>,
}

impl Options {
    /// Parses the arguments of `program`; `None` if help is requested.
    pub(super) fn read(program: &str, action: &str, words: &[String]) -> Result<Option<Self>> {
        let is_install = action == "install";
        let call = vec![program.to_owned(), action.to_owned()];
        let usage =
            |what: String| Problem::new(what).hint(&format!("`{} -h` lists the options", line(&call)));
        let mut options = Self {
            is_install,
            call: [&call[..], words].concat(),
            bin_dir: None,
            conf_dir: None,
            check: true,
            dry_run: false,
            watch: false,
            keep: false,
            listen: None,
            node: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let (name, value_after_sign) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            let is_switch = matches!(
                name,
                "-h" | "--help" | "--no-check" | "--dry-run" | "--watch" | "--keep"
            );
            if is_switch && value_after_sign.is_some() {
                return Err(usage(format!("{name} takes no value")));
            }
            let mut value = || {
                let value = value_after_sign
                    .clone()
                    .or_else(|| words.next().cloned())
                    .filter(|value| !value.is_empty());
                value.ok_or_else(|| usage(format!("{name} needs a value")))
            };
            match name {
                "-h" | "--help" => return Ok(None),
                "--bin-dir" => options.bin_dir = Some(value()?.into()),
                "--conf-dir" => options.conf_dir = Some(value()?.into()),
                "--no-check" => options.check = false,
                "--dry-run" if is_install => options.dry_run = true,
                "--watch" if is_install => options.watch = true,
                "--keep" if is_install => options.keep = true,
                "--listen" if is_install => {
                    let value = value()?;
                    let address: SocketAddr = value.parse().map_err(|_| usage(no_address(&value)))?;
                    options.listen = Some(address);
                }
                "--node" => options.node = Some(value()?),
                _ => return Err(usage(format!("unknown option {word}"))),
            }
        }
        Ok(Some(options))
    }

    /// The command line of this call that installs without checks, for hints. A dry run becomes an installation.
    pub(super) fn without_checks(&self) -> String {
        let mut words = self.call.clone();
        words.retain(|word| word != "--dry-run");
        words.push("--no-check".to_owned());
        line(&words)
    }

    /// The folders of the plugins and of the configuration.
    pub(super) fn folders(&self) -> Result<(PathBuf, PathBuf)> {
        let (plugins, configuration) = match &self.bin_dir {
            Some(folder) => (folder.clone(), PathBuf::from(folders::KNOWN[0].configuration)),
            None => folders::detect(Path::new("/"))?,
        };
        Ok((plugins, self.conf_dir.clone().unwrap_or(configuration)))
    }
}

/// The error for a value of `--listen`.
fn no_address(text: &str) -> String {
    format!("--listen takes an address with a port, such as 127.0.0.1:9796, not {text}")
}

/// Quotes the words of a command line for a shell.
fn line(words: &[String]) -> String {
    let words = words.iter().map(|word| shell_word(word));
    joined(words, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(action: &str, text: &str) -> Result<Option<Options>> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Options::read("calipam-cni", action, &words)
    }

    #[test]
    fn options_are_read_in_both_forms() {
        let text = "--watch --keep --listen=[::1]:1 --node a --bin-dir /b --conf-dir=/c --no-check --dry-run";
        let options = read("install", text).unwrap().unwrap();
        let words = text.split_whitespace().map(str::to_owned);
        let call = ["calipam-cni".to_owned(), "install".to_owned()];
        let expected = Options {
            is_install: true,
            call: call.into_iter().chain(words).collect(),
            bin_dir: Some("/b".into()),
            conf_dir: Some("/c".into()),
            check: false,
            dry_run: true,
            watch: true,
            keep: true,
            listen: Some("[::1]:1".parse().unwrap()),
            node: Some("a".into()),
        };
        assert_eq!(options, expected);
        assert_eq!(options.folders().unwrap(), ("/b".into(), "/c".into()));
        assert_eq!(read("uninstall", "--help").unwrap(), None);
    }

    #[test]
    fn errors_name_the_bad_option() {
        for (action, text, named) in [
            ("install", "--bin-dir", "--bin-dir needs a value"),
            ("install", "--node=", "--node needs a value"),
            ("install", "--listen 9796", "not 9796"),
            ("install", "-x", "unknown option -x"),
            ("uninstall", "--watch", "unknown option --watch"),
            ("install", "--no-check=false", "--no-check takes no value"),
            ("install", "--dry-run=", "--dry-run takes no value"),
        ] {
            let problem = read(action, text).unwrap_err().to_string();
            let hint = format!("hint: `calipam-cni {action} -h` lists");
            assert!(problem.contains(named) && problem.contains(&hint), "{problem}");
        }
    }

    #[test]
    fn a_hint_keeps_the_folders_of_the_call() {
        let options = read("install", "--bin-dir /b --dry-run --conf-dir=/c")
            .unwrap()
            .unwrap();
        let expected = "calipam-cni install --bin-dir /b --conf-dir=/c --no-check";
        assert_eq!(options.without_checks(), expected);
    }
}
