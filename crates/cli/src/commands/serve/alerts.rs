//! `serve --webhook`: an Alertmanager, or what takes its format (version 2 of its API), is told of findings that have come and gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use calipam_check::{Code, Finding, FindingKey, Report, Subject};
use calipam_datastore::Webhook;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::served::Good;
use super::telling::{MOST, Tell, Told};

/// After how long an Alertmanager is told again of what has not gone; otherwise it takes it for gone.
const AGAIN: Duration = Duration::from_mins(4);
/// For how long it may take a finding to be there that it is told of.
const LASTS: SignedDuration = SignedDuration::from_mins(15);

/// What an Alertmanager was told of.
pub(super) struct Alerts {
    webhook: Webhook,
    /// By finding: since when it is there, and what it says.
    told: BTreeMap<FindingKey, Alert>,
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
}

impl Tell for Alerts {
    fn whom(&self) -> String {
        self.webhook.host().to_owned()
    }

    async fn tell(&mut self, good: &Good) -> Result<Told, String> {
        let report = &good.report;
        let now = Timestamp::now();
        let is_due = Instant::now() >= self.again;
        let there: BTreeSet<(Code, &Subject)> =
            report.findings.iter().map(|finding| finding.key_ref()).collect();
        let mut told = BTreeMap::new();
        let mut alerts = Vec::new();
        for finding in report.findings.iter().take(MOST) {
            let key = finding.key();
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
        Ok(Told::All)
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
