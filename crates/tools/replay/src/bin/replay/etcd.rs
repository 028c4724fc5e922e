//! A real etcd for replays, and calipam's programs that use it.

use std::collections::BTreeMap;
use std::io::{Seek, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use calipam_datastore::allocation::{AllocatorStore, Selecting};
use calipam_datastore::settings::{LocalFiles, Overrides, Settings};
use calipam_datastore::write::Consent;
use calipam_replay::{Environment, Output, Write};
use calipam_testkit::servers::Etcd;
use etcd_client::{Client, DeleteOptions, Event, EventType, GetOptions, WatchOptions};
use serde_json::{Map, Value};
use tempfile::TempDir;

/// The prefix of Calico's keys.
const ROOT: &str = "/calico";

/// A running etcd.
pub(crate) struct EtcdEnvironment {
    etcd: Etcd,
    client: Client,
    store: AllocatorStore,
    /// The revision of the last write that was returned.
    revision: Mutex<i64>,
    /// The folder that `DIR` stands for in traces. It contains links to the programs, with the names of Calico's
    /// programs.
    folder: TempDir,
}

impl EtcdEnvironment {
    /// Starts an etcd. `programs` is the folder with calipam's programs.
    pub(crate) async fn start(programs: PathBuf) -> Result<Self, String> {
        let etcd = Etcd::start().map_err(text)?;
        let client = etcd.client().await.map_err(text)?;
        let overrides = Overrides { etcd_endpoints: Some(etcd.endpoint()), ..Overrides::default() };
        let settings = Settings::resolve(&overrides, &BTreeMap::new(), &LocalFiles).map_err(text)?;
        let consent = Consent::from_runtime(etcd.endpoint());
        let store = AllocatorStore::connect(&settings, Selecting::All, consent).await.map_err(text)?;
        let folder = tempfile::Builder::new().prefix("calipam-replay-").tempdir().map_err(text)?;
        for (name, program) in [("calico-ipam", "calico-ipam"), ("calicoctl", "calipam")] {
            let link = folder.path().join(name);
            std::os::unix::fs::symlink(programs.join(program), link).map_err(text)?;
        }
        Ok(Self { etcd, client, store, revision: Mutex::new(0), folder })
    }

    /// Returns the text of an input, with `ETCD` replaced by the endpoint and `DIR` by the folder.
    fn filled(&self, value: &Value) -> String {
        let folder = self.folder.path().display().to_string();
        value.to_string().replace("ETCD", &self.etcd.endpoint()).replace("DIR", &folder)
    }

    /// Returns the text of an output, with the endpoint replaced by `ETCD` and the folder by `DIR`.
    fn generic(&self, text: &str) -> String {
        let folder = self.folder.path().display().to_string();
        text.replace(&self.etcd.endpoint(), "ETCD").replace(&folder, "DIR")
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.folder.path().join(name));
        command.env_clear().env("HOME", self.folder.path());
        command
    }

    async fn revision(&self) -> Result<i64, String> {
        let answer = self.client.kv_client().get(ROOT, None).await.map_err(text)?;
        Ok(answer.header().map_or(0, |header| header.revision()))
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Environment for EtcdEnvironment {
    type Store = AllocatorStore;

    fn store(&self) -> &AllocatorStore {
        &self.store
    }

    async fn clear(&self) -> Result<(), String> {
        let all = DeleteOptions::new().with_prefix();
        self.client.kv_client().delete(ROOT, Some(all)).await.map_err(text).map(drop)
    }

    async fn set(&self, path: &str, value: Option<&Value>) -> Result<(), String> {
        let mut client = self.client.kv_client();
        match value {
            Some(value) => client.put(path, value.to_string(), None).await.map_err(text).map(drop),
            None => client.delete(path, None).await.map_err(text).map(drop),
        }
    }

    async fn values(&self, prefix: &str) -> Result<BTreeMap<String, Value>, String> {
        let all = GetOptions::new().with_prefix();
        let answer = self.client.kv_client().get(prefix, Some(all)).await.map_err(text)?;
        let entry = |kv: &etcd_client::KeyValue| Ok((kv.key_str()?.to_owned(), parse(kv.value())));
        answer.kvs().iter().map(entry).collect::<Result<_, etcd_client::Error>>().map_err(text)
    }

    async fn writes(&self) -> Result<Vec<Write>, String> {
        let last = self.revision().await?;
        let first = std::mem::replace(&mut *self.revision.lock().map_err(text)?, last) + 1;
        if first > last {
            return Ok(Vec::new());
        }
        let options = WatchOptions::new().with_prefix().with_start_revision(first);
        let mut stream = self.client.watch_client().watch(ROOT, Some(options)).await.map_err(text)?;
        let mut writes = Vec::new();
        let mut revision = 0;
        while revision < last {
            let message =
                tokio::time::timeout(Duration::from_secs(20), stream.message()).await.map_err(text)?;
            let message = message.map_err(text)?.ok_or("the watch ended")?;
            for event in message.events() {
                revision = revision.max(event.kv().map_or(0, |kv| kv.mod_revision()));
                writes.extend(write(event));
            }
        }
        Ok(writes)
    }

    async fn sleep(&self, milliseconds: u64) {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }

    async fn cni(&self, input: &Map<String, Value>) -> Result<Output, String> {
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
        let output = run(&mut command, &configuration, self.folder.path(), false)?;
        Ok(Output { stdout: self.generic(&output.stdout), ..output })
    }

    async fn calicoctl(&self, arguments: &str) -> Result<Output, String> {
        let mut command = self.command("calicoctl");
        command.args(arguments.split_whitespace());
        command.env("DATASTORE_TYPE", "etcdv3").env("ETCD_ENDPOINTS", self.etcd.endpoint());
        let output = run(&mut command, "", self.folder.path(), true)?;
        Ok(Output { stdout: without_own_lines(&self.generic(&output.stdout)), ..output })
    }
}

/// Runs a program. If `both` is true, the output includes standard error.
fn run(command: &mut Command, input: &str, folder: &Path, both: bool) -> Result<Output, String> {
    let mut file = tempfile::tempfile_in(folder).map_err(text)?;
    command.stdin(Stdio::piped()).stdout(file.try_clone().map_err(text)?);
    let errors = if both { Stdio::from(file.try_clone().map_err(text)?) } else { Stdio::inherit() };
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child =
        command.stderr(errors).spawn().map_err(|error| format!("{program} cannot be run: {error}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program may end before it has read its input.
        stdin.write_all(input.as_bytes()).ok();
    }
    let status = child.wait().map_err(text)?;
    file.rewind().map_err(text)?;
    let stdout = std::io::read_to_string(file).map_err(text)?;
    Ok(Output { exit_code: status.code().unwrap_or(-1), stdout })
}

/// Removes the lines that the drop-in prints on standard error and calicoctl does not: the journal of a change,
/// warnings and hints.
fn without_own_lines(text: &str) -> String {
    let is_own =
        |line: &&str| ["journal: ", "hint: ", "warning: "].iter().any(|start| line.starts_with(start));
    text.split_inclusive('\n').filter(|line| !is_own(line)).collect()
}

fn write(event: &Event) -> Option<Write> {
    let kv = event.kv()?;
    let is_deletion = event.event_type() == EventType::Delete;
    Some(Write {
        path: kv.key_str().ok()?.to_owned(),
        existed: is_deletion || kv.create_revision() != kv.mod_revision(),
        value: (!is_deletion).then(|| parse(kv.value())),
    })
}

fn parse(value: &[u8]) -> Value {
    serde_json::from_slice(value).unwrap_or(Value::Null)
}
