//! The commands of a story and their output, with placeholders for the parts that differ from run to run.

use std::collections::HashSet;

use calipam_testkit::servers::Etcd;
use tempfile::TempDir;

use super::Living;
use crate::cli::program::{Run, Words, prepare};

/// The placeholder for the etcd of the test.
const ENDPOINT: &str = "https://10.0.0.5:2379";
/// The placeholder for the journals of the test.
const JOURNAL: &str = "~/.local/state/calipam/20261121T101500.123Z-0f0e1d2c-4711.journal";

/// A story in progress.
pub(super) struct Story {
    etcd: Etcd,
    home: TempDir,
    kubeconfig: Option<String>,
    journal: Option<String>,
    /// The commands with their output, as in the document.
    pub told: Vec<String>,
}

impl Story {
    /// Begins a story with the cluster in an etcd.
    pub(super) fn begin(etcd: Etcd) -> Self {
        let home = tempfile::tempdir().unwrap();
        Self {
            etcd,
            home,
            kubeconfig: None,
            journal: None,
            told: Vec::new(),
        }
    }

    /// Also reads the pods of the cluster from Kubernetes.
    pub(super) fn with_kubeconfig(mut self, path: &str) -> Self {
        self.kubeconfig = Some(path.to_owned());
        self
    }

    /// The etcd.
    pub(super) fn etcd(&self) -> &Etcd {
        &self.etcd
    }

    /// Runs a line as typed, and adds it to the story with its output, except for parts that the previous line has
    /// printed.
    pub(super) fn tell(&mut self, line: &str) -> Run {
        let words = line.strip_prefix("calipam ").expect(line);
        let run = self.run(&words.replace(JOURNAL, self.journal.as_deref().unwrap_or_default()));
        if let Some(path) = run
            .stderr
            .split("`calipam undo ")
            .nth(1)
            .and_then(|rest| rest.split('`').next())
        {
            self.journal = Some(path.to_owned());
        }
        let printed = self.mask(&run.stdout) + &self.mask(&run.stderr);
        let before = self.told.last().map_or("", String::as_str);
        self.told
            .push(format!("$ {line}\n{}", without_repetition(&printed, before)));
        run
    }

    /// Adds the deletion of a pod to the story.
    pub(super) fn tell_deletion(&mut self, Living { namespace, pod, .. }: &Living) {
        self.told.push(format!(
            "$ kubectl delete pod --namespace {namespace} {pod}\npod \"{pod}\" deleted\n"
        ));
    }

    /// Runs the program without adding it to the story.
    pub(super) fn run(&self, arguments: &(impl Words + ?Sized)) -> Run {
        let mut command = prepare(arguments);
        command
            .env("ETCD_ENDPOINTS", self.etcd.endpoint())
            .env("HOME", self.home.path());
        Run::of(command.envs(self.kubeconfig.iter().map(|path| ("KUBECONFIG", path))))
    }

    fn mask(&self, text: &str) -> String {
        let mut masked = text.replace(&self.etcd.endpoint(), ENDPOINT);
        if let Some(journal) = &self.journal {
            masked = masked.replace(journal, JOURNAL);
        }
        let revision = |line: &str| match line.split_once(" · revision ") {
            Some((before, rest)) => {
                let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
                format!("{before} · revision 48250{after}")
            }
            // All data of the cluster was written at one revision.
            None if line.starts_with("Event ") => {
                let event = line
                    .rsplit_once(" (revision ")
                    .expect("an event of etcd has a revision")
                    .0;
                format!("{event} (revision 48007)")
            }
            // The time at which a wait ends.
            None if line.starts_with("rechecking ") => {
                let (before, after) = line.split_once(", at ").expect("the wait has an end");
                let after = after.split_once(" UTC").expect("in UTC").1;
                format!("{}, at 10:30:00 UTC{after}", before.replace(" in 2s", " in 15m"))
            }
            // The time at which a cooldown ends.
            None if line.contains(" until 20") => {
                let time = "2026-11-21T10:15:30Z";
                let masked = |part: &str| match part.starts_with("20") {
                    true => format!("{time}{}", &part[time.len()..]),
                    false => part.to_owned(),
                };
                line.split(" until ")
                    .map(masked)
                    .collect::<Vec<_>>()
                    .join(" until ")
            }
            None => match line.split_once("` of 20") {
                Some((before, _)) if line.starts_with("Undoing ") => {
                    format!("{before}` of 2026-11-21T10:15:00.123Z")
                }
                _ => line.to_owned(),
            },
        };
        // The clusters of tests have a short grace period. The document shows the usual one, without the warning.
        let lines = masked
            .lines()
            .filter(|line| !line.starts_with("warning: a grace period of "));
        let grace = |line: String| {
            line.replace(", 2s later,", ", 15m later,")
                .replace(" and after 2s ", " and after 15m ")
        };
        lines.map(|line| grace(revision(line)) + "\n").collect()
    }
}

/// Replaces long runs of repeated lines with `…`. A line is repeated if the previous output contains it, possibly with
/// other column widths.
fn without_repetition(text: &str, before: &str) -> String {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let known: HashSet<String> = before.lines().map(words).collect();
    let lines: Vec<&str> = text.lines().collect();
    let runs = lines.chunk_by(|line, next| known.contains(&words(line)) == known.contains(&words(next)));
    let is_shown = |run: &[&str]| run.len() <= 3 || !known.contains(&words(run[0]));
    let shown = runs.flat_map(|run| if is_shown(run) { run } else { &["…"][..] });
    shown.map(|line| format!("{line}\n")).collect()
}
