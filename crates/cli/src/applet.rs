//! The names under which the program can be called.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::args;

/// The name that the program was called by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applet {
    /// `calipam`, or any unknown name.
    Calipam,
    Ipam,
    /// `kubectl-ipam`: the kubectl plugin `kubectl ipam`.
    KubectlIpam,
    /// `kubectl-calico`: the kubectl plugin `kubectl calico`, whose commands are below `ipam`.
    KubectlCalico,
    /// `calicoctl`: commands that are compatible with those of calicoctl ([`crate::calicoctl`]).
    Calicoctl,
}

/// Returns the file name of a program, without `.exe`.
fn file_name(program: &OsStr) -> &str {
    let name = Path::new(program)
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    name.strip_suffix(".exe").unwrap_or(name)
}

impl Applet {
    /// All names except `calicoctl`.
    pub(crate) const ALL: [Self; 4] = [Self::Calipam, Self::Ipam, Self::KubectlIpam, Self::KubectlCalico];

    /// Returns the name that `program` (the first argument of the process) stands for.
    pub(crate) fn of(program: OsString) -> Self {
        let name = file_name(&program);
        let mut all = Self::ALL.into_iter().chain([Self::Calicoctl]);
        all.find(|applet| applet.executable() == name)
            .unwrap_or(Self::Calipam)
    }

    /// Returns the name as users type it, such as `kubectl ipam`. kubectl joins the words of a plugin with a dash.
    pub(crate) fn called_as(self) -> &'static str {
        match self {
            Self::KubectlIpam => "kubectl ipam",
            Self::KubectlCalico => "kubectl calico",
            Self::Calipam | Self::Ipam | Self::Calicoctl => self.executable(),
        }
    }

    /// Returns the name of the executable file.
    pub(crate) fn executable(self) -> &'static str {
        match self {
            Self::Calipam => "calipam",
            Self::Ipam => "ipam",
            Self::KubectlIpam => "kubectl-ipam",
            Self::KubectlCalico => "kubectl-calico",
            Self::Calicoctl => "calicoctl",
        }
    }

    /// Returns the program that kubectl runs to complete this plugin; `None` if it is not a plugin.
    pub(crate) fn completer(self) -> Option<&'static str> {
        match self {
            Self::KubectlIpam => Some("kubectl_complete-ipam"),
            Self::KubectlCalico => Some("kubectl_complete-calico"),
            Self::Calipam | Self::Ipam | Self::Calicoctl => None,
        }
    }

    /// Returns the plugin that `program` (the first argument of the process) completes, if any.
    pub(crate) fn completed_by(program: &OsStr) -> Option<Self> {
        let name = file_name(program);
        Self::ALL
            .into_iter()
            .find(|applet| applet.completer() == Some(name))
    }

    /// Returns the words that users type before a command. `kubectl calico` has its commands below `ipam`.
    pub(crate) fn command_prefix(self) -> &'static str {
        match self {
            Self::KubectlCalico => "kubectl calico ipam",
            // calicoctl does not have the commands that hints suggest.
            Self::Calicoctl => "calipam",
            other => other.called_as(),
        }
    }

    /// Returns the definition of calipam's command line under this name.
    pub(crate) fn command(self) -> clap::Command {
        let mut command = args::command().bin_name(self.called_as());
        if self != Self::KubectlCalico {
            return command;
        }

        // `kubectl calico` has its commands below `ipam`, so its help shows only this one.
        let names: Vec<String> = command
            .get_subcommands()
            .map(|sub| sub.get_name().to_owned())
            .collect();
        for name in names {
            let is_hidden = name != "ipam";
            command = command.mut_subcommand(name, |sub| sub.hide(is_hidden));
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_selects_the_applet() {
        let of = |name: &str| Applet::of(name.into());
        assert_eq!(of("/usr/bin/ipam"), Applet::Ipam);
        assert_eq!(of("kubectl-ipam"), Applet::KubectlIpam);
        assert_eq!(of("./kubectl-calico"), Applet::KubectlCalico);
        assert_eq!(of("kubectl-ipam.exe"), Applet::KubectlIpam);
        assert_eq!(of("/usr/local/bin/calicoctl"), Applet::Calicoctl);
        for name in ["calipam", "calicoctl-v3.32", "calipam-0.1", "", "/"] {
            assert_eq!(of(name), Applet::Calipam, "{name}");
        }
    }

    #[test]
    fn kubectl_completes_a_plugin_by_its_own_name() {
        let by = |name: &str| Applet::completed_by(OsStr::new(name));
        assert_eq!(by("/usr/bin/kubectl_complete-ipam"), Some(Applet::KubectlIpam));
        assert_eq!(by("kubectl_complete-calico.exe"), Some(Applet::KubectlCalico));
        assert_eq!((by("kubectl-ipam"), by("")), (None, None));
    }

    #[test]
    fn the_definitions_are_consistent() {
        for applet in Applet::ALL {
            applet.command().debug_assert();
        }
        crate::calicoctl::command().debug_assert();
    }
}
