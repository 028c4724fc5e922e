//! The HTTP server of the installer: `/metrics` for Prometheus, `/healthz` for probes.

use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

/// The number of connections that are served at a time; others wait.
const CONNECTIONS: usize = 16;
/// The time limit of a connection.
const LIFETIME: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The state of the plugin on this node.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// True if this program is the plugin.
    pub in_place: bool,
    /// The number of times that this program replaced Calico's.
    pub replaced: u64,
    /// The number of failed attempts to put this program in place or to annotate the node.
    pub failed: u64,
    /// The reason that this program is not the plugin; empty if it is.
    pub reason: String,
}

impl State {
    /// Formats the metrics in Prometheus' text format.
    fn metrics(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let values = [
            (
                "in_place",
                "gauge",
                "1 if calipam is the node's calico-ipam plugin.",
                u64::from(self.in_place),
            ),
            (
                "replacements_total",
                "counter",
                "How often calipam replaced Calico's plugin.",
                self.replaced,
            ),
            (
                "failures_total",
                "counter",
                "How often checking or replacing failed.",
                self.failed,
            ),
        ];
        // Each metric needs its help and its type before its value.
        let mut text = String::new();
        let mut add = |name: &str, kind: &str, help: &str, labels: &str, value: u64| {
            let name = format!("calipam_cni_{name}");
            let lines = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{labels} {value}\n");
            let _ = text.write_str(&lines);
        };
        add(
            "info",
            "gauge",
            "The version of the installer.",
            &format!("{{version=\"{version}\"}}"),
            1,
        );
        let no_labels = "";
        for (name, kind, help, value) in values {
            add(name, kind, help, no_labels, value);
        }
        text
    }

    /// Answers a request by its path.
    fn answer(&self, path: &str) -> (StatusCode, String) {
        match path {
            "/metrics" => (StatusCode::OK, self.metrics()),
            "/healthz" if self.in_place => (StatusCode::OK, "ok\n".to_owned()),
            "/healthz" => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", self.reason)),
            _ => (StatusCode::NOT_FOUND, "paths: /metrics and /healthz\n".to_owned()),
        }
    }
}

/// Answers requests for metrics and health with the current state, until the process ends. The semaphore limits the
/// number of connections, and [`LIFETIME`] their duration, so that slow clients cannot use up the process's files.
pub(super) async fn serve(listener: TcpListener, state: watch::Receiver<State>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            // No file descriptor is left, or the client is already gone. A descriptor can become free during the pause.
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let state = state.clone();
        tokio::spawn(async move {
            let service = service_fn(|request: Request<hyper::body::Incoming>| {
                let (status, text) = state.borrow().answer(request.uri().path());
                let mut response = Response::new(Full::new(Bytes::from(text)));
                *response.status_mut() = status;
                let content_type = "text/plain; version=0.0.4; charset=utf-8";
                response.headers_mut().insert(
                    CONTENT_TYPE,
                    hyper::header::HeaderValue::from_static(content_type),
                );
                async { Ok::<_, Infallible>(response) }
            });
            let mut server = http1::Builder::new();
            server
                .timer(TokioTimer::new())
                .header_read_timeout(LIFETIME)
                .keep_alive(false);
            // A connection error concerns only its client.
            let _ = timeout(LIFETIME, server.serve_connection(TokioIo::new(stream), service)).await;
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_has_the_reason_that_the_plugin_is_not_in_place() {
        let state = State {
            reason: "Calico is not installed".into(),
            ..State::default()
        };
        let expected = (
            StatusCode::SERVICE_UNAVAILABLE,
            "Calico is not installed\n".into(),
        );
        assert_eq!(state.answer("/healthz"), expected);
        let state = State {
            in_place: true,
            replaced: 3,
            ..state
        };
        assert_eq!(state.answer("/healthz").0, StatusCode::OK);
        let (_, metrics) = state.answer("/metrics");
        assert!(metrics.contains("\ncalipam_cni_in_place 1\n"), "{metrics}");
        assert!(
            metrics.contains("\ncalipam_cni_replacements_total 3\n"),
            "{metrics}"
        );
    }
}
