//! Progress bars, on a terminal only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use calipam_datastore::observe::{Progress, ProgressFn};
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::SignedDuration;

use crate::output::Console;

/// What is counted.
const OBJECTS: &str = "objects";

/// Shows how far a read has come.
#[derive(Clone, Debug)]
pub struct Reading {
    bar: ProgressBar,
}

impl Reading {
    /// A bar on stderr; an invisible one where there is no terminal.
    pub fn start(console: &Console, what: &str) -> Self {
        let bar = if console.progress { ProgressBar::no_length() } else { ProgressBar::hidden() };
        bar.set_draw_target(if console.progress {
            ProgressDrawTarget::stderr_with_hz(10)
        } else {
            ProgressDrawTarget::hidden()
        });
        bar.set_style(style("{spinner} {prefix}: {human_pos} {msg}"));
        bar.set_message(OBJECTS);
        bar.set_prefix(what.to_owned());
        Self { bar }
    }

    /// What the datastore calls while it reads.
    pub fn callback(&self) -> ProgressFn {
        let bar = self.bar.clone();
        let shown = AtomicU64::new(0);
        Arc::new(move |progress: Progress| {
            bar.set_position(progress.read);
            if shown.swap(progress.expected, Ordering::Relaxed) != progress.expected {
                bar.set_message(match progress.expected {
                    0 => OBJECTS.to_owned(),
                    expected => format!("of about {} {OBJECTS}", HumanCount(expected)),
                });
            }
        })
    }

    /// Takes the bar away.
    pub fn end(self) {
        self.bar.finish_and_clear();
    }
}

/// Shows how many steps of a repair have come to their end.
#[derive(Debug)]
pub struct Steps {
    bar: ProgressBar,
}

impl Steps {
    /// A bar on stderr; an invisible one where there is no terminal.
    pub fn start(console: &Console, what: &str) -> Self {
        let bar = if console.progress { ProgressBar::new(0) } else { ProgressBar::hidden() };
        bar.set_style(style("{spinner} {prefix}: {pos} of {len} steps"));
        bar.set_prefix(what.to_owned());
        Self { bar }
    }

    /// So many have ended.
    pub fn set(&self, ended: usize, of: usize) {
        self.bar.set_length(of as u64);
        self.bar.set_position(ended as u64);
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// Waits, and shows for how long.
pub async fn wait(console: &Console, time: SignedDuration, why: &str) {
    let time = Duration::try_from(time).unwrap_or_default();
    let end = tokio::time::Instant::now() + time;
    let bar = if console.progress { ProgressBar::no_length() } else { ProgressBar::hidden() };
    bar.set_style(style("{spinner} {prefix}: {msg}"));
    bar.set_prefix(why.to_owned());
    loop {
        let left = end.saturating_duration_since(tokio::time::Instant::now());
        if left.is_zero() {
            break;
        }
        bar.set_message(format!("{} s", left.as_secs() + 1));
        bar.tick();
        tokio::time::sleep(left.min(Duration::from_millis(200))).await;
    }
    bar.finish_and_clear();
}

/// A style from a template that is known to be right.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}
