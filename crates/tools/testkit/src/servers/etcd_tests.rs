//! Tests of the launcher with real servers.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, Error, GetOptions, Identity as TlsIdentity, TlsOptions,
};
use sha2::{Digest, Sha256};

use super::*;

fn started(options: EtcdOptions) -> Etcd {
    options.start().unwrap()
}

fn put(etcd: &Etcd, key: &str, value: &str) {
    etcd.with_client(async |mut client| client.put(key, value, None).await)
        .unwrap();
}

fn get(etcd: &Etcd, key: &str) -> Option<String> {
    let response = etcd
        .with_client(async |mut client| client.get(key, None).await)
        .unwrap();
    response
        .kvs()
        .first()
        .map(|pair| pair.value_str().unwrap().to_owned())
}

/// Reads a key with a client that the test creates itself.
fn read_as(etcd: &Etcd, options: ConnectOptions, key: &str) -> Result<usize, Error> {
    let endpoint = etcd.endpoint();
    let options = options.with_timeout(Duration::from_secs(5));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut client = Client::connect([endpoint], Some(options)).await?;
        Ok(client.get(key, None).await?.kvs().len())
    })
}

fn trusting(ca: &Path) -> TlsOptions {
    TlsOptions::new().ca_certificate(Certificate::from_pem(fs::read(ca).unwrap()))
}

fn showing(tls: TlsOptions, identity: &Identity) -> ConnectOptions {
    let (certificate, key) = (
        fs::read(&identity.certificate).unwrap(),
        fs::read(&identity.key).unwrap(),
    );
    ConnectOptions::new().with_tls(tls.identity(TlsIdentity::from_pem(certificate, key)))
}

#[test]
fn it_keeps_what_is_written_and_is_gone_when_dropped() {
    let etcd = Etcd::start().unwrap();
    put(&etcd, "/calico/ipam/v2/config", "{}");
    assert_eq!(get(&etcd, "/calico/ipam/v2/config").as_deref(), Some("{}"));
    assert_eq!(get(&etcd, "/calico/other"), None);
    assert!(etcd.data_dir().join("member").join("snap").join("db").is_file());
    assert_eq!(etcd.endpoint(), format!("http://127.0.0.1:{}", etcd.port));
    let (port, data) = (etcd.port, etcd.data_dir());
    drop(etcd);
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
    assert!(!data.exists());
}

#[test]
fn both_versions_are_what_they_say() {
    for version in EtcdVersion::all() {
        let expected = match version {
            EtcdVersion::V3_6 => ["3.6.", "3.7."],
            EtcdVersion::V3_4 => ["3.4.", "3.5."],
        };
        let etcd = Etcd::start_version(version).unwrap();
        let status = etcd
            .with_client(async |mut client| client.status().await)
            .unwrap();
        let found = status.version();
        assert!(
            expected.iter().any(|start| found.starts_with(start)),
            "{version:?} is {found}"
        );
    }
}

#[test]
fn many_start_at_the_same_time_and_do_not_meet() {
    let tasks: Vec<_> = (0..6)
        .map(|number| {
            thread::spawn(move || {
                let etcd = Etcd::start().unwrap();
                put(&etcd, "/number", &number.to_string());
                etcd
            })
        })
        .collect();
    let servers: Vec<Etcd> = tasks.into_iter().map(|task| task.join().unwrap()).collect();
    for (number, etcd) in servers.iter().enumerate() {
        assert_eq!(get(etcd, "/number"), Some(number.to_string()));
    }
}

#[test]
fn big_values_are_taken() {
    let etcd = Etcd::start().unwrap();
    let value = "x".repeat(20 << 20);
    etcd.with_client(async |mut client| client.put("/big", value.as_str(), None).await)
        .unwrap();
    let options = GetOptions::new().with_count_only();
    let found = etcd
        .with_client(async |mut client| client.get("/big", Some(options)).await)
        .unwrap();
    assert_eq!(found.count(), 1);
}

#[test]
fn a_server_with_tls_takes_clients_that_trust_it() {
    let etcd = started(EtcdOptions::new().tls(EtcdTls::Server));
    assert!(etcd.endpoint().starts_with("https://"));
    put(&etcd, "/a", "b");
    let pki = etcd.pki.as_ref().unwrap();
    assert_eq!(
        read_as(&etcd, ConnectOptions::new().with_tls(trusting(&pki.ca)), "/a").unwrap(),
        1
    );
    let wary = ConnectOptions::new().with_tls(trusting(&pki.stranger_ca));
    assert!(read_as(&etcd, wary, "/a").is_err());
}

#[test]
fn a_server_with_client_certificates_refuses_strangers() {
    for version in EtcdVersion::all() {
        let etcd = started(
            EtcdOptions::new()
                .version(version)
                .tls(EtcdTls::ClientCertificates),
        );
        put(&etcd, "/a", "b");
        let pki = etcd.pki.as_ref().unwrap();
        assert_eq!(
            read_as(&etcd, showing(trusting(&pki.ca), &pki.client), "/a").unwrap(),
            1
        );
        assert!(read_as(&etcd, ConnectOptions::new().with_tls(trusting(&pki.ca)), "/a").is_err());
        assert!(read_as(&etcd, showing(trusting(&pki.ca), &pki.stranger), "/a").is_err());
    }
}

#[test]
fn a_server_with_users_wants_the_password_and_keeps_readers_to_their_prefix() {
    for version in EtcdVersion::all() {
        let options = EtcdOptions::new().version(version).login("calico", "correct");
        let etcd = started(options.reader("guest", "guest", "/calico/"));
        put(&etcd, "/calico/a", "1");
        put(&etcd, "/other/a", "1");
        let login = |name: &str, password: &str| ConnectOptions::new().with_user(name, password);
        let refused =
            |options: ConnectOptions, key: &str| read_as(&etcd, options, key).unwrap_err().to_string();
        assert_eq!(read_as(&etcd, login("calico", "correct"), "/other/a").unwrap(), 1);
        assert_eq!(read_as(&etcd, login("guest", "guest"), "/calico/a").unwrap(), 1);
        assert!(refused(login("guest", "guest"), "/other/a").contains("permission denied"));
        assert!(refused(login("calico", "wrong"), "/calico/a").contains("authentication failed"));
        assert!(refused(ConnectOptions::new(), "/calico/a").contains("user name is empty"));
    }
}

#[test]
fn users_and_client_certificates_go_together() {
    let options = EtcdOptions::new()
        .tls(EtcdTls::ClientCertificates)
        .login("root", "correct");
    let etcd = started(options);
    put(&etcd, "/a", "b");
    assert_eq!(get(&etcd, "/a").as_deref(), Some("b"));
}

#[test]
fn a_paused_server_answers_nothing_until_it_is_resumed() {
    let etcd = Etcd::start().unwrap();
    put(&etcd, "/a", "b");
    etcd.pause().unwrap();
    let impatient = ConnectOptions::new().with_timeout(Duration::from_millis(300));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let answer = runtime.block_on(async {
        let mut client = Client::connect([etcd.endpoint()], Some(impatient)).await?;
        client.get("/a", None).await
    });
    assert!(answer.is_err());
    assert!(
        TcpStream::connect((Ipv4Addr::LOCALHOST, etcd.port)).is_ok(),
        "connections are still accepted"
    );
    etcd.resume().unwrap();
    assert_eq!(get(&etcd, "/a").as_deref(), Some("b"));
}

#[test]
fn a_killed_server_comes_back_with_its_data() {
    let mut etcd = Etcd::start().unwrap();
    put(&etcd, "/a", "b");
    let endpoint = etcd.endpoint();
    etcd.kill();
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, etcd.port)).is_err());
    etcd.pause().unwrap();
    etcd.restart().unwrap();
    assert_eq!(etcd.endpoint(), endpoint);
    assert_eq!(get(&etcd, "/a").as_deref(), Some("b"));
}

#[test]
fn a_snapshot_is_a_database_with_its_checksum() {
    let folder = tempfile::tempdir().unwrap();
    for version in EtcdVersion::all() {
        let etcd = Etcd::start_version(version).unwrap();
        put(&etcd, "/calico/needle", "found in the snapshot");
        let path = folder.path().join("snapshot.db");
        etcd.save_snapshot(&path).unwrap();
        let bytes = fs::read(&path).unwrap();
        let (database, checksum) = bytes.split_at(bytes.len() - 32);
        assert_eq!(Sha256::digest(database).as_slice(), checksum);
        assert_eq!(
            database[16..20],
            0xED0C_DAED_u32.to_le_bytes(),
            "the first page is bbolt's"
        );
        assert!(
            database
                .windows(21)
                .any(|window| window == b"found in the snapshot")
        );
    }
}

#[test]
fn a_taken_port_is_recognised() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let argument = format!("--listen-client-urls=http://{}", taken.local_addr().unwrap());
    for version in EtcdVersion::all() {
        let error = EtcdOptions::new()
            .version(version)
            .argument(&argument)
            .start()
            .unwrap_err();
        assert!(port::is_taken(&error), "{error}");
    }
}

#[test]
fn the_error_contains_the_log_if_etcd_refuses_its_arguments() {
    let error = EtcdOptions::new()
        .argument("--no-such-flag")
        .start()
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("etcd exited unexpectedly"), "{error}");
    assert!(error.contains("no-such-flag"), "{error}");
}

#[tokio::test]
async fn blocking_helpers_work_inside_a_runtime() {
    let etcd = Etcd::start().unwrap();
    put(&etcd, "/a", "b");
    let mut client = etcd.client().await.unwrap();
    assert_eq!(client.get("/a", None).await.unwrap().count(), 1);
}
