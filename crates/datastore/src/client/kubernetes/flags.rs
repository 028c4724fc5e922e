//! kubectl's connection options, which override the kubeconfig and the settings.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::Config;

use super::connect::{certificates, endpoint, read};
use crate::error::Error;
use crate::settings::KubectlOptions;

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
        (config.root_cert, config.root_cert_file) = (Some(certificates(path)?), None);
        config.accept_invalid_certs = false;
    }
    if options.insecure {
        config.accept_invalid_certs = true;
        (config.root_cert, config.root_cert_file) = (None, None);
    }
    let auth = &mut config.auth_info;
    if let Some((certificate, key)) = &options.client_identity {
        let encoded = |path: &Path, what| read(path, what).map(|pem| STANDARD.encode(pem));
        auth.client_certificate_data = Some(encoded(certificate, "the client certificate")?);
        auth.client_key_data = Some(encoded(key, "the client key")?.into());
        (auth.client_certificate, auth.client_key) = (None, None);
    }
    if !options.token.is_empty() {
        auth.token = Some(options.token.reveal().to_owned().into());
        // One way to log in is enough, and a plugin might ask the user.
        (auth.token_file, auth.exec, auth.auth_provider) = (None, None, None);
        (auth.username, auth.password) = (None, None);
    }
    if let Some(user) = &options.as_user {
        auth.impersonate = Some(user.clone());
        auth.impersonate_groups = Some(options.as_groups.clone()).filter(|groups| !groups.is_empty());
    }
    Ok(())
}
