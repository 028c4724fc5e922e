//! Gets credentials from a plugin, a program that may wait for a person, for the network, or forever.

use std::collections::HashMap;
use std::io::{IsTerminal, stdin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kube::config::ExecInteractiveMode;
use kube::{Client, Config};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::error::Failure;

/// Time limit for a plugin that asks no person.
const UNATTENDED_LIMIT: Duration = Duration::from_mins(1);
/// Time limit for a plugin that may ask a person, who may have to log in with a browser.
const INTERACTIVE_LIMIT: Duration = Duration::from_mins(10);

/// The time that a killed plugin's run has to end. It takes milliseconds.
const END_LIMIT: Duration = Duration::from_secs(1);

/// The environment variable that marks a plugin's processes.
const MARK: &str = "CALIPAM_PLUGIN";

/// A client's credential plugin, which runs when the client is created and when its token expires. On Linux, dropping
/// this value kills the plugin's running processes. On other systems, they are unknown and keep running.
#[derive(Default)]
pub(super) struct Plugin {
    /// The plugin's program; empty if there is no plugin.
    command: String,
    /// The value of the variable [`MARK`], which is different for each client in this process.
    mark: String,
}

impl Plugin {
    /// Marks the processes of a configuration's plugin, if it has one.
    pub(super) fn mark(config: &mut Config) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Some(plugin) = &mut config.auth_info.exec else {
            return Self::default();
        };
        let mark = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let mut variable = HashMap::new();
        variable.insert("name".to_owned(), MARK.to_owned());
        variable.insert("value".to_owned(), mark.clone());
        plugin.env.get_or_insert_default().push(variable);
        Self {
            command: plugin.command.clone().unwrap_or_default(),
            mark,
        }
    }

    /// Creates a client by `make`, which runs the plugin: on a separate thread, where a plugin does not block other work.
    /// Kills a plugin that takes too long.
    pub(super) async fn within_limit(
        &self,
        config: Config,
        make: impl FnOnce(Config) -> kube::Result<Client> + Send + 'static,
    ) -> Result<kube::Result<Client>, Failure> {
        let mode = config
            .auth_info
            .exec
            .as_ref()
            .and_then(|plugin| plugin.interactive_mode.as_ref());
        let may_ask = mode != Some(&ExecInteractiveMode::Never) && stdin().is_terminal();
        let limit = if may_ask {
            INTERACTIVE_LIMIT
        } else {
            UNATTENDED_LIMIT
        };
        self.within(limit, config, make).await
    }

    /// Makes a client, which may run the plugin. Kills the plugin after the time limit.
    async fn within(
        &self,
        limit: Duration,
        config: Config,
        make: impl FnOnce(Config) -> kube::Result<Client> + Send + 'static,
    ) -> Result<kube::Result<Client>, Failure> {
        let mut making = Making {
            plugin: self,
            task: spawn_blocking(move || make(config)),
        };
        let Ok(made) = timeout(limit, &mut making.task).await else {
            let was_killed = making.end();
            return Err(self.too_slow(limit, was_killed));
        };
        made.map_err(|panicked| Failure::Other(panicked.to_string()))
    }

    /// Kills the plugin if it is still running after a request has waited for `limit`. Returns the failure; `None` if
    /// no plugin was running.
    pub(super) fn kill_late(&self, limit: Duration) -> Option<Failure> {
        let was_killed = self.kill();
        if !was_killed {
            return None;
        }
        Some(self.too_slow(limit, was_killed))
    }

    /// The failure of a plugin that has not finished within `limit`.
    fn too_slow(&self, limit: Duration, was_killed: bool) -> Failure {
        let command = &self.command;
        let seconds = limit.as_secs();
        let outcome = if was_killed { ", and was killed" } else { "" };
        Failure::Login(format!(
            "the credential plugin {command} did not finish within {seconds} s{outcome}"
        ))
    }

    /// Returns true if it killed processes.
    fn kill(&self) -> bool {
        !self.command.is_empty() && system::kill_children(&format!("{MARK}={}", self.mark))
    }
}

/// A client that is being created, perhaps by a plugin.
struct Making<'p> {
    plugin: &'p Plugin,
    task: JoinHandle<kube::Result<Client>>,
}

impl Making<'_> {
    /// Kills the plugin until nobody waits for it any more, since kube runs it a second time if the first run fails.
    /// Returns true if it killed processes.
    fn end(&self) -> bool {
        let started = Instant::now();
        let mut has_killed = false;
        while !self.task.is_finished() && started.elapsed() < END_LIMIT {
            has_killed |= self.plugin.kill();
            thread::sleep(Duration::from_millis(1));
        }
        has_killed
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        if !self.plugin.command.is_empty() {
            self.end();
        }
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs;
    use std::num::NonZeroI32;

    use rustix::process::{Pid, Signal, kill_process};

    /// Kills the children of this process that have `variable` (`NAME=value`) in their environment, and their
    /// descendants, since a plugin can be a script, whose commands would outlive it. Returns true if there were such
    /// processes.
    pub(super) fn kill_children(variable: &str) -> bool {
        let mut processes = children("self");
        processes.retain(|process| has_variable(*process, variable));

        // Adds the descendants, generation by generation.
        let mut next = 0;
        while let Some(parent) = processes.get(next) {
            processes.extend(children(&parent.as_raw_nonzero().to_string()));
            next += 1;
        }
        for &process in &processes {
            // The process may have ended by now.
            let _ = kill_process(process, Signal::KILL);
        }
        !processes.is_empty()
    }

    fn has_variable(process: Pid, variable: &str) -> bool {
        let Ok(environment) = fs::read(format!("/proc/{}/environ", process.as_raw_nonzero())) else {
            return false;
        };
        // A zero byte ends each variable.
        environment
            .split(|byte| *byte == 0)
            .any(|found| found == variable.as_bytes())
    }

    /// The children of a process, from all of its threads.
    fn children(process: &str) -> Vec<Pid> {
        let mut children = Vec::new();
        let threads = fs::read_dir(format!("/proc/{process}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let list = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            for number in list.split_whitespace() {
                let number = number.parse::<NonZeroI32>().ok();
                children.extend(number.and_then(|number| Pid::from_raw(number.get())));
            }
        }
        children
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn kill_children(_variable: &str) -> bool {
        false
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use calipam_files::objects::Accept;
    use kube::config::ExecConfig;
    use serde_json::json;

    use super::*;
    use crate::kubernetes::client::KubeClient;
    use crate::secret::Secret;
    use crate::settings::{KubernetesSettings, Timeouts};

    #[tokio::test]
    async fn a_plugin_that_hangs_is_killed_with_its_children() {
        let plugin = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
            "args": ["-c", "sleep 61.5; true"], "interactiveMode": "Never"});
        let plugin: ExecConfig = serde_json::from_value(plugin).unwrap();
        let mut config = Config::new("https://127.0.0.1:1".parse().unwrap());
        config.auth_info.exec = Some(plugin);
        let hanging = async |limit| {
            let mut config = config.clone();
            Plugin::mark(&mut config)
                .within(limit, config, Client::try_from)
                .await
        };

        let start = Instant::now();
        let short = Duration::from_secs(1);
        let long = Duration::from_mins(1);
        let Err(failure) = hanging(short).await else {
            panic!("it got credentials")
        };
        let said = "the credential plugin sh did not finish within 1 s, and was killed";
        assert!(failure.to_string().contains(said), "{failure}");
        assert_killed("61.5", start);
        assert!(
            timeout(short, hanging(long)).await.is_err(),
            "no one waits for it any more"
        );
        assert_killed("61.5", start);
    }

    /// The token has expired, so that each request runs the plugin again.
    #[tokio::test]
    async fn a_plugin_that_hangs_when_the_token_expires_is_killed_too() {
        let folder = tempfile::tempdir().unwrap();
        let hangs = folder.path().join("hangs");
        let token = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": {"token": "x", "expirationTimestamp": "2026-01-01T00:00:00Z"}});
        let script = format!("[ -e {} ] && sleep 62.5; echo '{token}'", hangs.display());
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
            "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1",
                "command": "sh", "args": ["-c", script], "interactiveMode": "Never"}}}]});
        let settings = KubernetesSettings {
            kubeconfig_inline: Secret::new(kubeconfig.to_string()),
            timeouts: Timeouts {
                request: Duration::from_secs(1),
                ..Timeouts::default()
            },
            ..KubernetesSettings::default()
        };
        let client = KubeClient::connect_without_discovery(&settings).await.unwrap();
        std::fs::write(&hangs, "").unwrap();
        let start = Instant::now();
        let error = client
            .get_whole("/version", Accept::Json, "the version")
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("the credential plugin sh did not finish within 1 s, and was killed"),
            "{error}"
        );
        assert_killed("62.5", start);

        let last = timeout(
            Duration::from_millis(500),
            client.get_whole("/version", Accept::Json, "the version"),
        );
        assert!(last.await.is_err());
        assert!(is_running("62.5"));
        drop(client);
        assert_killed("62.5", start);
    }

    /// Waits until a killed process is gone. Fails if it is still running 30 seconds after `start`.
    fn assert_killed(seconds: &str, start: Instant) {
        while is_running(seconds) {
            assert!(start.elapsed() < Duration::from_secs(30), "it was not killed");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn is_running(seconds: &str) -> bool {
        let command = format!("sleep\0{seconds}\0");
        let all = std::fs::read_dir("/proc").unwrap();
        let mut commands = all.filter_map(|process| std::fs::read(process.ok()?.path().join("cmdline")).ok());
        commands.any(|running| running == command.as_bytes())
    }

    #[test]
    fn only_marked_processes_are_killed() {
        let sleep = |mark: &str| {
            std::process::Command::new("sleep")
                .arg("60")
                .env(MARK, mark)
                .spawn()
                .unwrap()
        };
        let mut own = sleep("own");
        let mut other = sleep("other");
        assert!(system::kill_children(&format!("{MARK}=own")));
        assert!(!own.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
