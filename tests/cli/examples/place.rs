//! The environment of examples: the damaged example cluster in an etcd and on an API server, and a home folder with the
//! files that the examples read.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use calipam_testkit::cluster::{Cluster, Object};
use calipam_testkit::kube::{Flavour, Kinds, Lease, lease};
use calipam_testkit::servers::Etcd;
use tempfile::TempDir;

use super::document::{Example, Surroundings};
use super::listed::{FOLDERS, REPLACED};
use crate::cli::program::{Run, example, root};
use crate::cli::pty::{Shown, Terminal};
use crate::cli::shell::Shell;

/// A pod of the example cluster: its namespace, its name, and its name in the documents.
const POD: (&str, &str, &str) = ("default", "db-4", "web-0");
const HANDLE: &str = "3f9a6c0b7d2e";
const NODE: (&str, &str) = ("node-13", "gpu-13");
const POOL: (&str, &str) = ("team-ippool", "external");
/// The grace period and a shorter one, which replaces it because examples of releases wait for it.
const GRACE: (&str, &str) = ("\"leakGracePeriod\":\"15m0s\"", "\"leakGracePeriod\":\"1s\"");

pub(super) struct Place {
    shell: Shell,
    /// The etcd for examples that read.
    still: Etcd,
    /// The etcd for examples that write. The cluster is restored before each example.
    written: Etcd,
    server: Lease,
    entries: Vec<(String, Vec<u8>)>,
}

impl Place {
    pub(super) fn start() -> Self {
        let cluster = Cluster::example();
        let server = lease(Kinds::CalicoAndKubevirt(Flavour::Classic)).unwrap();
        cluster
            .kubernetes(Flavour::Classic)
            .write_to_server(&server)
            .unwrap();
        let place = Self {
            shell: Shell::new([]),
            still: Etcd::start().unwrap(),
            written: Etcd::start().unwrap(),
            server,
            entries: entries(&cluster),
        };
        // Each entry gets its own revision, since some examples name a revision.
        let put = place.still.with_client(async |mut client| {
            for (key, value) in &place.entries {
                client.put(key.as_str(), value.clone(), None).await?;
            }
            Ok(())
        });
        put.unwrap();
        place.fill_home();
        place
    }

    /// Fills the template of the home folder, which is copied for each example.
    fn fill_home(&self) {
        let at = |name: &str| self.template().join(name);
        for folder in FOLDERS {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at(".kube/config"), with_contexts(&self.server.kubeconfig())).unwrap();
        fs::write(at("cluster.jsonl"), example()).unwrap();
        for name in ["cluster.db", "snapshot.db"] {
            self.still.save_snapshot(&at(name)).unwrap();
        }
        fs::write(at("accepted.txt"), "pool-nearly-full 172.16.5.0/28\n").unwrap();
        // The same data with a different GUID counts as another cluster.
        fs::write(
            at("other.jsonl"),
            example().replace("0f0e1d2c3b4a5968", "1f0e1d2c3b4a5968"),
        )
        .unwrap();
        let fleet = "clusters: [{name: a, datastore: cluster.jsonl}, {name: b, datastore: other.jsonl}]";
        fs::write(at("fleet.yaml"), fleet).unwrap();
        fs::copy(at("cluster.jsonl"), at("var/lib/calipam/sent/prod/eu.jsonl")).unwrap();
        for line in [
            "calipam export -q --fleet fleet.yaml monday",
            "calipam export -q --fleet fleet.yaml --archive archives",
            "calipam export -q --archive var/lib/calipam/archive --datastore cluster.jsonl",
            "calipam export -q --archive var/lib/calipam/archive",
            "calipam export cluster.jsonl.zst",
            "calipam check --settle 0 -o json --fail-on never > first.json && cp first.json last.json",
        ] {
            Run::of(self.command(line, &self.still, &self.template())).succeeded();
        }
    }

    fn template(&self) -> std::path::PathBuf {
        self.shell.folder().join("home")
    }

    /// Prepares an example in its surroundings.
    fn prepared(&self, example: &Example, etcd: &Etcd, home: &Path) -> Command {
        let line = typed(example);
        match &example.surroundings {
            Surroundings::Person => self.command(&line, etcd, home),
            Surroundings::Cron(settings) => self.job(&line, settings, etcd, home),
            Surroundings::Container(mounts) => self.container(&line, mounts, etcd, home),
        }
    }

    /// Prepares a line as some implementations of cron do: without HOME and a terminal, and with few variables.
    fn job(&self, line: &str, settings: &[(String, String)], etcd: &Etcd, home: &Path) -> Command {
        let programs = self.shell.folder().display().to_string();
        let place = |text: &str| text.replace("/usr/local/bin", &programs);
        let mut job = Command::new("/bin/sh");
        job.args(["-c", &place(line)])
            .current_dir("/")
            .stdin(Stdio::null());
        job.env_clear()
            .env("SHELL", "/bin/sh")
            .env("LOGNAME", "root")
            .env("PATH", "/usr/bin:/bin");
        job.envs(settings.iter().map(|(name, value)| (name, place(value))));
        // Stand for settings and folders of the system.
        job.env("ROOT", home)
            .env("STATE_DIRECTORY", home.join("var/lib/calipam"));
        job.env("ETCD_ENDPOINTS", etcd.endpoint());
        job
    }

    /// Prepares a call of the program as a container makes it: without a shell, a home and a place to write.
    fn container(&self, line: &str, mounts: &[(String, String)], etcd: &Etcd, home: &Path) -> Command {
        let outside = |path: &str| path.replace('~', &home.display().to_string());
        let inside = |word: &str| match mounts.iter().find(|(_, inside)| inside == word) {
            Some((path, _)) => outside(path),
            None => word.to_owned(),
        };
        let mut program = Command::new(crate::cli::PROGRAM);
        program
            .args(line.split(' ').skip(1).map(inside))
            .current_dir("/")
            .stdin(Stdio::null());
        program
            .env_clear()
            .env("HOME", "/")
            .env("ETCD_ENDPOINTS", etcd.endpoint());
        program
    }

    fn command(&self, line: &str, etcd: &Etcd, home: &Path) -> Command {
        // The examples for zsh need only its array `fpath`. zsh counts from 1, but bash from 0, so the first element is
        // a placeholder.
        let line = format!("set -o pipefail; fpath=(. \"$HOME/functions\"); {line}");
        let mut command = self.shell.command("bash", &line);
        command
            .current_dir(home)
            .env("HOME", home)
            .env("ROOT", home)
            .env("PROFILE", home.join("profile"));
        command.env_remove("XDG_STATE_HOME");
        command
            .env("ETCD_ENDPOINTS", etcd.endpoint())
            .env("ENDPOINT", etcd.endpoint());
        command
    }

    /// Creates the home folder of one example, with the documents at the paths that the README uses.
    fn home(&self) -> TempDir {
        let home = tempfile::tempdir().unwrap();
        let copied = Command::new("cp")
            .arg("-rT")
            .arg(self.template())
            .arg(home.path())
            .status()
            .unwrap();
        assert!(copied.success());
        std::os::unix::fs::symlink(root().join("docs"), home.path().join("docs")).unwrap();
        home
    }

    /// Runs an example that only reads.
    pub(super) fn read(&self, example: &Example) -> Shown {
        let home = self.home();
        // The example creates this file itself.
        if let Some((_, file)) = example.line.split_once(" export ")
            && !file.starts_with("--")
        {
            fs::remove_file(home.path().join(file)).unwrap();
        }
        shown(Run::of(self.prepared(example, &self.still, home.path())))
    }

    /// Runs an example that writes, and answers yes. Before an example of `undo`, makes a run that it can undo.
    pub(super) fn write(&self, example: &Example) -> Shown {
        let home = self.home();
        self.written.delete_below("/calico/").unwrap();
        self.written.put_all(&self.entries).unwrap();
        let line = typed(example);
        if line.contains(" undo ") {
            let journal = line.split(' ').find(|word| word.ends_with(".journal"));
            let journal = journal
                .map(|path| format!("--journal {path}"))
                .unwrap_or_default();
            let release = format!("calipam release --orphan-handles --yes --settle 0 --grace 0 {journal}");
            Run::of(self.command(&release, &self.written, home.path())).succeeded();
        }
        let mut command = self.prepared(example, &self.written, home.path());
        if example.surroundings != Surroundings::Person {
            return shown(Run::of(command));
        }
        let shown = Terminal::new(200).answer(&mut command, "y\ny\n");
        Shown {
            text: shown.text.replace('\r', ""),
            ..shown
        }
    }
}

fn shown(run: Run) -> Shown {
    Shown {
        text: run.stdout + &run.stderr,
        code: Some(run.code),
    }
}

/// Adds the contexts that the documents name to a kubeconfig. All of them lead to the same server.
fn with_contexts(kubeconfig: &Path) -> String {
    let mut config: serde_yaml::Value = serde_yaml::from_slice(&fs::read(kubeconfig).unwrap()).unwrap();
    let contexts = config["contexts"].as_sequence_mut().unwrap();
    for name in ["prod-eu", "prod-us"] {
        let mut context = contexts[0].clone();
        context["name"] = name.into();
        contexts.push(context);
    }
    serde_yaml::to_string(&config).unwrap()
}

/// Returns the line that this test runs.
fn typed(example: &Example) -> String {
    let line = example.line.as_str();
    // calicoctl has no option `--settle`. Examples with output are run without it, since the hints in their output
    // would repeat it.
    let as_it_is = line.starts_with("calicoctl ") || example.output.is_some();
    let replaced = REPLACED
        .iter()
        .filter(|(_, by)| !(as_it_is && by.contains("--settle")));
    replaced.fold(line.to_owned(), |line, (from, to)| line.replace(from, to))
}

/// Returns the keys and values of the cluster, with the names that the documents use.
fn entries(cluster: &Cluster) -> Vec<(String, Vec<u8>)> {
    let (namespace, from, to) = POD;
    let endpoint = format!("/calico/resources/v3/projectcalico.org/workloadendpoints/{namespace}/");
    let container = cluster
        .keys()
        .filter_map(|key| std::str::from_utf8(key).ok())
        .find_map(|key| match cluster.get(key) {
            Some(Object::Json(found)) if key.starts_with(&endpoint) && found["spec"]["pod"] == from => {
                Some(found["spec"]["containerID"].as_str()?.to_owned())
            }
            _ => None,
        });
    let container = container.expect("the example cluster has the pod");
    let dashes = |text: &str| text.replace('-', "--");
    let names = [
        (container, HANDLE.to_owned()),
        (format!("{}-eth0", dashes(from)), format!("{}-eth0", dashes(to))),
        (format!("\"pod\":\"{from}\""), format!("\"pod\":\"{to}\"")),
        (dashes(NODE.0), dashes(NODE.1)),
        (NODE.0.to_owned(), NODE.1.to_owned()),
        (POOL.0.to_owned(), POOL.1.to_owned()),
        (GRACE.0.to_owned(), GRACE.1.to_owned()),
    ];
    let renamed = |text: &str| {
        names.iter().fold(text.to_owned(), |text, (from, to)| {
            text.replace(from.as_str(), to)
        })
    };
    let mut entries = Vec::new();
    cluster.for_each_entry(|key, value| {
        let value =
            std::str::from_utf8(value).map_or_else(|_| value.to_vec(), |text| renamed(text).into_bytes());
        entries.push((renamed(std::str::from_utf8(key).expect("keys are texts")), value));
    });
    entries
}
