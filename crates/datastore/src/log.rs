//! What is traced, one line for each event.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Prints events: which ones, and how. Spans are passed over: each event says itself what it is about.
pub struct Printer<P> {
    /// Events above this level are not even put together.
    pub level: LevelFilter,
    /// Which of the others are printed.
    pub shown: fn(&Metadata<'_>) -> bool,
    /// Prints an event: where it comes from, and its text, which is one line: the message, then ` key=value` for each field.
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
    /// Line breaks in a value do not begin a new line of the log.
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}").replace(['\n', '\r'], " ");
        match field.name() {
            "message" => self.message = text,
            name => {
                let _ = write!(self.fields, " {name}={text}");
            }
        }
    }
}
