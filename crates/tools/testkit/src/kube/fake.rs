//! A fake API server that can misbehave. It speaks HTTP/1.1 without TLS.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::Response;
use hyper::body::Frame;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::runtime::RUNTIME;
use crate::servers::http::{Body, listen, serve};

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
    /// Starts a server. `answer` returns the reply for a path with its query. The server ends with the process.
    pub fn start(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        let (listener, port) = listen();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let answer = Arc::new(answer);
        let log = Arc::clone(&asked);
        RUNTIME.spawn(serve(listener, move |request| {
            let path = request.uri().to_string();
            let answer = Arc::clone(&answer);
            log.lock().unwrap().push(path.clone());
            async move {
                match spawn_blocking(move || answer(&path)).await.ok()? {
                    Reply::Silent => pending().await,
                    reply => Some(respond(reply)),
                }
            }
        }));
        Self {
            url: format!("http://127.0.0.1:{port}"),
            asked,
        }
    }

    /// The number of requests whose path begins with `path`.
    pub fn count(&self, path: &str) -> usize {
        self.asked
            .lock()
            .unwrap()
            .iter()
            .filter(|asked| asked.starts_with(path))
            .count()
    }
}

fn respond(reply: Reply) -> Response<Body> {
    let at_once = |body: String| stream::iter([body]);
    match reply {
        Reply::Whole(status, body) => response(status, body.len(), at_once(body)),
        Reply::Later(status, seconds) => {
            let mut response = response(status, 0, stream::empty());
            response.headers_mut().insert("retry-after", seconds.into());
            response
        }
        Reply::Cut(body) => {
            // What there is arrives before the body ends.
            let end = stream::once(async {
                sleep(Duration::from_millis(20)).await;
                String::new()
            });
            response(200, body.len() + 9, at_once(body).chain(end))
        }
        Reply::Stalled(body) => response(200, body.len() + 9, at_once(body).chain(stream::pending())),
        Reply::InParts(first, second, go_on) => {
            let length = first.len() + second.len();
            let second = stream::once(async move {
                for _ in 0..6_000 {
                    if go_on.load(Ordering::SeqCst) {
                        break;
                    }
                    sleep(Duration::from_millis(10)).await;
                }
                second
            });
            response(200, length, at_once(first).chain(second))
        }
        Reply::Silent => unreachable!("it has no response"),
    }
}

/// A response that states a length. The connection ends with it.
fn response(
    status: u16,
    length: usize,
    parts: impl Stream<Item = String> + Send + 'static,
) -> Response<Body> {
    let body = StreamBody::new(parts.map(|part| Ok(Frame::data(part.into())))).boxed_unsync();
    let response = Response::builder()
        .status(status)
        .header("content-type", "application/json");
    let response = response
        .header("content-length", length)
        .header("connection", "close");
    response
        .header("date", "Fri, 01 May 2026 12:00:00 GMT")
        .body(body)
        .expect("a valid response")
}
