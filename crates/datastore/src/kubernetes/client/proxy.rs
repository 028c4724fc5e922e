//! The proxy for an API server, as in client-go: `proxy-url` of the kubeconfig, or the variables of Go's
//! `http.ProxyFromEnvironment`. kube's own code is not used, since it compares `NO_PROXY` with the proxy instead of the
//! server, and rejects values that Go accepts.

use std::net::IpAddr;

use calipam_model::IpNet;
use http::Uri;

use crate::error::Error;

/// The proxy that the environment sets for a server.
///
/// # Errors
/// If the proxy applies and its variable is invalid.
pub(super) fn from_environment(
    server: &Uri,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, Error> {
    let is_https = server.scheme_str() == Some("https");
    let proxy_variables = if is_https {
        ["HTTPS_PROXY", "https_proxy"]
    } else {
        ["HTTP_PROXY", "http_proxy"]
    };
    let Some((name, proxy)) = first_set(proxy_variables, &variable) else {
        return Ok(None);
    };

    let mut exempt = String::new();
    if let Some((_, hosts)) = first_set(["NO_PROXY", "no_proxy"], &variable) {
        exempt = hosts.to_lowercase();
    }
    let host = server.host().unwrap_or_default().to_lowercase();
    let usual_port = if is_https { 443 } else { 80 };
    let port = server.port_u16().unwrap_or(usual_port);
    if is_exempt(host.trim_matches(['[', ']']), port, &exempt) {
        return Ok(None);
    }
    parse(name, &proxy).map(Some)
}

/// The first of two variables that is set and not empty, with its value.
fn first_set(
    names: [&'static str; 2],
    variable: &impl Fn(&str) -> Option<String>,
) -> Option<(&'static str, String)> {
    for name in names {
        if let Some(value) = variable(name)
            && !value.is_empty()
        {
            return Some((name, value));
        }
    }
    None
}

/// The reason in the error for a text that is not a URL.
const NO_URL: &str = "it is not the URL of a proxy";

/// Parses a proxy's URL; the default scheme is HTTP. `name` names the source of the URL in errors.
///
/// # Errors
/// If it is not a URL of a supported scheme. The error does not quote the URL, since it may contain a password.
pub(super) fn parse(name: &str, text: &str) -> Result<Uri, Error> {
    let unusable = |reason: &str| Error::Kubeconfig {
        what: name.to_owned(),
        reason: reason.to_owned(),
    };
    let with_scheme = match text.split_once("://") {
        Some(("socks5h", address)) => format!("socks5://{address}"),
        Some(_) => text.to_owned(),
        None => format!("http://{text}"),
    };
    let url: Uri = with_scheme.parse().map_err(|_| unusable(NO_URL))?;
    let has_host = !url.host().unwrap_or_default().is_empty();
    if !has_host || has_bad_port(&url) {
        return Err(unusable(NO_URL));
    }
    match url.scheme_str() {
        Some("http" | "https" | "socks5") => Ok(url),
        _ => Err(unusable("its URL must begin with http://, https:// or socks5://")),
    }
}

/// True if a URL has a port that is not a number, which its parser ignores. Without a port, the host must be the end of
/// `USER@HOST`.
fn has_bad_port(url: &Uri) -> bool {
    if url.port_u16().is_some() {
        return false;
    }
    let user_and_host = url.authority().map(|authority| authority.as_str());
    let host = url.host().unwrap_or_default();
    !user_and_host.unwrap_or_default().ends_with(host)
}

/// True for hosts without a proxy: this machine, and those in `NO_PROXY`.
fn is_exempt(host: &str, port: u16, listed: &str) -> bool {
    let address = match host.parse::<IpAddr>() {
        Ok(address) => Some(address.to_canonical()),
        Err(_) => None,
    };
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let mut entries = listed.split(',').map(str::trim);
    entries.any(|entry| matches_host(entry, host, address, port))
}

/// True if an entry of `NO_PROXY` matches a host. An entry that is not a host, address or CIDR matches no host.
fn matches_host(entry: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let Ok(cidr) = entry.parse::<IpNet>() {
        return address.is_some_and(|address| cidr.contains(&address));
    }
    let (name, port_of_entry) = split_port(entry).unwrap_or((entry, ""));
    let is_other_port = !port_of_entry.is_empty() && port_of_entry != port.to_string();
    if is_other_port {
        return false;
    }
    if let Ok(listed) = name.parse::<IpAddr>() {
        return address == Some(listed.to_canonical());
    }
    let is_host_name = address.is_none();
    is_host_name && matches_name(name, host)
}

/// True if a name in `NO_PROXY` is the host, or a domain that contains it. A name that begins with a dot, or `*.`, is
/// only a domain.
fn matches_name(name: &str, host: &str) -> bool {
    if name.is_empty() {
        return false;
    }
    match name.strip_prefix("*.").or_else(|| name.strip_prefix('.')) {
        Some(domain) => is_below(host, domain),
        None => host == name || is_below(host, name),
    }
}

fn is_below(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

/// Splits `host:port` or `[address]:port` into host and port.
fn split_port(entry: &str) -> Option<(&str, &str)> {
    match entry.strip_prefix('[') {
        Some(rest) => rest.split_once("]:"),
        None => entry.rsplit_once(':').filter(|(host, _)| !host.contains(':')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(server: &str, variables: &[(&str, &str)]) -> Result<Option<String>, String> {
        let variable = |name: &str| {
            variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        };
        let found = from_environment(&server.parse().unwrap(), variable);
        found
            .map(|url| url.map(|url| url.to_string()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn no_proxy_is_read_as_go_reads_it() {
        for (server, exempt, proxied) in [
            ("https://api.example:6443", "", true),
            ("https://api.example:6443", "*", false),
            ("https://api.example:6443", "other, ,api.example,", false),
            ("https://API.example:6443", "Example", false),
            ("https://api.example:6443", ".example", false),
            ("https://api.example:6443", "*.example", false),
            ("https://example:6443", ".example", true),
            ("https://badexample:6443", "example", true),
            ("https://api.example:6443", "api.example:443", true),
            ("https://api.example:6443", "api.example:6443", false),
            ("https://api.example", "api.example:443", false),
            // Go separates entries only by commas.
            ("https://api.example:6443", "other;api.example", true),
            ("https://api.example:6443", ";,:80,[,http://x y", true),
            ("https://10.1.2.3:6443", "10.0.0.0/8,", false),
            ("https://10.1.2.3:6443", "10.1.2.3", false),
            ("https://10.1.2.3:6443", "10.1.2.3:443", true),
            ("https://10.1.2.3:6443", ".3", true),
            ("https://[fd00::5]:6443", "fd00::/64", false),
            ("https://[fd00::5]:6443", "fd00::5", false),
            ("https://[fd00::5]:6443", "[fd00::5]:6443", false),
            ("https://localhost:6443", "", false),
            ("https://127.0.0.2:6443", "", false),
            ("https://[::1]:6443", "", false),
        ] {
            let found = found(
                server,
                &[("HTTPS_PROXY", "http://proxy:3128"), ("NO_PROXY", exempt)],
            );
            assert_eq!(found.unwrap().is_some(), proxied, "{server} {exempt:?}");
        }
    }

    #[test]
    fn the_scheme_of_the_server_says_which_variable_counts() {
        let both = [
            ("HTTPS_PROXY", ""),
            ("https_proxy", "secure:3128"),
            ("HTTP_PROXY", "http://plain"),
        ];
        assert_eq!(
            found("https://a", &both).unwrap().as_deref(),
            Some("http://secure:3128/")
        );
        assert_eq!(
            found("http://a", &both).unwrap().as_deref(),
            Some("http://plain/")
        );
        assert_eq!(
            found("https://a", &[("HTTPS_PROXY", "socks5h://b:1")])
                .unwrap()
                .as_deref(),
            Some("socks5://b:1/")
        );
        assert_eq!(found("https://a", &[("ALL_PROXY", "http://b")]), Ok(None));
    }

    #[test]
    fn a_bad_value_is_named_where_it_would_be_used() {
        for bad in [
            "http://u:hunter2@:1",
            "http://hunter2 x",
            "proxy:hunter2",
            "ftp://hunter2",
            ":1",
        ] {
            let variables = [("https_proxy", bad)];
            let error = found("https://a", &variables).unwrap_err();
            assert!(
                error.contains("https_proxy") && !error.contains("hunter2"),
                "{bad}: {error}"
            );
            for unused in ["http://a", "https://localhost:6443", "https://127.0.0.1:6443"] {
                assert_eq!(found(unused, &variables), Ok(None));
            }
            assert_eq!(
                found("https://a", &[("https_proxy", bad), ("no_proxy", "a")]),
                Ok(None)
            );
        }
    }
}
