//! The last parts of help texts: examples and exit codes.

/// The last part of `calipam -h`.
pub(super) const TOP_SHORT: &str = "\
Start with `check`. The --help of each command shows examples.";

/// The last part of `calipam --help`.
pub(super) const TOP: &str = "\
Examples:
  calipam check                               find what is wrong; uses calicoctl's settings
  calipam check --etcd-endpoints https://10.0.0.5:2379
  calipam export cluster.jsonl.zst            write the data to a file, to check it elsewhere
  calipam check --datastore cluster.jsonl.zst
  calipam show                                pools and how full they are
  calipam show --ip 10.244.1.7                everything about one address
  calipam explain leaked-address              what a rule's findings mean
  calipam release --leaked --dry-run          what would be released
  calipam rebuild                             what would repair the data

Settings come from --config, otherwise /etc/calico/calicoctl.cfg, otherwise the environment
(DATASTORE_TYPE, ETCD_ENDPOINTS, ETCD_CA_CERT_FILE, …), as calicoctl reads them.

Exit codes:
  0  nothing found
  1  findings, or something that was named does not exist or was skipped
  2  wrong usage or settings
  3  a datastore, file or permission error
  4  an internal error
  130  interrupted";

/// The last part of `calipam check -h`.
pub(super) const CHECK_SHORT: &str = "\
Exit code 1 if there are findings. `calipam check --help` shows examples.";

/// The last part of `calipam check --help`.
pub(super) const CHECK: &str = "\
Examples:
  calipam check -o wide                       every finding
  calipam check --node 'gpu-*' -o wide        findings about some nodes
  calipam check --fail-on error -q            in cron: exit code 1 at severity error or above
  calipam check --compare-with last.json --fail-on-new        new findings since a report
  calipam check --context 'prod-*' --routed   many clusters, and what is wrong between them

A line for --ignore is `RULE SUBJECT` or `RULE SUBJECT until 2027-01-31`; `#` begins a comment.
Severities: critical: traffic is or will be broken; error: capacity is lost, or Calico can fail on
the data; warning: inconsistent data; info: nothing to repair.
Formats: `name` prints subjects, `prometheus` metrics, `junit` XML for CI, `html` a page, and
`ignore` lines for --ignore.

Exit codes: 0 nothing at or above --fail-on; 1 findings; 2 usage; 3 datastore; 4 internal.
`calipam explain` lists the rules, and `calipam explain RULE` explains one.";

/// The last part of `calipam show -h`.
pub(super) const SHOW_SHORT: &str = "\
Shows pools unless an option says otherwise. `calipam show --help` shows examples.";

/// The last part of `calipam show --help`.
pub(super) const SHOW: &str = "\
Examples:
  calipam show                                pools: usage, and what can still be allocated
  calipam show --blocks                       every block with its owner
  calipam show --map --pool default-ipv4-ippool       a map of a pool
  calipam show --context '*' --find-range /16         pools of all clusters, and ranges free in all
  calipam show --nodes                        blocks, addresses and claimable blocks of each node
  calipam show --ip 10.244.1.7                pool, block, handle and owner of one address
  calipam show --ip 10.244.1.7 --all-owners   read everything to find every owner
  calipam show --handle k8s-pod-network.3f9a6c0b      by ID or ID prefix
  calipam show --node 'gpu-*'                 the addresses of some nodes
  calipam show --pod default/web-0            the addresses of a pod
  calipam show --blocks --pool default-ipv4-ippool
  calipam show --borrowed -o json             addresses used on a node that does not own the block
  calipam show --configuration                the allocator's settings
  calipam show --compare                      compare pods with endpoints and blocks, by node

--ip and --handle read only what belongs to the address or handle. A line `Partial`
names what was only partly read; findings that depend on it are not checked.

Exit codes: 0 shown, whatever the findings; 1 the address or handle does not exist; 2 usage;
3 datastore; 4 internal.";

/// The last part of `calipam diff --help`.
pub(super) const DIFF: &str = "\
Examples:
  calipam diff cluster.jsonl.zst etcd         what has changed since an export
  calipam diff snapshot.db etcd -o wide       before a restore: what it would revert
  calipam diff etcd@48250 etcd                since a revision that etcd still has
  calipam diff cluster.jsonl snapshot.db --node node-7
  calipam diff monday --fleet fleet.yaml      each cluster of a fleet since Monday's export
  calipam diff cluster.jsonl etcd -o json | jq '.addresses[] | select(.change == \"assigned\")'

What cannot be decoded, or was read on one side only, is listed as not compared, never as gone.
If only one side has pods or endpoints, findings are compared without them.

Exit codes: 0 the same; 1 different; 2 usage, or different clusters; 3 datastore; 4 internal.";

/// The last part of `calipam history --help`.
pub(super) const HISTORY: &str = "\
Examples:
  calipam history --ip 10.244.1.7             who had it, when it was released, who has it now
  calipam history --ip 10.244.1.7 --fleet fleet.yaml  in each cluster of a fleet
  calipam history --node node-7 -o json | jq '.events[].what'

etcd keeps revisions until they are compacted, usually for ten minutes; the output says how far back
they go. Revisions have no times: if an object has none, the known times before and after are shown.

Exit codes: 0 shown; 1 nothing is known about it; 2 usage; 3 datastore; 4 internal.";

/// The last part of `calipam release -h`.
pub(super) const RELEASE_SHORT: &str = "\
Shows the plan and asks before it writes. `calipam release --help` shows examples.";

/// The last part of `calipam release --help`.
pub(super) const RELEASE: &str = "\
Examples:
  calipam release --leaked --dry-run          what would be released
  calipam release --leaked                    check twice, 15 minutes apart, ask, release
  calipam release --leaked --node node-7      on one node; also --pool, --namespace, --selector
  calipam release --node node-7               everything that belongs to a deleted node
  calipam release --ip 10.244.1.7             one address that is not in use
  calipam release --handle k8s-pod-network.3f9a6c0b7d2e
  calipam release --orphan-handles
  calipam check -o json > first.json          check now, and release an hour later
  calipam release --from-report first.json --yes
  calipam release --leaked --yes --max-changes 500 -q     in cron

Without --force, an address in use is never released; its owner is named. A leaked address must be
found unused twice, --grace apart: every normal pod deletion looks like a leak for a moment.
A handle is released completely or not at all.

Different options are combined with AND. Values of one option (--node a --node b) are combined with
OR, as are --leaked and --orphan-handles.

Every write is recorded in a journal first, and is made only if nothing has changed since the
read. `calipam undo JOURNAL` restores what was there.

Exit codes: 0 all released; 1 something was skipped or had changed; 2 usage, or no
confirmation; 3 datastore or journal; 4 internal.";

/// The last part of `calipam rebuild -h`.
pub(super) const REBUILD_SHORT: &str = "\
Prints a plan; --apply carries it out. `calipam rebuild --help` shows examples.";

/// The last part of `calipam rebuild --help`.
pub(super) const REBUILD: &str = "\
Examples:
  calipam rebuild                             print what would change, what is skipped, and why
  calipam rebuild --output-dir plan           also write each block, before and after, to a file
  calipam rebuild --block 10.244.1.0/26 --apply
  calipam rebuild --node node-7 --apply
  calipam rebuild --datastore cluster.jsonl   plan from an export, on a laptop

--pool, --node and --block are combined with AND, values of one option with OR.
What is correct is kept: attributes, the order of free addresses, cooldowns and reservations.
What you have to decide yourself is listed as skipped, with the reason.

With etcd, endpoints can come from the same old backup as the blocks. Pass --kubeconfig to compare
pods; without it, --apply needs --endpoints-only.

Exit codes: 0 planned or applied; 1 something was skipped or had changed; 2 usage, or no
confirmation; 3 datastore or journal; 4 internal.";

/// The last part of `calipam split --help`.
pub(super) const SPLIT: &str = "\
Examples:
  calipam split 4 --name default-ipv4-ippool --dry-run
  calipam split 2 --cidr 10.244.0.0/16

The parts are named split-NAME-0, split-NAME-1 and so on, and keep all other settings of the pool.
Blocks are not changed: Calico matches them to pools by CIDR. Everything is checked
before anything is written: a part is never smaller than a block, and no block spans two parts.

The datastore is locked during the split. The pool is never disabled; with etcd, the parts replace
it in one transaction. `calipam undo JOURNAL` restores the pool.

Exit codes: 0 split; 1 refused, or something had changed; 2 usage, or no terminal to ask on;
3 datastore or journal; 4 internal.";

/// The last part of `calipam migrate -h`.
pub(super) const MIGRATE_SHORT: &str = "\
Prints a plan; --apply carries out one phase. `calipam migrate --help` shows examples.";

/// The last part of `calipam migrate --help`.
pub(super) const MIGRATE: &str = "\
Examples:
  calipam migrate --from default-ipv4-ippool --to-cidr 10.200.0.0/16
  calipam migrate --from default-ipv4-ippool --to-cidr 10.200.0.0/16 --block-size 28 --apply
  calipam migrate --from old --to new         to a pool that exists
  calipam migrate --from old --block-size 28 --via 10.200.0.0/16    the same CIDR, other block size
  calipam migrate                             its state, and what still has to move
  calipam migrate --apply                     carry out the next phase, on any machine
  calipam migrate --apply --evict --batch 5   evict the pods that still have to move

Phases: create the new pool, disable the old one, move, clean up, delete the old pool. Each run
carries out one phase, and `calipam undo JOURNAL` undoes it. The next phase follows from the
datastore alone: nothing about a migration is kept anywhere else.

Pods move when they are restarted: by you, or by --evict, which respects disruption budgets. Nodes
move their tunnel addresses by themselves. `docs/migrate.md` walks through a migration.

Exit codes: 0 printed or carried out; 1 refused, or something is left; 2 usage, or no confirmation;
3 datastore or journal; 4 internal.";

/// The last part of `calipam configure --help`.
pub(super) const CONFIGURE: &str = "\
Examples:
  calipam configure --strict-affinity true
  calipam configure --strict-affinity true --max-blocks-per-host 4
  calipam configure --ip-cooldown-seconds 30 --dry-run

Other settings are not changed. A limit on blocks needs strict affinity, and without strict
affinity nodes must be allowed to claim blocks. Addresses that are borrowed when strict
affinity is switched on stay borrowed until they are released.

With etcd, Calico reads these settings; the IPAMConfiguration resource is not kept in sync.
`calipam undo JOURNAL` restores the previous settings.

Exit codes: 0 set; 1 refused, or something had changed; 2 usage, or no terminal to ask on;
3 datastore or journal; 4 internal.";

/// The last part of `calipam assign -h`.
pub(super) const ASSIGN_SHORT: &str = "\
Shows a plan and asks before it writes. `calipam assign --help` shows examples.";

/// The last part of `calipam assign --help`.
pub(super) const ASSIGN: &str = "\
Examples:
  calipam assign --count 1 --node node-7 --dry-run     which one, and what would be written
  calipam assign --ip 10.244.7.9 --node node-7 --handle printer --attribute note=printer
  calipam assign --count 4 --node node-7 --pool external --handle vpn.gateway
  calipam release --handle printer                     release them

The plan comes from the CNI plugin's allocator, run on the data that was read. Either all of it is
written or nothing: an address that a pod got in the meantime is not taken. The allocator never
chooses addresses that a pod, node or service uses without a record, nor those that are only for
services or tunnels. To assign such an address with --ip, add --force. --ip can name a reserved
address. Pools with a namespace selector are used only with --pool.

`check` cannot know who uses an address that was assigned by hand: it reports a leaked address with
an unknown owner. Only `release --ip` or `release --handle` frees it. List it in an --ignore file.

With a file (--datastore FILE), only --dry-run works.

Exit codes: 0 assigned; 1 not all assigned, refused, or something had changed; 2 usage, or no
terminal to ask on; 3 datastore or journal; 4 internal.";

/// The last part of `calipam simulate -h`.
pub(super) const SIMULATE_SHORT: &str = "\
Changes nothing. `calipam simulate --help` shows examples.";

/// The last part of `calipam simulate --help`.
pub(super) const SIMULATE: &str = "\
Examples:
  calipam simulate --pool 10.244.0.0/16 --nodes 10,50,100    ADD latency by cluster size
  calipam simulate --pool 10.244.0.0/16 --block-size 26..28  and by block size
  calipam simulate --pool 10.244.0.0/16 --fail-node          how long a failed node keeps addresses
  calipam simulate --pool 10.244.0.0/22 --nodes 6 --runs 2 --clashes freed-by-hand
  calipam simulate --pool 10.244.0.0/20 --nodes 20 --advise  block size, pool, maximum blocks
  calipam simulate --datastore cluster.jsonl.zst --pods-per-node 2

All connection options work: see `calipam --help`. docs/simulate.md describes the model.
Exit codes: 0 simulated; 2 usage, or an impossible cluster; 3 datastore or file; 4 internal.";

/// The last part of `calipam undo --help`.
pub(super) const UNDO: &str = "\
Examples:
  calipam undo ~/.local/state/calipam/20261121T101500.123Z-0f0e1d2c-4711.journal --dry-run
  calipam undo run.journal
  calipam undo --list                         the journals of this user, newest first
  calipam undo --last                         the newest run that is not undone yet

An object that has changed since the run is not touched, nor is anything that was written together
with it. An undo has its own journal, and can be undone.
Without connection options, it connects to the run's datastore.";

/// The last part of `calipam serve --help`.
pub(super) const SERVE: &str = "\
Examples:
  calipam serve                               on http://127.0.0.1:9795/, a check every 5 minutes
  calipam serve --listen '[::]:9795' --interval 15m --ignore accepted.txt
  curl -s http://127.0.0.1:9795/metrics

Paths:
  /             the page of `check -o html`
  /report.json  the report of `check -o json`
  /metrics      the metrics of `check -o prometheus`
  /healthz      200 if a check succeeded within the last three intervals, otherwise 503
  /livez        200

Checks run one after the other; requests never read the datastore. If a check fails, the last good
report is still served, and `calipam_up` is 0. It exits with 0 on SIGTERM and ctrl-c.

Exit codes: 0 ended by a signal; 2 usage or settings; 3 it cannot listen; 4 internal.";

/// The last part of `calipam record --help`.
pub(super) const RECORD: &str = "\
Examples:
  calipam record /var/lib/calipam/archive --keep 24h:all,30d:daily,1y:monthly
  calipam history --archive /var/lib/calipam/archive --ip 10.244.1.7
  calipam show --archive /var/lib/calipam/archive --at 2026-11-20T03:12Z --ip 10.244.1.7

It starts with an export of everything, and then records what changes: every etcd revision, or what
the Kubernetes API reports. When it is started again, it resumes where it stopped, if the server
still has the changes since then. Otherwise it exports everything again and reports the gap.
Changes are on disk a second or two after they are known. It exits with 0 on SIGTERM and ctrl-c.

If something fails, it says so and tries again every ten seconds.

Exit codes: 0 ended by a signal; 2 usage or settings; 3 it cannot start; 4 internal.";

/// The last part of `calipam export --help`.
pub(super) const EXPORT: &str = "\
Examples:
  calipam export cluster.jsonl                JSON lines
  calipam export cluster.jsonl.zst            compressed
  calipam check --datastore cluster.jsonl.zst

An export contains what a check reads: IPAM data, pools, nodes, workload endpoints and
configuration. It contains no secrets, but it contains the names of pods, nodes and labels.";

/// The last part of `calipam explain --help`.
pub(super) const EXPLAIN: &str = "\
Examples:
  calipam explain                             all rules
  calipam explain leaked-address
  calipam explain --pod default/web-0         why it gets no address, and what to do
  calipam explain --node node-7 -o wide       with each step of the allocator

Exit code 1 if the pod or node gets no address. RULE is a code from the column CODE of `check`.";

/// The last part of `calipam version --help`.
pub(super) const VERSION: &str = "\
Examples:
  calipam version
  calipam version -o json | jq -r .commit
  calipam version --check-compat              before an upgrade of calipam or Calico

Exit code 1 if --check-compat finds a Calico version that this program does not know, or none.";

/// The last part of `calipam completion --help`.
pub(super) const COMPLETION: &str = "\
Examples:
  calipam completion bash > /etc/bash_completion.d/calipam
  calipam completion zsh > \"${fpath[1]}/_calipam\"
  calipam completion fish > ~/.config/fish/completions/calipam.fish
  calipam completion powershell >> $PROFILE
  calipam completion elvish >> ~/.config/elvish/rc.elv

Nodes, pools, blocks, handles and addresses are completed from the cluster that the options name.
`calipam install-links --completions` installs the scripts for the installed shells.";

/// The last part of `calipam install-links --help`.
pub(super) const INSTALL_LINKS: &str = "\
The links are:
  ipam                   the same program under a short name
  kubectl-ipam           a kubectl plugin: `kubectl ipam check`
  kubectl-calico         a kubectl plugin: `kubectl calico ipam check`
  kubectl_complete-ipam, kubectl_complete-calico
                         the names under which kubectl completes `kubectl ipam` and `kubectl calico`

A link belongs to calipam if it leads to this program; a man page or script does if this program
would write the same text. Other files are kept, unless --force replaces them.

Examples:
  calipam install-links ~/.local/bin
  calipam install-links ~/.local/bin --completions
  calipam install-links ~/.local/bin --remove";
