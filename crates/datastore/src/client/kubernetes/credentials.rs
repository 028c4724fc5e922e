//! Getting credentials from a plugin, which is a program that may wait for a person, for a network, or forever.

use std::time::Duration;

use kube::config::ExecInteractiveMode;
use kube::{Client, Config};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::error::Failure;

/// How long a plugin may take where no one is at hand to help it, and where it may wait for a login in a browser.
const UNATTENDED: Duration = Duration::from_mins(2);
const INTERACTIVE: Duration = Duration::from_mins(10);

/// Makes a client on a thread of its own, where a plugin blocks nothing. One that takes too long is killed on Linux; elsewhere
/// nothing tells which process it is, and it is left to itself.
pub(super) async fn within_limit(config: Config) -> Result<kube::Result<Client>, Failure> {
    let mode = config.auth_info.exec.as_ref().and_then(|plugin| plugin.interactive_mode.as_ref());
    let limit = if mode == Some(&ExecInteractiveMode::Never) { UNATTENDED } else { INTERACTIVE };
    within(limit, config).await
}

async fn within(limit: Duration, config: Config) -> Result<kube::Result<Client>, Failure> {
    let plugin = config.auth_info.exec.as_ref();
    let name = plugin.and_then(|plugin| plugin.command.clone()).unwrap_or_default();

    #[cfg(target_os = "linux")]
    let (sender, thread) = std::sync::mpsc::channel();
    let made = spawn_blocking(move || {
        // No one listens once the limit has passed.
        #[cfg(target_os = "linux")]
        let _ = sender.send(rustix::thread::gettid());
        Client::try_from(config)
    });
    match timeout(limit, made).await {
        Ok(made) => made.map_err(|lost| Failure::Other(lost.to_string())),
        Err(_) => {
            #[cfg(target_os = "linux")]
            thread.try_iter().for_each(kill_children);
            let seconds = limit.as_secs();
            let killed = if cfg!(target_os = "linux") { ", and was killed" } else { "" };
            Err(Failure::Login(format!(
                "the credential plugin {name} did not end within {seconds} s{killed}"
            )))
        }
    }
}

/// Kills the processes that a thread of this process has started.
#[cfg(target_os = "linux")]
fn kill_children(thread: rustix::process::Pid) {
    use rustix::process::{Pid, Signal, kill_process};

    let children = format!("/proc/self/task/{}/children", thread.as_raw_nonzero());
    let children = std::fs::read_to_string(children).unwrap_or_default();
    let numbers =
        children.split_whitespace().filter_map(|number| number.parse::<std::num::NonZeroI32>().ok());
    // One that has ended by now is no matter.
    numbers.filter_map(|number| Pid::from_raw(number.get())).for_each(|child| {
        let _ = kill_process(child, Signal::KILL);
    });
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::Instant;

    use kube::config::ExecConfig;
    use rustix::thread::gettid;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_plugin_that_hangs_is_killed_and_named() {
        let plugin = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sleep", "args": ["61.5"],
            "interactiveMode": "Never"});
        let plugin: ExecConfig = serde_json::from_value(plugin).unwrap();
        let mut config = Config::new("https://127.0.0.1:1".parse().unwrap());
        config.auth_info.exec = Some(plugin);

        let start = Instant::now();
        let Err(failure) = within(Duration::from_secs(1), config).await else { panic!("it got credentials") };
        let said = "the credential plugin sleep did not end within 1 s, and was killed";
        assert!(failure.to_string().contains(said), "{failure}");
        assert!(start.elapsed() < Duration::from_secs(30));
        // A process that was killed is gone a moment later.
        while is_running(b"sleep\x0061.5\0") {
            assert!(start.elapsed() < Duration::from_secs(30), "it was not killed");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn is_running(command: &[u8]) -> bool {
        let all = std::fs::read_dir("/proc").unwrap();
        let mut commands = all.filter_map(|process| std::fs::read(process.ok()?.path().join("cmdline")).ok());
        commands.any(|running| running == command)
    }

    #[test]
    fn what_a_thread_has_started_is_killed_and_nothing_else() {
        let sleep = || std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut other = std::thread::spawn(sleep).join().unwrap();
        let mut own = sleep();
        kill_children(gettid());
        assert!(!own.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
