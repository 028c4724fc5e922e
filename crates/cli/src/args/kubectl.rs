//! kubectl's connection options, which kubectl passes to a plugin.

use std::path::PathBuf;
use std::time::Duration;

use calipam_datastore::Secret;
use calipam_datastore::settings::KubectlOptions;
use clap::Args;
use clap::ValueHint::{FilePath, Url};

use super::duration;

/// The heading of the connection options. Hints and completion recognize these options by it.
pub(crate) const CONNECTION: &str = "Connection";

/// kubectl's options for the connection to Kubernetes. The short help leaves them out ([`super::tidy`]): kubectl users
/// know them.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = CONNECTION)]
pub(crate) struct KubectlArgs {
    /// The cluster in the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub cluster: Option<String>,
    /// The user in the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub user: Option<String>,
    /// URL of the API server
    #[arg(short, long, global = true, value_name = "URL", value_hint = Url)]
    pub server: Option<String>,
    /// Bearer token for the API server; other users of this machine can see it
    #[arg(long, global = true, value_name = "TOKEN", value_parser = secret)]
    pub token: Option<Secret>,
    /// User to impersonate
    #[arg(long = "as", global = true, value_name = "USER")]
    pub as_user: Option<String>,
    /// Group to impersonate; can be repeated
    #[arg(long = "as-group", global = true, value_name = "GROUP", requires = "as_user")]
    pub as_groups: Vec<String>,
    /// Time to wait for a server that does not answer, such as `30s`, or a number of seconds; 0 for
    /// no limit [default: 1m]
    #[arg(long, global = true, value_name = "DURATION", value_parser = request_timeout)]
    pub request_timeout: Option<Duration>,
    /// Skip TLS verification of the API server
    #[arg(long, global = true)]
    pub insecure_skip_tls_verify: bool,
    /// CA certificate for the API server
    #[arg(long, global = true, value_name = "FILE", value_hint = FilePath)]
    pub certificate_authority: Option<PathBuf>,
    /// Client certificate for the API server
    #[arg(long, global = true, value_name = "FILE", value_hint = FilePath, requires = "client_key")]
    pub client_certificate: Option<PathBuf>,
    /// Key of the client certificate
    #[arg(long, global = true, value_name = "FILE", value_hint = FilePath, requires = "client_certificate")]
    pub client_key: Option<PathBuf>,
    /// The name in the API server's certificate, if it differs from that in the URL
    #[arg(long, global = true, value_name = "NAME")]
    pub tls_server_name: Option<String>,
}

impl KubectlArgs {
    /// Returns the IDs of these options.
    pub(crate) fn ids() -> Vec<String> {
        let command = Self::augment_args(clap::Command::new("kubectl"));
        command
            .get_arguments()
            .map(|arg| arg.get_id().to_string())
            .collect()
    }

    /// Returns the settings of these options.
    pub(crate) fn options(&self) -> KubectlOptions {
        KubectlOptions {
            cluster: self.cluster.clone(),
            user: self.user.clone(),
            server: self.server.clone(),
            token: self.token.clone().unwrap_or_default(),
            as_user: self.as_user.clone(),
            as_groups: self.as_groups.clone(),
            request_timeout: self.request_timeout,
            insecure: self.insecure_skip_tls_verify,
            certificate_authority: self.certificate_authority.clone(),
            client_identity: self.client_certificate.clone().zip(self.client_key.clone()),
            tls_server_name: self.tls_server_name.clone(),
        }
    }
}

fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}

/// The timeout that stands for no limit: one year. On some systems, a longer duration cannot be added to the current
/// time.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Reads a timeout as kubectl does: a plain number means seconds, and 0 means no limit. The error is kubectl's.
fn request_timeout(text: &str) -> Result<Duration, String> {
    let Some(time) = seconds_or_duration(text) else {
        return Err("Invalid timeout value. Timeout must be a single integer in seconds, or an integer followed by a \
                    corresponding time unit (e.g. 1s | 2m | 3h)"
            .into());
    };
    if time.is_zero() {
        return Ok(NO_LIMIT);
    }
    // A year is as good as no limit, and does not overflow where it is added to a time.
    Ok(time.min(NO_LIMIT))
}

/// Reads a number of seconds, or a duration such as `2m`.
fn seconds_or_duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    Duration::try_from(duration::parse(text).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_by_kubectl() {
        assert_eq!(request_timeout("30"), Ok(Duration::from_secs(30)));
        assert_eq!(request_timeout("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(request_timeout("0"), Ok(NO_LIMIT));
        assert!(
            request_timeout("soon")
                .unwrap_err()
                .starts_with("Invalid timeout value.")
        );
    }
}
