//! Requests that a busy or starting API server defers. The response's `Retry-After` header has the seconds to wait
//! before the next attempt. Calico's client also retries such requests.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode, header};

/// Maximum total delay of a request.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(30);
/// The shortest pause before a retry. It is above zero, so a request with a maximum delay of zero is sent only once.
const MIN_PAUSE: Duration = Duration::from_millis(200);

/// The delay that the server demands before a retry. `None` if it demands none, or if a request other than GET may have
/// been started. A request that was rejected with 429 was not started.
pub(super) fn demanded_pause(method: &Method, status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let is_throttled = status == StatusCode::TOO_MANY_REQUESTS;
    let is_failed_read = method == Method::GET && status.is_server_error();
    if !is_throttled && !is_failed_read {
        return None;
    }
    let retry_after = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    let seconds = retry_after.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).max(MIN_PAUSE))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_requests_that_were_not_started_are_sent_again() {
        let after = |method, status: u16, seconds: &'static str| {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_static(seconds))]);
            demanded_pause(&method, StatusCode::from_u16(status).unwrap(), &headers)
        };
        let second = Some(Duration::from_secs(1));
        assert_eq!(after(Method::GET, 429, "1"), second);
        assert_eq!(after(Method::PUT, 429, "1"), second);
        assert_eq!(after(Method::GET, 503, "1"), second);
        assert_eq!(after(Method::GET, 503, "0"), Some(MIN_PAUSE));
        assert_ne!(
            MIN_PAUSE,
            Duration::ZERO,
            "a request without any delay would be sent again"
        );
        assert_eq!(after(Method::PUT, 503, "1"), None);
        assert_eq!(after(Method::DELETE, 500, "1"), None);
        assert_eq!(after(Method::GET, 403, "1"), None);
        // HTTP also allows a date in `Retry-After`, but API servers send seconds.
        assert_eq!(after(Method::GET, 429, "Fri, 01 May 2026 12:00:00 GMT"), None);
        assert_eq!(after(Method::GET, 429, "-1"), None);
        assert_eq!(
            demanded_pause(&Method::GET, StatusCode::TOO_MANY_REQUESTS, &HeaderMap::new()),
            None
        );
    }
}
