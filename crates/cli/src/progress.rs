//! Progress bars, on a terminal only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use calipam_workflow::{Activity, Meter};
use indicatif::{HumanCount, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::render::text::escape;

/// The progress lines on stderr, above which messages are printed.
pub(crate) static LINES: LazyLock<MultiProgress> =
    LazyLock::new(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10)));

/// Starts a progress bar on stderr, or an invisible one. In a fleet, the bar begins with the name of the `cluster`.
pub(crate) fn start(activity: Activity, is_visible: bool, cluster: Option<&str>) -> Arc<dyn Meter> {
    let (template, prefix) = words(activity);
    let bar = if is_visible {
        LINES.add(ProgressBar::no_length())
    } else {
        ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden())
    };
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.set_prefix(match cluster {
        Some(cluster) => format!("{}: {prefix}", escape(cluster)),
        None => prefix.to_owned(),
    });
    if activity == Activity::CheckingCluster {
        // The answer above it is not all, which a person should see before the server answers.
        bar.tick();
    }
    Arc::new(Bar {
        bar,
        activity,
        // A number that no message has, so that the first one is shown.
        shown: AtomicU64::new(u64::MAX),
    })
}

/// Returns the template of the progress line for an activity, and the activity in words.
pub(crate) fn words(activity: Activity) -> (&'static str, &'static str) {
    match activity {
        Activity::Reading => ("{spinner} {prefix}: {human_pos} {msg}", "reading"),
        Activity::CheckingCluster => ("{spinner} {prefix} … {human_pos} {msg}", "checking the cluster"),
        Activity::Exporting => ("{spinner} {prefix}: {human_pos} {msg}", "exporting"),
        Activity::Rechecking => ("{spinner} {prefix}: {msg}", "waiting to recheck"),
        Activity::Confirming => ("{spinner} {prefix}: {msg}", "waiting to read a second time"),
        Activity::WaitingForSecondRead => ("{spinner} {prefix}: {msg}", "waiting to check a second time"),
        Activity::Writing => ("{spinner} {prefix}: {pos} of {len} steps", "writing"),
        Activity::Evicting => ("{spinner} {prefix}: {pos} of {len} pods", "evicting"),
    }
}

struct Bar {
    bar: ProgressBar,
    activity: Activity,
    /// The number of objects or seconds in the message.
    shown: AtomicU64,
}

impl Bar {
    /// Sets the message if `number` has changed. Formatting a message for each object would take longer than the read.
    fn message(&self, number: u64, text: impl FnOnce() -> String) {
        if self.shown.swap(number, Ordering::Relaxed) != number {
            self.bar.set_message(text());
        }
    }
}

impl Meter for Bar {
    /// Shows the progress of the activity, in its own units.
    fn set(&self, done: u64, expected: u64) {
        match self.activity {
            // The number of objects is only estimated, so there is no bar.
            Activity::Reading | Activity::CheckingCluster | Activity::Exporting => {
                self.bar.set_position(done);
                self.message(expected, || objects(expected));
            }
            // Of a wait, in milliseconds, the seconds that are left are shown.
            Activity::Rechecking | Activity::Confirming | Activity::WaitingForSecondRead => {
                let seconds = expected.saturating_sub(done).div_ceil(1000);
                self.message(seconds, || countdown(seconds));
                self.bar.tick();
            }
            Activity::Writing | Activity::Evicting => {
                self.bar.set_length(expected);
                self.bar.set_position(done);
            }
        }
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// Formats the expected number of objects; it is 0 if it is not known.
fn objects(expected: u64) -> String {
    if expected == 0 {
        return "objects".to_owned();
    }
    format!("of about {} objects", HumanCount(expected))
}

/// Formats `14 min 59 s`.
fn countdown(seconds: u64) -> String {
    match seconds / 60 {
        0 => format!("{seconds} s"),
        minutes => format!("{} min {} s", HumanCount(minutes), seconds % 60),
    }
}
