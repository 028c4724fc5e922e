//! Calls of the plugin as a container runtime makes them.

use std::path::Path;
use std::process::{Command, Stdio};

/// The environment of a call for a pod of the namespace `default`.
pub(crate) fn variables(command: &str, container: &str) -> [(&'static str, String); 6] {
    let arguments = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-{container}");
    [
        ("CNI_COMMAND", command.to_owned()),
        ("CNI_CONTAINERID", container.to_owned()),
        ("CNI_NETNS", "/run/netns/none".to_owned()),
        ("CNI_IFNAME", "eth0".to_owned()),
        ("CNI_PATH", "/opt/cni/bin".to_owned()),
        ("CNI_ARGS", arguments),
    ]
}

/// The command line and environment of a call. The configuration goes to its stdin; its output is discarded.
pub(crate) fn command(program: &Path, command: &str, container: &str) -> Command {
    let mut call = Command::new(program);
    call.env_clear()
        .envs(variables(command, container))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    call
}
