//! The arguments of `calico-ipam install` and `calico-ipam uninstall`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::folders;
use super::problem::{Problem, Result};

pub(super) const HELP: &str = include_str!("help.txt");

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// True for `install`, false for `uninstall`.
    pub is_install: bool,
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
    /// Parses the arguments; `None` if help is requested.
    pub(super) fn read(action: &str, words: &[String]) -> Result<Option<Self>> {
        let is_install = action == "install";
        let mut options = Self {
            is_install,
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
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            let mut value = || {
                let value = value
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
                "--listen" if is_install => options.listen = Some(address(&value()?)?),
                "--node" if is_install => options.node = Some(value()?),
                _ => return Err(usage(format!("unknown option {word}"))),
            }
        }
        Ok(Some(options))
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

fn address(text: &str) -> Result<SocketAddr> {
    text.parse().map_err(|_| {
        usage(format!(
            "--listen takes an address with a port, such as 127.0.0.1:9796, not {text}"
        ))
    })
}

fn usage(what: String) -> Problem {
    Problem::new(what).hint("`calico-ipam install -h` lists the options")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(action: &str, text: &str) -> Result<Option<Options>> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Options::read(action, &words)
    }

    #[test]
    fn options_are_read_in_both_forms() {
        let text = "--watch --keep --listen=[::1]:1 --node a --bin-dir /b --conf-dir=/c --no-check --dry-run";
        let options = read("install", text).unwrap().unwrap();
        let expected = Options {
            is_install: true,
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
        ] {
            let problem = read(action, text).unwrap_err().to_string();
            assert!(problem.contains(named) && problem.contains("hint: "), "{problem}");
        }
    }
}
