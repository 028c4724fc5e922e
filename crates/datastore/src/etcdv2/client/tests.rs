//! Tests with responses that never end.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use super::*;
use crate::settings::{Timeouts, TlsSettings};

/// Reads from a server whose responses begin correctly and continue with the output of `more`.
async fn read(longest: usize, more: fn(TcpStream)) -> Failure {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"node\":{\"key\":\"");
            thread::spawn(move || more(stream));
        }
    });
    let timeouts = Timeouts {
        connect: Duration::from_secs(2),
        request: Duration::from_secs(2),
    };
    let settings = EtcdSettings {
        endpoints: vec![endpoint],
        user: None,
        tls: TlsSettings::default(),
        timeouts,
    };
    match EtcdV2Client::connect_within(&settings, longest).await {
        Err(Error::Connect(mut tried)) => tried.remove(0).failure,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_answer_without_end_is_given_up() {
    let failure = read(
        1 << 20,
        |mut stream| while stream.write_all(&[b'a'; 1 << 14]).is_ok() {},
    )
    .await;
    assert_eq!(
        failure,
        Failure::Incomplete("its answer is longer than 1048576 bytes".to_owned())
    );
}

#[tokio::test]
async fn an_answer_that_trickles_is_given_up() {
    let start = Instant::now();
    let failure = read(LONGEST, |mut stream| {
        while stream.write_all(b"a").is_ok() {
            thread::sleep(Duration::from_millis(200));
        }
    });
    assert_eq!(failure.await, Failure::from(Cause::TimedOut(2)));
    assert!(start.elapsed() < Duration::from_secs(30));
}
