//! Tests of the API server launcher with a real server.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};

use super::*;

const NODES: &str = "/api/v1/nodes";

fn port_of(url: &str) -> u16 {
    url.rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok())
        .unwrap()
}

#[test]
fn it_keeps_objects_and_is_gone_when_dropped() {
    let server = KubeApiserver::start().unwrap();
    let node = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}"#;
    assert_eq!(server.request("POST", NODES, node).unwrap().status, 201);
    let read = server.request("GET", "/api/v1/nodes/node-1", "").unwrap();
    assert_eq!(read.status, 200);
    assert!(read.body.contains(r#""name":"node-1""#), "{}", read.body);
    assert_eq!(
        server.request("GET", "/api/v1/nodes/node-2", "").unwrap().status,
        404
    );

    let stored = server
        .etcd()
        .with_client(async |mut client| client.get("/registry/minions/node-1", None).await);
    assert_eq!(stored.unwrap().count(), 1);

    let kubeconfig = fs::read_to_string(server.kubeconfig()).unwrap();
    assert!(
        kubeconfig.contains(&server.url()) && kubeconfig.contains(server.token()),
        "{kubeconfig}"
    );

    let ports = [port_of(&server.url()), server.etcd().port];
    drop(server);
    for port in ports {
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
    }
}
