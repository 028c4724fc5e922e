//! `calipam serve` of an etcd behind a connection that hangs. Nothing arrives, and neither end notices that.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use calipam_testkit::cluster::{Cluster, ClusterSpec, wire::key};
use calipam_testkit::servers::Etcd;

use super::serve::Server;

/// A proxy that can make its open connections hang.
struct Hanging {
    port: u16,
    opened: Arc<AtomicUsize>,
    /// Connections with smaller numbers than this forward nothing.
    hang: Arc<AtomicUsize>,
}

impl Hanging {
    fn before(etcd: &Etcd) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (port, target) = (listener.local_addr().unwrap().port(), etcd.port());
        let (opened, hang) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, own) = (Arc::clone(&opened), Arc::clone(&hang));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let hang = Arc::clone(&own);
                    thread::spawn(move || hand_on(from, to, || number < hang.load(Ordering::SeqCst)));
                }
            }
        });
        Self { port, opened, hang }
    }

    /// Makes the open connections hang. New connections work.
    fn hang(&self) {
        self.hang.store(self.opened.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

fn hand_on(mut from: TcpStream, mut to: TcpStream, hangs: impl Fn() -> bool) {
    let mut piece = [0; 1 << 14];
    while let Ok(read) = from.read(&mut piece) {
        if read == 0 {
            break;
        }
        if !hangs() && to.write_all(&piece[..read]).is_err() {
            break;
        }
    }
}

#[test]
fn a_hanging_watch_is_restarted() {
    let etcd = Etcd::start().unwrap();
    let mut cluster = Cluster::plain(ClusterSpec::new(31).at(jiff::Timestamp::now()), 3, 4);
    let handle = key::handle(&cluster.add_pod_on(0).handle);
    cluster.write_to_etcd(&etcd.endpoint()).unwrap();
    let proxy = Hanging::before(&etcd);
    let endpoint = format!("http://127.0.0.1:{}", proxy.port);
    let server = Server::start(&["--interval", "1h", "--settle", "0", "--etcd-endpoints", &endpoint]);
    server.wait("/healthz", |answer| answer.status == 200);

    proxy.hang();
    let begin = Instant::now();
    etcd.delete(&handle).unwrap();
    server.wait("/report.json", |answer| answer.body.contains("missing-handle"));
    // The client pings the connection every eight seconds, with a timeout of four.
    assert!(begin.elapsed() < Duration::from_secs(25), "{:?}", begin.elapsed());
    let (status, said) = server.terminate();
    assert!(status == Some(0) && !said.contains("error: "), "{said}");
}
