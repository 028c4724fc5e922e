//! The environment of a replay: an etcd that can be filled, watched and read, and calipam's programs that use it.

use std::collections::BTreeMap;
use std::io::{Seek, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use calipam_datastore::allocation::{AllocatorStore, Selecting};
use calipam_datastore::write::Consent;
use calipam_testkit::datastore;
use calipam_testkit::servers::Etcd;
use etcd_client::{Client, DeleteOptions, Event, EventType, GetOptions, KeyValue, WatchOptions};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// The prefix of Calico's keys.
const ROOT: &str = "/calico";

/// A running etcd.
pub struct Environment {
    etcd: Etcd,
    client: Client,
    /// The datastore as an allocator sees it.
    pub(crate) store: AllocatorStore,
    /// The revision of the last write that was returned.
    revision: AtomicI64,
    /// The folder that `DIR` stands for in traces. It contains links to the programs, with the names of Calico's
    /// programs.
    folder: TempDir,
}

impl Environment {
    /// Starts an etcd. `programs` is the folder with calipam's programs.
    pub async fn start(programs: &Path) -> Result<Self> {
        let etcd = Etcd::start()?;
        let client = etcd.client().await?;
        let settings = datastore::settings(&datastore::etcd(etcd.endpoint()));
        let consent = Consent::from_runtime(etcd.endpoint());
        let store = AllocatorStore::connect(&settings, Selecting::All, consent).await?;
        let folder = tempfile::Builder::new().prefix("calipam-replay-").tempdir()?;
        for (name, program) in [("calico-ipam", "calico-ipam"), ("calicoctl", "calipam")] {
            let link = folder.path().join(name);
            symlink(programs.join(program), link)?;
        }
        Ok(Self {
            etcd,
            client,
            store,
            revision: AtomicI64::new(0),
            folder,
        })
    }

    /// Returns the text of an input, with `ETCD` replaced by the endpoint and `DIR` by the folder.
    fn filled(&self, value: &Value) -> String {
        let folder = self.folder.path().display().to_string();
        value
            .to_string()
            .replace("ETCD", &self.etcd.endpoint())
            .replace("DIR", &folder)
    }

    /// Returns the text of an output, with the endpoint replaced by `ETCD` and the folder by `DIR`.
    fn generic(&self, text: &str) -> String {
        let folder = self.folder.path().display().to_string();
        text.replace(&self.etcd.endpoint(), "ETCD")
            .replace(&folder, "DIR")
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.folder.path().join(name));
        command.env_clear().env("HOME", self.folder.path());
        command
    }

    /// Deletes everything under `/calico`.
    pub(crate) async fn clear(&self) -> Result<()> {
        let all = DeleteOptions::new().with_prefix();
        self.client.kv_client().delete(ROOT, Some(all)).await?;
        Ok(())
    }

    /// Stores a value, or deletes it.
    pub(crate) async fn set(&self, path: &str, value: Option<&Value>) -> Result<()> {
        let mut client = self.client.kv_client();
        match value {
            Some(value) => client.put(path, value.to_string(), None).await.map(drop)?,
            None => client.delete(path, None).await.map(drop)?,
        }
        Ok(())
    }

    /// Returns all values under a prefix, by path. Values that are not JSON are `null`.
    pub(crate) async fn values(&self, prefix: &str) -> Result<BTreeMap<String, Value>> {
        let all = GetOptions::new().with_prefix();
        let answer = self.client.kv_client().get(prefix, Some(all)).await?;
        let entry = |kv: &KeyValue| Ok((kv.key_str()?.to_owned(), parse(kv.value())));
        answer.kvs().iter().map(entry).collect()
    }

    /// Returns the writes since the last call, in the order in which they took effect.
    pub(crate) async fn writes(&self) -> Result<Vec<Value>> {
        let answer = self.client.kv_client().get(ROOT, None).await?;
        let last = answer.header().map_or(0, |header| header.revision());
        let first = self.revision.swap(last, Ordering::SeqCst) + 1;
        if first > last {
            return Ok(Vec::new());
        }
        let options = WatchOptions::new().with_prefix().with_start_revision(first);
        let mut stream = self.client.watch_client().watch(ROOT, Some(options)).await?;
        let mut writes = Vec::new();
        let mut revision = 0;
        while revision < last {
            let message = tokio::time::timeout(Duration::from_secs(20), stream.message()).await??;
            let message = message.context("the watch ended")?;
            for event in message.events() {
                revision = revision.max(event.kv().map_or(0, |kv| kv.mod_revision()));
                writes.extend(write(event));
            }
        }
        Ok(writes)
    }

    /// Calls the CNI plugin. Its output is parsed if it is JSON.
    pub(crate) fn cni(&self, input: &Map<String, Value>) -> Result<Value> {
        let mut command = self.command("calico-ipam");
        let variables = [
            ("CNI_COMMAND", "command"),
            ("CNI_CONTAINERID", "containerID"),
            ("CNI_NETNS", "netns"),
            ("CNI_IFNAME", "ifname"),
            ("CNI_ARGS", "args"),
        ];
        for (variable, field) in variables {
            let value = input.get(field).and_then(Value::as_str).unwrap_or_default();
            command.env(variable, value);
        }
        command.env("CNI_PATH", self.folder.path());
        let configuration = self.filled(input.get("conf").unwrap_or(&Value::Null));
        let (code, text) = run(&mut command, &configuration, false)?;
        let text = self.generic(&text);
        let stdout: Value = serde_json::from_str(&text).unwrap_or_else(|_| text.into());
        Ok(json!({"error": null, "exitCode": code, "stdout": stdout}))
    }

    /// Calls the drop-in for calicoctl.
    pub(crate) fn calicoctl(&self, arguments: &str) -> Result<Value> {
        let mut command = self.command("calicoctl");
        command.args(arguments.split_whitespace());
        command
            .env("DATASTORE_TYPE", "etcdv3")
            .env("ETCD_ENDPOINTS", self.etcd.endpoint());
        let (code, text) = run(&mut command, "", true)?;
        Ok(json!({"error": null, "exitCode": code, "stdout": without_own_lines(&self.generic(&text))}))
    }
}

/// Runs a program. Returns its exit code and its output, which includes standard error if `both` is true.
fn run(command: &mut Command, input: &str, both: bool) -> Result<(i32, String)> {
    let [mut stdin, mut stdout] = [tempfile::tempfile()?, tempfile::tempfile()?];
    stdin.write_all(input.as_bytes())?;
    stdin.rewind()?;
    command.stdin(stdin).stdout(stdout.try_clone()?);
    if both {
        command.stderr(stdout.try_clone()?);
    }
    let status = command
        .status()
        .with_context(|| format!("{} cannot be run", command.get_program().display()))?;
    stdout.rewind()?;
    Ok((status.code().unwrap_or(-1), std::io::read_to_string(stdout)?))
}

/// Removes the lines that the drop-in prints on standard error and calicoctl does not: the journal of a change,
/// warnings and hints.
fn without_own_lines(text: &str) -> String {
    let is_own = |line: &&str| {
        ["journal: ", "hint: ", "warning: "]
            .iter()
            .any(|start| line.starts_with(start))
    };
    text.split_inclusive('\n').filter(|line| !is_own(line)).collect()
}

/// A write in the form of a trace.
fn write(event: &Event) -> Option<Value> {
    let kv = event.kv()?;
    let is_deletion = event.event_type() == EventType::Delete;
    let is_new = kv.create_revision() == kv.mod_revision();
    let path = kv.key_str().ok()?;
    Some(match (is_deletion, is_new) {
        (true, _) => json!({"delete": path}),
        (false, true) => json!({"create": path, "value": parse(kv.value())}),
        (false, false) => json!({"update": path, "value": parse(kv.value())}),
    })
}

fn parse(value: &[u8]) -> Value {
    serde_json::from_slice(value).unwrap_or_default()
}
