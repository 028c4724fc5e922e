//! The HTTP server, which answers GET and HEAD requests for a few paths, with limits for clients.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use calipam_workflow::Object;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::{
    ACCEPT, AGE, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, LAST_MODIFIED, REFRESH,
    RETRY_AFTER, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::WatchStream;

use super::ask;
use super::host::Hosts;
use super::served::{Served, Success, Text};
use crate::format::Format;
use crate::render::html;

/// The maximum number of concurrent connections that can request all paths.
const CONNECTIONS: usize = 64;
/// The maximum number of streams of events, each on one of the [`CONNECTIONS`], so that open pages leave room for
/// others.
const STREAMS: usize = 32;
/// The maximum number of further connections, for probes and metrics only, so that a kubelet does not wait for slow
/// readers. Connections beyond this number wait. Among a thousand silent clients, a probe waits for at most [`PROBE`],
/// and the usual limit of 1,024 open files is enough.
const PROBES: usize = 512;
/// The time limit for the head of a request, and for idle connections.
const HEAD: Duration = Duration::from_secs(10);
/// The longest time without progress while a client reads an answer.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// The time limit of a connection.
const LIFETIME: Duration = Duration::from_secs(120);
/// The maximum size of the head of a request, in bytes.
const LARGEST_HEAD: usize = 16 << 10;
/// The maximum number of headers of a request.
const MOST_HEADERS: usize = 64;
/// The time limit of a connection for probes and metrics only.
const PROBE: Duration = Duration::from_secs(3);
/// The time limit for open connections when the server stops.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(3);

/// The time after which a browser asks again for a page that is not there yet.
const RELOAD_SECONDS: &str = "2";
/// The time after which other clients are told to ask again for a report that is not there yet.
const RETRY_SECONDS: &str = "10";
/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const OTHER_NAME: &str =
    "use this server's address or `localhost`; other names must be allowed with `--allow-host NAME`";
const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
/// Prometheus's text format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The served state and the allowed hosts.
#[derive(Clone)]
pub(super) struct ServerState {
    pub served: watch::Receiver<Arc<Served>>,
    /// The age up to which a report counts as current.
    pub current: Duration,
    pub hosts: Hosts,
    pub streams: Streams,
}

/// The places for streams of events.
#[derive(Clone)]
pub(super) struct Streams(Arc<Semaphore>);

impl Default for Streams {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(STREAMS)))
    }
}

/// An answer: text, or a stream of events.
type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Serves until `stop` ends, and returns the result of `stop`.
pub(super) async fn serve(
    listener: TcpListener,
    state: ServerState,
    stop: impl Future<Output = bool>,
) -> bool {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let probes = Arc::new(Semaphore::new(PROBES));
    let (stop_sender, stopping) = watch::channel(());
    // Formatting an answer for a large cluster takes a moment, so answers are formatted one at a time.
    let asking = Arc::new(Semaphore::new(1));
    let mut connections = JoinSet::new();
    tokio::pin!(stop);
    let stopped = loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places, &probes) => accepted,
            stopped = &mut stop => break stopped,
        };
        let Some(Accepted {
            stream,
            answers,
            place,
        }) = accepted
        else {
            // A file descriptor can become free during the pause.
            sleep(ACCEPT_PAUSE).await;
            continue;
        };

        let state = state.clone();
        let asking = Arc::clone(&asking);
        let stopping = stopping.clone();
        connections.spawn(async move {
            serve_connection(stream, answers, &state, &asking, stopping).await;
            drop(place);
        });
        // Forgets the connections that have ended.
        while connections.try_join_next().is_some() {}
    };

    // No other connection is accepted, and those that are open finish the answer that they have begun.
    drop(listener);
    stop_sender.send_replace(());
    let _ = timeout(SHUTDOWN_LIMIT, async {
        while connections.join_next().await.is_some() {}
    })
    .await;
    stopped
}

/// A connection that was accepted, and the place that it takes.
struct Accepted {
    stream: TcpStream,
    answers: Answers,
    place: Result<OwnedSemaphorePermit, AcquireError>,
}

/// Waits for a free place and then for a client. Returns `None` if no file descriptors are left, or the client has
/// disconnected.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
    probes: &Arc<Semaphore>,
) -> Option<Accepted> {
    // If all places are taken, the reserved ones still answer the probes of Kubernetes.
    let (place, answers) = tokio::select! {
        biased;
        place = Arc::clone(places).acquire_owned() => (place, Answers::All),
        place = Arc::clone(probes).acquire_owned() => (place, Answers::Probes),
    };
    let (stream, _) = listener.accept().await.ok()?;
    Some(Accepted {
        stream,
        answers,
        place,
    })
}

/// The paths that a connection is allowed to request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    All,
    /// `/livez`, `/healthz` and `/metrics`.
    Probes,
}

impl Answers {
    fn has(self, path: &str) -> bool {
        self == Self::All || matches!(path, "/healthz" | "/livez" | "/metrics")
    }
}

/// Answers the requests of a connection. Errors are ignored, since they affect this client only.
async fn serve_connection(
    stream: TcpStream,
    answers: Answers,
    state: &ServerState,
    asking: &Semaphore,
    mut stopping: watch::Receiver<()>,
) {
    let stopping_of_streams = stopping.clone();
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
        let stopping = stopping_of_streams.clone();
        async move { Ok::<_, Infallible>(respond(&request, answers, state, asking, stopping).await) }
    });
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_LIMIT));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_headers(MOST_HEADERS)
        .max_buf_size(LARGEST_HEAD)
        .keep_alive(answers == Answers::All)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    let lifetime = if answers == Answers::All { LIFETIME } else { PROBE };
    tokio::pin!(connection);
    // Ends with the connection, after its longest lifetime, or when the server stops.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = sleep(lifetime) => return,
        _ = stopping.changed() => connection.as_mut().graceful_shutdown(),
    }
    // The answer that has begun is finished.
    let _ = connection.await;
}

/// Answers a request by its path, if its host and its method are allowed.
async fn respond<B>(
    request: &Request<B>,
    answers: Answers,
    state: &ServerState,
    asking: &Semaphore,
    stopping: watch::Receiver<()>,
) -> Answer {
    let uri = request.uri();
    if !state.hosts.admit(request) {
        return plain(StatusCode::FORBIDDEN, OTHER_NAME);
    }
    if !answers.has(uri.path()) {
        return busy();
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let refusal = plain(
            StatusCode::METHOD_NOT_ALLOWED,
            "this server answers only GET and HEAD",
        );
        return with_header(refusal, ALLOW, "GET, HEAD");
    }

    let served = Arc::clone(&state.served.borrow());
    match uri.path() {
        "/events" => match Arc::clone(&state.streams.0).try_acquire_owned() {
            Ok(place) => events(state.served.clone(), stopping, place),
            Err(_) => busy(),
        },
        "/ask" => {
            let format = if is_browser(request) {
                Format::Html
            } else {
                Format::Wide
            };
            match uri.query().and_then(ask::parse_query) {
                Some(question) => answer_question(question, &served, format, asking).await,
                None => refuse(StatusCode::BAD_REQUEST, "/ask?q=TEXT: TEXT is missing", format),
            }
        }
        path => match ask::parse_path(path) {
            Some(question) => answer_question(question, &served, Format::Json, asking).await,
            None if path == "/" && served.success.is_none() && is_browser(request) => {
                with_header(not_ready(&served, Format::Html), RETRY_AFTER, "10")
            }
            None => answer_path(path, &served, state.current, asking).await,
        },
    }
}

/// Answers a client for which there is no place.
fn busy() -> Answer {
    let answer = plain(StatusCode::SERVICE_UNAVAILABLE, "too many clients are connected");
    with_header(answer, RETRY_AFTER, "10")
}

/// Streams an event for each version of the page, beginning with the current one, until the server stops or the time
/// limit of the connection is reached. Keeps `place` until then.
fn events(
    served: watch::Receiver<Arc<Served>>,
    stopping: watch::Receiver<()>,
    place: OwnedSemaphorePermit,
) -> Answer {
    let versions = WatchStream::new(served).map(|served| Some(served.version.clone()));
    // `None` ends the stream.
    let end = WatchStream::from_changes(stopping).map(|()| None);
    let events = versions.merge(end).map_while(move |version| {
        let _place = &place;
        let event = format!("data: {}\n\n", version?);
        Some(Ok(Frame::data(Bytes::from(event))))
    });
    new_answer(
        StatusCode::OK,
        "text/event-stream",
        StreamBody::new(events).boxed(),
    )
}

/// Answers a question with the data of the last successful check.
async fn answer_question(object: Object, served: &Served, format: Format, asking: &Semaphore) -> Answer {
    let Some(success) = &served.success else {
        return with_header(not_ready(served, format), RETRY_AFTER, RETRY_SECONDS);
    };
    let Ok(_place) = asking.acquire().await else {
        return not_ready(served, format);
    };
    // On a thread of its own, since it can take a while, and other requests must be answered.
    let asked = Arc::clone(success);
    let answered = tokio::task::spawn_blocking(move || ask::answer(object, &asked.snapshot(), format)).await;
    let Ok(answered) = answered else {
        // The thread has panicked.
        return plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the question cannot be answered",
        );
    };
    let answer = match answered {
        Ok(text) => response(StatusCode::OK, content_type(format), text.into()),
        Err(failure) => refuse(StatusCode::NOT_FOUND, &failure.message, format),
    };
    with_date(answer, success)
}

/// Returns the content type of answers to questions in a format.
fn content_type(format: Format) -> &'static str {
    match format {
        Format::Html => HTML,
        Format::Json => JSON,
        _ => TEXT,
    }
}

/// Answers a path that is not a question.
async fn answer_path(path: &str, served: &Arc<Served>, current: Duration, asking: &Semaphore) -> Answer {
    match path {
        "/" => report(served, HTML, Text::Page, asking).await,
        "/report.json" => report(served, JSON, Text::Json, asking).await,
        "/metrics" => metrics(served, asking).await,
        "/healthz" => health(served, current),
        "/livez" => plain(StatusCode::OK, "ok"),
        _ => plain(
            StatusCode::NOT_FOUND,
            &format!(
                "paths: /, /report.json, /metrics, /events, /ask, /healthz, /livez, {}",
                ask::FORMS
            ),
        ),
    }
}

/// Answers with the metrics of the last check.
async fn metrics(served: &Arc<Served>, asking: &Semaphore) -> Answer {
    match text_of(served, Text::Metrics, asking).await {
        Ok(text) => response(StatusCode::OK, METRICS, text.unwrap_or(NOT_YET.into())),
        Err(failure) => failure,
    }
}

/// The metrics before the end of the first check.
const NOT_YET: &str = "# HELP calipam_up 1 if the last check could read the cluster and check it, otherwise 0.\n\
                       # TYPE calipam_up gauge\ncalipam_up 0\n";

/// Answers with a document of the last successful check, and the check's age in headers. Before the first one, answers
/// that there is none yet.
async fn report(served: &Arc<Served>, content_type: &'static str, text: Text, asking: &Semaphore) -> Answer {
    let Some(success) = &served.success else {
        return with_header(not_ready(served, Format::Wide), RETRY_AFTER, RETRY_SECONDS);
    };
    match text_of(served, text, asking).await {
        Ok(text) => with_date(
            response(StatusCode::OK, content_type, text.unwrap_or_default()),
            success,
        ),
        Err(failure) => failure,
    }
}

/// Returns a document, which is formatted when it is first requested; `None` if there is no check yet. The error is the
/// answer to send instead.
async fn text_of(served: &Arc<Served>, text: Text, asking: &Semaphore) -> Result<Option<Bytes>, Answer> {
    let Ok(_place) = asking.acquire().await else {
        return Err(not_ready(served, Format::Wide));
    };
    // On a thread of its own, since it can take a while.
    let asked = Arc::clone(served);
    match tokio::task::spawn_blocking(move || asked.text(text)).await {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(_)) | Err(_) => Err(plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the report cannot be written",
        )),
    }
}

/// Adds the date and age of the check to an answer.
fn with_date(response: Answer, success: &Success) -> Answer {
    let response = with_header(
        response,
        LAST_MODIFIED,
        &success.at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string(),
    );
    with_header(response, AGE, &success.age().as_secs().to_string())
}

/// Answers a health probe, with an error unless the report is from a check that ended within the time `current`.
fn health(served: &Served, current: Duration) -> Answer {
    let Some(success) = &served.success else {
        return not_ready(served, Format::Wide);
    };
    let age = success.age();
    if age <= current {
        return plain(StatusCode::OK, "ok");
    }
    let text = format!("the last check that succeeded ended {} s ago", age.as_secs());
    plain(StatusCode::SERVICE_UNAVAILABLE, &text)
}

/// Answers requests before the first successful check. A page asks again by itself.
fn not_ready(served: &Served, format: Format) -> Answer {
    let text = match served.failure() {
        Some(failure) => format!("no check has succeeded yet; the last one failed: {failure}"),
        None => "no check has succeeded yet".to_owned(),
    };
    if format != Format::Html {
        return plain(StatusCode::SERVICE_UNAVAILABLE, &text);
    }
    let text = format!("{text}. This page shows the report as soon as one succeeds.");
    let page = html::answer("No report yet", &html::notice(text));
    let answer = response(StatusCode::SERVICE_UNAVAILABLE, HTML, page.into());
    // The browser then asks again by itself.
    with_header(answer, REFRESH, RELOAD_SECONDS)
}

/// Returns true if the client accepts HTML. Other clients, such as curl and scripts, get text.
fn is_browser<B>(request: &Request<B>) -> bool {
    for accepted in request.headers().get_all(ACCEPT) {
        if accepted.to_str().is_ok_and(|types| types.contains("text/html")) {
            return true;
        }
    }
    false
}

/// Answers a question with an error, in the format that a successful answer would have.
fn refuse(status: StatusCode, text: &str, format: Format) -> Answer {
    match format {
        Format::Html => {
            let title = status.canonical_reason().unwrap_or_default();
            response(status, HTML, html::answer(title, &html::notice(text)).into())
        }
        _ => plain(status, text),
    }
}

/// Creates an answer with one line of text.
fn plain(status: StatusCode, text: &str) -> Answer {
    response(status, TEXT, format!("{text}\n").into())
}

/// Creates an answer with a text of this content type.
fn response(status: StatusCode, content_type: &'static str, text: Bytes) -> Answer {
    let length = text.len().to_string();
    let answer = new_answer(status, content_type, Full::new(text).boxed());
    with_header(answer, CONTENT_LENGTH, &length)
}

/// Creates an answer with the headers that every answer has.
fn new_answer(status: StatusCode, content_type: &'static str, body: BoxBody<Bytes, Infallible>) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, content_type),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
    ] {
        answer = with_header(answer, name, value);
    }
    answer
}

/// Sets a header, unless the value is not valid in a header.
fn with_header(mut answer: Answer, name: HeaderName, value: &str) -> Answer {
    if let Ok(value) = value.parse() {
        answer.headers_mut().insert(name, value);
    }
    answer
}
