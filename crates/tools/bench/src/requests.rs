//! Counts the requests of plugins or checks, except watches, with the servers' metrics.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::Failed;
use crate::cluster::Cluster;
use crate::kubernetes::OF_ALLOCATION;

pub(crate) struct Requests {
    pub done: u64,
    /// The number of writes in `done`.
    pub writes: u64,
    /// The number of writes that failed because of a concurrent write; `None` for etcd, which has no metric for it.
    pub lost: Option<u64>,
}

impl Requests {
    /// The requests since an earlier count.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let lost = self.lost.zip(before.lost).map(|(now, before)| now - before);
        Self { done: self.done - before.done, writes: self.writes - before.writes, lost }
    }
}

/// The requests since the server started.
pub(crate) fn done(cluster: &Cluster) -> Result<Requests, Failed> {
    match cluster {
        Cluster::Etcd(etcd) => {
            let of_keys = |line: &str| {
                line.starts_with("grpc_server_handled_total{")
                    && line.contains("grpc_service=\"etcdserverpb.KV\"")
            };
            // Only writes are Raft proposals.
            let is_write = |line: &str| line.starts_with("etcd_server_proposals_applied_total ");
            let (_, text) = get(&format!("127.0.0.1:{}", etcd.port), "/metrics")?;
            Ok(Requests { done: sum(&text, of_keys), writes: sum(&text, is_write), lost: None })
        }
        Cluster::Kubernetes(server) => {
            let text = server.request("GET", "/metrics", "")?.body;
            let is_lost = |line: &str| is_of_clients(line) && line.contains("code=\"409\"");
            let is_write = |line: &str| {
                is_of_clients(line) && !line.contains("verb=\"GET\"") && !line.contains("verb=\"LIST\"")
            };
            Ok(Requests {
                done: sum(&text, is_of_clients),
                writes: sum(&text, is_write),
                lost: Some(sum(&text, is_lost)),
            })
        }
    }
}

/// True for a line of the API server's metrics that counts requests of plugins or checks. The API server itself lists
/// namespaces, so only reads of a single namespace count.
fn is_of_clients(line: &str) -> bool {
    let resource = |name: &&str| line.contains(&format!("resource=\"{name}\""));
    line.starts_with("apiserver_request_total{")
        && !line.contains("verb=\"WATCH\"")
        && (OF_ALLOCATION.iter().chain(&["nodes", "pods"]).any(resource)
            || (resource(&"namespaces") && line.contains("verb=\"GET\"")))
}

/// The sum of the values on the selected lines of metrics.
fn sum(text: &str, is_counted: impl Fn(&str) -> bool) -> u64 {
    let counts = text.lines().filter(|line| is_counted(line)).filter_map(|line| line.rsplit_once(' '));
    counts.filter_map(|(_, count)| count.parse::<f64>().ok()).sum::<f64>() as u64
}

/// Requests a path of a server. Returns the status and the body.
pub(crate) fn get(address: &str, path: &str) -> Result<(u16, String), Failed> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
    let status = head.split(' ').nth(1).ok_or("no status")?.parse()?;
    Ok((status, body.to_owned()))
}
