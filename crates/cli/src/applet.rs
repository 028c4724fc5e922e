//! The names that the program can be called by.

use std::ffi::OsString;
use std::path::Path;

use crate::args;

/// What the program was called by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applet {
    /// `calipam`, or any name that is none of the others.
    Calipam,
    Ipam,
    /// `kubectl-ipam`: the kubectl plugin `kubectl ipam`.
    KubectlIpam,
    /// `kubectl-calico`: the kubectl plugin `kubectl calico`, whose commands stand below `ipam`.
    KubectlCalico,
}

impl Applet {
    /// What the first argument of the process names.
    pub fn of(program: OsString) -> Self {
        let name = Path::new(&program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match name.strip_suffix(".exe").unwrap_or(name) {
            "ipam" => Self::Ipam,
            "kubectl-ipam" => Self::KubectlIpam,
            "kubectl-calico" => Self::KubectlCalico,
            _ => Self::Calipam,
        }
    }

    /// What people type to call it.
    pub fn called_as(self) -> &'static str {
        match self {
            Self::Calipam => "calipam",
            Self::Ipam => "ipam",
            Self::KubectlIpam => "kubectl ipam",
            Self::KubectlCalico => "kubectl calico",
        }
    }

    /// What stands before a command: `kubectl calico` has its commands below `ipam`.
    pub fn command_prefix(self) -> &'static str {
        match self {
            Self::KubectlCalico => "kubectl calico ipam",
            other => other.called_as(),
        }
    }

    /// The command line's definition under this name.
    pub fn command(self) -> clap::Command {
        let command = args::command().bin_name(self.called_as());
        if self != Self::KubectlCalico {
            return command;
        }
        let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
        names.into_iter().fold(command, |command, name| {
            let hidden = name != "ipam";
            command.mut_subcommand(name, |sub| sub.hide(hidden))
        })
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
        for name in ["calipam", "calicoctl", "calipam-0.1", "", "/"] {
            assert_eq!(of(name), Applet::Calipam, "{name}");
        }
    }

    #[test]
    fn the_definitions_are_consistent() {
        for applet in [Applet::Calipam, Applet::Ipam, Applet::KubectlIpam, Applet::KubectlCalico] {
            applet.command().debug_assert();
        }
    }
}
