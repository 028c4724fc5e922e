//! Calls the plugin as a container runtime does.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::measured::Measured;
use crate::{Failed, child};

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
fn start(program: &Path, command: &str, container: &str, configuration: &str) -> Result<Child, Failed> {
    let mut call = Command::new(program);
    call.env_clear().envs(variables(command, container));
    let mut child = call.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    match child.stdin.take().ok_or("no pipe")?.write_all(configuration.as_bytes()) {
        // VERSION reads no configuration.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(child),
    }
}

/// Waits for a call. Returns its output if it fails.
fn ended(child: Child) -> Result<Result<(), String>, Failed> {
    let output = child.wait_with_output()?;
    Ok(if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stdout).into_owned())
    })
}

/// Runs a call to its end, and measures its memory if it is watched, and otherwise its processor time. Watching takes
/// processor time itself. Also returns the output if the call fails.
pub(crate) fn run(
    program: &Path,
    command: &str,
    container: &str,
    configuration: &str,
    is_watched: bool,
) -> Result<(Measured, Result<(), String>), Failed> {
    let mut measured = Measured::default();
    let begin = Instant::now();
    let mut child = start(program, command, container, configuration)?;
    if is_watched {
        measured.peak_mib = child::watch(&mut child, Duration::ZERO)?;
        measured.seconds = begin.elapsed().as_secs_f64();
    } else {
        // The process is not reaped yet, so that its processor time can still be read from `/proc`.
        let pid = Pid::from_raw(child.id().try_into()?).ok_or("no process")?;
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        measured.seconds = begin.elapsed().as_secs_f64();
        let times = fs::read_to_string(format!("/proc/{}/schedstat", child.id()))?;
        let nanos: f64 = times.split_whitespace().next().ok_or("no times")?.parse()?;
        measured.processor = nanos / 1e9;
    }
    Ok((measured, ended(child)?))
}

/// Starts calls at the same time, one for each container with its configuration. Returns the seconds until all have
/// ended.
pub(crate) fn at_once(program: &Path, command: &str, calls: &[(String, String)]) -> Result<f64, Failed> {
    let all = Measured::of(|| {
        let start =
            |(container, configuration): &(String, String)| start(program, command, container, configuration);
        let running = calls.iter().map(start).collect::<Result<Vec<_>, _>>()?;
        running.into_iter().try_for_each(|child| Ok::<(), Failed>(ended(child)??))
    })?;
    Ok(all.seconds)
}
