//! `serve --webhook`: an Alertmanager, or what takes its format (version 2 of its API), is told of findings that have come and gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use calipam_check::{Code, Finding, Report, Subject};
use calipam_datastore::Webhook;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::served::Served;
use crate::console::Console;

/// Time between two requests.
const PAUSE: Duration = Duration::from_secs(5);
/// After how long an Alertmanager is told again of what has not gone; otherwise it takes it for gone.
const AGAIN: Duration = Duration::from_mins(4);
/// For how long it may take a finding to be there that it is told of.
const LASTS: SignedDuration = SignedDuration::from_mins(15);
/// Findings that it is told of, the most severe ones first.
const MOST: usize = 500;

/// What an Alertmanager was told of.
pub(super) struct Alerts {
    webhook: Webhook,
    /// By finding: since when it is there, and what it says.
    told: BTreeMap<(Code, Subject), Alert>,
    /// When all of them are told again.
    again: Instant,
}

#[derive(Clone, Debug)]
struct Alert {
    since: Timestamp,
    labels: Value,
    summary: String,
}

impl Alerts {
    pub(super) fn new(webhook: Webhook) -> Self {
        Self { webhook, told: BTreeMap::new(), again: Instant::now() + AGAIN }
    }

    /// Tells what each check has found, for as long as there are checks.
    pub(super) async fn run(mut self, mut served: watch::Receiver<Arc<Served>>, console: Console) {
        let mut is_failing = false;
        loop {
            if let Ok(Err(_)) = timeout_at(self.again, served.changed()).await {
                return;
            }
            let Some(good) = served.borrow_and_update().good.clone() else { continue };
            match self.tell(&good.report).await {
                Ok(()) => is_failing = false,
                Err(reason) if !is_failing => {
                    is_failing = true;
                    let host = self.webhook.host();
                    console.warn(&format!("{host} is not told of findings: {reason}; it is tried again"));
                }
                Err(_) => {}
            }
            sleep(PAUSE).await;
            if is_failing {
                self.again = Instant::now();
            }
        }
    }

    async fn tell(&mut self, report: &Report) -> Result<(), String> {
        let now = Timestamp::now();
        let is_due = Instant::now() >= self.again;
        let there: BTreeSet<(Code, &Subject)> =
            report.findings.iter().map(|finding| (finding.code, &finding.subject)).collect();
        let mut told = BTreeMap::new();
        let mut alerts = Vec::new();
        for finding in report.findings.iter().take(MOST) {
            let key = (finding.code, finding.subject.clone());
            let known = self.told.get(&key);
            let alert = Alert::of(finding, report, known.map_or(now, |known| known.since));
            if is_due || known.is_none() {
                alerts.push(alert.json(now + LASTS));
            }
            told.insert(key, alert);
        }
        for (key, alert) in &self.told {
            if !there.contains(&(key.0, &key.1)) {
                alerts.push(alert.json(now));
            }
        }
        if !alerts.is_empty() {
            let sent = self.webhook.post(Value::Array(alerts).to_string()).await;
            sent.map_err(|failure| failure.to_string())?;
        }
        self.told = told;
        if is_due {
            self.again = Instant::now() + AGAIN;
        }
        Ok(())
    }
}

impl Alert {
    fn of(finding: &Finding, report: &Report, since: Timestamp) -> Self {
        let labels = json!({
            "alertname": "CalipamFinding",
            "code": finding.code.name(),
            "severity": finding.severity.to_string(),
            "kind": finding.subject.kind(),
            "subject": finding.subject.to_string(),
            "cluster": report.cluster.guid,
        });
        Self { since, labels, summary: finding.message() }
    }

    fn json(&self, ends: Timestamp) -> Value {
        json!({
            "labels": self.labels,
            "annotations": {"summary": self.summary},
            "startsAt": self.since.to_string(),
            "endsAt": ends.to_string(),
        })
    }
}
