//! How many requests the server has done for plugins, as it counts them itself.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::Failed;
use crate::cluster::Cluster;
use crate::kubernetes::OF_ALLOCATION;

/// Requests that a server has done.
pub(super) struct Requests {
    pub done: u64,
    /// Of them, writes that another was faster with; `None` of etcd, whose metrics do not tell.
    pub lost: Option<u64>,
}

impl Requests {
    /// Those that were not done before.
    pub(super) fn since(&self, before: &Self) -> Self {
        let lost = self.lost.zip(before.lost).map(|(now, before)| now - before);
        Self { done: self.done - before.done, lost }
    }
}

/// Requests since the server started.
pub(super) fn done(cluster: &Cluster) -> Result<Requests, Failed> {
    match cluster {
        Cluster::Etcd(etcd) => {
            let of_keys = |line: &str| {
                line.starts_with("grpc_server_handled_total{")
                    && line.contains("grpc_service=\"etcdserverpb.KV\"")
            };
            Ok(Requests { done: sum(&metrics(etcd.port())?, of_keys), lost: None })
        }
        Cluster::Kubernetes(server) => {
            let text = server.request("GET", "/metrics", "")?.body;
            let is_lost = |line: &str| is_of_plugins(line) && line.contains("code=\"409\"");
            Ok(Requests { done: sum(&text, is_of_plugins), lost: Some(sum(&text, is_lost)) })
        }
    }
}

/// True for a line of the API server's metrics that counts what plugins ask for.
fn is_of_plugins(line: &str) -> bool {
    let resource = |name: &&str| line.contains(&format!("resource=\"{name}\""));
    let is_core = line.contains("resource=\"nodes\"") || line.contains("resource=\"namespaces\"");
    line.starts_with("apiserver_request_total{")
        && !line.contains("verb=\"WATCH\"")
        && (OF_ALLOCATION.iter().any(resource) || (is_core && line.contains("verb=\"GET\"")))
}

/// The sum of some lines of metrics.
fn sum(text: &str, is_counted: impl Fn(&str) -> bool) -> u64 {
    let counts = text.lines().filter(|line| is_counted(line)).filter_map(|line| line.rsplit_once(' '));
    counts.filter_map(|(_, count)| count.parse::<f64>().ok()).sum::<f64>() as u64
}

/// What etcd says about itself.
fn metrics(port: u16) -> Result<String, Failed> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: etcd\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
