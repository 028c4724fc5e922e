//! YAML and JSON: one schema, `calipam/v1`, described in `docs/output.md`.

use std::io::{self, Write};

use serde::Serialize;

use crate::args::Format;

/// The version of the schema.
const API_VERSION: &str = "calipam/v1";

/// A document: what it is, and its content.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a, T> {
    api_version: &'static str,
    kind: &'a str,
    #[serde(flatten)]
    content: &'a T,
}

/// Writes a document.
///
/// # Errors
/// What the writer says.
pub fn write<T: Serialize>(format: Format, kind: &str, content: &T, out: &mut dyn Write) -> io::Result<()> {
    let document = Document { api_version: API_VERSION, kind, content };
    if format == Format::Yaml {
        return serde_yaml::to_writer(out, &document).map_err(io_error);
    }
    serde_json::to_writer_pretty(&mut *out, &document).map_err(io::Error::from)?;
    writeln!(out)
}

/// The writer's error behind one of serde_yaml, which does not give it out but in words.
fn io_error(error: serde_yaml::Error) -> io::Error {
    if error.to_string().contains("Broken pipe") {
        return io::ErrorKind::BrokenPipe.into();
    }
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Gone;

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(32))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_broken_pipe_stays_one() {
        for format in [Format::Yaml, Format::Json] {
            let error = write(format, "List", &serde_json::json!({"a": 1}), &mut Gone).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{format:?}");
        }
    }
}
