//! Finds, builds or installs the programs that tests run.

mod go;
mod install;
mod package;

use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use crate::tool::{self, Tool};
use crate::{step, workspace};

/// Environment variables for cargo and the tests. Each value is a path.
pub(crate) type Variables = Vec<(&'static str, PathBuf)>;

/// Settings for the servers' Go runtime. Many servers run at once, so each uses one core and collects garbage less
/// often. A kube-apiserver then needs half the processor time to start, and a fifth more memory.
pub(crate) const GO: [(&str, &str); 2] = [("GOMAXPROCS", "1"), ("GOGC", "300")];

/// A program from a Go module.
struct Server {
    program: Tool,
    path: PathBuf,
    /// The command that builds the program if the machine lacks it.
    build: Option<Command>,
}

/// The programs from Go modules.
pub(crate) struct Servers(Vec<Server>);

/// Installs the distribution packages that tests need, and prepares the builds of the other programs.
///
/// Warns about tools that cannot be installed, since the tests that need them are skipped. In CI, a missing tool is a
/// failure.
pub(crate) fn prepare() -> Result<Servers, Failure> {
    install_tools()?;
    let programs = go::PACKAGES.into_iter().map(|(program, _)| Server::find(program));
    Ok(Servers(programs.collect::<Result<_, _>>()?))
}

impl Servers {
    /// Builds the missing programs, and returns the variables with the paths of all programs.
    pub(crate) fn build(self) -> Result<Variables, Failure> {
        self.0.into_iter().map(Server::build).collect()
    }
}

/// Finds or builds one program from a Go module. Returns the variable that names it to tests, and its path.
pub(crate) fn find_or_build(program: Tool) -> Result<(&'static str, PathBuf), Failure> {
    Server::find(program)?.build()
}

impl Server {
    fn find(program: Tool) -> Result<Self, Failure> {
        let (path, build) = match installed(program)? {
            Some(path) => (path, None),
            None => (program.installed_path(&workspace::root()), go::build(program)?),
        };
        Ok(Self { program, path, build })
    }

    fn build(self) -> Result<(&'static str, PathBuf), Failure> {
        let Self { program, path, build } = self;
        if let Some(mut build) = build {
            go::run(program, &mut build)?;
        }
        step::announce(&format!("{program}: {}", path.display()));
        Ok((program.variable(), path))
    }
}

/// Finds or unpacks the arm64 emulator, and returns its path.
pub(crate) fn unpack_qemu() -> Result<PathBuf, Failure> {
    match installed(Tool::Qemu)? {
        Some(path) => Ok(path),
        None => package::unpack(Tool::Qemu),
    }
}

/// Finds a program on this machine. Fails if its variable is set but names no program.
fn installed(program: Tool) -> Result<Option<PathBuf>, Failure> {
    match program.find_installed() {
        Ok(path) => Ok(Some(path)),
        Err(_) if std::env::var_os(program.variable()).is_none() => Ok(None),
        Err(missing) => {
            let hint = format!("unset {}, or let it name the program", program.variable());
            Err(Failure::new(missing).hint(hint))
        }
    }
}

/// Installs missing tools from packages of the distribution. Unpacks the packages of etcd and promtool instead, since
/// installing them would also install services.
fn install_tools() -> Result<(), Failure> {
    let root = workspace::root();
    let missing = || {
        Tool::PACKAGED
            .into_iter()
            .filter(|tool| tool.find(&root).is_err())
            .collect::<Vec<_>>()
    };
    let mut to_install = Vec::new();
    for tool in missing() {
        if !matches!(tool, Tool::OldEtcd | Tool::Promtool) {
            to_install.push(tool);
        } else if let Err(failure) = package::unpack(tool) {
            eprintln!("{}", failure.as_warning());
        }
    }
    install::install(&to_install);

    let missing = missing();
    for tool in &missing {
        eprintln!("warning: {}: the tests that need it are left out", tool.missing());
    }
    if tool::is_ci() && !missing.is_empty() {
        let packages: Vec<_> = missing.iter().map(|tool| tool.package()).collect();
        return Err(
            Failure::new("with CI=true no test may be left out, but tools are missing")
                .hint(format!("`apt-get install -y {}` installs it", packages.join(" "))),
        );
    }
    Ok(())
}
