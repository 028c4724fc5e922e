//! Runs programs that were built for another kind of machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::{servers, workspace};

/// A script that registers `$0` as the emulator for arm64 programs, and runs its arguments. The flag `F` makes Linux
/// keep the emulator open, so that programs also run if their root folder does not contain the emulator.
const BY_QEMU: &str = r#"at=/proc/sys/fs/binfmt_misc
mount -t binfmt_misc none $at && printf %s ':aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$0:F" > $at/register && exec "$@""#;

/// The means to run programs for a target: directly, or with QEMU.
pub(crate) struct Machine {
    qemu: Option<PathBuf>,
}

impl Machine {
    /// Prepares to run programs for a target. Unpacks QEMU if this machine cannot run them itself.
    pub(crate) fn of(target: &str, programs: &Path) -> Result<Self, Failure> {
        if Command::new(programs.join("calipam")).arg("version").output().is_ok() {
            return Ok(Self { qemu: None });
        }
        if !target.starts_with("aarch64-unknown-linux-") {
            return Err(Failure::new(format!("this machine does not run programs for {target}")));
        }
        Ok(Self { qemu: Some(servers::unpack_qemu()?) })
    }

    /// Wraps a command so that it runs programs for the target.
    pub(crate) fn on(&self, command: Command) -> Command {
        let Some(qemu) = &self.qemu else { return command };
        let mut outer = Command::new("unshare");
        outer.args(["--map-root-user", "--mount", "sh", "-c", BY_QEMU]).arg(qemu);
        workspace::run_by(outer, &command)
    }
}
