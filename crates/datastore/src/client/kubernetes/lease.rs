//! A lease of `coordination.k8s.io`, which one of several replicas holds at a time.
//!
//! It is written against the version that was read. When it has run out is decided by what a replica sees, not by the times in it:
//! the clocks of two machines may differ. Who holds it gives up before the others may take it.

use std::time::Duration;

use calipam_files::objects::Accept;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::KubeClient;
use crate::error::{Error, Failure, Result};
use crate::settings::KubernetesSettings;

/// Another replica takes a lease that it has seen unchanged for so long.
const LASTS: Duration = Duration::from_secs(8);
/// Who holds it and has not renewed it for so long holds it no more. With [`TRY`] it is less than [`LASTS`].
const KEEPS: Duration = Duration::from_secs(5);
/// How long an attempt to renew or take it may take, and the time between two.
const TRY: Duration = Duration::from_millis(1_500);
const PACE: Duration = Duration::from_secs(2);

const WHAT: &str = "the lease";

/// A lease, and who wants to hold it.
#[derive(Clone, Debug)]
pub struct Lease {
    namespace: String,
    name: String,
    holder: String,
}

/// Until when a lease is held; `None` if it is not.
pub type HeldUntil = Option<Instant>;

impl Lease {
    pub fn new(namespace: &str, name: &str, holder: String) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned(), holder }
    }

    /// Takes the lease as soon as no one else holds it, renews it, and says so, until `stop` ends; then gives it back. What goes
    /// wrong is told to `failed`, and tried again.
    pub async fn hold(
        self,
        settings: &KubernetesSettings,
        held: watch::Sender<HeldUntil>,
        failed: impl Fn(&Error),
        stop: impl Future<Output = ()>,
    ) {
        let holding = async {
            let mut turns: Option<Turns> = None;
            loop {
                let begin = Instant::now();
                let turn = timeout(TRY, self.turn(settings, &mut turns)).await;
                match turn {
                    Ok(Ok(is_held)) => drop(held.send_replace(is_held.then(|| begin + KEEPS))),
                    Ok(Err(error)) => failed(&error),
                    Err(_) => {}
                }
                sleep(PACE.saturating_sub(begin.elapsed())).await;
            }
        };
        tokio::select! {
            () = holding => {}
            () = stop => {}
        }
        if held.borrow().is_some() {
            let _ = timeout(TRY, self.give_back(settings)).await;
        }
    }

    async fn turn(&self, settings: &KubernetesSettings, turns: &mut Option<Turns>) -> Result<bool> {
        if turns.is_none() {
            *turns = Some(Turns { client: KubeClient::connect(settings).await?, seen: None });
        }
        match turns {
            Some(turns) => turns.take(self).await,
            None => Ok(false),
        }
    }

    async fn give_back(&self, settings: &KubernetesSettings) -> Result<()> {
        let client = KubeClient::connect(settings).await?;
        let turns = Turns { client, seen: None };
        let Some(mut lease) = turns.read(self).await? else { return Ok(()) };
        if holder(&lease) == self.holder {
            lease["spec"]["holderIdentity"] = "".into();
            turns.write(self, &lease).await?;
        }
        Ok(())
    }

    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }
}

/// What a replica has seen of the lease.
struct Turns {
    client: std::sync::Arc<KubeClient>,
    /// The version that it has now, and since when it was seen.
    seen: Option<(String, Instant)>,
}

impl Turns {
    /// Takes or renews the lease if it may be; false if another holds it.
    async fn take(&mut self, wanted: &Lease) -> Result<bool> {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let Some(mut lease) = self.read(wanted).await? else {
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": wanted.name, "namespace": wanted.namespace},
                "spec": {"holderIdentity": wanted.holder, "leaseDurationSeconds": LASTS.as_secs(),
                    "acquireTime": now, "renewTime": now, "leaseTransitions": 0}});
            let created = self.client.post(&wanted.collection(), lease.to_string().into_bytes()).await;
            return self.written(created.map(drop));
        };

        let version = lease["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let since = match &self.seen {
            Some((seen, since)) if *seen == version => *since,
            _ => Instant::now(),
        };
        self.seen = Some((version, since));
        let is_mine = holder(&lease) == wanted.holder;
        if !is_mine && !holder(&lease).is_empty() && since.elapsed() < LASTS {
            return Ok(false);
        }
        if !is_mine {
            let transitions = lease["spec"]["leaseTransitions"].as_i64().unwrap_or_default();
            lease["spec"]["leaseTransitions"] = transitions.saturating_add(1).into();
            lease["spec"]["acquireTime"] = now.as_str().into();
        }
        lease["spec"]["holderIdentity"] = wanted.holder.as_str().into();
        lease["spec"]["leaseDurationSeconds"] = LASTS.as_secs().into();
        lease["spec"]["renewTime"] = now.into();
        self.write(wanted, &lease).await
    }

    async fn read(&self, wanted: &Lease) -> Result<Option<Value>> {
        match self.client.get(&wanted.path(), Accept::Json).await {
            Ok(answer) => answer.json().await.map(Some).map_err(|failure| self.client.error(WHAT, failure)),
            Err(Failure::NotFound) => Ok(None),
            Err(failure) => Err(self.client.error(WHAT, failure)),
        }
    }

    /// Writes it against the version that was read.
    async fn write(&self, wanted: &Lease, lease: &Value) -> Result<bool> {
        let put = self.client.put(&wanted.path(), lease.to_string().into_bytes()).await;
        self.written(put.map(drop))
    }

    /// False if another replica was first.
    fn written(&self, written: std::result::Result<(), Failure>) -> Result<bool> {
        match written {
            Ok(()) => Ok(true),
            Err(Failure::Conflict(_)) => Ok(false),
            Err(failure) => Err(self.client.write_error(WHAT, failure)),
        }
    }
}

fn holder(lease: &Value) -> &str {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default()
}
