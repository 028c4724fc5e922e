#compdef BIN
# Completion of BIN in zsh; `BIN completion zsh` prints it.
_complete_NAME() {
    local line value
    local -a open closed
    for line in "${(@f)$(VARIABLE=zsh _CLAP_COMPLETE_INDEX=$((CURRENT - 1)) COMPLETER -- "${(@Q)words}" 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        value=${${line//\\:/$'\0'}%%:*}
        if [[ $value == *[/=,.] ]]; then open+=("$line"); else closed+=("$line"); fi
    done
    (( $#open )) && _describe -V 'values' open -S ''
    (( $#closed )) && _describe -V 'values' closed
}
if [[ $funcstack[1] == _BIN ]]; then
    _complete_NAME "$@"
else
    compdef _complete_NAME BIN
fi
