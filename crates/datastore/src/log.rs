//! Trace output, one line for each event.

use std::fmt::{self, Write as _};

use calipam_model::words::escape;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Prints selected events. Spans are ignored: each event is complete by itself.
pub struct Printer<P> {
    /// More verbose events than this level are not even formatted.
    pub level: LevelFilter,
    /// Selects which of the other events to print.
    pub shown: fn(&Metadata<'_>) -> bool,
    /// Prints an event. Receives its metadata and its text, which is one line: the message, then ` key=value` for each
    /// field.
    pub print: P,
}

impl<P: Fn(&Metadata<'_>, &str) + 'static> Subscriber for Printer<P> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.level && (self.shown)(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        (self.print)(event.metadata(), &(text.message + &text.fields));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    /// Replaces line breaks, so that a value does not begin a new line of the log, and escapes what a terminal might not
    /// treat as text.
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}").replace(['\n', '\r'], " ");
        let text = escape(&text);
        match field.name() {
            "message" => self.message = text.into_owned(),
            name => {
                let _ = write!(self.fields, " {name}={text}");
            }
        }
    }
}
