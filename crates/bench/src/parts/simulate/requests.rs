//! How many requests the server has done for plugins, as it counts them itself.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::Failed;
use crate::cluster::Cluster;
use crate::kubernetes::OF_ALLOCATION;

/// Requests since the server started.
pub fn done(cluster: &Cluster) -> Result<u64, Failed> {
    let (text, is_counted): (String, fn(&str) -> bool) = match cluster {
        Cluster::Etcd(etcd) => (metrics(etcd.port())?, |line| {
            line.starts_with("grpc_server_handled_total{")
                && line.contains("grpc_service=\"etcdserverpb.KV\"")
        }),
        Cluster::Kubernetes(server) => (server.request("GET", "/metrics", "")?.body, |line| {
            let resource = |name: &&str| line.contains(&format!("resource=\"{name}\""));
            let is_core = line.contains("resource=\"nodes\"") || line.contains("resource=\"namespaces\"");
            line.starts_with("apiserver_request_total{")
                && !line.contains("verb=\"WATCH\"")
                && (OF_ALLOCATION.iter().any(resource) || (is_core && line.contains("verb=\"GET\"")))
        }),
    };
    let counts = text.lines().filter(|line| is_counted(line)).filter_map(|line| line.rsplit_once(' '));
    Ok(counts.filter_map(|(_, count)| count.parse::<f64>().ok()).sum::<f64>() as u64)
}

/// What etcd says about itself.
fn metrics(port: u16) -> Result<String, Failed> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: etcd\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
