//! Successful connections, and the errors of failed connections.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use calipam_datastore::{Cause, Datastore, Error, Failure};
use calipam_testkit::datastore::{observe, quiet};
use calipam_testkit::servers::{Etcd, EtcdOptions, EtcdTls, EtcdVersion};

use super::support::{entries, settings, start};

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

/// Tries to connect to the endpoints, and asserts that the connection fails for this cause.
async fn assert_fails(endpoints: &str, environment: &[(&str, &str)], cause: Cause) {
    assert_eq!(failure(endpoints, environment).await, Failure::Connection(cause));
}

/// Connects with variables of the environment, and returns the number of blocks.
async fn blocks(etcd: &Etcd, environment: &[(&str, &str)]) -> usize {
    let store = Datastore::open(&settings(&etcd.endpoint(), environment))
        .await
        .unwrap();
    observe(&store).await.blocks.len()
}

fn text(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn a_port_without_a_server() {
    let mut etcd = Etcd::start().unwrap();
    let endpoint = etcd.endpoint();
    etcd.kill();
    assert_fails(&endpoint, &[], Cause::Refused).await;
    assert_fails("http://no-such-host.invalid:2379", &[], Cause::NameNotResolved).await;
}

#[tokio::test]
async fn a_server_that_hangs_costs_seconds() {
    let etcd = Etcd::start().unwrap();
    etcd.pause().unwrap();
    let begun = Instant::now();
    assert_fails(&etcd.endpoint(), &[], Cause::TimedOut(3)).await;
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn endpoints_that_are_down_do_not_cost_the_run() {
    let (mut dead, hanging, good) = (Etcd::start().unwrap(), Etcd::start().unwrap(), start(&entries(1)));
    dead.kill();
    hanging.pause().unwrap();
    let list = [dead.endpoint(), hanging.endpoint(), good.endpoint()].join(",");
    let begun = Instant::now();
    let store = Datastore::open(&settings(&list, &[])).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(store.location(), good.endpoint());
    assert_eq!(observe(&store).await.blocks.len(), 1);
}

#[tokio::test]
async fn an_empty_etcd_is_reported() {
    let etcd = Etcd::start().unwrap();
    let store = Datastore::open(&settings(&etcd.endpoint(), &[])).await.unwrap();
    let error = store.observe(&quiet()).await.unwrap_err();
    assert!(
        matches!(&error, Error::NoCalico { location } if *location == etcd.endpoint()),
        "{error}"
    );
    etcd.put("/calico/resources/v3/projectcalico.org/profiles/x", "{}")
        .unwrap();
    assert!(
        observe(&store).await.blocks.is_empty(),
        "Calico without IPAM data is no error"
    );
}

#[tokio::test]
async fn one_side_speaks_tls_and_the_other_does_not() {
    for version in EtcdVersion::all() {
        let plain = Etcd::start_version(version).unwrap();
        let tls = EtcdOptions::new()
            .version(version)
            .tls(EtcdTls::Server)
            .start()
            .unwrap();
        let ca = text(&tls.pki.as_ref().unwrap().ca);
        let [of_tls, of_plain] = [tls.port, plain.port].map(|port| format!("127.0.0.1:{port}"));
        assert_fails(&format!("http://{of_tls}"), &[], Cause::ServerWantsTls).await;
        assert_fails(&of_plain, &[("ETCD_CA_CERT_FILE", ca)], Cause::ServerIsPlain).await;
    }
}

#[tokio::test]
async fn certificates() {
    for version in EtcdVersion::all() {
        let etcd = EtcdOptions::new()
            .version(version)
            .tls(EtcdTls::ClientCertificates)
            .start()
            .unwrap();
        etcd.put_all(&entries(1)).unwrap();
        let (pki, endpoint) = (etcd.pki.as_ref().unwrap(), etcd.endpoint());
        let ca = ("ETCD_CA_CERT_FILE", text(&pki.ca));
        let files = [&pki.client, &pki.stranger].map(|of| [text(&of.certificate), text(&of.key)]);
        let [good, stranger] =
            files.map(|[cert, key]| [ca, ("ETCD_CERT_FILE", cert), ("ETCD_KEY_FILE", key)]);
        assert_eq!(blocks(&etcd, &good).await, 1);
        assert_fails(&endpoint, &[ca], Cause::ClientCertificateRequired).await;
        assert_fails(&endpoint, &stranger, Cause::ClientCertificateRefused).await;
        let untrusted = [("ETCD_CA_CERT_FILE", text(&pki.stranger_ca))];
        assert_fails(&endpoint, &untrusted, Cause::CertificateNotTrusted).await;
        // The system does not trust it either.
        assert_fails(&endpoint, &[], Cause::CertificateNotTrusted).await;
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
        etcd.put_all(&entries(80)).unwrap();
        let endpoint = etcd.endpoint();
        let user = |name, password| [("ETCD_USERNAME", name), ("ETCD_PASSWORD", password)];
        assert_eq!(blocks(&etcd, &user("calico", "s3cret-too")).await, 80);
        assert_eq!(failure(&endpoint, &[]).await, Failure::AuthNeeded);
        assert_eq!(
            failure(&endpoint, &user("root", "s3cret?")).await,
            Failure::WrongPassword
        );
        assert_eq!(
            failure(&endpoint, &user("nobody", "s3cret")).await,
            Failure::WrongPassword
        );
        let denied = Failure::PermissionDenied(String::new());
        assert_eq!(failure(&endpoint, &user("other", "s3cret")).await, denied);
    }
}

#[tokio::test]
async fn a_user_does_no_harm_if_the_server_has_no_users() {
    let etcd = start(&entries(1));
    assert_eq!(
        blocks(&etcd, &[("ETCD_USERNAME", "u"), ("ETCD_PASSWORD", "p")]).await,
        1
    );
}

/// Tries to connect to a server that answers every connection as HTTP/1 does, either at once or after a request.
async fn failure_of_http_1(reads_first: bool) -> Failure {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (mut asked, mut rest) = ([0; 64], Vec::new());
            let read = if reads_first {
                stream.read(&mut asked).map(drop)
            } else {
                Ok(())
            };
            let answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
            let answered = read.and_then(|()| stream.write_all(answer));
            // If the server closed the connection first, the client would report that instead.
            if reads_first {
                answered.and_then(|()| stream.read_to_end(&mut rest)).ok();
            }
        }
    });
    failure(&endpoint, &[]).await
}

#[tokio::test]
async fn a_server_of_http_1_is_no_etcd() {
    assert_eq!(
        failure_of_http_1(true).await,
        Failure::NotEtcd("it does not speak HTTP/2".into())
    );
    let failure = failure_of_http_1(false).await;
    assert!(
        matches!(
            failure,
            Failure::NotEtcd(_) | Failure::Connection(Cause::Broken(_))
        ),
        "{failure:?}"
    );
}
