//! Gets credentials from a plugin, a program that may wait for a person, for the network, or forever.

use std::io::{IsTerminal, stdin};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use calipam_model::parallel::lock;
use kube::config::ExecInteractiveMode;
use kube::{Client, Config};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::error::Failure;

/// Time limits for a plugin: without a person to answer it, and with a login in a browser.
const UNATTENDED: Duration = Duration::from_mins(1);
const INTERACTIVE: Duration = Duration::from_mins(10);

/// Creates a client from a configuration, and runs the plugin.
type Make = fn(Config) -> kube::Result<Client>;

/// Creates a client on a separate thread, where a plugin blocks nothing. On Linux, a plugin that takes too long, or
/// whose result is no longer needed, is killed; elsewhere its process is unknown, and it continues.
pub(super) async fn within_limit(config: Config, make: Make) -> Result<kube::Result<Client>, Failure> {
    let mode = config.auth_info.exec.as_ref().and_then(|plugin| plugin.interactive_mode.as_ref());
    let is_attended = mode != Some(&ExecInteractiveMode::Never) && stdin().is_terminal();
    within(if is_attended { INTERACTIVE } else { UNATTENDED }, config, make).await
}

async fn within(limit: Duration, config: Config, make: Make) -> Result<kube::Result<Client>, Failure> {
    let plugin = config.auth_info.exec.as_ref();
    let name = plugin.and_then(|plugin| plugin.command.clone()).unwrap_or_default();

    let waiting = Waiting::default();
    let thread = Arc::clone(&waiting.0);
    let made = spawn_blocking(move || {
        *lock(&thread) = Some(system::this_thread());
        let made = make(config);
        *lock(&thread) = None;
        made
    });
    match timeout(limit, made).await {
        Ok(made) => made.map_err(|lost| Failure::Other(lost.to_string())),
        Err(_) => {
            let seconds = limit.as_secs();
            let killed = if cfg!(target_os = "linux") { ", and was killed" } else { "" };
            Err(Failure::Login(format!(
                "the credential plugin {name} did not finish within {seconds} s{killed}"
            )))
        }
    }
}

/// The thread of a running plugin. Dropping it kills the plugin.
#[derive(Default)]
struct Waiting(Arc<Mutex<Option<system::Thread>>>);

impl Drop for Waiting {
    fn drop(&mut self) {
        // While this is locked, the thread cannot start other work.
        if let Some(thread) = *lock(&self.0) {
            system::kill_children(thread);
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs;
    use std::num::NonZeroI32;
    use std::path::Path;

    use rustix::process::{Pid, Signal, kill_process};
    use rustix::thread::gettid;

    pub(super) type Thread = Pid;

    pub(super) fn this_thread() -> Thread {
        gettid()
    }

    /// Kills the processes that a thread of this process has started, and their descendants: a script waits for its
    /// commands.
    pub(super) fn kill_children(thread: Thread) {
        let mut found = children(format!("/proc/self/task/{}/children", thread.as_raw_nonzero()).as_ref());
        let mut next = 0;
        while let Some(&parent) = found.get(next) {
            let tasks = fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero()));
            let tasks = tasks.into_iter().flatten().flatten();
            found.extend(tasks.flat_map(|task| children(&task.path().join("children"))));
            next += 1;
        }
        for process in found {
            // The process may have ended by now.
            let _ = kill_process(process, Signal::KILL);
        }
    }

    fn children(file: &Path) -> Vec<Pid> {
        let text = fs::read_to_string(file).unwrap_or_default();
        let numbers = text.split_whitespace().filter_map(|number| number.parse::<NonZeroI32>().ok());
        numbers.filter_map(|number| Pid::from_raw(number.get())).collect()
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) type Thread = ();

    pub(super) fn this_thread() -> Thread {}

    pub(super) fn kill_children((): Thread) {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::Instant;

    use kube::config::ExecConfig;
    use rustix::thread::gettid;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_plugin_that_hangs_is_killed_with_what_it_has_started() {
        let plugin = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
            "args": ["-c", "sleep 61.5; true"], "interactiveMode": "Never"});
        let plugin: ExecConfig = serde_json::from_value(plugin).unwrap();
        let mut config = Config::new("https://127.0.0.1:1".parse().unwrap());
        config.auth_info.exec = Some(plugin);
        let hanging = |limit| within(limit, config.clone(), Client::try_from);

        let start = Instant::now();
        let (short, long) = (Duration::from_secs(1), Duration::from_mins(1));
        let Err(failure) = hanging(short).await else { panic!("it got credentials") };
        let said = "the credential plugin sh did not finish within 1 s, and was killed";
        assert!(failure.to_string().contains(said), "{failure}");
        assert_killed(start);
        assert!(timeout(short, hanging(long)).await.is_err(), "no one waits for it any more");
        assert_killed(start);
    }

    /// Waits briefly until a killed process is gone.
    fn assert_killed(start: Instant) {
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
        system::kill_children(gettid());
        assert!(!own.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
