//! A server that is told of something by POST, such as an Alertmanager.

use std::fmt;
use std::time::Duration;

use http::{Request, Uri, header};
use http_body_util::BodyExt;
use kube::client::Body;

use crate::client::kubernetes::transport_failure;
use crate::error::{Attempt, Cause, Failure};
use crate::secret::Secret;

/// How long a connection, and an answer, may take.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(10);

/// Where it is told. Whoever knows the whole URL may be let in by it, so that only its host is shown.
pub struct Webhook {
    client: kube::Client,
    /// Path and query.
    path: Secret,
    host: String,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Webhook {
    /// Takes a URL of HTTP or HTTPS, with a user and a password where they are needed.
    ///
    /// # Errors
    /// If it is none. The error does not repeat it.
    pub fn new(url: &str) -> Result<Self, &'static str> {
        const WANTED: &str = "expected a URL such as `http://alertmanager:9093/api/v2/alerts`";
        let uri: Uri = url.parse().map_err(|_| WANTED)?;
        let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(WANTED);
        };
        let (user, host) = match authority.as_str().rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority.as_str()),
        };
        let host = format!("{scheme}://{host}");
        let mut config = kube::Config::new(host.parse().map_err(|_| WANTED)?);
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT);
        (config.read_timeout, config.write_timeout) = (None, None);
        if let Some((user, password)) = user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
            config.auth_info.username = Some(user.to_owned());
            config.auth_info.password = Some(password.to_owned().into());
        }
        let client = kube::Client::try_from(config).map_err(|_| "no connection can be made ready")?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self { client, path: Secret::new(path), host })
    }

    /// Scheme and host.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Sends JSON.
    ///
    /// # Errors
    /// If it cannot be sent, or is refused.
    pub async fn post(&self, json: String) -> Result<(), Failure> {
        let request = Request::post(self.path.reveal())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(json.into_bytes()))
            .map_err(|_| Failure::Other("the request cannot be made".to_owned()))?;
        let attempt =
            Attempt { timeout: ANSWER.as_secs(), connect: CONNECT.as_secs(), has_certificate: false };
        let sent = tokio::time::timeout(ANSWER, async {
            let answer =
                self.client.send(request).await.map_err(|error| transport_failure(&error, attempt))?;
            let status = answer.status();
            // A connection is used again once its answer was read.
            let mut body = answer.into_body();
            let mut read = 0;
            while let Some(Ok(frame)) = body.frame().await
                && read < 1 << 16
            {
                read += frame.data_ref().map_or(0, |data| data.len());
            }
            match status.is_success() {
                true => Ok(()),
                false => Err(Failure::Other(format!("it answers {status}"))),
            }
        });
        sent.await.map_err(|_| Failure::from(Cause::TimedOut(ANSWER.as_secs())))?
    }
}
