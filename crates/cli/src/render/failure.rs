//! The document of a command that failed.

use serde::Serialize;

use super::document::Document;
use super::output::Text;

/// The error of a command, for YAML and JSON output. It is also printed on stderr.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FailureDocument {
    pub exit_code: u8,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Document for FailureDocument {
    const KIND: &'static str = "Error";

    fn text(&self, out: &mut Text) {
        out.line(&self.message);
    }
}
