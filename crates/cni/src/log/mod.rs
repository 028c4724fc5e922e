//! The log: to stderr, and to a file where one is named; never to stdout (facts of the plugin, section 18).

mod rotation;

use std::fmt;
use std::io::{self, Write};

use jiff::{Timestamp, Zoned};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::writer::MakeWriter;
use tracing_subscriber::registry::LookupSpan;

use crate::config::Log;

/// Sends everything that is logged from now on where the configuration says. A file that cannot be written is no reason to
/// fail: stderr has it all.
pub(crate) fn start(settings: &Log) {
    let file = settings.file.as_deref().and_then(|path| match rotation::open(path, settings) {
        Ok(file) => Some(file),
        Err(error) => {
            eprintln!("cannot log to {}: {error}", path.display());
            None
        }
    });
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(settings.level)
        .event_format(Line { process: std::process::id() })
        .with_writer(Output { file })
        .finish();
    // A second start in one process, as in tests, leaves the first log as it is.
    tracing::subscriber::set_global_default(subscriber).ok();
}

/// Where lines go. Each line is one write, so that the lines of several plugins do not mix.
struct Output {
    file: Option<std::fs::File>,
}

impl<'a> MakeWriter<'a> for Output {
    type Writer = Both<'a>;

    fn make_writer(&'a self) -> Both<'a> {
        Both { file: self.file.as_ref() }
    }
}

struct Both<'a> {
    file: Option<&'a std::fs::File>,
}

impl Write for Both<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // A full disk or a closed stderr must not end the work.
        io::stderr().write_all(line).ok();
        if let Some(mut file) = self.file {
            file.write_all(line).ok();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The form of Calico's lines: `<date> <time> [<LEVEL>][<pid>] ipam/<file> <line>: <message> <key>=<value> …`.
struct Line {
    process: u32,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let level = match *metadata.level() {
            Level::ERROR => "ERROR",
            Level::WARN => "WARNING",
            Level::INFO => "INFO",
            _ => "DEBUG",
        };
        let file = metadata.file().and_then(|path| path.rsplit('/').next()).unwrap_or("");
        let time = Zoned::now().strftime("%Y-%m-%d %H:%M:%S%.3f").to_string();
        let (process, line) = (self.process, metadata.line().unwrap_or_default());
        let mut fields = Fields::default();
        event.record(&mut fields);
        writeln!(
            writer,
            "{time} [{level}][{process}] ipam/{file} {line}: {}{}",
            fields.message, fields.others
        )
    }
}

/// The message, and what else was noted with it. Line breaks in them do not begin a new line of the log.
#[derive(Default)]
struct Fields {
    message: String,
    others: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}").replace(['\n', '\r'], " ");
        match field.name() {
            "message" => self.message = text,
            name => self.others.push_str(&format!(" {name}={text}")),
        }
    }
}

/// The time in the names of old log files.
fn stamp(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H-%M-%S%.3f").to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_have_calicos_form() {
        let memory = Memory::default();
        let writer = memory.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::INFO)
            .event_format(Line { process: 42 })
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(handle = "net.c1", "released\nall");
            tracing::debug!("not shown");
        });
        let text = String::from_utf8(memory.0.lock().unwrap().clone()).unwrap();
        let (time, rest) = text.split_at(23);
        assert!(time.as_bytes()[10] == b' ' && time.as_bytes()[19] == b'.', "{text}");
        assert!(rest.starts_with(" [INFO][42] ipam/mod.rs "), "{text}");
        assert!(rest.ends_with(": released all handle=\"net.c1\"\n") && text.lines().count() == 1, "{text}");
    }
}
