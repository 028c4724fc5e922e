#compdef kubectl-calico
# Completion of kubectl-calico in zsh; `kubectl-calico completion zsh` prints it.
_complete_kubectl_calico() {
    local line value
    local -a open closed
    for line in "${(@f)$(COMPLETE=zsh _CLAP_COMPLETE_INDEX=$((CURRENT - 1)) kubectl-calico -- "${(@Q)words}" 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        value=${${line//\\:/$'\0'}%%:*}
        if [[ $value == *[/=,.] ]]; then open+=("$line"); else closed+=("$line"); fi
    done
    (( $#open )) && _describe -V 'values' open -S ''
    (( $#closed )) && _describe -V 'values' closed
}
if [[ $funcstack[1] == _kubectl-calico ]]; then
    _complete_kubectl_calico "$@"
else
    compdef _complete_kubectl_calico kubectl-calico
fi
