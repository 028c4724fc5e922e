//! Brings the servers that tests start.

mod go;
mod package;

use std::path::PathBuf;

use crate::failure::Failure;
use crate::locate::{self, Program};
use crate::{step, workspace};

/// In the order in which they are brought: most tests need only the first.
const PROGRAMS: [Program; 6] = [
    Program::Etcd,
    Program::OldEtcd,
    Program::KubeApiserver,
    Program::Kubectl,
    Program::Promtool,
    Program::CniClient,
];

/// What there is to test with.
pub(crate) struct Servers {
    found: Vec<(Program, PathBuf)>,
    missing: Vec<(Program, Failure)>,
}

impl Servers {
    /// The variables that tell tests where the servers are.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        self.found.iter().map(|(program, path)| (program.variable(), path.clone()))
    }

    /// Says on standard error which servers could not be brought, and why.
    pub(crate) fn tell_missing(&self) {
        for (program, failure) in &self.missing {
            eprintln!("warning: {program} is missing: the tests that need it will fail\n{failure}");
        }
    }
}

/// Finds the servers, and brings those that the machine has not.
pub(crate) fn bring() -> Servers {
    let mut servers = Servers { found: Vec::new(), missing: Vec::new() };
    for program in PROGRAMS {
        match bring_one(program) {
            Ok(path) => {
                step::announce(&format!("{program}: {}", path.display()));
                servers.found.push((program, path));
            }
            Err(failure) => servers.missing.push((program, failure)),
        }
    }
    servers
}

/// Brings the current etcd alone; gives its path and the variable that tells tests of it.
pub(crate) fn bring_etcd() -> Result<(&'static str, PathBuf), Failure> {
    Ok((Program::Etcd.variable(), bring_one(Program::Etcd)?))
}

/// Brings the API server alone, as [`bring_etcd`].
pub(crate) fn bring_kube_apiserver() -> Result<(&'static str, PathBuf), Failure> {
    Ok((Program::KubeApiserver.variable(), bring_one(Program::KubeApiserver)?))
}

fn bring_one(program: Program) -> Result<PathBuf, Failure> {
    let missing = match locate::find_installed(program) {
        Ok(path) => return Ok(path),
        Err(missing) => missing,
    };
    if std::env::var_os(program.variable()).is_some() {
        let hint = format!("unset {}, or let it name the program", program.variable());
        return Err(Failure::new(missing.to_string()).hint(hint));
    }
    let root = workspace::root();
    match program {
        Program::Etcd | Program::KubeApiserver | Program::Kubectl | Program::CniClient => {
            go::build(program, &root)?;
        }
        Program::OldEtcd => package::unpack(program, "etcd-server", "etcd-3.4", &root)?,
        Program::Promtool => package::unpack(program, "prometheus", "prometheus", &root)?,
    }
    locate::find(program, &root).map_err(|missing| Failure::new(missing.to_string()))
}
