//! The names of the server that requests may use, to protect against DNS rebinding. A foreign site can point its own
//! name to this machine, and then the browser lets the site's pages read answers. Requests that name an unknown host
//! are therefore refused. Requests to an address are safe.

use std::net::IpAddr;

use hyper::Request;
use hyper::header::HOST;
use hyper::http::uri::Authority;

/// The allowed names, in lower case and without a final dot.
#[derive(Clone, Debug, Default)]
pub(super) struct Hosts(Vec<String>);

impl Hosts {
    pub(super) fn new(names: &[String]) -> Self {
        Self(names.iter().map(|name| normal(name)).collect())
    }

    /// True if each host in a request is an address, `localhost`, a name that ends with `.localhost`, or an allowed
    /// name. Otherwise a web page could read the report by giving its own name the server's address. Browsers always
    /// send a host.
    pub(super) fn admit<B>(&self, request: &Request<B>) -> bool {
        if let Some(authority) = request.uri().authority()
            && !self.is_allowed(authority.host())
        {
            return false;
        }
        let mut hosts = request.headers().get_all(HOST).into_iter();
        hosts.all(|header| {
            let authority = Authority::try_from(header.as_bytes());
            authority.is_ok_and(|authority| self.is_allowed(authority.host()))
        })
    }

    /// True if the host is an address, a local name or an allowed name.
    fn is_allowed(&self, host: &str) -> bool {
        let host = normal(host);
        // Only IPv6 addresses are in brackets.
        let without_bracket = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let is_address = without_bracket.unwrap_or(&host).parse::<IpAddr>().is_ok();
        let is_local = host == "localhost" || host.ends_with(".localhost");
        is_address || is_local || self.0.contains(&host)
    }
}

fn normal(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(uri: &str, hosts: &[&str]) -> bool {
        let mut request = Request::builder().uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        Hosts::new(&["Ipam.Example.com.".to_owned()]).admit(&request.body(()).unwrap())
    }

    #[test]
    fn addresses_localhost_and_allowed_names() {
        let good = "127.0.0.1:9795 127.0.0.1 [::1]:9795 10.0.0.5:80 localhost:9795 LOCALHOST. a.localhost \
            ipam.example.com:443 IPAM.example.com.";
        for good in good.split_whitespace() {
            assert!(admits("/", &[good]), "{good}");
        }
        assert!(admits("/", &[]), "an old program names nothing");
        assert!(admits("http://127.0.0.1/", &["127.0.0.1"]));
        let bad = "evil.example evil.example:9795 127.0.0.1.evil.example 127.0.0.1@evil.example \
            localhost.evil.example notlocalhost x.ipam.example.com";
        for bad in bad.split_whitespace().chain(["127.0.0.1 evil.example", ""]) {
            assert!(!admits("/", &[bad]), "{bad}");
        }
        assert!(!admits("/", &["127.0.0.1", "evil.example"]));
        assert!(!admits("http://evil.example/", &["127.0.0.1"]));
    }
}
