//! Classifies errors of the HTTP client and responses of the API server.

use std::error::Error as StdError;

use http::StatusCode;
use kube::client::AuthError;
use serde::Deserialize;

use crate::error::{Attempt, Failure, innermost, sources};

/// Maximum length of a server's message in output.
const MAX_MESSAGE: usize = 300;

/// The reason why there was no complete response.
pub(crate) fn transport_failure(error: &(dyn StdError + 'static), attempt: Attempt) -> Failure {
    if let Some(login) = sources(error).find_map(|source| source.downcast_ref::<AuthError>()) {
        return Failure::Login(login_failure(login));
    }
    match attempt.cause(error) {
        Some(cause) => Failure::Connection(cause),
        None => Failure::broken(innermost(error)),
    }
}

/// The reason why there are no credentials. Omits the output of a plugin, which may contain secrets.
pub(crate) fn login_failure(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecRun { cmd, out } => {
            format!(
                "the credential plugin {} failed with {}",
                program_of(cmd),
                out.status
            )
        }
        AuthError::AuthExecStart(error) => format!("the credential plugin cannot be started: {error}"),
        AuthError::AuthExecParse(_) => "the credential plugin's output cannot be decoded".into(),
        AuthError::ReadTokenFile(error, path) => {
            format!("cannot read the token file {}: {error}", path.display())
        }
        AuthError::InvalidBearerToken(_) | AuthError::InvalidBasicAuth(_) => {
            "the credentials have characters that a header cannot contain".into()
        }
        // The messages of OIDC errors name the cause.
        AuthError::Oidc(error) => error.to_string(),
        other => innermost(other),
    }
}

/// Extracts the program from a command in Rust's debug format. That format has environment variables, which may contain
/// secrets, then the program in quotation marks, then its arguments.
fn program_of(command: &str) -> String {
    let mut is_quoted = false;
    let mut is_escaped = false;
    let mut is_start_of_word = true;
    for (index, character) in command.char_indices() {
        match character {
            // Each variable begins with its name, so the program is the first word that begins with a quotation mark.
            '"' if is_start_of_word => {
                let program = &command[index + 1..];
                return program.split('"').next().unwrap_or_default().to_owned();
            }
            '"' if !is_escaped => is_quoted = !is_quoted,
            _ => {}
        }
        is_escaped = is_quoted && character == '\\' && !is_escaped;
        is_start_of_word = !is_quoted && character == ' ';
    }
    String::new()
}

/// Converts an error response to a failure.
pub(crate) fn status_failure(status: StatusCode, body: &[u8]) -> Failure {
    let message_of_status = message_of_status(body);
    // A proxy, or another server, does not answer with a status of Kubernetes.
    let is_kubernetes = message_of_status.is_some();
    let message = message_of_status.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
    let message = shortened(message);
    match status.as_u16() {
        401 => Failure::Unauthorized,
        403 => Failure::PermissionDenied(message),
        404 => Failure::NotFound,
        409 => Failure::Conflict(message),
        410 => Failure::Compacted,
        429 => Failure::TooManyRequests,
        code @ 500.. => Failure::Server { code, message },
        code @ 400..500 if is_kubernetes => Failure::Refused { code, message },
        code => Failure::NotKubernetes(format!("status {code}: {message}")),
    }
}

/// The message in a body that is a status of Kubernetes; `None` for any other body.
fn message_of_status(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Status {
        message: Option<String>,
    }
    let status: Status = serde_json::from_slice(body).ok()?;
    status.message
}

/// Shortens a server's message to its first characters.
fn shortened(mut message: String) -> String {
    if message.len() <= MAX_MESSAGE {
        return message;
    }
    let mut end = MAX_MESSAGE;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.truncate(end);
    message.push('…');
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_errors_are_classified() {
        let status = br#"{"kind":"Status","message":"etcdserver: request timed out","code":500}"#;
        assert_eq!(
            status_failure(StatusCode::INTERNAL_SERVER_ERROR, status),
            Failure::Server {
                code: 500,
                message: "etcdserver: request timed out".into()
            }
        );
        assert_eq!(
            status_failure(StatusCode::TOO_MANY_REQUESTS, b""),
            Failure::TooManyRequests
        );
        assert_eq!(status_failure(StatusCode::GONE, b"{}"), Failure::Compacted);
        let Failure::NotKubernetes(text) = status_failure(StatusCode::FOUND, "ü".repeat(999).as_bytes())
        else {
            panic!("a redirect is not what an API server answers");
        };
        assert!(text.len() < 400, "{text}");
    }

    #[test]
    fn the_output_of_a_plugin_is_not_shown() {
        let out = std::process::Output {
            status: std::process::ExitStatus::default(),
            stdout: b"token: hunter2".to_vec(),
            stderr: b"hunter2".to_vec(),
        };
        let plain = std::process::Command::new("/opt/my aws");
        let mut with_variables = std::process::Command::new("/opt/my aws");
        with_variables
            .env("A", "hunter2 \"hunter2\" \\")
            .env("KUBERNETES_EXEC_INFO", "{}")
            .env_remove("B");
        for mut command in [plain, with_variables] {
            let cmd = format!("{:?}", command.args(["--secret", "hunter2"]));
            let error = AuthError::AuthExecRun {
                cmd,
                out: Box::new(out.clone()),
            };
            let text = login_failure(&error);
            assert_eq!(
                text,
                "the credential plugin /opt/my aws failed with exit status: 0"
            );
        }
    }
}
