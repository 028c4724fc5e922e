//! A server process that never outlives the test that started it.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Pause between two probes of a server.
const POLL: Duration = Duration::from_millis(20);

/// Time limit for a server to stop. Stopping takes microseconds.
const STOP: Duration = Duration::from_secs(10);

/// Number of lines that an error shows from the start of a long log. Programs print the reason before their usage.
const FIRST_LINES: usize = 3;

/// Number of lines that an error shows from the end of a long log.
const LAST_LINES: usize = 20;

/// The script of the watchdog. The pipe to its standard input closes when the test's process has ended.
const WATCH: &str = r#"read -r _; kill -9 "$1"; rm -rf -- "$2""#;

/// A running server. Dropping it kills it at once.
#[derive(Debug)]
pub(super) struct Process {
    name: &'static str,
    child: Child,
    /// Ends the server if this process is killed or aborts.
    watchdog: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a server. `home` is the server's own folder: its working directory, and the folder of `server.log`. The
    /// watchdog removes the folder if the test's process dies.
    pub(super) fn spawn(name: &'static str, program: &Path, args: &[String], home: &Path) -> Result<Self> {
        let log = home.join("server.log");
        let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let errors = output.try_clone()?;
        let mut child = Command::new(program)
            .args(args)
            .current_dir(home)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        match watch(child.id(), home) {
            Ok(watchdog) => Ok(Self {
                name,
                child,
                watchdog,
                log,
            }),
            Err(error) => {
                end(&mut child);
                Err(error)
            }
        }
    }

    /// Waits until `probe` succeeds, so that the server has reached `state`. An error shows the probe's last reason.
    pub(super) fn wait_until(
        &mut self,
        state: &'static str,
        limit: Duration,
        mut probe: impl FnMut() -> Result<(), String>,
    ) -> Result<()> {
        let start = Instant::now();
        loop {
            let reason = match probe() {
                Ok(()) => return Ok(()),
                Err(reason) => reason,
            };
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "{} exited unexpectedly ({status}); its log:\n{}",
                    self.name,
                    self.log_excerpt()
                );
            }
            if start.elapsed() > limit {
                let name = self.name;
                let log = self.log_excerpt();
                bail!("{name} is not {state} after {limit:?} ({reason}); its log:\n{log}");
            }
            thread::sleep(POLL);
        }
    }

    /// The ID of the process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops the server so that it appears to hang: it keeps its connections but answers no requests. Returns once all
    /// of its threads have stopped.
    pub(super) fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        // The state is not consumed, since `end` must still be able to wait for a server that has ended.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let start = Instant::now();
        while start.elapsed() < STOP {
            let id = WaitId::Pid(Pid::from_child(&self.child));
            if waitid(id, options)?.is_some() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
        bail!("{} does not stop", self.name)
    }

    pub(super) fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("cannot signal {}", self.name))
    }

    /// The log of the server, shortened in the middle.
    fn log_excerpt(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        excerpt(&String::from_utf8_lossy(&text))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The watchdog ends first. Once the server is reaped, its ID may belong to another process.
        end(&mut self.watchdog);
        end(&mut self.child);
    }
}

/// Starts the watchdog in a separate process group, so that Ctrl-C at the terminal does not end it.
fn watch(id: u32, home: &Path) -> Result<Child> {
    Command::new("sh")
        .args(["-c", WATCH, "watchdog"])
        .arg(id.to_string())
        .arg(home)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .context("cannot run sh")
}

/// The first and the last lines of `text`.
fn excerpt(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    if lines.len() > FIRST_LINES + LAST_LINES {
        lines.splice(FIRST_LINES..lines.len() - LAST_LINES, ["…"]);
    }
    lines.join("\n")
}

/// Kills a child and waits for it. Both calls fail only if the child has already ended.
fn end(child: &mut Child) {
    child.kill().ok();
    child.wait().ok();
}

/// The processor time of a process so far, in seconds, for its own code and in the kernel; 0 if it has ended.
pub fn processor_seconds(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name of the program, in parentheses, may contain spaces. Fields 14 and 15 count ticks.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok())
        .sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;
    use std::io::{BufRead, BufReader};

    /// The variable that marks a copy of this test program, which starts a server and dies.
    const DYING: &str = "CALIPAM_TEST_DYING";

    fn sleeper(home: &Path) -> Process {
        Process::spawn("sleep", Path::new("sleep"), &["600".to_owned()], home).expect("sleep is everywhere")
    }

    /// The state letter of a process in Linux's /proc, if it exists.
    fn state(id: u32) -> Option<char> {
        let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        text.rsplit_once(") ")?.1.chars().next()
    }

    fn eventually(what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(20), "still not so: {what}");
            thread::sleep(POLL);
        }
    }

    #[test]
    fn a_dropped_server_is_gone() {
        let home = tempfile::tempdir().expect("folder");
        let server = sleeper(home.path());
        let id = server.child.id();
        assert!(state(id).is_some());
        drop(server);
        assert_eq!(state(id), None);
        assert!(home.path().exists(), "the folder belongs to its owner");
    }

    #[test]
    fn a_server_can_hang_and_go_on() {
        let home = tempfile::tempdir().expect("folder");
        let server = sleeper(home.path());
        server.pause().expect("paused");
        assert_eq!(state(server.child.id()), Some('T'));
        server.pause().expect("paused already");
        server.resume().expect("resumed");
        eventually("sleeping", || state(server.child.id()) == Some('S'));
    }

    #[test]
    fn errors_contain_the_log_of_a_server_that_ends_or_never_starts() {
        let home = tempfile::tempdir().expect("folder");
        let args = ["-c".to_owned(), "echo no such flag; exit 3".to_owned()];
        let mut server = Process::spawn("shell", Path::new("sh"), &args, home.path()).expect("sh");
        let never = || Err("not yet".to_owned());
        let error = server
            .wait_until("ready", Duration::from_secs(20), never)
            .expect_err("it ended");
        let text = error.to_string();
        assert!(
            text.starts_with("shell exited unexpectedly (exit status: 3)"),
            "{text}"
        );
        assert!(text.ends_with("no such flag"), "{text}");

        let mut server = sleeper(home.path());
        let error = server
            .wait_until("ready", Duration::from_millis(50), never)
            .expect_err("it never is");
        assert!(
            error
                .to_string()
                .starts_with("sleep is not ready after 50ms (not yet)"),
            "{error}"
        );
    }

    #[test]
    fn long_logs_lose_their_middle() {
        let numbered = |count: usize| (1..=count).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
        assert_eq!(excerpt(&numbered(23)), numbered(23));
        let long = excerpt(&numbered(100));
        assert!(
            long.starts_with("1\n2\n3\n…\n81\n") && long.ends_with("\n100"),
            "{long}"
        );
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let home = tempfile::tempdir().expect("folder");
        let error =
            Process::spawn("nothing", Path::new("/nowhere/etcd"), &[], home.path()).expect_err("none");
        assert!(
            format!("{error:#}").starts_with("cannot run /nowhere/etcd: "),
            "{error:#}"
        );
    }

    /// Starts this test a second time. The copy leaves a server behind and runs no destructor.
    #[test]
    fn a_server_does_not_outlive_a_test_that_dies() {
        if let Some(home) = env::var_os(DYING) {
            let server = sleeper(Path::new(&home));
            println!("\nserver={}", server.child.id());
            std::process::abort();
        }
        let home = tempfile::tempdir().expect("folder").keep();
        let mut copy = Command::new(env::current_exe().expect("this program"))
            .args([
                "--exact",
                "servers::process::tests::a_server_does_not_outlive_a_test_that_dies",
                "--nocapture",
            ])
            .env(DYING, &home)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a copy of this program");
        let lines = BufReader::new(copy.stdout.take().expect("a pipe")).lines();
        let id = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("server=").and_then(|id| id.parse::<u32>().ok()))
            .expect("the copy tells the id of its server");
        assert!(!copy.wait().expect("the copy ends").success(), "the copy aborts");
        // If no process reaps orphans, a killed one stays as a zombie.
        eventually("the server is killed", || matches!(state(id), None | Some('Z')));
        eventually("its folder is removed", || !home.exists());
    }
}
