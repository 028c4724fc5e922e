# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_calipam_global_optspecs
    string join \n o/output= v/verbose q/quiet no-color d/datastore= c/config= etcd-endpoints= kubeconfig= context= h/help V/version
end

function __fish_calipam_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_calipam_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_calipam_using_subcommand
    set -l cmd (__fish_calipam_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c calipam -n "__fish_calipam_needs_command" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_needs_command" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_needs_command" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_needs_command" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_needs_command" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_needs_command" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_needs_command" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_needs_command" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_needs_command" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c calipam -n "__fish_calipam_needs_command" -s V -l version -d 'Print version'
complete -c calipam -n "__fish_calipam_needs_command" -f -a "check" -d 'Find what is wrong with the IPAM data'
complete -c calipam -n "__fish_calipam_needs_command" -f -a "show" -d 'Show pools, blocks, nodes, or the story of one address or handle'
complete -c calipam -n "__fish_calipam_needs_command" -f -a "release" -d 'Free leaked addresses and delete handles that nothing refers to'
complete -c calipam -n "__fish_calipam_needs_command" -f -a "rebuild" -d 'Make blocks, handles and affinities agree with what uses addresses'
complete -c calipam -n "__fish_calipam_needs_command" -f -a "undo" -d 'Undo a run of `release` or `rebuild` by its journal'
complete -c calipam -n "__fish_calipam_needs_command" -f -a "__complete" -d 'Complete the words of a command line, for kubectl'
complete -c calipam -n "__fish_calipam_needs_command" -f -a "ipam" -d 'Check, show, repair, export and explain the IPAM data'
complete -c calipam -n "__fish_calipam_needs_command" -f -a "explain" -d 'Explain a rule: what its findings mean, how they arise, what to do'
complete -c calipam -n "__fish_calipam_needs_command" -f -a "completion" -d 'Print the completion script of a shell'
complete -c calipam -n "__fish_calipam_needs_command" -f -a "install-links" -d 'Link the other names of this program into a directory'
complete -c calipam -n "__fish_calipam_needs_command" -f -a "export" -d 'Write what a check reads into a file'
complete -c calipam -n "__fish_calipam_using_subcommand check" -l rule -d 'Only findings of these rules; comma-separated or repeated' -r -f -a "duplicate-address\t'two or more live owners use one address'
address-in-several-blocks\t'overlapping blocks both record the address as allocated'
unallocated-in-use\t'a live owner uses an address of a pool that no block records'
leaked-address\t'allocated, old enough, and nothing uses it'
in-use-outside-pools\t'a live owner uses an address that lies in no pool'
owner-mismatch\t'in use, but by another owner than the one recorded'
borrowed-tunnel-address\t'a tunnel address lies in a block of another node'
borrowed-under-strict-affinity\t'strict affinity is on, and the owner\'s node is not the block\'s'
shared-legacy-handle\t'one <namespace>.<pod> handle holds several addresses of one family'
unexpected-block-owner\t'the block\'s owner is neither a node nor virtual'
corrupt-block\t'a structural rule of the block is broken'
overlapping-blocks\t'two blocks overlap'
block-outside-pools\t'no pool, disabled or not, contains the block'
block-size-mismatch\t'the block\'s size is not its pool\'s'
block-of-missing-node\t'the node that owns the block does not exist'
empty-unowned-block\t'the block has no owner and no allocation'
block-without-affinity\t'the block has an owner, but no affinity says so'
affinity-block-mismatch\t'the affinity\'s block belongs to another or has no owner'
affinity-conflict\t'several nodes hold an affinity for one block'
affinity-without-block\t'confirmed, but there is no such block'
unsettled-affinity\t'pending or pendingDeletion, and still so when read again'
affinity-of-missing-node\t'the affinity\'s node does not exist'
unexpected-affinity-type\t'an affinity of the @ form or of another unknown type'
affinity-labels\t'an affinity lacks the labels by which Calico finds it'
node-over-block-limit\t'the node holds more blocks of one family in one pool than maxBlocksPerHost, or 20'
orphan-handle\t'a handle object that no allocation refers to'
missing-handle\t'allocations refer to a handle that has no object'
handle-count\t'the handle\'s counts differ from the blocks'
handle-carriage-return\t'the handle holds a carriage return'
handle-case-collision\t'two handle IDs differ by case only, so that they share one object'
half-deleted\t'a block, affinity or handle marked deleted that is still there'
endpoint-without-pod\t'a workload endpoint whose pod is gone or finished long ago'
pod-without-endpoint\t'a running pod without workload endpoint'
pod-address-disagreement\t'pod status, CNI annotation and endpoint do not name the same addresses'
endpoint-of-missing-node\t'a live endpoint names a node that does not exist'
endpoint-node-mismatch\t'endpoint and pod name different nodes'
service-without-address\t'a managed LoadBalancer service has got no address'
service-address-extra\t'an address is recorded for a service whose ingress does not name it'
overlapping-pools\t'two pools overlap'
pool-nearly-full\t'nearly all addresses of an enabled pool are taken'
stranded-addresses\t'a node cannot get one more address although its pools have free ones'
auto-allocation-off\t'nodes may not claim blocks'
configuration-mismatch\t'the two configuration keys of etcd disagree'
datastore-locked\t'the datastore is locked: datastoreReady is false'
undecodable-object\t'a key or value that does not parse'"
complete -c calipam -n "__fish_calipam_using_subcommand check" -l skip-rule -d 'No findings of these rules; comma-separated or repeated' -r -f -a "duplicate-address\t'two or more live owners use one address'
address-in-several-blocks\t'overlapping blocks both record the address as allocated'
unallocated-in-use\t'a live owner uses an address of a pool that no block records'
leaked-address\t'allocated, old enough, and nothing uses it'
in-use-outside-pools\t'a live owner uses an address that lies in no pool'
owner-mismatch\t'in use, but by another owner than the one recorded'
borrowed-tunnel-address\t'a tunnel address lies in a block of another node'
borrowed-under-strict-affinity\t'strict affinity is on, and the owner\'s node is not the block\'s'
shared-legacy-handle\t'one <namespace>.<pod> handle holds several addresses of one family'
unexpected-block-owner\t'the block\'s owner is neither a node nor virtual'
corrupt-block\t'a structural rule of the block is broken'
overlapping-blocks\t'two blocks overlap'
block-outside-pools\t'no pool, disabled or not, contains the block'
block-size-mismatch\t'the block\'s size is not its pool\'s'
block-of-missing-node\t'the node that owns the block does not exist'
empty-unowned-block\t'the block has no owner and no allocation'
block-without-affinity\t'the block has an owner, but no affinity says so'
affinity-block-mismatch\t'the affinity\'s block belongs to another or has no owner'
affinity-conflict\t'several nodes hold an affinity for one block'
affinity-without-block\t'confirmed, but there is no such block'
unsettled-affinity\t'pending or pendingDeletion, and still so when read again'
affinity-of-missing-node\t'the affinity\'s node does not exist'
unexpected-affinity-type\t'an affinity of the @ form or of another unknown type'
affinity-labels\t'an affinity lacks the labels by which Calico finds it'
node-over-block-limit\t'the node holds more blocks of one family in one pool than maxBlocksPerHost, or 20'
orphan-handle\t'a handle object that no allocation refers to'
missing-handle\t'allocations refer to a handle that has no object'
handle-count\t'the handle\'s counts differ from the blocks'
handle-carriage-return\t'the handle holds a carriage return'
handle-case-collision\t'two handle IDs differ by case only, so that they share one object'
half-deleted\t'a block, affinity or handle marked deleted that is still there'
endpoint-without-pod\t'a workload endpoint whose pod is gone or finished long ago'
pod-without-endpoint\t'a running pod without workload endpoint'
pod-address-disagreement\t'pod status, CNI annotation and endpoint do not name the same addresses'
endpoint-of-missing-node\t'a live endpoint names a node that does not exist'
endpoint-node-mismatch\t'endpoint and pod name different nodes'
service-without-address\t'a managed LoadBalancer service has got no address'
service-address-extra\t'an address is recorded for a service whose ingress does not name it'
overlapping-pools\t'two pools overlap'
pool-nearly-full\t'nearly all addresses of an enabled pool are taken'
stranded-addresses\t'a node cannot get one more address although its pools have free ones'
auto-allocation-off\t'nodes may not claim blocks'
configuration-mismatch\t'the two configuration keys of etcd disagree'
datastore-locked\t'the datastore is locked: datastoreReady is false'
undecodable-object\t'a key or value that does not parse'"
complete -c calipam -n "__fish_calipam_using_subcommand check" -l node -d 'Only what concerns this node; can be repeated' -r
complete -c calipam -n "__fish_calipam_using_subcommand check" -l pool -d 'Only what lies in this pool, by name or CIDR; can be repeated' -r
complete -c calipam -n "__fish_calipam_using_subcommand check" -l ignore -d 'Leave out the findings that this file lists: lines of `RULE SUBJECT`, and comments after `#`' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand check" -l fail-on -d 'Exit with 1 from this severity on' -r -f -a "critical\t'Traffic is or will be broken'
error\t'Capacity is lost, or Calico may trip over a structure'
warning\t'Drift'
info\t'Good to know'
never\t'Never exit with 1'"
complete -c calipam -n "__fish_calipam_using_subcommand check" -l grace -d 'Do not judge allocations younger than this [default: the cluster\'s leakGracePeriod, else 15m]' -r
complete -c calipam -n "__fish_calipam_using_subcommand check" -l settle -d 'Read suspects again after this time, and keep what has not changed; 0 for once only' -r
complete -c calipam -n "__fish_calipam_using_subcommand check" -l confirm -d 'Repeat the whole read after this time, and keep what was found both times' -r
complete -c calipam -n "__fish_calipam_using_subcommand check" -l pool-threshold -d 'A pool is nearly full above this share of its addresses, in percent' -r
complete -c calipam -n "__fish_calipam_using_subcommand check" -l output-file -d 'Write the report into a file as well; can be repeated, so that one read serves people and programs' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand check" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_using_subcommand check" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand check" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand check" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_using_subcommand check" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand check" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_using_subcommand check" -l list-rules -d 'List all rules, and read nothing'
complete -c calipam -n "__fish_calipam_using_subcommand check" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_using_subcommand check" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_using_subcommand check" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c calipam -n "__fish_calipam_using_subcommand show" -l ip -d 'The whole story of one address' -r
complete -c calipam -n "__fish_calipam_using_subcommand show" -l handle -d 'One handle and the addresses that are recorded under it' -r
complete -c calipam -n "__fish_calipam_using_subcommand show" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_using_subcommand show" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand show" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand show" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_using_subcommand show" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand show" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_using_subcommand show" -l blocks -d 'Every block, pool by pool'
complete -c calipam -n "__fish_calipam_using_subcommand show" -l nodes -d 'Every node: its blocks, its addresses, and how many blocks it may still claim'
complete -c calipam -n "__fish_calipam_using_subcommand show" -l borrowed -d 'Addresses whose owner is not on the node that owns the block'
complete -c calipam -n "__fish_calipam_using_subcommand show" -l configuration -d 'The allocator\'s configuration'
complete -c calipam -n "__fish_calipam_using_subcommand show" -l compare -d 'What Kubernetes runs against what Calico records, node by node'
complete -c calipam -n "__fish_calipam_using_subcommand show" -l all-owners -d 'With --ip: read everything, to name every owner of the address'
complete -c calipam -n "__fish_calipam_using_subcommand show" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_using_subcommand show" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_using_subcommand show" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_using_subcommand show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c calipam -n "__fish_calipam_using_subcommand release" -l handle -d 'Everything under this handle; can be repeated; `-` reads handles from stdin, one a line' -r
complete -c calipam -n "__fish_calipam_using_subcommand release" -l ip -d 'This address; can be repeated' -r
complete -c calipam -n "__fish_calipam_using_subcommand release" -l node -d 'Everything of this deleted node; can be repeated' -r
complete -c calipam -n "__fish_calipam_using_subcommand release" -l from-report -d 'What these reports of earlier checks list and a fresh check confirms: `calipam check -o json`, or `calicoctl ipam check --output`; can be repeated' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand release" -l grace -d 'Leave allocations alone that are younger than this, and look at leaked ones twice, so far apart; 0 for one look [default: the cluster\'s leakGracePeriod, else 15m]' -r
complete -c calipam -n "__fish_calipam_using_subcommand release" -l settle -d 'Read suspects again after this time, and keep what has not changed; 0 for once only' -r
complete -c calipam -n "__fish_calipam_using_subcommand release" -l max-changes -d 'Write nothing at all where the plan makes more changes than this' -r
complete -c calipam -n "__fish_calipam_using_subcommand release" -l journal -d 'The journal of the run, from which `undo` works [default: a new file in ~/.local/state/calipam]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand release" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_using_subcommand release" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand release" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand release" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_using_subcommand release" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand release" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_using_subcommand release" -l leaked -d 'Every leaked address whose record says whose it was'
complete -c calipam -n "__fish_calipam_using_subcommand release" -l orphan-handles -d 'Every handle that no allocation refers to'
complete -c calipam -n "__fish_calipam_using_subcommand release" -l force -d 'Release the one --ip or --handle although it is in use; with --from-report, pass over the version and age of a report and the lock that calicoctl asks for'
complete -c calipam -n "__fish_calipam_using_subcommand release" -l dry-run -d 'Print the plan, and change nothing'
complete -c calipam -n "__fish_calipam_using_subcommand release" -s y -l yes -d 'Do not ask for confirmation; needed where stdin is not a terminal'
complete -c calipam -n "__fish_calipam_using_subcommand release" -l lock -d 'Lock the datastore for the duration: no pod starts or stops meanwhile'
complete -c calipam -n "__fish_calipam_using_subcommand release" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_using_subcommand release" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_using_subcommand release" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_using_subcommand release" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -l pool -d 'What lies in this pool, by name or CIDR; can be repeated' -r
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -l node -d 'Blocks of this node; can be repeated' -r
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -l block -d 'This block; can be repeated' -r
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -l output-dir -d 'Write each block before and after into a file in this directory' -r -f -a "(__fish_complete_directories)"
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -l grace -d 'Leave allocations alone that are younger than this, and look at leaked ones twice, so far apart; 0 for one look [default: the cluster\'s leakGracePeriod, else 15m]' -r
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -l settle -d 'Read suspects again after this time, and keep what has not changed; 0 for once only' -r
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -l max-changes -d 'Write nothing at all where the plan makes more changes than this' -r
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -l journal -d 'The journal of the run, from which `undo` works [default: a new file in ~/.local/state/calipam]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -l apply -d 'Write the plan to the datastore; without this it is only printed'
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -l dry-run -d 'Print the plan, and change nothing: what happens without --apply'
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -l endpoints-only -d 'Apply although no pods were read from Kubernetes: on etcd, the endpoints are taken for the truth'
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -s y -l yes -d 'Do not ask for confirmation; needed where stdin is not a terminal'
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -l lock -d 'Lock the datastore for the duration: no pod starts or stops meanwhile'
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_using_subcommand rebuild" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c calipam -n "__fish_calipam_using_subcommand undo" -l max-changes -d 'Write nothing at all where the plan makes more changes than this' -r
complete -c calipam -n "__fish_calipam_using_subcommand undo" -l journal -d 'The journal of the run, from which `undo` works [default: a new file in ~/.local/state/calipam]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand undo" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_using_subcommand undo" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand undo" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand undo" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_using_subcommand undo" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand undo" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_using_subcommand undo" -l dry-run -d 'Print what would be restored, and change nothing'
complete -c calipam -n "__fish_calipam_using_subcommand undo" -s y -l yes -d 'Do not ask for confirmation; needed where stdin is not a terminal'
complete -c calipam -n "__fish_calipam_using_subcommand undo" -l lock -d 'Lock the datastore for the duration: no pod starts or stops meanwhile'
complete -c calipam -n "__fish_calipam_using_subcommand undo" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_using_subcommand undo" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_using_subcommand undo" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_using_subcommand undo" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c calipam -n "__fish_calipam_using_subcommand __complete" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_using_subcommand __complete" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand __complete" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand __complete" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_using_subcommand __complete" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand __complete" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_using_subcommand __complete" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_using_subcommand __complete" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_using_subcommand __complete" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_using_subcommand __complete" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and not __fish_seen_subcommand_from check show release rebuild undo export explain" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and not __fish_seen_subcommand_from check show release rebuild undo export explain" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and not __fish_seen_subcommand_from check show release rebuild undo export explain" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and not __fish_seen_subcommand_from check show release rebuild undo export explain" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and not __fish_seen_subcommand_from check show release rebuild undo export explain" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and not __fish_seen_subcommand_from check show release rebuild undo export explain" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and not __fish_seen_subcommand_from check show release rebuild undo export explain" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and not __fish_seen_subcommand_from check show release rebuild undo export explain" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and not __fish_seen_subcommand_from check show release rebuild undo export explain" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and not __fish_seen_subcommand_from check show release rebuild undo export explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and not __fish_seen_subcommand_from check show release rebuild undo export explain" -f -a "check" -d 'Find what is wrong with the IPAM data'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and not __fish_seen_subcommand_from check show release rebuild undo export explain" -f -a "show" -d 'Show pools, blocks, nodes, or the story of one address or handle'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and not __fish_seen_subcommand_from check show release rebuild undo export explain" -f -a "release" -d 'Free leaked addresses and delete handles that nothing refers to'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and not __fish_seen_subcommand_from check show release rebuild undo export explain" -f -a "rebuild" -d 'Make blocks, handles and affinities agree with what uses addresses'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and not __fish_seen_subcommand_from check show release rebuild undo export explain" -f -a "undo" -d 'Undo a run of `release` or `rebuild` by its journal'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and not __fish_seen_subcommand_from check show release rebuild undo export explain" -f -a "export" -d 'Write what a check reads into a file'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and not __fish_seen_subcommand_from check show release rebuild undo export explain" -f -a "explain" -d 'Explain a rule: what its findings mean, how they arise, what to do'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -l rule -d 'Only findings of these rules; comma-separated or repeated' -r -f -a "duplicate-address\t'two or more live owners use one address'
address-in-several-blocks\t'overlapping blocks both record the address as allocated'
unallocated-in-use\t'a live owner uses an address of a pool that no block records'
leaked-address\t'allocated, old enough, and nothing uses it'
in-use-outside-pools\t'a live owner uses an address that lies in no pool'
owner-mismatch\t'in use, but by another owner than the one recorded'
borrowed-tunnel-address\t'a tunnel address lies in a block of another node'
borrowed-under-strict-affinity\t'strict affinity is on, and the owner\'s node is not the block\'s'
shared-legacy-handle\t'one <namespace>.<pod> handle holds several addresses of one family'
unexpected-block-owner\t'the block\'s owner is neither a node nor virtual'
corrupt-block\t'a structural rule of the block is broken'
overlapping-blocks\t'two blocks overlap'
block-outside-pools\t'no pool, disabled or not, contains the block'
block-size-mismatch\t'the block\'s size is not its pool\'s'
block-of-missing-node\t'the node that owns the block does not exist'
empty-unowned-block\t'the block has no owner and no allocation'
block-without-affinity\t'the block has an owner, but no affinity says so'
affinity-block-mismatch\t'the affinity\'s block belongs to another or has no owner'
affinity-conflict\t'several nodes hold an affinity for one block'
affinity-without-block\t'confirmed, but there is no such block'
unsettled-affinity\t'pending or pendingDeletion, and still so when read again'
affinity-of-missing-node\t'the affinity\'s node does not exist'
unexpected-affinity-type\t'an affinity of the @ form or of another unknown type'
affinity-labels\t'an affinity lacks the labels by which Calico finds it'
node-over-block-limit\t'the node holds more blocks of one family in one pool than maxBlocksPerHost, or 20'
orphan-handle\t'a handle object that no allocation refers to'
missing-handle\t'allocations refer to a handle that has no object'
handle-count\t'the handle\'s counts differ from the blocks'
handle-carriage-return\t'the handle holds a carriage return'
handle-case-collision\t'two handle IDs differ by case only, so that they share one object'
half-deleted\t'a block, affinity or handle marked deleted that is still there'
endpoint-without-pod\t'a workload endpoint whose pod is gone or finished long ago'
pod-without-endpoint\t'a running pod without workload endpoint'
pod-address-disagreement\t'pod status, CNI annotation and endpoint do not name the same addresses'
endpoint-of-missing-node\t'a live endpoint names a node that does not exist'
endpoint-node-mismatch\t'endpoint and pod name different nodes'
service-without-address\t'a managed LoadBalancer service has got no address'
service-address-extra\t'an address is recorded for a service whose ingress does not name it'
overlapping-pools\t'two pools overlap'
pool-nearly-full\t'nearly all addresses of an enabled pool are taken'
stranded-addresses\t'a node cannot get one more address although its pools have free ones'
auto-allocation-off\t'nodes may not claim blocks'
configuration-mismatch\t'the two configuration keys of etcd disagree'
datastore-locked\t'the datastore is locked: datastoreReady is false'
undecodable-object\t'a key or value that does not parse'"
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -l skip-rule -d 'No findings of these rules; comma-separated or repeated' -r -f -a "duplicate-address\t'two or more live owners use one address'
address-in-several-blocks\t'overlapping blocks both record the address as allocated'
unallocated-in-use\t'a live owner uses an address of a pool that no block records'
leaked-address\t'allocated, old enough, and nothing uses it'
in-use-outside-pools\t'a live owner uses an address that lies in no pool'
owner-mismatch\t'in use, but by another owner than the one recorded'
borrowed-tunnel-address\t'a tunnel address lies in a block of another node'
borrowed-under-strict-affinity\t'strict affinity is on, and the owner\'s node is not the block\'s'
shared-legacy-handle\t'one <namespace>.<pod> handle holds several addresses of one family'
unexpected-block-owner\t'the block\'s owner is neither a node nor virtual'
corrupt-block\t'a structural rule of the block is broken'
overlapping-blocks\t'two blocks overlap'
block-outside-pools\t'no pool, disabled or not, contains the block'
block-size-mismatch\t'the block\'s size is not its pool\'s'
block-of-missing-node\t'the node that owns the block does not exist'
empty-unowned-block\t'the block has no owner and no allocation'
block-without-affinity\t'the block has an owner, but no affinity says so'
affinity-block-mismatch\t'the affinity\'s block belongs to another or has no owner'
affinity-conflict\t'several nodes hold an affinity for one block'
affinity-without-block\t'confirmed, but there is no such block'
unsettled-affinity\t'pending or pendingDeletion, and still so when read again'
affinity-of-missing-node\t'the affinity\'s node does not exist'
unexpected-affinity-type\t'an affinity of the @ form or of another unknown type'
affinity-labels\t'an affinity lacks the labels by which Calico finds it'
node-over-block-limit\t'the node holds more blocks of one family in one pool than maxBlocksPerHost, or 20'
orphan-handle\t'a handle object that no allocation refers to'
missing-handle\t'allocations refer to a handle that has no object'
handle-count\t'the handle\'s counts differ from the blocks'
handle-carriage-return\t'the handle holds a carriage return'
handle-case-collision\t'two handle IDs differ by case only, so that they share one object'
half-deleted\t'a block, affinity or handle marked deleted that is still there'
endpoint-without-pod\t'a workload endpoint whose pod is gone or finished long ago'
pod-without-endpoint\t'a running pod without workload endpoint'
pod-address-disagreement\t'pod status, CNI annotation and endpoint do not name the same addresses'
endpoint-of-missing-node\t'a live endpoint names a node that does not exist'
endpoint-node-mismatch\t'endpoint and pod name different nodes'
service-without-address\t'a managed LoadBalancer service has got no address'
service-address-extra\t'an address is recorded for a service whose ingress does not name it'
overlapping-pools\t'two pools overlap'
pool-nearly-full\t'nearly all addresses of an enabled pool are taken'
stranded-addresses\t'a node cannot get one more address although its pools have free ones'
auto-allocation-off\t'nodes may not claim blocks'
configuration-mismatch\t'the two configuration keys of etcd disagree'
datastore-locked\t'the datastore is locked: datastoreReady is false'
undecodable-object\t'a key or value that does not parse'"
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -l node -d 'Only what concerns this node; can be repeated' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -l pool -d 'Only what lies in this pool, by name or CIDR; can be repeated' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -l ignore -d 'Leave out the findings that this file lists: lines of `RULE SUBJECT`, and comments after `#`' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -l fail-on -d 'Exit with 1 from this severity on' -r -f -a "critical\t'Traffic is or will be broken'
error\t'Capacity is lost, or Calico may trip over a structure'
warning\t'Drift'
info\t'Good to know'
never\t'Never exit with 1'"
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -l grace -d 'Do not judge allocations younger than this [default: the cluster\'s leakGracePeriod, else 15m]' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -l settle -d 'Read suspects again after this time, and keep what has not changed; 0 for once only' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -l confirm -d 'Repeat the whole read after this time, and keep what was found both times' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -l pool-threshold -d 'A pool is nearly full above this share of its addresses, in percent' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -l output-file -d 'Write the report into a file as well; can be repeated, so that one read serves people and programs' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -l list-rules -d 'List all rules, and read nothing'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from show" -l ip -d 'The whole story of one address' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from show" -l handle -d 'One handle and the addresses that are recorded under it' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from show" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from show" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from show" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from show" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from show" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from show" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from show" -l blocks -d 'Every block, pool by pool'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from show" -l nodes -d 'Every node: its blocks, its addresses, and how many blocks it may still claim'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from show" -l borrowed -d 'Addresses whose owner is not on the node that owns the block'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from show" -l configuration -d 'The allocator\'s configuration'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from show" -l compare -d 'What Kubernetes runs against what Calico records, node by node'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from show" -l all-owners -d 'With --ip: read everything, to name every owner of the address'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from show" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from show" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from show" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -l handle -d 'Everything under this handle; can be repeated; `-` reads handles from stdin, one a line' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -l ip -d 'This address; can be repeated' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -l node -d 'Everything of this deleted node; can be repeated' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -l from-report -d 'What these reports of earlier checks list and a fresh check confirms: `calipam check -o json`, or `calicoctl ipam check --output`; can be repeated' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -l grace -d 'Leave allocations alone that are younger than this, and look at leaked ones twice, so far apart; 0 for one look [default: the cluster\'s leakGracePeriod, else 15m]' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -l settle -d 'Read suspects again after this time, and keep what has not changed; 0 for once only' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -l max-changes -d 'Write nothing at all where the plan makes more changes than this' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -l journal -d 'The journal of the run, from which `undo` works [default: a new file in ~/.local/state/calipam]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -l leaked -d 'Every leaked address whose record says whose it was'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -l orphan-handles -d 'Every handle that no allocation refers to'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -l force -d 'Release the one --ip or --handle although it is in use; with --from-report, pass over the version and age of a report and the lock that calicoctl asks for'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -l dry-run -d 'Print the plan, and change nothing'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -s y -l yes -d 'Do not ask for confirmation; needed where stdin is not a terminal'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -l lock -d 'Lock the datastore for the duration: no pod starts or stops meanwhile'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from release" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -l pool -d 'What lies in this pool, by name or CIDR; can be repeated' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -l node -d 'Blocks of this node; can be repeated' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -l block -d 'This block; can be repeated' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -l output-dir -d 'Write each block before and after into a file in this directory' -r -f -a "(__fish_complete_directories)"
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -l grace -d 'Leave allocations alone that are younger than this, and look at leaked ones twice, so far apart; 0 for one look [default: the cluster\'s leakGracePeriod, else 15m]' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -l settle -d 'Read suspects again after this time, and keep what has not changed; 0 for once only' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -l max-changes -d 'Write nothing at all where the plan makes more changes than this' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -l journal -d 'The journal of the run, from which `undo` works [default: a new file in ~/.local/state/calipam]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -l apply -d 'Write the plan to the datastore; without this it is only printed'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -l dry-run -d 'Print the plan, and change nothing: what happens without --apply'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -l endpoints-only -d 'Apply although no pods were read from Kubernetes: on etcd, the endpoints are taken for the truth'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -s y -l yes -d 'Do not ask for confirmation; needed where stdin is not a terminal'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -l lock -d 'Lock the datastore for the duration: no pod starts or stops meanwhile'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from rebuild" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from undo" -l max-changes -d 'Write nothing at all where the plan makes more changes than this' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from undo" -l journal -d 'The journal of the run, from which `undo` works [default: a new file in ~/.local/state/calipam]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from undo" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from undo" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from undo" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from undo" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from undo" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from undo" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from undo" -l dry-run -d 'Print what would be restored, and change nothing'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from undo" -s y -l yes -d 'Do not ask for confirmation; needed where stdin is not a terminal'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from undo" -l lock -d 'Lock the datastore for the duration: no pod starts or stops meanwhile'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from undo" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from undo" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from undo" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from undo" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from export" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from export" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from export" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from export" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from export" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from export" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from export" -l overwrite -d 'Replace the file where it exists'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from export" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from export" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from export" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from explain" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from explain" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from explain" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from explain" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from explain" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from explain" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from explain" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from explain" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from explain" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_using_subcommand ipam; and __fish_seen_subcommand_from explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c calipam -n "__fish_calipam_using_subcommand explain" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_using_subcommand explain" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand explain" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand explain" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_using_subcommand explain" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand explain" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_using_subcommand explain" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_using_subcommand explain" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_using_subcommand explain" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_using_subcommand explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c calipam -n "__fish_calipam_using_subcommand completion" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_using_subcommand completion" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand completion" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand completion" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_using_subcommand completion" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand completion" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_using_subcommand completion" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_using_subcommand completion" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_using_subcommand completion" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_using_subcommand completion" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c calipam -n "__fish_calipam_using_subcommand install-links" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_using_subcommand install-links" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand install-links" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand install-links" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_using_subcommand install-links" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand install-links" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_using_subcommand install-links" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_using_subcommand install-links" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_using_subcommand install-links" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_using_subcommand install-links" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c calipam -n "__fish_calipam_using_subcommand export" -s o -l output -d 'Output format' -r -f -a "table\t'A table for people'
wide\t'The table with everything in it'
yaml\t'YAML, schema calipam/v1'
json\t'JSON, schema calipam/v1'
name\t'Of a check: the subjects of the findings, one a line'
prometheus\t'Of a check: metrics in the text format of Prometheus'
junit\t'Of a check: JUnit\'s XML, a test case for each rule'
sarif\t'Of a check: SARIF 2.1.0'"
complete -c calipam -n "__fish_calipam_using_subcommand export" -s d -l datastore -d '`etcd`, `kubernetes`, or a file: export, etcd snapshot, or `get -o json` output of kubectl' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand export" -s c -l config -d 'Settings file of calicoctl [default: /etc/calico/calicoctl.cfg]' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand export" -l etcd-endpoints -d 'URLs of etcd, comma-separated' -r -f
complete -c calipam -n "__fish_calipam_using_subcommand export" -l kubeconfig -d 'The kubeconfig; with etcd, it adds pods and services to what is read' -r -F
complete -c calipam -n "__fish_calipam_using_subcommand export" -l context -d 'The context in the kubeconfig' -r
complete -c calipam -n "__fish_calipam_using_subcommand export" -l overwrite -d 'Replace the file where it exists'
complete -c calipam -n "__fish_calipam_using_subcommand export" -s v -l verbose -d 'Say on stderr what is read and from where; twice for every request'
complete -c calipam -n "__fish_calipam_using_subcommand export" -s q -l quiet -d 'Print no progress and no hints'
complete -c calipam -n "__fish_calipam_using_subcommand export" -l no-color -d 'Print no colours; NO_COLOR in the environment does the same'
complete -c calipam -n "__fish_calipam_using_subcommand export" -s h -l help -d 'Print help (see more with \'--help\')'
