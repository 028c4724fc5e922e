//! Kubernetes with the generated cluster of the benchmark of checks. Changes are written to the API server's etcd,
//! which it watches. So it reports them like its own, and uses less of the machine.

use etcd_client::{Client, Txn, TxnOp};
use tokio::runtime::Runtime;

use super::{Changing, Row, Size};
use crate::Failed;
use crate::cluster::Cluster;
use crate::kubernetes::names;
use crate::kubernetes::seed::{Copies, Seeded, stored};
use crate::parts::kubernetes::{collect_garbage, seeded};

/// Number of objects written for a pod that goes, and for one that comes: pod, handle and block.
const OBJECTS: u64 = 3;

/// Measures a cluster of a number of pods.
pub(super) fn measure(program: &str, size: Size) -> Result<Row, Failed> {
    let (server, Seeded { pods, copies, .. }) = seeded(size.objects as usize)?;
    let kubeconfig = server.kubeconfig().display().to_string();
    collect_garbage(&server)?;
    let endpoint = server.etcd().endpoint();
    let changes = || {
        let runtime = Runtime::new()?;
        let client = runtime.block_on(Client::connect([endpoint], None))?;
        Ok(OnKubernetes {
            runtime,
            client,
            copies,
            pods: (0..pods).collect(),
            replaced: 0,
            missing: None,
            next: 0,
        })
    };
    let connection = ["--datastore", "kubernetes", "--kubeconfig", &kubeconfig];
    super::measure(program, &connection, &Cluster::Kubernetes(Box::new(server)), size, changes)
}

struct OnKubernetes {
    runtime: Runtime,
    client: Client,
    copies: Copies,
    /// The numbers of the current pods, by their places.
    pods: Vec<usize>,
    replaced: u64,
    missing: Option<(String, Vec<u8>)>,
    next: usize,
}

impl OnKubernetes {
    fn write(&mut self, operations: Vec<TxnOp>) -> Result<(), Failed> {
        self.runtime.block_on(self.client.txn(Txn::new().and_then(operations)))?;
        Ok(())
    }

    /// The block of a node with its current pods.
    fn block(&self, node: usize) -> TxnOp {
        let (key, value) = self.copies.block(node, &self.pods[node * names::PODS..(node + 1) * names::PODS]);
        TxnOp::put(key, value, None)
    }
}

impl Changing for OnKubernetes {
    fn replace(&mut self) -> Result<(), Failed> {
        self.replaced += 1;
        let place = self.replaced as usize * 7_919 % self.pods.len();
        let node = place / names::PODS;
        let gone = self.copies.of_pod(self.pods[place], node).map(|(key, _)| TxnOp::delete(key, None));
        let operations = gone.into_iter().chain([self.block(node)]).collect();
        self.write(operations)?;

        // The new pod has the same place in its block, and a name of the same length.
        self.pods[place] = (self.pods[place] + self.pods.len()) % names::MOST_PODS;
        let come =
            self.copies.of_pod(self.pods[place], node).map(|(key, value)| TxnOp::put(key, value, None));
        let operations = come.into_iter().chain([self.block(node)]).collect();
        self.write(operations)
    }

    fn begin_finding(&mut self) -> Result<String, Failed> {
        self.next += 1;
        let id = names::tunnel_handle(self.next * 7_919 % (self.pods.len() / names::PODS));
        let key = stored("ipamhandles", &id);
        let read = self.runtime.block_on(self.client.get(key.as_str(), None))?;
        let value = read.kvs().first().ok_or("a handle is not there")?.value().to_vec();
        self.write(vec![TxnOp::delete(key.as_str(), None)])?;
        self.missing = Some((key, value));
        Ok(id)
    }

    fn end_finding(&mut self) -> Result<(), Failed> {
        match self.missing.take() {
            Some((key, value)) => self.write(vec![TxnOp::put(key, value, None)]),
            None => Ok(()),
        }
    }

    fn written(&self) -> u64 {
        self.replaced * 2 * OBJECTS
    }
}
