//! A cluster on etcd whose pods come and go, with the writes of Calico's agents.

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::block::BlockContent;
use calipam_model::cidr::ordinal_of;
use calipam_model::key::{ENDPOINT_PREFIX, HANDLE_PREFIX, Key};
use etcd_client::{Client, GetOptions, Txn, TxnOp};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::Failed;

/// Prefix length of the blocks of the generated cluster.
const BLOCK_SIZE: u8 = 26;
/// The prefix of handles of pods.
const NETWORK: &str = "k8s-pod-network.";
/// Length of the random suffix in the name of a Deployment's pod.
const SUFFIX: usize = 5;
/// Number of keys that are written for a pod that goes, and for one that comes.
pub(crate) const KEYS: u64 = 3;

/// The pods of a cluster.
pub(crate) struct Churn {
    client: Client,
    /// The keys of their endpoints.
    endpoints: Vec<String>,
    /// Number of replaced pods.
    pub replaced: u64,
}

impl Churn {
    pub(crate) async fn new(endpoint: &str) -> Result<Self, Failed> {
        let client = Client::connect([endpoint], None).await?;
        let mut reader = client.kv_client().max_decoding_message_size(usize::MAX);
        let keys_only = GetOptions::new().with_prefix().with_keys_only();
        let all = reader.get(ENDPOINT_PREFIX, Some(keys_only)).await?;
        let endpoints = all.kvs().iter().map(|kv| Ok(kv.key_str()?.to_owned()));
        Ok(Self { client, endpoints: endpoints.collect::<Result<_, Failed>>()?, replaced: 0 })
    }

    /// Stops a pod and starts another one of its workload on its node.
    pub(crate) async fn replace(&mut self) -> Result<(), Failed> {
        self.replaced += 1;
        let random = hex(&Sha256::digest(self.replaced.to_be_bytes()));
        let place = self.replaced as usize * 7_919 % self.endpoints.len();
        let key = self.endpoints[place].clone();
        let value = self.get(&key).await?;
        let endpoint: Value = serde_json::from_str(&value)?;
        let text = |field: &str| endpoint["spec"][field].as_str().ok_or("an endpoint is odd");
        let network = endpoint["spec"]["ipNetworks"][0].as_str().ok_or("an endpoint has no address")?;
        let address: IpAddr = network.split('/').next().unwrap_or_default().parse()?;
        let (pod, container) = (text("pod")?, text("containerID")?);
        let cidr = IpNet::new(address, BLOCK_SIZE)?.trunc();
        let block_key = Key::Block(cidr).to_string();
        let BlockContent::Sound(mut block) = BlockContent::parse(self.get(&block_key).await?.as_bytes())?
        else {
            return Err("a block is corrupt".into());
        };

        let ordinal = ordinal_of(cidr, address).ok_or("an address is outside of its block")?;
        let record = block.allocation(ordinal).ok_or("an address is not recorded")?;
        let mut record = record.attribute.to_attribute();
        block.update(|update| update.release_by_handle(&[ordinal]));
        let handle = format!("{HANDLE_PREFIX}{NETWORK}{container}");
        let gone = vec![
            TxnOp::put(block_key.as_str(), serde_json::to_vec(&block)?, None),
            TxnOp::delete(handle.as_str(), None),
            TxnOp::delete(key.as_str(), None),
        ];
        self.client.txn(Txn::new().and_then(gone)).await?;

        // A pod of a StatefulSet keeps its predecessor's name.
        let new_pod = match pod.rsplit_once('-') {
            Some((workload, chance)) if chance.len() == SUFFIX => {
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
        let new_network = format!("{}/32", new_address.address);

        let [escaped, new_escaped] = [pod, &new_pod].map(|pod| pod.replace('-', "--"));
        let renew = |text: &str| text.replace(&escaped, &new_escaped).replace(pod, &new_pod);
        let new_value = renew(&value).replace(container, &random).replace(network, &new_network);
        let (new_key, new_handle) = (renew(&key), format!("{HANDLE_PREFIX}{NETWORK}{random}"));
        let claimed = json!({"block": {cidr.to_string(): 1}, "deleted": false});
        let come = vec![
            TxnOp::put(new_handle, claimed.to_string(), None),
            TxnOp::put(block_key.as_str(), serde_json::to_vec(&block)?, None),
            TxnOp::put(new_key.as_str(), new_value, None),
        ];
        self.client.txn(Txn::new().and_then(come)).await?;
        self.endpoints[place] = new_key;
        Ok(())
    }

    async fn get(&mut self, key: &str) -> Result<String, Failed> {
        let read = self.client.get(key, None).await?;
        Ok(read.kvs().first().ok_or_else(|| format!("{key} is not there"))?.value_str()?.to_owned())
    }
}

/// A text of [`SUFFIX`] letters, different for each number. The first pods have digits instead.
fn letters(mut number: u64) -> String {
    let mut letter = || {
        let letter = char::from(b'a' + (number % 26) as u8);
        number /= 26;
        letter
    };
    (0..SUFFIX).map(|_| letter()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
