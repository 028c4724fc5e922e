//! A fake API server that can misbehave. It speaks HTTP/1.1 without TLS.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::servers::http::Request;

/// The reply to a request.
#[derive(Clone)]
pub enum Reply {
    /// A status and a body.
    Whole(u16, String),
    /// A status, and the number of seconds after which the client may retry.
    Later(u16, u64),
    /// A successful response whose stated length exceeds that of its body.
    Cut(String),
    /// A successful response that begins and then stalls.
    Stalled(String),
    /// A successful response in two parts. The second part is sent when the flag is set.
    InParts(String, String, Arc<AtomicBool>),
    /// No response at all.
    Silent,
}

/// A server that chooses its replies by path, and records all requests.
pub struct Fake {
    pub url: String,
    pub asked: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    /// Starts a server. `answer` returns the reply for a path with its query. The server's threads end with the
    /// process.
    pub fn start(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, log) = (Arc::new(answer), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                std::thread::spawn(move || {
                    let _ = serve(stream, &*answer, &log);
                });
            }
        });
        Self { url, asked }
    }

    /// The number of requests whose path begins with `path`.
    pub fn count(&self, path: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| asked.starts_with(path)).count()
    }
}

fn serve(
    mut stream: TcpStream,
    answer: &dyn Fn(&str) -> Reply,
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let request = Request::read(&mut BufReader::new(stream.try_clone()?))?;
    let path = request.map(|request| request.path).unwrap_or_default();
    log.lock().unwrap().push(path.clone());
    let head = |status: u16, length: usize| {
        format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             Date: Fri, 01 May 2026 12:00:00 GMT\r\nConnection: close\r\n\r\n"
        )
    };
    match answer(&path) {
        Reply::Whole(status, body) => stream.write_all((head(status, body.len()) + &body).as_bytes()),
        Reply::Later(status, seconds) => {
            let later = format!("\r\nRetry-After: {seconds}\r\n\r\n");
            stream.write_all(head(status, 0).replace("\r\n\r\n", &later).as_bytes())
        }
        Reply::Cut(body) => stream.write_all((head(200, body.len() + 9) + &body).as_bytes()),
        Reply::Stalled(body) => {
            stream.write_all((head(200, body.len() + 9) + &body).as_bytes())?;
            std::thread::sleep(Duration::from_secs(60));
            Ok(())
        }
        Reply::InParts(first, second, go_on) => {
            stream.write_all((head(200, first.len() + second.len()) + &first).as_bytes())?;
            stream.flush()?;
            for _ in 0..6_000 {
                if go_on.load(Ordering::SeqCst) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            stream.write_all(second.as_bytes())
        }
        Reply::Silent => {
            std::thread::sleep(Duration::from_secs(60));
            Ok(())
        }
    }
}
