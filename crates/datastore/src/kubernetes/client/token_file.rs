//! A file with a bearer token. It is read again after a minute, as in client-go, because service account tokens are
//! replaced while a pod runs.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use calipam_files::regular;
use calipam_model::parallel::lock;
use http::HeaderValue;
use kube::Config;

use crate::error::{Error, Result};

/// Time until the file is read again.
const REREAD_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Clone, Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    last_read: Arc<Mutex<LastRead>>,
}

/// The header from the last read of the file that succeeded, and the time of the last attempt.
#[derive(Debug)]
struct LastRead {
    at: Instant,
    header: HeaderValue,
}

impl TokenFile {
    /// Takes the file out of a configuration. As in client-go, the file overrides a token in the configuration, unless
    /// it cannot be read.
    ///
    /// # Errors
    /// If there is no usable token.
    pub(super) fn take(config: &mut Config) -> Result<Option<Self>> {
        let Some(path) = config.auth_info.token_file.take().map(PathBuf::from) else {
            return Ok(None);
        };
        match read(&path) {
            Ok(header) => {
                config.auth_info.token = None;
                let last_read = LastRead {
                    at: Instant::now(),
                    header,
                };
                Ok(Some(Self {
                    path,
                    last_read: Arc::new(Mutex::new(last_read)),
                }))
            }
            Err(_) if config.auth_info.token.is_some() => Ok(None),
            Err(reason) => {
                let what = format!("the token file {}", path.display());
                Err(Error::KubeconfigFile { what, reason })
            }
        }
    }

    /// The header for a request. If the file can no longer be read, the last token is used, which may still be valid.
    pub(super) fn header(&self) -> HeaderValue {
        let mut last_read = lock(&self.last_read);
        if last_read.at.elapsed() >= REREAD_INTERVAL {
            last_read.at = Instant::now();
            if let Ok(header) = read(&self.path) {
                last_read.header = header;
            }
        }
        last_read.header.clone()
    }
}

fn read(path: &std::path::Path) -> Result<HeaderValue, String> {
    let text = regular::read_to_string(path).map_err(|error| error.to_string())?;
    bearer(text.trim()).ok_or_else(|| "it has no token: a token is one line of printable characters".into())
}

/// The header with a token; `None` if the token is empty or does not fit in a header.
pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    if token.is_empty() {
        return None;
    }
    let mut header = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn config(token: Option<&str>, file: PathBuf) -> Config {
        let mut config = Config::new("https://localhost".parse().unwrap());
        config.auth_info.token = token.map(|token| token.to_owned().into());
        config.auth_info.token_file = Some(file.display().to_string());
        config
    }

    #[test]
    fn a_token_file_overrides_a_token_and_is_trimmed() {
        let folder = tempfile::tempdir().unwrap();
        let good = folder.path().join("good");
        let bad = folder.path().join("bad");
        fs::write(&good, " abc\r\n").unwrap();
        fs::write(&bad, "a\nb").unwrap();

        let mut both = config(Some("other"), good.clone());
        let file = TokenFile::take(&mut both).unwrap().unwrap();
        assert_eq!(
            (file.header().to_str().unwrap(), both.auth_info.token.is_none()),
            ("Bearer abc", true)
        );
        fs::remove_file(&good).unwrap();
        assert_eq!(file.header(), "Bearer abc");

        for unusable in [good, bad, folder.path().to_owned()] {
            let mut fallback = config(Some("other"), unusable.clone());
            assert!(TokenFile::take(&mut fallback).unwrap().is_none() && fallback.auth_info.token.is_some());
            let error = TokenFile::take(&mut config(None, unusable.clone()))
                .unwrap_err()
                .to_string();
            assert!(error.contains(&unusable.display().to_string()), "{error}");
        }
    }
}
