//! A small container runtime, which calls the plugin and reads its output.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// The plugin under test. It is built with the tests, unless a variable names another program, such as the static one
/// in packages.
pub(crate) const PLUGIN: &str = match option_env!("CALIPAM_TEST_PLUGIN") {
    Some(plugin) => plugin,
    None => env!("CARGO_BIN_EXE_calico-ipam"),
};

/// A runtime with one network configuration.
pub(crate) struct Runtime {
    /// The text for stdin, without `prevResult`.
    pub configuration: Value,
    /// Environment variables in addition to those of the protocol.
    pub variables: BTreeMap<String, String>,
    folder: TempDir,
}

/// The outcome of a call.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// stdout as JSON; `null` if there is none.
    pub(crate) fn json(&self) -> Value {
        if self.stdout.is_empty() {
            return Value::Null;
        }
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The result of a call that must have succeeded.
    #[track_caller]
    pub(crate) fn success(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.json()
    }

    /// The error code and message of a call that must have failed.
    #[track_caller]
    pub(crate) fn error(&self) -> (u64, String) {
        assert_eq!(self.code, Some(1), "{self:?}");
        let error = self.json();
        let text = error["msg"].as_str().expect("a message").to_owned();
        (error["code"].as_u64().expect("a code"), text)
    }
}

/// The addresses in a result of any version, without their prefix lengths.
pub(crate) fn addresses(result: &Value) -> Vec<String> {
    let listed = result["ips"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|ip| &ip["address"]);
    let by_family = ["ip4", "ip6"].into_iter().map(|family| &result[family]["ip"]);
    let texts = listed.chain(by_family).filter_map(Value::as_str);
    texts
        .filter_map(|text| text.split('/').next())
        .map(str::to_owned)
        .collect()
}

impl Runtime {
    /// A runtime for a network `net` on node `a`, with the fields of `datastore`.
    pub(crate) fn new(datastore: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut configuration = json!({
            "cniVersion": "0.3.1", "name": "net", "type": "calico", "nodename": "a",
            "ipam": {"type": "calico-ipam"}, "log_level": "debug",
            "ipam_lock_file": folder.path().join("ipam.lock"),
        });
        for (name, value) in datastore.as_object().into_iter().flatten() {
            configuration[name] = value.clone();
        }
        Self {
            configuration,
            variables: BTreeMap::new(),
            folder,
        }
    }

    pub(crate) fn on_etcd(endpoints: &str) -> Self {
        Self::new(&json!({"datastore_type": "etcdv3", "etcd_endpoints": endpoints}))
    }

    /// The folder of the lock.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.configuration[name] = value.into();
        self
    }

    pub(crate) fn with_ipam(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.configuration["ipam"][name] = value.into();
        self
    }

    /// Calls the plugin for a container.
    pub(crate) fn call(&self, command: &str, container: &str, args: &str) -> Outcome {
        self.call_after(command, container, args, &Value::Null)
    }

    /// Calls the plugin for a container with the result of an earlier ADD.
    pub(crate) fn call_after(&self, command: &str, container: &str, args: &str, previous: &Value) -> Outcome {
        let mut configuration = self.configuration.clone();
        if !previous.is_null() {
            configuration["prevResult"] = previous.clone();
        }
        wait(self.start(command, container, args, configuration.to_string().as_bytes()))
    }

    /// Calls the plugin for a container whose ADD and DEL must succeed. Returns the result of the ADD.
    #[track_caller]
    pub(crate) fn add_and_delete(&self, container: &str, args: &str) -> Value {
        let result = self.call("ADD", container, args).success();
        self.call("DEL", container, args).success();
        result
    }

    /// Calls the plugin with arbitrary bytes on stdin.
    pub(crate) fn call_with(&self, command: &str, container: &str, stdin: &[u8]) -> Outcome {
        wait(self.start(command, container, "", stdin))
    }

    /// Starts a call without waiting for its end.
    pub(crate) fn start(&self, command: &str, container: &str, args: &str, stdin: &[u8]) -> Child {
        let mut plugin = Command::new(PLUGIN);
        plugin
            .env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", container)
            .env("CNI_NETNS", "/run/netns/none")
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", "/opt/cni/bin")
            .env("CNI_ARGS", args)
            .envs(&self.variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = plugin.spawn().expect("the plugin starts");
        let mut pipe = child.stdin.take().expect("a pipe");
        // A plugin that does not read stdin closes the pipe.
        pipe.write_all(stdin).ok();
        child
    }
}

/// Runs the plugin with no other environment variables than `variables`.
pub(crate) fn run(arguments: &[&str], variables: &[(&str, &str)], stdin: Stdio) -> Outcome {
    let mut plugin = Command::new(PLUGIN);
    plugin
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .stdin(stdin);
    let child = plugin
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the plugin starts");
    wait(child)
}

pub(crate) fn wait(child: Child) -> Outcome {
    child.wait_with_output().expect("the plugin ends").into()
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the plugin writes text");
        Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}
