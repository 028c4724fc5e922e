//! Values that must not appear in output, logs or errors.

use std::fmt;

use calipam_model::digest::sha256_hex;

/// The text shown instead of a secret.
const REDACTED: &str = "(not shown)";

/// A password, private key, token or inline kubeconfig. Only [`Secret::reveal`] returns its text; `Debug` and
/// `Display` hide it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text, for code that needs the secret itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// True for the empty string, which means "not set".
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "\"\"" } else { REDACTED })
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "" } else { REDACTED })
    }
}

/// Removes user, password, query and fragment from a URL, and replaces its path with a digest of it: they may contain a
/// secret. The digest still distinguishes clusters behind one server.
pub fn redact_url(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = rest[..end]
        .rsplit_once('@')
        .map_or(&rest[..end], |(_, host)| host);
    let path = rest[end..].split(['?', '#']).next().unwrap_or_default();
    match path.trim_matches('/') {
        "" => format!("{scheme}{host}{path}"),
        path => format!("{scheme}{host}/…{}", &sha256_hex(path)[..8]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_printed() {
        let secret = Secret::new("hunter2");
        assert!(!format!("{secret} {secret:?}").contains("hunter2"));
        assert_eq!(secret.reveal(), "hunter2");
        assert_eq!(format!("{}", Secret::default()), "");
    }

    #[test]
    fn urls_lose_user_and_password() {
        for (url, shown) in [
            ("https://10.0.0.5:2379", "https://10.0.0.5:2379"),
            ("https://root:s3cret@10.0.0.5:2379/", "https://10.0.0.5:2379/"),
            ("root:p@ss@etcd:2379", "etcd:2379"),
            ("http://[::1]:2379?token=a@b", "http://[::1]:2379"),
            ("https://a:6443/path?password=b#c", "https://a:6443/…a0af9f86"),
            ("https://a:6443/k8s/s3cret/", "https://a:6443/…d24e8007"),
            ("http://a//", "http://a//"),
        ] {
            assert_eq!(redact_url(url), shown);
        }
    }
}
