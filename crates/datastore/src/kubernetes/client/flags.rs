//! kubectl's connection options, which override the kubeconfig and the settings.

use kube::Config;
use kube::config::AuthInfo;

use super::pem::{certificates, endpoint, set_identity};
use crate::error::Error;
use crate::settings::KubectlOptions;

/// Applies kubectl's connection options to a configuration, as kubectl does.
pub(super) fn apply(options: &KubectlOptions, config: &mut Config) -> Result<(), Error> {
    if let Some(server) = &options.server {
        config.cluster_url = endpoint(server)?;
    }
    if let Some(name) = &options.tls_server_name {
        config.tls_server_name = Some(name.clone());
    }
    if let Some(path) = &options.certificate_authority {
        if options.insecure {
            return Err(Error::Kubeconfig {
                what: "the connection options".into(),
                reason: "specifying a root certificates file with the insecure flag is not allowed".into(),
            });
        }
        config.root_cert = Some(certificates(path)?);
        config.root_cert_file = None;
        config.accept_invalid_certs = false;
    }
    if options.insecure {
        config.root_cert = None;
        config.root_cert_file = None;
        config.accept_invalid_certs = true;
    }
    if let Some((certificate, key)) = &options.client_identity {
        set_identity(config, certificate, key)?;
    }
    apply_login(options, &mut config.auth_info);
    Ok(())
}

/// Applies the options for the token, and for the user and groups to act as.
fn apply_login(options: &KubectlOptions, auth: &mut AuthInfo) {
    if !options.token.is_empty() {
        auth.token = Some(options.token.reveal().to_owned().into());
        // One way to log in is enough, and a plugin might ask the user.
        auth.token_file = None;
        auth.exec = None;
        auth.auth_provider = None;
        auth.username = None;
        auth.password = None;
    }
    if let Some(user) = &options.as_user {
        auth.impersonate = Some(user.clone());
        auth.impersonate_groups = None;
        if !options.as_groups.is_empty() {
            auth.impersonate_groups = Some(options.as_groups.clone());
        }
    }
}
