//! Finds, builds or installs the programs that tests run.

mod go;
mod install;
mod package;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::tool::{self, Tool};
use crate::{step, workspace};

/// The programs that are built from Go modules. Most tests need only etcd.
const BUILT: [Tool; 5] = [Tool::Etcd, Tool::KubeApiserver, Tool::Kubectl, Tool::Jv, Tool::CniClient];

/// Environment variables for cargo and the tests. Each value is a path.
pub(crate) type Variables = Vec<(&'static str, PathBuf)>;

/// The programs from Go modules: the paths of those that exist, and the build commands of the others.
pub(crate) struct Servers {
    found: Vec<(Tool, PathBuf)>,
    builds: Vec<(Tool, Command)>,
}

/// Installs the distribution packages that tests need, and prepares the builds of the other programs.
///
/// Warns about tools that cannot be installed, since the tests that need them are skipped. In CI, a missing tool is a
/// failure.
pub(crate) fn prepare() -> Result<Servers, Failure> {
    let root = workspace::root();
    install_tools(&root)?;
    let mut servers = Servers { found: Vec::new(), builds: Vec::new() };
    for program in BUILT {
        if let Some(path) = installed(program)? {
            servers.found.push((program, path));
        } else if let Some(build) = go::build(program, &root)? {
            servers.builds.push((program, build));
        } else {
            servers.found.push((program, program.installed_path(&root)));
        }
    }
    Ok(servers)
}

impl Servers {
    /// Builds the missing programs, and returns the variables with the paths of all programs.
    pub(crate) fn build(self) -> Result<Variables, Failure> {
        let mut found = self.found;
        for (program, mut build) in self.builds {
            go::run(program, &mut build)?;
            found.push((program, program.installed_path(&workspace::root())));
        }
        for (program, path) in &found {
            step::announce(&format!("{program}: {}", path.display()));
        }
        Ok(found.into_iter().map(|(program, path)| (program.variable(), path)).collect())
    }
}

/// Finds or unpacks the arm64 emulator, and returns its path.
pub(crate) fn unpack_qemu() -> Result<PathBuf, Failure> {
    if let Some(path) = installed(Tool::Qemu)? {
        return Ok(path);
    }
    let root = workspace::root();
    package::unpack(Tool::Qemu, &root)?;
    Ok(Tool::Qemu.installed_path(&root))
}

/// Finds or builds one program from a Go module. Returns the variable that names it to tests, and its path.
pub(crate) fn find_or_build(program: Tool) -> Result<(&'static str, PathBuf), Failure> {
    let root = workspace::root();
    if let Some(path) = installed(program)? {
        return Ok((program.variable(), path));
    }
    if let Some(mut build) = go::build(program, &root)? {
        go::run(program, &mut build)?;
    }
    Ok((program.variable(), program.installed_path(&root)))
}

/// Finds a program on this machine. Fails if its variable is set but names no program.
fn installed(program: Tool) -> Result<Option<PathBuf>, Failure> {
    match program.find_installed() {
        Ok(path) => Ok(Some(path)),
        Err(_) if std::env::var_os(program.variable()).is_none() => Ok(None),
        Err(missing) => {
            let hint = format!("unset {}, or let it name the program", program.variable());
            Err(Failure::new(missing.to_string()).hint(hint))
        }
    }
}

/// Installs missing tools from packages of the distribution. Unpacks the packages of etcd and promtool instead, since
/// installing them would also install services.
fn install_tools(root: &Path) -> Result<(), Failure> {
    let missing = || Tool::PACKAGED.into_iter().filter(|tool| tool.find(root).is_err()).collect::<Vec<_>>();
    let mut to_install = Vec::new();
    for tool in missing() {
        let unpacked = match tool {
            Tool::OldEtcd | Tool::Promtool => package::unpack(tool, root),
            _ => {
                to_install.push(tool);
                Ok(())
            }
        };
        unpacked.unwrap_or_else(|failure| eprintln!("{}", failure.as_warning()));
    }
    install::install(&to_install);

    let missing = missing();
    for tool in &missing {
        eprintln!("warning: {}: the tests that need it are left out", tool.missing());
    }
    if tool::is_ci() && !missing.is_empty() {
        let packages: Vec<_> = missing.iter().map(|tool| tool.package()).collect();
        return Err(Failure::new("with CI=true no test may be left out, but tools are missing")
            .hint(format!("`apt-get install -y {}` installs it", packages.join(" "))));
    }
    Ok(())
}
