//! Real servers for tests, on free ports of 127.0.0.1. Dropping a server ends it. Tests in one program
//! [share](crate::kube::lease) API servers.
//!
//! `cargo xtask test` installs the programs, and [`tool`] finds them. A test whose server is missing fails and names
//! the program.

mod asked;
mod etcd;
mod etcd_access;
#[cfg(test)]
mod etcd_tests;
pub(crate) mod http;
mod kube_apiserver;
#[cfg(test)]
mod kube_apiserver_tests;
mod left_out;
mod pki;
mod port;
mod process;
mod tear;
#[cfg(test)]
mod tear_tests;
pub mod tool;

use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

pub use self::asked::{Asked, AskedRange};
pub use self::etcd::{Etcd, EtcdOptions, EtcdTls, EtcdVersion, Login};
pub use self::etcd_access::Entries;
pub use self::http::Response;
pub use self::kube_apiserver::KubeApiserver;
pub(crate) use self::kube_apiserver::Lent;
pub use self::left_out::{helm, left_out};
pub use self::pki::{Identity, Pki};
pub use self::process::processor_seconds;
pub use self::tear::{Seen, Tear, Tearing};
pub use self::tool::Tool;

/// The path of a program that tests run.
pub fn find(tool: Tool) -> Result<PathBuf> {
    tool.find(&workspace())
        .map_err(Error::msg)
        .context("`cargo xtask test` installs the missing servers")
}

/// The promtool that tests run. Without it, the calling test is [left out](left_out).
///
/// # Panics
///
/// If it is missing, but the test must not be left out.
pub fn promtool() -> Option<PathBuf> {
    let found = || find(Tool::Promtool).expect("it was found before");
    (!left_out(&[Tool::Promtool])).then(found)
}

/// A temporary folder, with a prefix that names its purpose.
pub(crate) fn folder(prefix: &str) -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix(prefix)
        .tempdir()
        .context("cannot make a temporary folder")
}

/// The folder of a server.
#[derive(Debug)]
enum Home {
    /// It is removed when the server is dropped.
    Own(TempDir),
    /// It belongs to the process that started the server.
    Lent(PathBuf),
}

impl Home {
    fn path(&self) -> &Path {
        match self {
            Self::Own(folder) => folder.path(),
            Self::Lent(path) => path,
        }
    }
}

/// The place of a running server, by which other processes use it.
#[derive(Debug, Serialize, Deserialize)]
struct Place {
    home: PathBuf,
    /// The TCP port on 127.0.0.1.
    port: u16,
}

impl Place {
    fn new(home: &Home, port: u16) -> Self {
        Self {
            home: home.path().to_owned(),
            port,
        }
    }
}

/// The root of the workspace that this crate was built in.
fn workspace() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3);
    crates
        .expect("this crate is three folders below the root")
        .to_owned()
}
