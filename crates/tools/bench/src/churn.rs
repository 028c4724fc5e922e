//! A cluster whose pods are replaced one after another, with the same writes that Calico's agents perform. On
//! Kubernetes, the changes are written directly to the API server's etcd. The API server watches its etcd and reports
//! the changes like its own. This takes less of the machine's capacity than requests to the API server.

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::block::{Block, BlockContent};
use calipam_model::cidr::ordinal_of;
use etcd_client::{Client, GetOptions, Txn, TxnOp};
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::runtime::Runtime;

use crate::Failed;
use crate::cluster::{BLOCK_SIZE, Cluster};
use crate::form::Form;

/// The prefix of the handles of pods.
const NETWORK: &str = "k8s-pod-network.";
/// Length of the random suffix in the name of a Deployment's pod.
const SUFFIX: usize = 5;
/// Number of keys that are written when a pod stops, and when a pod starts.
const KEYS: u64 = 3;
/// The distance between successive objects. It is large, so that they are far apart, and has no common divisor with the
/// number of objects.
const STEP: usize = 7_919;

/// Replaces the pods of a cluster.
pub(crate) struct Churn {
    runtime: Runtime,
    client: Client,
    form: &'static Form,
    /// The keys of workload endpoints or pods.
    pods: Vec<String>,
    /// Number of replaced pods.
    pub replaced: u64,
}

impl Churn {
    pub(crate) fn new(cluster: &Cluster) -> Result<Self, Failed> {
        let (runtime, form) = (Runtime::new()?, cluster.form());
        let client = runtime.block_on(cluster.etcd().client())?;
        let mut reader = client.kv_client().max_decoding_message_size(usize::MAX);
        let names = GetOptions::new().with_prefix().with_keys_only();
        let all = runtime.block_on(reader.get(form.pods, Some(names)))?;
        let pods = all.kvs().iter().map(|kv| Ok(kv.key_str()?.to_owned())).collect::<Result<_, Failed>>()?;
        Ok(Self { runtime, client, form, pods, replaced: 0 })
    }

    /// Number of keys written so far.
    pub(crate) fn written(&self) -> u64 {
        self.replaced * 2 * KEYS
    }

    /// Stops a pod, and starts another pod of the same workload on the same node.
    pub(crate) fn replace(&mut self) -> Result<(), Failed> {
        self.runtime.handle().clone().block_on(self.replace_next())
    }

    async fn replace_next(&mut self) -> Result<(), Failed> {
        self.replaced += 1;
        let random = format!("{:x}", Sha256::digest(self.replaced.to_be_bytes()));
        let place = self.replaced as usize * STEP % self.pods.len();
        let key = self.pods[place].clone();
        let value = self.get(&key).await?;
        let stored: Value = serde_json::from_str(&value)?;
        let text = |field: &str| stored.pointer(field).and_then(Value::as_str).ok_or("a pod is odd");
        let [pod, container, network] = self.form.fields.map(text);
        let (pod, container, address) = (pod?, container?, network?.split('/').next().unwrap_or_default());
        let ip: IpAddr = address.parse()?;
        let cidr = IpNet::new(ip, BLOCK_SIZE)?.trunc();
        let block_key = (self.form.block_key)(cidr);
        let mut around: Value = serde_json::from_str(&self.get(&block_key).await?)?;
        let stored_block = if self.form.has_specs { &around["spec"] } else { &around };
        let BlockContent::Sound(mut block) = BlockContent::parse(stored_block.to_string().as_bytes())? else {
            return Err("a block is corrupt".into());
        };

        let ordinal = ordinal_of(cidr, ip).ok_or("an address is outside of its block")?;
        let record = block.allocation(ordinal).ok_or("an address is not recorded")?;
        let mut record = record.attribute.to_attribute();
        block.update(|update| update.release_by_handle(&[ordinal]));
        let handle = format!("{}{NETWORK}{container}", self.form.handles);
        let claimed = self.get(&handle).await?;
        let gone = vec![
            TxnOp::put(block_key.as_str(), self.with_block(&mut around, &block)?, None),
            TxnOp::delete(handle.as_str(), None),
            TxnOp::delete(key.as_str(), None),
        ];
        self.client.txn(Txn::new().and_then(gone)).await?;

        // A pod of a StatefulSet keeps its predecessor's name.
        let new_pod = match pod.rsplit_once('-') {
            Some((workload, suffix)) if suffix.len() == SUFFIX => {
                format!("{workload}-{}", letters(self.replaced))
            }
            _ => pod.to_owned(),
        };
        record.handle = Some(format!("{NETWORK}{random}"));
        let owner = record.owner.get_or_insert_default();
        owner.insert("pod".to_owned(), new_pod.clone());
        owner.insert("timestamp".to_owned(), Timestamp::now().strftime("%F %T.%9f +0000 UTC").to_string());
        let ordinals = block.update(|update| update.auto_assign(1, &record, |_| false));
        let new_address = block.allocations().find(|a| ordinals.contains(&a.ordinal)).ok_or("it is full")?;
        let new_address = new_address.address.to_string();

        let [escaped, new_escaped] = [pod, &new_pod].map(|pod| pod.replace('-', "--"));
        let renew = |text: &str| {
            text.replace(&escaped, &new_escaped).replace(pod, &new_pod).replace(container, &random)
        };
        let new_key = renew(&key);
        let come = vec![
            TxnOp::put(renew(&handle), renew(&claimed), None),
            TxnOp::put(block_key.as_str(), self.with_block(&mut around, &block)?, None),
            TxnOp::put(new_key.as_str(), renew(&value).replace(address, &new_address), None),
        ];
        self.client.txn(Txn::new().and_then(come)).await?;
        self.pods[place] = new_key;
        Ok(())
    }

    /// Serializes a block. On Kubernetes, the block replaces the `spec` of the object `around`.
    fn with_block(&self, around: &mut Value, block: &Block) -> Result<Vec<u8>, Failed> {
        if !self.form.has_specs {
            return Ok(serde_json::to_vec(block)?);
        }
        around["spec"] = serde_json::to_value(block)?;
        Ok(serde_json::to_vec(around)?)
    }

    async fn get(&mut self, key: &str) -> Result<String, Failed> {
        let read = self.client.get(key, None).await?;
        Ok(read.kvs().first().ok_or_else(|| format!("{key} is not there"))?.value_str()?.to_owned())
    }
}

/// A string of [`SUFFIX`] letters, different for each number. The suffixes of the initial pods usually contain digits
/// as well.
fn letters(mut number: u64) -> String {
    let mut letter = || {
        let letter = char::from(b'a' + (number % 26) as u8);
        number /= 26;
        letter
    };
    (0..SUFFIX).map(|_| letter()).collect()
}
