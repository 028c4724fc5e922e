//! etcd with the generated cluster of the benchmark of checks.

use etcd_client::{Client, GetOptions};
use tokio::runtime::Runtime;

use super::{Changing, Row, Size};
use crate::churn::{Churn, KEYS};
use crate::cluster::Cluster;
use crate::{Failed, check};

/// The prefix of handles, and of those of tunnels, which stay while pods come and go.
const HANDLES: &str = "/calico/ipam/v2/handle/";
const OF_TUNNELS: &str = "/calico/ipam/v2/handle/ipip-";
/// Number of revisions that stay after a compaction; without any, etcd would be full.
const KEPT: u64 = 5_000;

/// Measures a cluster of a number of allocations.
pub(super) fn measure(program: &str, size: Size) -> Result<Row, Failed> {
    let etcd = check::seeded(size.objects)?;
    let endpoint = etcd.endpoint();
    let changes = || {
        let runtime = Runtime::new()?;
        let churn = runtime.block_on(Churn::new(&endpoint))?;
        let handles = runtime.block_on(Handles::new(&endpoint))?;
        Ok(OnEtcd { runtime, churn, handles, compacted: 0 })
    };
    super::measure(program, &["--etcd-endpoints", &endpoint], &Cluster::Etcd(Box::new(etcd)), size, changes)
}

struct OnEtcd {
    runtime: Runtime,
    churn: Churn,
    handles: Handles,
    /// Number of replaced pods at the last compaction.
    compacted: u64,
}

impl Changing for OnEtcd {
    fn replace(&mut self) -> Result<(), Failed> {
        self.runtime.block_on(async {
            if self.churn.replaced - self.compacted >= 2 * KEPT {
                self.compacted = self.churn.replaced;
                self.handles.compact().await?;
            }
            self.churn.replace().await
        })
    }

    fn begin_finding(&mut self) -> Result<String, Failed> {
        self.runtime.block_on(self.handles.begin_finding())
    }

    fn end_finding(&mut self) -> Result<(), Failed> {
        self.runtime.block_on(self.handles.end_finding())
    }

    fn written(&self) -> u64 {
        self.churn.replaced * 2 * KEYS
    }
}

/// Handles that are removed and restored.
struct Handles {
    client: Client,
    keys: Vec<String>,
    missing: Option<(String, Vec<u8>)>,
    next: usize,
}

impl Handles {
    async fn new(endpoint: &str) -> Result<Self, Failed> {
        let client = Client::connect([endpoint], None).await?;
        let keys_only = GetOptions::new().with_prefix().with_keys_only();
        let all = client.kv_client().get(OF_TUNNELS, Some(keys_only)).await?;
        let keys = all.kvs().iter().map(|kv| Ok(kv.key_str()?.to_owned()));
        Ok(Self { client, keys: keys.collect::<Result<_, Failed>>()?, missing: None, next: 0 })
    }

    /// Removes a handle; returns its name in the report.
    async fn begin_finding(&mut self) -> Result<String, Failed> {
        self.next += 1;
        let key = self.keys[self.next * 7_919 % self.keys.len()].clone();
        let id = key[HANDLES.len()..].to_owned();
        let stored = self.client.get(key.as_str(), None).await?;
        let value = stored.kvs().first().ok_or("a handle is not there")?.value().to_vec();
        self.client.delete(key.as_str(), None).await?;
        self.missing = Some((key, value));
        Ok(id)
    }

    async fn end_finding(&mut self) -> Result<(), Failed> {
        if let Some((key, value)) = self.missing.take() {
            self.client.put(key, value, None).await?;
        }
        Ok(())
    }

    /// Compacts all but the newest revisions.
    async fn compact(&mut self) -> Result<(), Failed> {
        let read = self.client.get(HANDLES, None).await?;
        let now = read.header().ok_or("an answer without a header")?.revision();
        self.client.compact(now - KEPT as i64, None).await?;
        Ok(())
    }
}
