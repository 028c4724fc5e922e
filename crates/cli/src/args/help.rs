//! The ends of help texts: examples and exit codes.

/// After `calipam -h`.
pub(super) const TOP_SHORT: &str = "\
Start with `check`. The --help of each command shows examples.";

/// After `calipam --help`.
pub(super) const TOP: &str = "\
Examples:
  calipam check                               what is wrong, by the settings of calicoctl
  calipam check --etcd-endpoints https://10.0.0.5:2379
  calipam export cluster.jsonl.zst            write the data to a file, to check it elsewhere
  calipam check --datastore cluster.jsonl.zst
  calipam show                                pools and how full they are
  calipam show --ip 10.244.1.7                the whole story of one address
  calipam explain leaked-address              what a rule's findings mean
  calipam release --leaked --dry-run          what would be released
  calipam rebuild                             what would make the data right again

Settings come from --config, else /etc/calico/calicoctl.cfg, else the environment
(DATASTORE_TYPE, ETCD_ENDPOINTS, ETCD_CA_CERT_FILE, …), as calicoctl reads them.

Exit codes:
  0  nothing found
  1  findings, or something that was asked for does not exist or was left as it is
  2  wrong usage or settings
  3  the datastore, a file or a permission failed
  4  an internal error
  130  interrupted";

/// After `calipam check -h`.
pub(super) const CHECK_SHORT: &str = "\
Exit code 1 where something is found. `calipam check --help` shows examples.";

/// After `calipam check --help`.
pub(super) const CHECK: &str = "\
Examples:
  calipam check                               one line for each kind of finding
  calipam check -o wide                       every finding
  calipam check -o json | jq '.findings[].subject.name'
  calipam check --rule leaked-address,orphan-handle
  calipam check --node node-7 -o wide         what concerns one node; 'gpu-*' for several
  calipam check --fail-on error -q            in cron: exit code 1 from errors on
  calipam check --ignore accepted.txt         leave out what is known
  calipam check --compare-with last.json --fail-on-new        what is new since a report
  calipam check --confirm 30s                 keep what is found twice, 30 seconds apart
  calipam check --datastore kubernetes        the Kubernetes datastore
  calipam check --datastore cluster.db        an `etcdctl snapshot save` of the cluster

A file for --ignore:
  # a pool that is to be full
  pool-nearly-full 10.250.0.0/24

Calico changes several keys one after the other. What such a change in progress could
explain is read again after --settle before it is reported.

Exit codes: 0 nothing at or above --fail-on; 1 findings; 2 usage; 3 datastore; 4 internal.
`calipam explain RULE` explains the findings of a rule.";

/// After `calipam show -h`.
pub(super) const SHOW_SHORT: &str = "\
Without options: pools. `calipam show --help` shows examples.";

/// After `calipam show --help`.
pub(super) const SHOW: &str = "\
Examples:
  calipam show                                pools: how full, and what can still be allocated
  calipam show --blocks                       every block with its owner
  calipam show --map --pool default-ipv4-ippool       a map of a pool
  calipam show --nodes                        blocks, addresses and headroom of each node
  calipam show --ip 10.244.1.7                pool, block, handle and owner of one address
  calipam show --ip 10.244.1.7 --all-owners   read everything to find every owner
  calipam show --handle k8s-pod-network.3f9a6c0b      by the ID or the beginning of it
  calipam show --node 'gpu-*'                 the addresses that some nodes hold
  calipam show --pod default/web-0            the addresses of a pod
  calipam show --blocks --pool default-ipv4-ippool
  calipam show --borrowed -o json             addresses held on another node than the block's
  calipam show --configuration                the allocator's settings
  calipam show --compare                      pods against endpoints and blocks, node by node

--ip and --handle read the few keys that they need, not the whole cluster.

Exit codes: 0 shown; 1 the address or handle is not known; 2 usage; 3 datastore; 4 internal.";

/// After `calipam diff --help`.
pub(super) const DIFF: &str = "\
Examples:
  calipam diff cluster.jsonl.zst etcd         what has changed since an export
  calipam diff snapshot.db etcd -o wide       before a restore: what it would undo
  calipam diff etcd@48250 etcd                since a revision that etcd still keeps
  calipam diff cluster.jsonl snapshot.db --node node-7
  calipam diff cluster.jsonl etcd -o json | jq '.addresses[] | select(.change == \"given-out\")'

What cannot be decoded, or was read on one side only, is listed as not compared: it is never said
to be gone. Findings are compared by what both sides hold of pods and endpoints.

Exit codes: 0 the same; 1 different; 2 usage, or two clusters; 3 datastore; 4 internal.";

/// After `calipam history --help`.
pub(super) const HISTORY: &str = "\
Examples:
  calipam history --ip 10.244.1.7             who had it, when it was given back, who has it now
  calipam history --handle k8s-pod-network.3f9a6c0b
  calipam history --block 10.244.1.0/26 -o wide
  calipam history --node node-7 -o json | jq '.events[].what'

etcd keeps revisions until they are compacted: with Calico every ten minutes or so. The answer says
how far back it reaches; what was before is not known. etcd keeps no times: those come from what
was written, and where nothing was, the known times around it are the bounds.
Runs of calipam are named by the journals of this user.

Exit codes: 0 told; 1 nothing is known of it; 2 usage; 3 datastore; 4 internal.";

/// After `calipam release -h`.
pub(super) const RELEASE_SHORT: &str = "\
Shows the plan and asks before it writes. `calipam release --help` shows examples.";

/// After `calipam release --help`.
pub(super) const RELEASE: &str = "\
Examples:
  calipam release --leaked --dry-run          what would be released
  calipam release --leaked                    look twice, 15 minutes apart, ask, release
  calipam release --node node-7               everything of a deleted node
  calipam release --ip 10.244.1.7             one address that is not in use
  calipam release --handle k8s-pod-network.3f9a6c0b7d2e
  calipam release --orphan-handles
  calipam check -o json > first.json          look now, and release an hour later
  calipam release --from-report first.json --yes
  calipam release --leaked --yes --max-changes 500 -q     in cron

An address in use is never released; its owner is named. A leaked address has to be seen unused
twice, --grace apart: each normal deletion of a pod passes through a state that looks like a leak.
A handle is released completely or not at all.

Every write is noted in a journal before it is made, and is made only if nothing has changed
meanwhile. `calipam undo JOURNAL` restores what was there.

Exit codes: 0 all released; 1 something was skipped or had changed; 2 usage, or no
confirmation; 3 datastore or journal; 4 internal.";

/// After `calipam rebuild -h`.
pub(super) const REBUILD_SHORT: &str = "\
Only prints a plan unless --apply is given. `calipam rebuild --help` shows examples.";

/// After `calipam rebuild --help`.
pub(super) const REBUILD: &str = "\
Examples:
  calipam rebuild                             print what would change, and what is skipped and why
  calipam rebuild --output-dir plan           and write each block before and after into a file
  calipam rebuild --block 10.244.1.0/26 --apply
  calipam rebuild --node node-7 --apply
  calipam rebuild --datastore cluster.jsonl   plan on an export, on a laptop

What is right is kept: attributes, the order of free addresses, what cools down or is reserved.
What a person has to decide is listed as skipped, with the reason.

On etcd, endpoints can come from the same old backup as the blocks. Give a --kubeconfig, so that
pods decide; without one, --apply needs --endpoints-only.

Exit codes: 0 planned or applied; 1 something is skipped or had changed; 2 usage, or no
confirmation; 3 datastore or journal; 4 internal.";

/// After `calipam split --help`.
pub(super) const SPLIT: &str = "\
Examples:
  calipam split 4 --name default-ipv4-ippool --dry-run
  calipam split 2 --cidr 10.244.0.0/16

The parts are called split-NAME-0, split-NAME-1 and so on, and have everything else from the pool.
Blocks stay as they are: Calico matches them with pools by their CIDRs. Everything is looked at
before anything is written: a part is never smaller than a block, and no block spans two parts.

The datastore is locked for the duration. The pool is never disabled; with etcd the parts take its
place in one transaction. `calipam undo JOURNAL` brings the pool back.

Exit codes: 0 split; 1 refused, or something had changed; 2 usage, or no terminal to ask on;
3 datastore or journal; 4 internal.";

/// After `calipam configure --help`.
pub(super) const CONFIGURE: &str = "\
Examples:
  calipam configure --strict-affinity true
  calipam configure --strict-affinity true --max-blocks-per-host 4
  calipam configure --ip-cooldown-seconds 30 --dry-run

Settings that are not named stay as they are. A limit of blocks needs strict affinity, and without
strict affinity nodes have to be allowed to claim blocks. Addresses that are borrowed when strict
affinity is switched on stay until they are released.

With etcd this is what Calico allocates by; nothing keeps the resource IPAMConfiguration equal to it.
`calipam undo JOURNAL` restores what was set.

Exit codes: 0 set; 1 refused, or something had changed; 2 usage, or no terminal to ask on;
3 datastore or journal; 4 internal.";

/// After `calipam assign -h`.
pub(super) const ASSIGN_SHORT: &str = "\
It shows a plan and asks. `calipam assign --help` shows examples.";

/// After `calipam assign --help`.
pub(super) const ASSIGN: &str = "\
Examples:
  calipam assign --count 1 --node node-7 --explain     why a node gets an address, or none
  calipam assign --count 1 --node node-7 --dry-run     which one, and what would be written
  calipam assign --ip 10.244.7.9 --node node-7 --handle printer --attribute note=printer
  calipam assign --count 4 --node node-7 --pool external --handle vpn.gateway
  calipam release --handle printer                     give them back

The plan is made by the allocator that the CNI plugin uses, on what was read. What it says is
written or nothing: an address that a pod got meanwhile is left alone. Addresses that a pod, a node
or a service uses although no block records them are never chosen, and by --ip only with --force.
A reserved address can be named by --ip. Pools with a namespace selector serve only --pool.

`check` cannot know who uses such an address: it finds a leaked address whose owner is not known,
which no release frees but one by --ip or --handle. A file for --ignore accepts it.

A file (--datastore FILE) is for --dry-run and --explain.

Exit codes: 0 assigned; 1 not all of it, refused, or something had changed; 2 usage, or no terminal
to ask on; 3 datastore or journal; 4 internal.";

/// After `calipam simulate -h`.
pub(super) const SIMULATE_SHORT: &str = "\
It changes nothing. `calipam simulate --help` shows examples.";

/// After `calipam simulate --help`.
pub(super) const SIMULATE: &str = "\
Examples:
  calipam simulate --pool 10.244.0.0/16 --nodes 10,50,100    an ADD against the size
  calipam simulate --pool 10.244.0.0/16 --block-size 26..28  and against the block size
  calipam simulate --pool 10.244.0.0/16 --fail-node          what a failed node holds, how long
  calipam simulate --pool 10.244.0.0/22 --nodes 6 --runs 2 --clashes freed-by-hand
  calipam simulate --pool 10.244.0.0/20 --nodes 20 --advise  block size, pool, limit of blocks
  calipam simulate --datastore cluster.jsonl.zst --pods-per-node 2
  calipam simulate --measure --etcd-endpoints https://10.0.0.5:2379
  calipam simulate --scenario rollout.yaml -o html > rollout.html

The allocator is the one of the CNI plugin; the datastore is a model with a clock of its own.
One seed gives one result, on any machine. Nothing is read but the cluster that is named, and
nothing is written. docs/simulate.md describes scenarios and the model.

Exit codes: 0 simulated; 2 usage, or a cluster that cannot be; 3 datastore or file; 4 internal.";

/// After `calipam undo --help`.
pub(super) const UNDO: &str = "\
Examples:
  calipam undo ~/.local/state/calipam/20261121T101500.123Z-0f0e1d2c-4711.journal --dry-run
  calipam undo run.journal
  calipam undo --list                         the journals of this user, newest first
  calipam undo --last                         the newest run that is not undone yet
  calipam undo --prune --keep 30d             remove older journals, after a question

An object that has changed since the run stays as it is, with everything that was written
together with it. An undo has its own journal, and can be undone.
Without connection options it connects to where the run was made.";

/// After `calipam serve --help`.
pub(super) const SERVE: &str = "\
Examples:
  calipam serve                               on http://127.0.0.1:9795/, a check every 5 minutes
  calipam serve --listen '[::]:9795' --interval 15m --ignore accepted.txt
  curl -s http://127.0.0.1:9795/metrics

Paths:
  /             the page of `check -o html`
  /report.json  the report of `check -o json`
  /metrics      the metrics of `check -o prometheus`
  /healthz      200 where a check succeeded within the last three intervals, else 503
  /livez        200

Each check reads everything, one after the other; answers never read the datastore. Where a check
fails, the last good report stays, and `calipam_up` is 0. SIGTERM and ctrl-c end it with 0.

Exit codes: 0 ended by a signal; 2 usage or settings; 3 it cannot listen; 4 internal.";

/// After `calipam export --help`.
pub(super) const EXPORT: &str = "\
Examples:
  calipam export cluster.jsonl                JSON lines
  calipam export cluster.jsonl.zst            compressed
  calipam check --datastore cluster.jsonl.zst

An export holds what a check reads: IPAM data, pools, nodes, workload endpoints and
configuration. It holds no secrets, but names of pods, nodes and labels.";

/// After `calipam explain --help`.
pub(super) const EXPLAIN: &str = "\
Examples:
  calipam explain                             all rules
  calipam explain leaked-address";

/// After `calipam version --help`.
pub(super) const VERSION: &str = "\
Examples:
  calipam version
  calipam version -o json | jq -r .commit";

/// After `calipam completion --help`.
pub(super) const COMPLETION: &str = "\
Examples:
  calipam completion bash > /etc/bash_completion.d/calipam
  calipam completion zsh > \"${fpath[1]}/_calipam\"
  calipam completion fish > ~/.config/fish/completions/calipam.fish
  calipam completion powershell >> $PROFILE
  calipam completion elvish >> ~/.config/elvish/rc.elv";

/// After `calipam install-links --help`.
pub(super) const INSTALL_LINKS: &str = "\
The links are:
  ipam                   the same program under a short name
  kubectl-ipam           a kubectl plugin: `kubectl ipam check`
  kubectl-calico         a kubectl plugin: `kubectl calico ipam check`
  kubectl_complete-ipam, kubectl_complete-calico
                         scripts by which kubectl completes `kubectl ipam` and `kubectl calico`

What exists already and is not such a link stays as it is.

Examples:
  calipam install-links ~/.local/bin
  calipam install-links ~/.local/bin --completions
  calipam install-links ~/.local/bin --remove";
