//! The ends of help texts: examples and exit codes.

/// After `calipam -h`.
pub const TOP_SHORT: &str = "\
Start with `check`. The --help of each command shows examples.";

/// After `calipam --help`.
pub const TOP: &str = "\
Examples:
  calipam check                               what is wrong, by the settings of calicoctl
  calipam check --etcd-endpoints https://10.0.0.5:2379
  calipam export cluster.jsonl.zst            take the data along
  calipam check --datastore cluster.jsonl.zst and look at it elsewhere
  calipam show                                pools and how full they are
  calipam show --ip 10.244.1.7                the whole story of one address
  calipam explain leaked-address              what a finding means

Settings come from --config, else /etc/calico/calicoctl.cfg, else the environment
(DATASTORE_TYPE, ETCD_ENDPOINTS, ETCD_CA_CERT_FILE, …), as calicoctl reads them.

Exit codes:
  0  nothing found
  1  findings, or what was asked for does not exist
  2  the command line or the settings make no sense
  3  the datastore, a file or a permission failed
  4  an internal error
  130  interrupted";

/// After `calipam check -h`.
pub const CHECK_SHORT: &str = "\
Exit code 1 where something is found. `calipam check --help` shows examples.";

/// After `calipam check --help`.
pub const CHECK: &str = "\
Examples:
  calipam check                               one line for each kind of finding
  calipam check -o wide                       every finding
  calipam check -o json | jq '.findings[].subject.name'
  calipam check --rule leaked-address,orphan-handle
  calipam check --node node-7 -o wide         what concerns one node
  calipam check --fail-on error -q            in cron: exit code 1 from errors on
  calipam check --ignore accepted.txt         leave out what is known
  calipam check --confirm 30s                 keep what is found twice, 30 seconds apart
  calipam check --datastore kubernetes        the Kubernetes datastore
  calipam check --datastore cluster.db        an `etcdctl snapshot save` of the cluster

A file for --ignore:
  # a pool that is to be full
  pool-nearly-full 10.250.0.0/24

Calico changes several keys one after the other. What such a change in progress could
explain is read again after --settle before it is reported.

Exit codes: 0 nothing at or above --fail-on; 1 findings; 2 usage; 3 datastore; 4 internal.
`calipam explain CODE` explains a finding.";

/// After `calipam show -h`.
pub const SHOW_SHORT: &str = "\
Without options: pools. `calipam show --help` shows examples.";

/// After `calipam show --help`.
pub const SHOW: &str = "\
Examples:
  calipam show                                pools: how full, and what can still be allocated
  calipam show --blocks                       every block with its owner
  calipam show --nodes                        blocks, addresses and headroom of each node
  calipam show --ip 10.244.1.7                pool, block, handle and owner of one address
  calipam show --ip 10.244.1.7 --all-owners   read everything to find every owner
  calipam show --handle k8s-pod-network.3f9a6c0b7d2e
  calipam show --borrowed -o json             addresses held on another node than the block's
  calipam show --configuration                the allocator's settings
  calipam show --compare                      pods against endpoints and blocks, node by node

--ip and --handle read the few keys that they need, not the whole cluster.

Exit codes: 0 shown; 1 the address or handle is not known; 2 usage; 3 datastore; 4 internal.";

/// After `calipam export --help`.
pub const EXPORT: &str = "\
Examples:
  calipam export cluster.jsonl                JSON lines
  calipam export cluster.jsonl.zst            compressed
  calipam check --datastore cluster.jsonl.zst

An export holds what a check reads: IPAM data, pools, nodes, workload endpoints and
configuration. It holds no secrets, but names of pods, nodes and labels.";

/// After `calipam explain --help`.
pub const EXPLAIN: &str = "\
Examples:
  calipam explain                             all codes
  calipam explain leaked-address";

/// After `calipam completion --help`.
pub const COMPLETION: &str = "\
Examples:
  calipam completion bash > /etc/bash_completion.d/calipam
  calipam completion zsh > \"${fpath[1]}/_calipam\"
  calipam completion fish > ~/.config/fish/completions/calipam.fish
  calipam completion powershell >> $PROFILE
  calipam completion elvish >> ~/.config/elvish/rc.elv";

/// After `calipam install-links --help`.
pub const INSTALL_LINKS: &str = "\
The links are:
  ipam                   the same program under a short name
  kubectl-ipam           a kubectl plugin: `kubectl ipam check`
  kubectl-calico         a kubectl plugin: `kubectl calico ipam check`
  kubectl_complete-ipam  a script by which kubectl completes `kubectl ipam …`

What exists already and is not such a link stays as it is.

Example:
  calipam install-links ~/.local/bin";
