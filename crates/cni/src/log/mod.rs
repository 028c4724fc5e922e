//! The log. It goes to stderr, and to a file if one is named; never to stdout (facts of the plugin, section 18).

mod rotation;

use std::io::{self, Write};

use calipam_datastore::log::Printer;
use jiff::{Timestamp, Zoned};
use tracing::{Level, Metadata};

use crate::config::Log;

/// Starts logging to the configured targets. A file that cannot be written is not an error, since stderr gets
/// everything.
pub(crate) fn start(settings: &Log) {
    let mut file = None;
    if let Some(path) = &settings.file {
        match rotation::open(path, settings) {
            Ok(opened) => file = Some(opened),
            Err(error) => eprintln!("cannot log to {}: {error}", path.display()),
        }
    }
    let print = move |metadata: &Metadata<'_>, text: &str| {
        // Each line is one write, so that lines from several plugin processes do not mix. A full disk or a closed
        // stderr must not stop the plugin.
        let line = format_line(metadata, text);
        io::stderr().write_all(line.as_bytes()).ok();
        if let Some(mut file) = file.as_ref() {
            file.write_all(line.as_bytes()).ok();
        }
    };
    // A second start in the same process, as in tests, has no effect.
    tracing::subscriber::set_global_default(Printer {
        level: settings.level.into(),
        shown: |_| true,
        print,
    })
    .ok();
}

/// A line in Calico's form: `<date> <time> [<LEVEL>][<pid>] ipam/<file> <line>: <message> <key>=<value> …`.
fn format_line(metadata: &Metadata<'_>, text: &str) -> String {
    let time = Zoned::now().strftime("%Y-%m-%d %H:%M:%S%.3f");
    let level = match *metadata.level() {
        Level::ERROR => "ERROR",
        Level::WARN => "WARNING",
        Level::INFO => "INFO",
        _ => "DEBUG",
    };
    let process = std::process::id();
    let file = metadata
        .file()
        .and_then(|path| path.rsplit('/').next())
        .unwrap_or("");
    let line = metadata.line().unwrap_or_default();
    format!("{time} [{level}][{process}] ipam/{file} {line}: {text}\n")
}

/// The time in the names of old log files.
fn stamp(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H-%M-%S%.3f").to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn lines_have_calicos_form() {
        let printed = Arc::new(Mutex::new(String::new()));
        let memory = Arc::clone(&printed);
        let print = move |metadata: &Metadata<'_>, text: &str| {
            memory.lock().unwrap().push_str(&format_line(metadata, text));
        };
        let printer = Printer {
            level: Level::INFO.into(),
            shown: |_| true,
            print,
        };
        tracing::subscriber::with_default(printer, || {
            tracing::info!(handle = "net.c1", "released\nall\u{1b}[2K");
            tracing::debug!("not shown");
        });

        let text = printed.lock().unwrap().clone();
        let (time, rest) = text.split_at(23);
        assert!(
            time.as_bytes()[10] == b' ' && time.as_bytes()[19] == b'.',
            "{text}"
        );
        assert!(
            rest.starts_with(&format!(" [INFO][{}] ipam/mod.rs ", std::process::id())),
            "{text}"
        );
        assert!(
            rest.ends_with(": released all\\u{1b}[2K handle=\"net.c1\"\n") && text.lines().count() == 1,
            "{text}"
        );
    }
}
