//! Requests that an API server puts off, because it has too much to do or is starting: it says after how many seconds they may
//! come again (`Retry-After`). Calico's client comes again too.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode, header};

/// How long a request is put off in all.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The shortest pause.
const LEAST: Duration = Duration::from_millis(200);

/// How long the server wants a refused request to wait. `None` if it does not say so, or where the request may have been
/// begun: one that is put off with 429 was not, and a read may be begun twice.
pub(super) fn pause(method: &Method, status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let is_put_off = status == StatusCode::TOO_MANY_REQUESTS;
    let is_read = method == Method::GET && status.is_server_error();
    if !(is_put_off || is_read) {
        return None;
    }
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).max(LEAST))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_what_was_not_begun_is_sent_again() {
        let after = |method, status: u16, seconds: &'static str| {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_static(seconds))]);
            pause(&method, StatusCode::from_u16(status).unwrap(), &headers)
        };
        let second = Some(Duration::from_secs(1));
        assert_eq!(after(Method::GET, 429, "1"), second);
        assert_eq!(after(Method::PUT, 429, "1"), second);
        assert_eq!(after(Method::GET, 503, "1"), second);
        assert_eq!(after(Method::GET, 503, "0"), Some(LEAST));
        assert_eq!(after(Method::PUT, 503, "1"), None);
        assert_eq!(after(Method::DELETE, 500, "1"), None);
        assert_eq!(after(Method::GET, 403, "1"), None);
        // HTTP has dates too; API servers give seconds.
        assert_eq!(after(Method::GET, 429, "Fri, 01 May 2026 12:00:00 GMT"), None);
        assert_eq!(after(Method::GET, 429, "-1"), None);
        assert_eq!(pause(&Method::GET, StatusCode::TOO_MANY_REQUESTS, &HeaderMap::new()), None);
    }
}
