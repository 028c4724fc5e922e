//! Calls programs as a container runtime calls the plugin.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::Cluster;
use crate::measured::Measured;
use crate::process::{LOOK_CLOSELY, run, start};

/// The plugin, or a program that is called like it, on the nodes of a cluster.
pub(crate) struct Plugin {
    program: PathBuf,
    /// True if the code of the plugin runs on threads of this process, not as the program.
    pub on_threads: bool,
    /// True if the nodes count as upgraded. Their first ADD then does not look for affinities without labels.
    pub is_labelled: bool,
    /// True if calls measure the memory of the program. This makes them slower.
    pub reads_memory: bool,
    /// The configuration without the fields of a node.
    network: Value,
    /// The folders of the nodes' lock files.
    folder: TempDir,
}

impl Plugin {
    /// A program that takes addresses from some pools, or from all of them. It sends requests to a port on 127.0.0.1:
    /// that of the cluster, or of a relay.
    pub(crate) fn new(program: PathBuf, cluster: &Cluster, port: u16, pools: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        // Calico's plugin also supports this CNI version.
        let mut network = json!({"cniVersion": "1.0.0", "name": "k8s-pod-network", "type": "calico",
            "ipam": {"type": "calico-ipam", "ipv4_pools": pools}, "log_level": "error"});
        let place = format!("127.0.0.1:{port}");
        match cluster.api_server() {
            None => {
                network["datastore_type"] = "etcdv3".into();
                network["etcd_endpoints"] = format!("http://{place}").into();
            }
            Some(server) => {
                let text = fs::read_to_string(server.kubeconfig())?;
                let kubeconfig = folder.path().join("kubeconfig");
                fs::write(
                    &kubeconfig,
                    text.replace(&server.url(), &format!("https://{place}")),
                )?;
                network["datastore_type"] = "kubernetes".into();
                network["kubernetes"] = json!({"kubeconfig": kubeconfig});
            }
        }
        Ok(Self {
            program,
            on_threads: false,
            is_labelled: false,
            reads_memory: false,
            network,
            folder,
        })
    }

    /// Runs a call, which must succeed.
    pub(crate) fn call(&self, command: &str, node: &str, container: &str) -> Result<Measured> {
        let (measured, result) = self.try_call(command, node, container)?;
        result.map_err(|answer| anyhow!("{command} of {container} on {node}: {answer}"))?;
        Ok(measured)
    }

    /// Runs a call. Also returns its answer if it fails.
    pub(crate) fn try_call(
        &self,
        command: &str,
        node: &str,
        container: &str,
    ) -> Result<(Measured, Result<(), String>)> {
        let input = self.configuration(node)?;
        let (measured, is_done, answer) = if self.on_threads {
            let variables = variables(command, container).map(|(name, value)| (name.to_owned(), value));
            let begin = Instant::now();
            let mut answer = Vec::new();
            let code = calipam_cni::run(&[], &variables.into(), &mut input.as_bytes(), &mut answer);
            let measured = Measured {
                seconds: begin.elapsed().as_secs_f64(),
                ..Measured::default()
            };
            (measured, code == 0, String::from_utf8_lossy(&answer).into_owned())
        } else {
            let pause = self.reads_memory.then_some(LOOK_CLOSELY);
            let (measured, ended, answer) = run(&mut self.process(command, container), &input, pause)?;
            (measured, ended.success(), answer)
        };
        Ok((measured, if is_done { Ok(()) } else { Err(answer) }))
    }

    /// Starts processes at the same time, each for a node and a container. Returns the seconds until all have ended.
    pub(crate) fn at_once(&self, command: &str, calls: &[(String, String)]) -> Result<f64> {
        let nodes = calls.iter().map(|(node, _)| self.configuration(node));
        let configurations = nodes.collect::<Result<Vec<_>>>()?;
        let all = Measured::of(|| {
            let calls = calls.iter().zip(&configurations);
            let start = |((_, container), input): (&(String, String), &String)| {
                start(&mut self.process(command, container), input)
            };
            let running = calls.map(start).collect::<Result<Vec<_>>>()?;
            for child in running {
                let output = child.wait_with_output()?;
                ensure!(
                    output.status.success(),
                    "{}",
                    String::from_utf8_lossy(&output.stdout)
                );
            }
            Ok(())
        })?;
        Ok(all.seconds)
    }

    fn process(&self, command: &str, container: &str) -> Command {
        let mut process = Command::new(&self.program);
        process.env_clear().envs(variables(command, container));
        process.stdout(Stdio::piped()).stderr(Stdio::null());
        process
    }

    /// The configuration that a node's program reads from stdin.
    fn configuration(&self, node: &str) -> Result<String> {
        let folder = self.folder.path().join(node);
        fs::create_dir_all(folder.join("cni"))?;
        if self.is_labelled {
            fs::write(folder.join("cni/ipam_upgraded"), "")?;
        }
        let mut configuration = self.network.clone();
        configuration["nodename"] = node.into();
        configuration["ipam_lock_file"] = json!(folder.join("ipam.lock"));
        Ok(configuration.to_string())
    }
}

/// The environment variables of a call for a pod in the namespace `default`.
fn variables(command: &str, container: &str) -> [(&'static str, String); 6] {
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
