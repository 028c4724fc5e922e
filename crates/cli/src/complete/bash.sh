# Completion of BIN in bash; `BIN completion bash` prints it.
_complete_NAME() {
    local candidate
    COMPREPLY=()
    while IFS= read -r candidate; do
        COMPREPLY+=("$candidate")
    done < <(VARIABLE=bash COMPLETER -- "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/=,.:] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
# bash 4.4 keeps the order.
complete -o nosort -o bashdefault -F _complete_NAME BIN 2>/dev/null ||
    complete -o bashdefault -F _complete_NAME BIN
