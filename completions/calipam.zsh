#compdef calipam
# Completion of calipam in zsh; `calipam completion zsh` prints it.
_complete_calipam() {
    local line value
    local -a open closed
    for line in "${(@f)$(COMPLETE=zsh _CLAP_COMPLETE_INDEX=$((CURRENT - 1)) calipam -- "${(@Q)words}" 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        value=${${line//\\:/$'\0'}%%:*}
        if [[ $value == *[/=,.] ]]; then open+=("$line"); else closed+=("$line"); fi
    done
    (( $#open )) && _describe -V 'values' open -S ''
    (( $#closed )) && _describe -V 'values' closed
}
if [[ $funcstack[1] == _calipam ]]; then
    _complete_calipam "$@"
else
    compdef _complete_calipam calipam
fi
