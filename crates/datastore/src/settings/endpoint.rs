//! Converts etcd endpoints to URLs.

use http::Uri;

use crate::error::SettingsError;
use crate::secret::redact_url;

/// The port of etcd's clients.
const DEFAULT_PORT: u16 = 2379;

/// Converts an endpoint such as `10.0.0.5` to a URL with a scheme and a port.
///
/// # Errors
/// If it is not a URL of a host, or has another scheme than HTTP or a user.
pub(super) fn normalise(endpoint: &str, default_scheme: &str) -> Result<String, SettingsError> {
    const NO_URL: &str = "it is not a URL of the form https://HOST:PORT";
    let endpoint = endpoint.trim();
    let no_endpoint = |reason: &str| {
        let message = format!("{:?} is not an etcd endpoint: {reason}", redact_url(endpoint));
        SettingsError::invalid(message, "expected an endpoint such as https://10.0.0.5:2379")
    };
    let (scheme, rest) = endpoint.split_once("://").unwrap_or((default_scheme, endpoint));
    let host_and_port = rest.trim_end_matches('/');
    if scheme != "http" && scheme != "https" {
        return Err(no_endpoint("its scheme is neither http nor https"));
    }
    if host_and_port.contains('@') {
        return Err(no_endpoint(
            "user and password do not belong in the URL; set ETCD_USERNAME and ETCD_PASSWORD",
        ));
    }

    let url = format!("{scheme}://{host_and_port}");
    let url: Uri = url.parse().map_err(|_| no_endpoint(NO_URL))?;
    let host = url.host().unwrap_or_default();
    let has_path_or_query = url.path() != "/" || url.query().is_some();
    // The parser ignores a port that is not a number. Without a port, the host must be all there is.
    let has_bad_port = url.port_u16().is_none() && host != host_and_port;
    if host.is_empty() || has_path_or_query || has_bad_port {
        return Err(no_endpoint(NO_URL));
    }
    let port = url.port_u16().unwrap_or(DEFAULT_PORT);
    Ok(format!("{scheme}://{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_become_urls() {
        for (endpoint, usual, url) in [
            ("http://10.0.0.5:2379", "http", "http://10.0.0.5:2379"),
            (" https://etcd.example/ ", "http", "https://etcd.example:2379"),
            ("10.0.0.5:2379", "http", "http://10.0.0.5:2379"),
            ("10.0.0.5:2379", "https", "https://10.0.0.5:2379"),
            ("[fd00::1]:2379", "https", "https://[fd00::1]:2379"),
            ("http://10.0.0.5", "https", "http://10.0.0.5:2379"),
        ] {
            assert_eq!(normalise(endpoint, usual).as_deref(), Ok(url));
        }
        for endpoint in [
            "",
            "ftp://x:1",
            "https://",
            "http://x:port",
            "http://x:1/path",
            "http://x y",
        ] {
            assert!(normalise(endpoint, "http").is_err(), "{endpoint:?}");
        }
        let error = normalise("https://root:s3cret@etcd:2379", "http").unwrap_err();
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
}
