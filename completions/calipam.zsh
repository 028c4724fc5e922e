#compdef calipam

autoload -U is-at-least

_calipam() {
    typeset -A opt_args
    typeset -a _arguments_options
    local ret=1

    if is-at-least 5.2; then
        _arguments_options=(-s -S -C)
    else
        _arguments_options=(-s -C)
    fi

    local context curcontext="$curcontext" state line
    _arguments "${_arguments_options[@]}" : \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
":: :_calipam_commands" \
"*::: :->calipam" \
&& ret=0
    case $state in
    (calipam)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:calipam-command-$line[1]:"
        case $line[1] in
            (check)
_arguments "${_arguments_options[@]}" : \
'*--rule=[Only findings of these rules; comma-separated or repeated]:RULE:((duplicate-address\:"two or more live owners use one address"
address-in-several-blocks\:"overlapping blocks both record the address as allocated"
unallocated-in-use\:"a live owner uses an address of a pool that no block records"
leaked-address\:"allocated, old enough, and nothing uses it"
in-use-outside-pools\:"a live owner uses an address that lies in no pool"
owner-mismatch\:"in use, but by another owner than the one recorded"
borrowed-tunnel-address\:"a tunnel address lies in a block of another node"
borrowed-under-strict-affinity\:"strict affinity is on, and the owner'\''s node is not the block'\''s"
shared-legacy-handle\:"one <namespace>.<pod> handle holds several addresses of one family"
unexpected-block-owner\:"the block'\''s owner is neither a node nor virtual"
corrupt-block\:"a structural rule of the block is broken"
overlapping-blocks\:"two blocks overlap"
block-outside-pools\:"no pool, disabled or not, contains the block"
block-size-mismatch\:"the block'\''s size is not its pool'\''s"
block-of-missing-node\:"the node that owns the block does not exist"
empty-unowned-block\:"the block has no owner and no allocation"
block-without-affinity\:"the block has an owner, but no affinity says so"
affinity-block-mismatch\:"the affinity'\''s block belongs to another or has no owner"
affinity-conflict\:"several nodes hold an affinity for one block"
affinity-without-block\:"confirmed, but there is no such block"
unsettled-affinity\:"pending or pendingDeletion, and still so when read again"
affinity-of-missing-node\:"the affinity'\''s node does not exist"
unexpected-affinity-type\:"an affinity of the @ form or of another unknown type"
affinity-labels\:"an affinity lacks the labels by which Calico finds it"
node-over-block-limit\:"the node holds more blocks of one family in one pool than maxBlocksPerHost, or 20"
orphan-handle\:"a handle object that no allocation refers to"
missing-handle\:"allocations refer to a handle that has no object"
handle-count\:"the handle'\''s counts differ from the blocks"
handle-carriage-return\:"the handle holds a carriage return"
handle-case-collision\:"two handle IDs differ by case only, so that they share one object"
half-deleted\:"a block, affinity or handle marked deleted that is still there"
endpoint-without-pod\:"a workload endpoint whose pod is gone or finished long ago"
pod-without-endpoint\:"a running pod without workload endpoint"
pod-address-disagreement\:"pod status, CNI annotation and endpoint do not name the same addresses"
endpoint-of-missing-node\:"a live endpoint names a node that does not exist"
endpoint-node-mismatch\:"endpoint and pod name different nodes"
service-without-address\:"a managed LoadBalancer service has got no address"
service-address-extra\:"an address is recorded for a service whose ingress does not name it"
overlapping-pools\:"two pools overlap"
pool-nearly-full\:"nearly all addresses of an enabled pool are taken"
stranded-addresses\:"a node cannot get one more address although its pools have free ones"
auto-allocation-off\:"nodes may not claim blocks"
configuration-mismatch\:"the two configuration keys of etcd disagree"
datastore-locked\:"the datastore is locked\: datastoreReady is false"
undecodable-object\:"a key or value that does not parse"))' \
'*--skip-rule=[No findings of these rules; comma-separated or repeated]:RULE:((duplicate-address\:"two or more live owners use one address"
address-in-several-blocks\:"overlapping blocks both record the address as allocated"
unallocated-in-use\:"a live owner uses an address of a pool that no block records"
leaked-address\:"allocated, old enough, and nothing uses it"
in-use-outside-pools\:"a live owner uses an address that lies in no pool"
owner-mismatch\:"in use, but by another owner than the one recorded"
borrowed-tunnel-address\:"a tunnel address lies in a block of another node"
borrowed-under-strict-affinity\:"strict affinity is on, and the owner'\''s node is not the block'\''s"
shared-legacy-handle\:"one <namespace>.<pod> handle holds several addresses of one family"
unexpected-block-owner\:"the block'\''s owner is neither a node nor virtual"
corrupt-block\:"a structural rule of the block is broken"
overlapping-blocks\:"two blocks overlap"
block-outside-pools\:"no pool, disabled or not, contains the block"
block-size-mismatch\:"the block'\''s size is not its pool'\''s"
block-of-missing-node\:"the node that owns the block does not exist"
empty-unowned-block\:"the block has no owner and no allocation"
block-without-affinity\:"the block has an owner, but no affinity says so"
affinity-block-mismatch\:"the affinity'\''s block belongs to another or has no owner"
affinity-conflict\:"several nodes hold an affinity for one block"
affinity-without-block\:"confirmed, but there is no such block"
unsettled-affinity\:"pending or pendingDeletion, and still so when read again"
affinity-of-missing-node\:"the affinity'\''s node does not exist"
unexpected-affinity-type\:"an affinity of the @ form or of another unknown type"
affinity-labels\:"an affinity lacks the labels by which Calico finds it"
node-over-block-limit\:"the node holds more blocks of one family in one pool than maxBlocksPerHost, or 20"
orphan-handle\:"a handle object that no allocation refers to"
missing-handle\:"allocations refer to a handle that has no object"
handle-count\:"the handle'\''s counts differ from the blocks"
handle-carriage-return\:"the handle holds a carriage return"
handle-case-collision\:"two handle IDs differ by case only, so that they share one object"
half-deleted\:"a block, affinity or handle marked deleted that is still there"
endpoint-without-pod\:"a workload endpoint whose pod is gone or finished long ago"
pod-without-endpoint\:"a running pod without workload endpoint"
pod-address-disagreement\:"pod status, CNI annotation and endpoint do not name the same addresses"
endpoint-of-missing-node\:"a live endpoint names a node that does not exist"
endpoint-node-mismatch\:"endpoint and pod name different nodes"
service-without-address\:"a managed LoadBalancer service has got no address"
service-address-extra\:"an address is recorded for a service whose ingress does not name it"
overlapping-pools\:"two pools overlap"
pool-nearly-full\:"nearly all addresses of an enabled pool are taken"
stranded-addresses\:"a node cannot get one more address although its pools have free ones"
auto-allocation-off\:"nodes may not claim blocks"
configuration-mismatch\:"the two configuration keys of etcd disagree"
datastore-locked\:"the datastore is locked\: datastoreReady is false"
undecodable-object\:"a key or value that does not parse"))' \
'*--node=[Only what concerns this node; can be repeated]:NODE:_default' \
'*--pool=[Only what lies in this pool, by name or CIDR; can be repeated]:POOL:_default' \
'--ignore=[Leave out the findings that this file lists\: lines of \`RULE SUBJECT\`, and comments after \`#\`]:FILE:_files' \
'--fail-on=[Exit with 1 from this severity on]:SEVERITY:((critical\:"Traffic is or will be broken"
error\:"Capacity is lost, or Calico may trip over a structure"
warning\:"Drift"
info\:"Good to know"
never\:"Never exit with 1"))' \
'--grace=[Do not judge allocations younger than this \[default\: the cluster'\''s leakGracePeriod, else 15m\]]:DURATION:_default' \
'--settle=[Read suspects again after this time, and keep what has not changed; 0 for once only]:DURATION:_default' \
'--confirm=[Repeat the whole read after this time, and keep what was found both times]:DURATION:_default' \
'--pool-threshold=[A pool is nearly full above this share of its addresses, in percent]:PERCENT:_default' \
'(--list-rules)*--output-file=[Write the report into a file as well; can be repeated, so that one read serves people and programs]:FORMAT=PATH:_files' \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'--list-rules[List all rules, and read nothing]' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(show)
_arguments "${_arguments_options[@]}" : \
'--ip=[The whole story of one address]:ADDRESS:_default' \
'--handle=[One handle and the addresses that are recorded under it]:ID:_default' \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'--blocks[Every block, pool by pool]' \
'--nodes[Every node\: its blocks, its addresses, and how many blocks it may still claim]' \
'--borrowed[Addresses whose owner is not on the node that owns the block]' \
'--configuration[The allocator'\''s configuration]' \
'--compare[What Kubernetes runs against what Calico records, node by node]' \
'--all-owners[With --ip\: read everything, to name every owner of the address]' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(release)
_arguments "${_arguments_options[@]}" : \
'*--handle=[Everything under this handle; can be repeated; \`-\` reads handles from stdin, one a line]:ID:_default' \
'*--ip=[This address; can be repeated]:ADDRESS:_default' \
'*--node=[Everything of this deleted node; can be repeated]:NODE:_default' \
'(--leaked --orphan-handles --node --ip --handle)*--from-report=[What these reports of earlier checks list and a fresh check confirms\: \`calipam check -o json\`, or \`calicoctl ipam check --output\`; can be repeated]:FILE:_files' \
'--grace=[Leave allocations alone that are younger than this, and look at leaked ones twice, so far apart; 0 for one look \[default\: the cluster'\''s leakGracePeriod, else 15m\]]:DURATION:_default' \
'--settle=[Read suspects again after this time, and keep what has not changed; 0 for once only]:DURATION:_default' \
'--max-changes=[Write nothing at all where the plan makes more changes than this]:N:_default' \
'--journal=[The journal of the run, from which \`undo\` works \[default\: a new file in ~/.local/state/calipam\]]:FILE:_files' \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'--leaked[Every leaked address whose record says whose it was]' \
'--orphan-handles[Every handle that no allocation refers to]' \
'--force[Release the one --ip or --handle although it is in use; with --from-report, pass over the version and age of a report and the lock that calicoctl asks for]' \
'--dry-run[Print the plan, and change nothing]' \
'-y[Do not ask for confirmation; needed where stdin is not a terminal]' \
'--yes[Do not ask for confirmation; needed where stdin is not a terminal]' \
'--lock[Lock the datastore for the duration\: no pod starts or stops meanwhile]' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(rebuild)
_arguments "${_arguments_options[@]}" : \
'*--pool=[What lies in this pool, by name or CIDR; can be repeated]:POOL:_default' \
'*--node=[Blocks of this node; can be repeated]:NODE:_default' \
'*--block=[This block; can be repeated]:CIDR:_default' \
'--output-dir=[Write each block before and after into a file in this directory]:DIR:_files -/' \
'--grace=[Leave allocations alone that are younger than this, and look at leaked ones twice, so far apart; 0 for one look \[default\: the cluster'\''s leakGracePeriod, else 15m\]]:DURATION:_default' \
'--settle=[Read suspects again after this time, and keep what has not changed; 0 for once only]:DURATION:_default' \
'--max-changes=[Write nothing at all where the plan makes more changes than this]:N:_default' \
'--journal=[The journal of the run, from which \`undo\` works \[default\: a new file in ~/.local/state/calipam\]]:FILE:_files' \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'(--dry-run)--apply[Write the plan to the datastore; without this it is only printed]' \
'--dry-run[Print the plan, and change nothing\: what happens without --apply]' \
'--endpoints-only[Apply although no pods were read from Kubernetes\: on etcd, the endpoints are taken for the truth]' \
'-y[Do not ask for confirmation; needed where stdin is not a terminal]' \
'--yes[Do not ask for confirmation; needed where stdin is not a terminal]' \
'--lock[Lock the datastore for the duration\: no pod starts or stops meanwhile]' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(undo)
_arguments "${_arguments_options[@]}" : \
'--max-changes=[Write nothing at all where the plan makes more changes than this]:N:_default' \
'--journal=[The journal of the run, from which \`undo\` works \[default\: a new file in ~/.local/state/calipam\]]:FILE:_files' \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'--dry-run[Print what would be restored, and change nothing]' \
'-y[Do not ask for confirmation; needed where stdin is not a terminal]' \
'--yes[Do not ask for confirmation; needed where stdin is not a terminal]' \
'--lock[Lock the datastore for the duration\: no pod starts or stops meanwhile]' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':run -- The journal of the run to undo:_files' \
&& ret=0
;;
(__complete)
_arguments "${_arguments_options[@]}" : \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::words -- The words; the last one is to be completed:_default' \
&& ret=0
;;
(ipam)
_arguments "${_arguments_options[@]}" : \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
":: :_calipam__subcmd__ipam_commands" \
"*::: :->ipam" \
&& ret=0

    case $state in
    (ipam)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:calipam-ipam-command-$line[1]:"
        case $line[1] in
            (check)
_arguments "${_arguments_options[@]}" : \
'*--rule=[Only findings of these rules; comma-separated or repeated]:RULE:((duplicate-address\:"two or more live owners use one address"
address-in-several-blocks\:"overlapping blocks both record the address as allocated"
unallocated-in-use\:"a live owner uses an address of a pool that no block records"
leaked-address\:"allocated, old enough, and nothing uses it"
in-use-outside-pools\:"a live owner uses an address that lies in no pool"
owner-mismatch\:"in use, but by another owner than the one recorded"
borrowed-tunnel-address\:"a tunnel address lies in a block of another node"
borrowed-under-strict-affinity\:"strict affinity is on, and the owner'\''s node is not the block'\''s"
shared-legacy-handle\:"one <namespace>.<pod> handle holds several addresses of one family"
unexpected-block-owner\:"the block'\''s owner is neither a node nor virtual"
corrupt-block\:"a structural rule of the block is broken"
overlapping-blocks\:"two blocks overlap"
block-outside-pools\:"no pool, disabled or not, contains the block"
block-size-mismatch\:"the block'\''s size is not its pool'\''s"
block-of-missing-node\:"the node that owns the block does not exist"
empty-unowned-block\:"the block has no owner and no allocation"
block-without-affinity\:"the block has an owner, but no affinity says so"
affinity-block-mismatch\:"the affinity'\''s block belongs to another or has no owner"
affinity-conflict\:"several nodes hold an affinity for one block"
affinity-without-block\:"confirmed, but there is no such block"
unsettled-affinity\:"pending or pendingDeletion, and still so when read again"
affinity-of-missing-node\:"the affinity'\''s node does not exist"
unexpected-affinity-type\:"an affinity of the @ form or of another unknown type"
affinity-labels\:"an affinity lacks the labels by which Calico finds it"
node-over-block-limit\:"the node holds more blocks of one family in one pool than maxBlocksPerHost, or 20"
orphan-handle\:"a handle object that no allocation refers to"
missing-handle\:"allocations refer to a handle that has no object"
handle-count\:"the handle'\''s counts differ from the blocks"
handle-carriage-return\:"the handle holds a carriage return"
handle-case-collision\:"two handle IDs differ by case only, so that they share one object"
half-deleted\:"a block, affinity or handle marked deleted that is still there"
endpoint-without-pod\:"a workload endpoint whose pod is gone or finished long ago"
pod-without-endpoint\:"a running pod without workload endpoint"
pod-address-disagreement\:"pod status, CNI annotation and endpoint do not name the same addresses"
endpoint-of-missing-node\:"a live endpoint names a node that does not exist"
endpoint-node-mismatch\:"endpoint and pod name different nodes"
service-without-address\:"a managed LoadBalancer service has got no address"
service-address-extra\:"an address is recorded for a service whose ingress does not name it"
overlapping-pools\:"two pools overlap"
pool-nearly-full\:"nearly all addresses of an enabled pool are taken"
stranded-addresses\:"a node cannot get one more address although its pools have free ones"
auto-allocation-off\:"nodes may not claim blocks"
configuration-mismatch\:"the two configuration keys of etcd disagree"
datastore-locked\:"the datastore is locked\: datastoreReady is false"
undecodable-object\:"a key or value that does not parse"))' \
'*--skip-rule=[No findings of these rules; comma-separated or repeated]:RULE:((duplicate-address\:"two or more live owners use one address"
address-in-several-blocks\:"overlapping blocks both record the address as allocated"
unallocated-in-use\:"a live owner uses an address of a pool that no block records"
leaked-address\:"allocated, old enough, and nothing uses it"
in-use-outside-pools\:"a live owner uses an address that lies in no pool"
owner-mismatch\:"in use, but by another owner than the one recorded"
borrowed-tunnel-address\:"a tunnel address lies in a block of another node"
borrowed-under-strict-affinity\:"strict affinity is on, and the owner'\''s node is not the block'\''s"
shared-legacy-handle\:"one <namespace>.<pod> handle holds several addresses of one family"
unexpected-block-owner\:"the block'\''s owner is neither a node nor virtual"
corrupt-block\:"a structural rule of the block is broken"
overlapping-blocks\:"two blocks overlap"
block-outside-pools\:"no pool, disabled or not, contains the block"
block-size-mismatch\:"the block'\''s size is not its pool'\''s"
block-of-missing-node\:"the node that owns the block does not exist"
empty-unowned-block\:"the block has no owner and no allocation"
block-without-affinity\:"the block has an owner, but no affinity says so"
affinity-block-mismatch\:"the affinity'\''s block belongs to another or has no owner"
affinity-conflict\:"several nodes hold an affinity for one block"
affinity-without-block\:"confirmed, but there is no such block"
unsettled-affinity\:"pending or pendingDeletion, and still so when read again"
affinity-of-missing-node\:"the affinity'\''s node does not exist"
unexpected-affinity-type\:"an affinity of the @ form or of another unknown type"
affinity-labels\:"an affinity lacks the labels by which Calico finds it"
node-over-block-limit\:"the node holds more blocks of one family in one pool than maxBlocksPerHost, or 20"
orphan-handle\:"a handle object that no allocation refers to"
missing-handle\:"allocations refer to a handle that has no object"
handle-count\:"the handle'\''s counts differ from the blocks"
handle-carriage-return\:"the handle holds a carriage return"
handle-case-collision\:"two handle IDs differ by case only, so that they share one object"
half-deleted\:"a block, affinity or handle marked deleted that is still there"
endpoint-without-pod\:"a workload endpoint whose pod is gone or finished long ago"
pod-without-endpoint\:"a running pod without workload endpoint"
pod-address-disagreement\:"pod status, CNI annotation and endpoint do not name the same addresses"
endpoint-of-missing-node\:"a live endpoint names a node that does not exist"
endpoint-node-mismatch\:"endpoint and pod name different nodes"
service-without-address\:"a managed LoadBalancer service has got no address"
service-address-extra\:"an address is recorded for a service whose ingress does not name it"
overlapping-pools\:"two pools overlap"
pool-nearly-full\:"nearly all addresses of an enabled pool are taken"
stranded-addresses\:"a node cannot get one more address although its pools have free ones"
auto-allocation-off\:"nodes may not claim blocks"
configuration-mismatch\:"the two configuration keys of etcd disagree"
datastore-locked\:"the datastore is locked\: datastoreReady is false"
undecodable-object\:"a key or value that does not parse"))' \
'*--node=[Only what concerns this node; can be repeated]:NODE:_default' \
'*--pool=[Only what lies in this pool, by name or CIDR; can be repeated]:POOL:_default' \
'--ignore=[Leave out the findings that this file lists\: lines of \`RULE SUBJECT\`, and comments after \`#\`]:FILE:_files' \
'--fail-on=[Exit with 1 from this severity on]:SEVERITY:((critical\:"Traffic is or will be broken"
error\:"Capacity is lost, or Calico may trip over a structure"
warning\:"Drift"
info\:"Good to know"
never\:"Never exit with 1"))' \
'--grace=[Do not judge allocations younger than this \[default\: the cluster'\''s leakGracePeriod, else 15m\]]:DURATION:_default' \
'--settle=[Read suspects again after this time, and keep what has not changed; 0 for once only]:DURATION:_default' \
'--confirm=[Repeat the whole read after this time, and keep what was found both times]:DURATION:_default' \
'--pool-threshold=[A pool is nearly full above this share of its addresses, in percent]:PERCENT:_default' \
'(--list-rules)*--output-file=[Write the report into a file as well; can be repeated, so that one read serves people and programs]:FORMAT=PATH:_files' \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'--list-rules[List all rules, and read nothing]' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(show)
_arguments "${_arguments_options[@]}" : \
'--ip=[The whole story of one address]:ADDRESS:_default' \
'--handle=[One handle and the addresses that are recorded under it]:ID:_default' \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'--blocks[Every block, pool by pool]' \
'--nodes[Every node\: its blocks, its addresses, and how many blocks it may still claim]' \
'--borrowed[Addresses whose owner is not on the node that owns the block]' \
'--configuration[The allocator'\''s configuration]' \
'--compare[What Kubernetes runs against what Calico records, node by node]' \
'--all-owners[With --ip\: read everything, to name every owner of the address]' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(release)
_arguments "${_arguments_options[@]}" : \
'*--handle=[Everything under this handle; can be repeated; \`-\` reads handles from stdin, one a line]:ID:_default' \
'*--ip=[This address; can be repeated]:ADDRESS:_default' \
'*--node=[Everything of this deleted node; can be repeated]:NODE:_default' \
'(--leaked --orphan-handles --node --ip --handle)*--from-report=[What these reports of earlier checks list and a fresh check confirms\: \`calipam check -o json\`, or \`calicoctl ipam check --output\`; can be repeated]:FILE:_files' \
'--grace=[Leave allocations alone that are younger than this, and look at leaked ones twice, so far apart; 0 for one look \[default\: the cluster'\''s leakGracePeriod, else 15m\]]:DURATION:_default' \
'--settle=[Read suspects again after this time, and keep what has not changed; 0 for once only]:DURATION:_default' \
'--max-changes=[Write nothing at all where the plan makes more changes than this]:N:_default' \
'--journal=[The journal of the run, from which \`undo\` works \[default\: a new file in ~/.local/state/calipam\]]:FILE:_files' \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'--leaked[Every leaked address whose record says whose it was]' \
'--orphan-handles[Every handle that no allocation refers to]' \
'--force[Release the one --ip or --handle although it is in use; with --from-report, pass over the version and age of a report and the lock that calicoctl asks for]' \
'--dry-run[Print the plan, and change nothing]' \
'-y[Do not ask for confirmation; needed where stdin is not a terminal]' \
'--yes[Do not ask for confirmation; needed where stdin is not a terminal]' \
'--lock[Lock the datastore for the duration\: no pod starts or stops meanwhile]' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(rebuild)
_arguments "${_arguments_options[@]}" : \
'*--pool=[What lies in this pool, by name or CIDR; can be repeated]:POOL:_default' \
'*--node=[Blocks of this node; can be repeated]:NODE:_default' \
'*--block=[This block; can be repeated]:CIDR:_default' \
'--output-dir=[Write each block before and after into a file in this directory]:DIR:_files -/' \
'--grace=[Leave allocations alone that are younger than this, and look at leaked ones twice, so far apart; 0 for one look \[default\: the cluster'\''s leakGracePeriod, else 15m\]]:DURATION:_default' \
'--settle=[Read suspects again after this time, and keep what has not changed; 0 for once only]:DURATION:_default' \
'--max-changes=[Write nothing at all where the plan makes more changes than this]:N:_default' \
'--journal=[The journal of the run, from which \`undo\` works \[default\: a new file in ~/.local/state/calipam\]]:FILE:_files' \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'(--dry-run)--apply[Write the plan to the datastore; without this it is only printed]' \
'--dry-run[Print the plan, and change nothing\: what happens without --apply]' \
'--endpoints-only[Apply although no pods were read from Kubernetes\: on etcd, the endpoints are taken for the truth]' \
'-y[Do not ask for confirmation; needed where stdin is not a terminal]' \
'--yes[Do not ask for confirmation; needed where stdin is not a terminal]' \
'--lock[Lock the datastore for the duration\: no pod starts or stops meanwhile]' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(undo)
_arguments "${_arguments_options[@]}" : \
'--max-changes=[Write nothing at all where the plan makes more changes than this]:N:_default' \
'--journal=[The journal of the run, from which \`undo\` works \[default\: a new file in ~/.local/state/calipam\]]:FILE:_files' \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'--dry-run[Print what would be restored, and change nothing]' \
'-y[Do not ask for confirmation; needed where stdin is not a terminal]' \
'--yes[Do not ask for confirmation; needed where stdin is not a terminal]' \
'--lock[Lock the datastore for the duration\: no pod starts or stops meanwhile]' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':run -- The journal of the run to undo:_files' \
&& ret=0
;;
(export)
_arguments "${_arguments_options[@]}" : \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'--overwrite[Replace the file where it exists]' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':file -- The file to write; compressed where its name ends with `.zst`:_files' \
&& ret=0
;;
(explain)
_arguments "${_arguments_options[@]}" : \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'::code -- The code of the finding; without one, all codes are listed:((duplicate-address\:"two or more live owners use one address"
address-in-several-blocks\:"overlapping blocks both record the address as allocated"
unallocated-in-use\:"a live owner uses an address of a pool that no block records"
leaked-address\:"allocated, old enough, and nothing uses it"
in-use-outside-pools\:"a live owner uses an address that lies in no pool"
owner-mismatch\:"in use, but by another owner than the one recorded"
borrowed-tunnel-address\:"a tunnel address lies in a block of another node"
borrowed-under-strict-affinity\:"strict affinity is on, and the owner'\''s node is not the block'\''s"
shared-legacy-handle\:"one <namespace>.<pod> handle holds several addresses of one family"
unexpected-block-owner\:"the block'\''s owner is neither a node nor virtual"
corrupt-block\:"a structural rule of the block is broken"
overlapping-blocks\:"two blocks overlap"
block-outside-pools\:"no pool, disabled or not, contains the block"
block-size-mismatch\:"the block'\''s size is not its pool'\''s"
block-of-missing-node\:"the node that owns the block does not exist"
empty-unowned-block\:"the block has no owner and no allocation"
block-without-affinity\:"the block has an owner, but no affinity says so"
affinity-block-mismatch\:"the affinity'\''s block belongs to another or has no owner"
affinity-conflict\:"several nodes hold an affinity for one block"
affinity-without-block\:"confirmed, but there is no such block"
unsettled-affinity\:"pending or pendingDeletion, and still so when read again"
affinity-of-missing-node\:"the affinity'\''s node does not exist"
unexpected-affinity-type\:"an affinity of the @ form or of another unknown type"
affinity-labels\:"an affinity lacks the labels by which Calico finds it"
node-over-block-limit\:"the node holds more blocks of one family in one pool than maxBlocksPerHost, or 20"
orphan-handle\:"a handle object that no allocation refers to"
missing-handle\:"allocations refer to a handle that has no object"
handle-count\:"the handle'\''s counts differ from the blocks"
handle-carriage-return\:"the handle holds a carriage return"
handle-case-collision\:"two handle IDs differ by case only, so that they share one object"
half-deleted\:"a block, affinity or handle marked deleted that is still there"
endpoint-without-pod\:"a workload endpoint whose pod is gone or finished long ago"
pod-without-endpoint\:"a running pod without workload endpoint"
pod-address-disagreement\:"pod status, CNI annotation and endpoint do not name the same addresses"
endpoint-of-missing-node\:"a live endpoint names a node that does not exist"
endpoint-node-mismatch\:"endpoint and pod name different nodes"
service-without-address\:"a managed LoadBalancer service has got no address"
service-address-extra\:"an address is recorded for a service whose ingress does not name it"
overlapping-pools\:"two pools overlap"
pool-nearly-full\:"nearly all addresses of an enabled pool are taken"
stranded-addresses\:"a node cannot get one more address although its pools have free ones"
auto-allocation-off\:"nodes may not claim blocks"
configuration-mismatch\:"the two configuration keys of etcd disagree"
datastore-locked\:"the datastore is locked\: datastoreReady is false"
undecodable-object\:"a key or value that does not parse"))' \
&& ret=0
;;
        esac
    ;;
esac
;;
(explain)
_arguments "${_arguments_options[@]}" : \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'::code -- The code of the finding; without one, all codes are listed:((duplicate-address\:"two or more live owners use one address"
address-in-several-blocks\:"overlapping blocks both record the address as allocated"
unallocated-in-use\:"a live owner uses an address of a pool that no block records"
leaked-address\:"allocated, old enough, and nothing uses it"
in-use-outside-pools\:"a live owner uses an address that lies in no pool"
owner-mismatch\:"in use, but by another owner than the one recorded"
borrowed-tunnel-address\:"a tunnel address lies in a block of another node"
borrowed-under-strict-affinity\:"strict affinity is on, and the owner'\''s node is not the block'\''s"
shared-legacy-handle\:"one <namespace>.<pod> handle holds several addresses of one family"
unexpected-block-owner\:"the block'\''s owner is neither a node nor virtual"
corrupt-block\:"a structural rule of the block is broken"
overlapping-blocks\:"two blocks overlap"
block-outside-pools\:"no pool, disabled or not, contains the block"
block-size-mismatch\:"the block'\''s size is not its pool'\''s"
block-of-missing-node\:"the node that owns the block does not exist"
empty-unowned-block\:"the block has no owner and no allocation"
block-without-affinity\:"the block has an owner, but no affinity says so"
affinity-block-mismatch\:"the affinity'\''s block belongs to another or has no owner"
affinity-conflict\:"several nodes hold an affinity for one block"
affinity-without-block\:"confirmed, but there is no such block"
unsettled-affinity\:"pending or pendingDeletion, and still so when read again"
affinity-of-missing-node\:"the affinity'\''s node does not exist"
unexpected-affinity-type\:"an affinity of the @ form or of another unknown type"
affinity-labels\:"an affinity lacks the labels by which Calico finds it"
node-over-block-limit\:"the node holds more blocks of one family in one pool than maxBlocksPerHost, or 20"
orphan-handle\:"a handle object that no allocation refers to"
missing-handle\:"allocations refer to a handle that has no object"
handle-count\:"the handle'\''s counts differ from the blocks"
handle-carriage-return\:"the handle holds a carriage return"
handle-case-collision\:"two handle IDs differ by case only, so that they share one object"
half-deleted\:"a block, affinity or handle marked deleted that is still there"
endpoint-without-pod\:"a workload endpoint whose pod is gone or finished long ago"
pod-without-endpoint\:"a running pod without workload endpoint"
pod-address-disagreement\:"pod status, CNI annotation and endpoint do not name the same addresses"
endpoint-of-missing-node\:"a live endpoint names a node that does not exist"
endpoint-node-mismatch\:"endpoint and pod name different nodes"
service-without-address\:"a managed LoadBalancer service has got no address"
service-address-extra\:"an address is recorded for a service whose ingress does not name it"
overlapping-pools\:"two pools overlap"
pool-nearly-full\:"nearly all addresses of an enabled pool are taken"
stranded-addresses\:"a node cannot get one more address although its pools have free ones"
auto-allocation-off\:"nodes may not claim blocks"
configuration-mismatch\:"the two configuration keys of etcd disagree"
datastore-locked\:"the datastore is locked\: datastoreReady is false"
undecodable-object\:"a key or value that does not parse"))' \
&& ret=0
;;
(completion)
_arguments "${_arguments_options[@]}" : \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':shell -- The shell:(bash elvish fish powershell zsh)' \
&& ret=0
;;
(install-links)
_arguments "${_arguments_options[@]}" : \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':directory -- The directory; one that is in PATH:_files -/' \
&& ret=0
;;
(export)
_arguments "${_arguments_options[@]}" : \
'-o+[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'--output=[Output format]:FORMAT:((table\:"A table for people"
wide\:"The table with everything in it"
yaml\:"YAML, schema calipam/v1"
json\:"JSON, schema calipam/v1"
name\:"Of a check\: the subjects of the findings, one a line"
prometheus\:"Of a check\: metrics in the text format of Prometheus"
junit\:"Of a check\: JUnit'\''s XML, a test case for each rule"
sarif\:"Of a check\: SARIF 2.1.0"))' \
'-d+[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'--datastore=[\`etcd\`, \`kubernetes\`, or a file\: export, etcd snapshot, or \`get -o json\` output of kubectl]:etcd|kubernetes|PATH:_files' \
'-c+[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--config=[Settings file of calicoctl \[default\: /etc/calico/calicoctl.cfg\]]:FILE:_files' \
'--etcd-endpoints=[URLs of etcd, comma-separated]:URLS:_urls' \
'--kubeconfig=[The kubeconfig; with etcd, it adds pods and services to what is read]:FILE:_files' \
'--context=[The context in the kubeconfig]:NAME:_default' \
'--overwrite[Replace the file where it exists]' \
'(-q --quiet)*-v[Say on stderr what is read and from where; twice for every request]' \
'(-q --quiet)*--verbose[Say on stderr what is read and from where; twice for every request]' \
'-q[Print no progress and no hints]' \
'--quiet[Print no progress and no hints]' \
'--no-color[Print no colours; NO_COLOR in the environment does the same]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':file -- The file to write; compressed where its name ends with `.zst`:_files' \
&& ret=0
;;
        esac
    ;;
esac
}

(( $+functions[_calipam_commands] )) ||
_calipam_commands() {
    local commands; commands=(
'check:Find what is wrong with the IPAM data' \
'show:Show pools, blocks, nodes, or the story of one address or handle' \
'release:Free leaked addresses and delete handles that nothing refers to' \
'rebuild:Make blocks, handles and affinities agree with what uses addresses' \
'undo:Undo a run of \`release\` or \`rebuild\` by its journal' \
'__complete:Complete the words of a command line, for kubectl' \
'ipam:Check, show, repair, export and explain the IPAM data' \
'explain:Explain a rule\: what its findings mean, how they arise, what to do' \
'completion:Print the completion script of a shell' \
'install-links:Link the other names of this program into a directory' \
'export:Write what a check reads into a file' \
    )
    _describe -t commands 'calipam commands' commands "$@"
}
(( $+functions[_calipam__subcmd____complete_commands] )) ||
_calipam__subcmd____complete_commands() {
    local commands; commands=()
    _describe -t commands 'calipam __complete commands' commands "$@"
}
(( $+functions[_calipam__subcmd__check_commands] )) ||
_calipam__subcmd__check_commands() {
    local commands; commands=()
    _describe -t commands 'calipam check commands' commands "$@"
}
(( $+functions[_calipam__subcmd__completion_commands] )) ||
_calipam__subcmd__completion_commands() {
    local commands; commands=()
    _describe -t commands 'calipam completion commands' commands "$@"
}
(( $+functions[_calipam__subcmd__explain_commands] )) ||
_calipam__subcmd__explain_commands() {
    local commands; commands=()
    _describe -t commands 'calipam explain commands' commands "$@"
}
(( $+functions[_calipam__subcmd__export_commands] )) ||
_calipam__subcmd__export_commands() {
    local commands; commands=()
    _describe -t commands 'calipam export commands' commands "$@"
}
(( $+functions[_calipam__subcmd__install-links_commands] )) ||
_calipam__subcmd__install-links_commands() {
    local commands; commands=()
    _describe -t commands 'calipam install-links commands' commands "$@"
}
(( $+functions[_calipam__subcmd__ipam_commands] )) ||
_calipam__subcmd__ipam_commands() {
    local commands; commands=(
'check:Find what is wrong with the IPAM data' \
'show:Show pools, blocks, nodes, or the story of one address or handle' \
'release:Free leaked addresses and delete handles that nothing refers to' \
'rebuild:Make blocks, handles and affinities agree with what uses addresses' \
'undo:Undo a run of \`release\` or \`rebuild\` by its journal' \
'export:Write what a check reads into a file' \
'explain:Explain a rule\: what its findings mean, how they arise, what to do' \
    )
    _describe -t commands 'calipam ipam commands' commands "$@"
}
(( $+functions[_calipam__subcmd__ipam__subcmd__check_commands] )) ||
_calipam__subcmd__ipam__subcmd__check_commands() {
    local commands; commands=()
    _describe -t commands 'calipam ipam check commands' commands "$@"
}
(( $+functions[_calipam__subcmd__ipam__subcmd__explain_commands] )) ||
_calipam__subcmd__ipam__subcmd__explain_commands() {
    local commands; commands=()
    _describe -t commands 'calipam ipam explain commands' commands "$@"
}
(( $+functions[_calipam__subcmd__ipam__subcmd__export_commands] )) ||
_calipam__subcmd__ipam__subcmd__export_commands() {
    local commands; commands=()
    _describe -t commands 'calipam ipam export commands' commands "$@"
}
(( $+functions[_calipam__subcmd__ipam__subcmd__rebuild_commands] )) ||
_calipam__subcmd__ipam__subcmd__rebuild_commands() {
    local commands; commands=()
    _describe -t commands 'calipam ipam rebuild commands' commands "$@"
}
(( $+functions[_calipam__subcmd__ipam__subcmd__release_commands] )) ||
_calipam__subcmd__ipam__subcmd__release_commands() {
    local commands; commands=()
    _describe -t commands 'calipam ipam release commands' commands "$@"
}
(( $+functions[_calipam__subcmd__ipam__subcmd__show_commands] )) ||
_calipam__subcmd__ipam__subcmd__show_commands() {
    local commands; commands=()
    _describe -t commands 'calipam ipam show commands' commands "$@"
}
(( $+functions[_calipam__subcmd__ipam__subcmd__undo_commands] )) ||
_calipam__subcmd__ipam__subcmd__undo_commands() {
    local commands; commands=()
    _describe -t commands 'calipam ipam undo commands' commands "$@"
}
(( $+functions[_calipam__subcmd__rebuild_commands] )) ||
_calipam__subcmd__rebuild_commands() {
    local commands; commands=()
    _describe -t commands 'calipam rebuild commands' commands "$@"
}
(( $+functions[_calipam__subcmd__release_commands] )) ||
_calipam__subcmd__release_commands() {
    local commands; commands=()
    _describe -t commands 'calipam release commands' commands "$@"
}
(( $+functions[_calipam__subcmd__show_commands] )) ||
_calipam__subcmd__show_commands() {
    local commands; commands=()
    _describe -t commands 'calipam show commands' commands "$@"
}
(( $+functions[_calipam__subcmd__undo_commands] )) ||
_calipam__subcmd__undo_commands() {
    local commands; commands=()
    _describe -t commands 'calipam undo commands' commands "$@"
}

if [ "$funcstack[1]" = "_calipam" ]; then
    _calipam "$@"
else
    compdef _calipam calipam
fi
