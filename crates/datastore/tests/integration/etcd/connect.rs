//! Successful connections, and the errors of failed connections.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use calipam_datastore::{Cause, Datastore, Error, Failure};
use calipam_testkit::servers::{Etcd, EtcdOptions, EtcdTls, EtcdVersion};

use super::support::{entries, seed, settings};
use crate::support::quiet;

/// Tries to connect to the endpoints, and returns the expected failure.
async fn failure(endpoints: &str, environment: &[(&str, &str)]) -> Failure {
    let result = match Datastore::open(&settings(endpoints, environment)).await {
        Ok(store) => store.observe(&quiet()).await.map(drop),
        Err(error) => Err(error),
    };
    let error = result.expect_err("it works");
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    match error {
        Error::Connect(mut tried) => tried.pop().unwrap().failure,
        Error::Request { failure, .. } => failure,
        other => panic!("{other}"),
    }
}

fn text(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn a_port_without_a_server() {
    let mut etcd = Etcd::start().unwrap();
    let endpoint = etcd.endpoint();
    etcd.kill();
    assert_eq!(failure(&endpoint, &[]).await, Failure::Connection(Cause::Refused));
    assert_eq!(
        failure("http://no-such-host.invalid:2379", &[]).await,
        Failure::Connection(Cause::NameNotResolved)
    );
}

#[tokio::test]
async fn a_server_that_hangs_costs_seconds() {
    let etcd = Etcd::start().unwrap();
    etcd.pause().unwrap();
    let begun = Instant::now();
    assert_eq!(failure(&etcd.endpoint(), &[]).await, Failure::Connection(Cause::TimedOut(3)));
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn endpoints_that_are_down_do_not_cost_the_run() {
    let (mut dead, hanging, good) = (Etcd::start().unwrap(), Etcd::start().unwrap(), Etcd::start().unwrap());
    seed(&good, &entries(1)).await;
    dead.kill();
    hanging.pause().unwrap();
    let list = [dead.endpoint(), hanging.endpoint(), good.endpoint()].join(",");
    let begun = Instant::now();
    let store = Datastore::open(&settings(&list, &[])).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(store.location(), good.endpoint());
    assert_eq!(store.observe(&quiet()).await.unwrap().blocks.len(), 1);
}

#[tokio::test]
async fn an_empty_etcd_is_reported() {
    let etcd = Etcd::start().unwrap();
    let store = Datastore::open(&settings(&etcd.endpoint(), &[])).await.unwrap();
    let error = store.observe(&quiet()).await.unwrap_err();
    assert!(matches!(&error, Error::NoCalico { location } if *location == etcd.endpoint()), "{error}");
    let profile = ("/calico/resources/v3/projectcalico.org/profiles/x".to_owned(), b"{}".to_vec());
    seed(&etcd, &vec![profile]).await;
    assert!(store.observe(&quiet()).await.unwrap().blocks.is_empty(), "Calico without IPAM data is no error");
}

#[tokio::test]
async fn one_side_speaks_tls_and_the_other_does_not() {
    for version in EtcdVersion::all() {
        let plain = Etcd::start_version(version).unwrap();
        let tls = EtcdOptions::new().version(version).tls(EtcdTls::Server).start().unwrap();
        let ca = text(&tls.pki().unwrap().ca);
        assert_eq!(
            failure(&format!("http://127.0.0.1:{}", tls.port()), &[]).await,
            Failure::Connection(Cause::ServerWantsTls)
        );
        let endpoint = format!("127.0.0.1:{}", plain.port());
        assert_eq!(
            failure(&endpoint, &[("ETCD_CA_CERT_FILE", ca)]).await,
            Failure::Connection(Cause::ServerIsPlain)
        );
    }
}

#[tokio::test]
async fn a_server_of_http_1_is_no_etcd() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut asked, mut rest) = ([0; 64], Vec::new());
            let answered = stream
                .read(&mut asked)
                .and_then(|_| stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"));
            // If the server closed the connection first, the client would report that instead.
            answered.and_then(|()| stream.read_to_end(&mut rest)).ok();
        }
    });
    let told = failure(&endpoint, &[]).await;
    assert_eq!(told, Failure::NotEtcd("it does not speak HTTP/2".into()));
}

#[tokio::test]
async fn certificates() {
    for version in EtcdVersion::all() {
        let etcd = EtcdOptions::new().version(version).tls(EtcdTls::ClientCertificates).start().unwrap();
        seed(&etcd, &entries(1)).await;
        let pki = etcd.pki().unwrap();
        let endpoint = etcd.endpoint();
        let ca = ("ETCD_CA_CERT_FILE", text(&pki.ca));
        let good =
            [ca, ("ETCD_CERT_FILE", text(&pki.client.certificate)), ("ETCD_KEY_FILE", text(&pki.client.key))];
        let store = Datastore::open(&settings(&endpoint, &good)).await.unwrap();
        assert_eq!(store.observe(&quiet()).await.unwrap().blocks.len(), 1);
        assert_eq!(failure(&endpoint, &[ca]).await, Failure::Connection(Cause::ClientCertificateRequired));
        let stranger = [
            ca,
            ("ETCD_CERT_FILE", text(&pki.stranger.certificate)),
            ("ETCD_KEY_FILE", text(&pki.stranger.key)),
        ];
        assert_eq!(failure(&endpoint, &stranger).await, Failure::Connection(Cause::ClientCertificateRefused));
        let untrusted = [("ETCD_CA_CERT_FILE", text(&pki.stranger_ca))];
        assert_eq!(failure(&endpoint, &untrusted).await, Failure::Connection(Cause::CertificateNotTrusted));
        assert_eq!(
            failure(&endpoint, &[]).await,
            Failure::Connection(Cause::CertificateNotTrusted),
            "the system does not trust it"
        );
    }
}

#[tokio::test]
async fn users_and_passwords() {
    for version in EtcdVersion::all() {
        let etcd = EtcdOptions::new()
            .version(version)
            .login("root", "s3cret")
            .reader("calico", "s3cret-too", "/calico/")
            .reader("other", "s3cret", "/registry/")
            .start()
            .unwrap();
        seed(&etcd, &entries(80)).await;
        let endpoint = etcd.endpoint();
        let user = |name, password| [("ETCD_USERNAME", name), ("ETCD_PASSWORD", password)];
        let store = Datastore::open(&settings(&endpoint, &user("calico", "s3cret-too"))).await.unwrap();
        assert_eq!(store.observe(&quiet()).await.unwrap().blocks.len(), 80);
        assert_eq!(failure(&endpoint, &[]).await, Failure::AuthNeeded);
        assert_eq!(failure(&endpoint, &user("root", "s3cret?")).await, Failure::WrongPassword);
        assert_eq!(failure(&endpoint, &user("nobody", "s3cret")).await, Failure::WrongPassword);
        assert_eq!(
            failure(&endpoint, &user("other", "s3cret")).await,
            Failure::PermissionDenied(String::new())
        );
    }
}

#[tokio::test]
async fn a_user_does_no_harm_if_the_server_has_no_users() {
    let etcd = Etcd::start().unwrap();
    seed(&etcd, &entries(1)).await;
    let user = [("ETCD_USERNAME", "u"), ("ETCD_PASSWORD", "p")];
    let store = Datastore::open(&settings(&etcd.endpoint(), &user)).await.unwrap();
    assert_eq!(store.observe(&quiet()).await.unwrap().blocks.len(), 1);
}

#[tokio::test]
async fn something_else_that_listens() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        }
    });
    let failure = failure(&endpoint, &[]).await;
    assert!(matches!(failure, Failure::NotEtcd(_) | Failure::Connection(Cause::Broken(_))), "{failure:?}");
    server.abort();
}
