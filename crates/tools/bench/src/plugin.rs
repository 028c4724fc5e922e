//! Calls of the plugin as a container runtime makes them.

use std::path::Path;
use std::process::{Command, Stdio};

/// The command line and environment of a call for a pod of the namespace `default`. The configuration is to be written to its
/// stdin; what it prints goes nowhere.
pub(crate) fn command(program: &Path, command: &str, container: &str) -> Command {
    let mut call = Command::new(program);
    call.env_clear()
        .env("CNI_COMMAND", command)
        .env("CNI_CONTAINERID", container)
        .env("CNI_NETNS", "/run/netns/none")
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", "/opt/cni/bin")
        .env("CNI_ARGS", format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-{container}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    call
}
