//! Counts the requests of plugins with the servers' metrics, and requests paths of servers.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result};

use crate::cluster::Cluster;

/// The kinds that plugins read or write, without namespaces.
const KINDS: &str = "ipamblocks ipamhandles blockaffinities ipamconfigs ippools ipreservations nodes pods";

/// The number of requests, except watches, since the server started.
pub(crate) fn done(cluster: &Cluster) -> Result<u64> {
    let text = match cluster.api_server() {
        None => get(&format!("127.0.0.1:{}", cluster.etcd().port), "/metrics")?.1,
        Some(server) => server.request("GET", "/metrics", "")?.body,
    };
    let counts = text.lines().filter(|line| is_counted(line)).filter_map(|line| line.rsplit_once(' '));
    Ok(counts.filter_map(|(_, count)| count.parse::<f64>().ok()).sum::<f64>() as u64)
}

/// True for a line of metrics that counts requests of plugins. An API server itself lists namespaces, so only reads of a
/// single namespace count.
fn is_counted(line: &str) -> bool {
    if line.starts_with("grpc_server_handled_total{") {
        return line.contains("grpc_service=\"etcdserverpb.KV\"");
    }
    let resource = |name: &str| line.contains(&format!("resource=\"{name}\""));
    line.starts_with("apiserver_request_total{")
        && !line.contains("verb=\"WATCH\"")
        && (KINDS.split(' ').any(resource) || resource("namespaces") && line.contains("verb=\"GET\""))
}

/// Requests a path of a server. Returns the status and the body.
pub(crate) fn get(address: &str, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok((status, body.to_owned()))
}
