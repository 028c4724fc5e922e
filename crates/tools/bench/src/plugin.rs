//! Calls the plugin as a container runtime does.

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Failed;

/// The environment variables of a call for a pod in the namespace `default`.
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

/// Starts a call.
pub(crate) fn start(
    program: &Path,
    command: &str,
    container: &str,
    configuration: &str,
) -> Result<Child, Failed> {
    let mut call = Command::new(program);
    call.env_clear().envs(variables(command, container));
    let mut child = call.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    match child.stdin.take().ok_or("no pipe")?.write_all(configuration.as_bytes()) {
        // VERSION reads no configuration.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(child),
    }
}

/// Waits for a call. Returns true if it succeeded, and its output.
pub(crate) fn ended(child: Child) -> Result<(bool, String), Failed> {
    let output = child.wait_with_output()?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Waits for a call that must succeed.
pub(crate) fn succeeded(child: Child) -> Result<(), Failed> {
    let (is_done, output) = ended(child)?;
    if is_done { Ok(()) } else { Err(format!("a call failed: {output}").into()) }
}
