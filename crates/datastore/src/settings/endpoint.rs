//! Converts etcd endpoints to URLs.

use http::Uri;

use crate::error::SettingsError;
use crate::secret::redact_url;

/// Converts an endpoint to a URL; `usual` is the default scheme.
pub(super) fn normalise(endpoint: &str, usual: &str) -> Result<String, SettingsError> {
    let endpoint = endpoint.trim();
    let no_endpoint = |reason: &str| {
        let message = format!("{:?} is not an etcd endpoint: {reason}", redact_url(endpoint));
        SettingsError::invalid(message, "expected an endpoint such as https://10.0.0.5:2379")
    };
    let (scheme, host) = endpoint.split_once("://").unwrap_or((usual, endpoint));
    let host = host.trim_end_matches('/');
    if scheme != "http" && scheme != "https" {
        return Err(no_endpoint("its scheme is neither http nor https"));
    }
    if host.contains('@') {
        return Err(no_endpoint(
            "user and password do not belong in the URL; set ETCD_USERNAME and ETCD_PASSWORD",
        ));
    }

    let no_url = || no_endpoint("it is not a URL of the form https://HOST:PORT");
    let url = format!("{scheme}://{host}");
    let uri: Uri = url.parse().map_err(|_| no_url())?;
    let host_in_url = uri.host().unwrap_or_default();
    // A port that is not a number is parsed as no port at all.
    let has_sound_port = uri.port_u16().is_some() || host_in_url == host;
    let has_only_host = uri.path() == "/" && uri.query().is_none();
    if host_in_url.is_empty() || !has_sound_port || !has_only_host {
        return Err(no_url());
    }
    let port = uri.port_u16().unwrap_or(2379);
    Ok(format!("{scheme}://{host_in_url}:{port}"))
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
