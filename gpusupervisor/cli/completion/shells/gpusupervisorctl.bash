# bash completion for gpusupervisorctl(1)                                                        -*- shell-script -*-
# Candidates come quoted as they are to be inserted; nothing in them is evaluated.

_gpusupervisorctl() {
    local -a answer
    mapfile -t answer < <(
        command gpusupervisorctl complete bash "$COMP_LINE" "$COMP_POINT" "$COMP_WORDBREAKS" 2>/dev/null </dev/null
    )
    COMPREPLY=()
    case ${answer[0]-} in
        :files) compopt -o default -o filenames ;;
        :hosts) mapfile -t COMPREPLY < <(compgen -A hostname -- "${COMP_WORDS[COMP_CWORD]}") ;;
        *) COMPREPLY=("${answer[@]}") ;;
    esac
}

complete -F _gpusupervisorctl gpusupervisorctl
