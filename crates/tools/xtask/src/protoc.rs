//! The Protocol Buffers compiler, which etcd-client needs to build.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use crate::{tools, workspace};

/// Returns a [cargo command](workspace::cargo) that can build etcd-client. Fails if there is no C compiler.
pub(crate) fn cargo(arguments: &[&str]) -> Result<Command, Failure> {
    tools::need_c_compiler()?;
    let mut cargo = workspace::cargo();
    cargo.args(arguments).envs(variables()?);
    Ok(cargo)
}

/// Returns the environment variables for building etcd-client: none if the machine has `protoc`, otherwise those that
/// point to the `protoc` of the crate `protoc-bin-vendored`.
pub(crate) fn variables() -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    if env::var_os("PROTOC").is_some() || tools::on_path("protoc").is_some() {
        return Ok(Vec::new());
    }
    let missing = |error: protoc_bin_vendored::Error| {
        Failure::new(format!(
            "no protoc on this machine, and the bundled one cannot be used: {error}"
        ))
        .hint("install it with `apt-get install -y protobuf-compiler`, or set PROTOC to its path")
    };
    Ok(vec![
        ("PROTOC", protoc_bin_vendored::protoc_bin_path().map_err(missing)?),
        (
            "PROTOC_INCLUDE",
            protoc_bin_vendored::include_path().map_err(missing)?,
        ),
    ])
}
