# fish completion for gpusupervisorctl(1). fish quotes what it inserts; nothing in it is evaluated.

function __gpusupervisorctl_complete
    set -l before (commandline -opc)
    set -l answer (command gpusupervisorctl complete fish -- $before[2..-1] (commandline -ct) 2>/dev/null </dev/null)
    switch "$answer[1]"
        case :files
            __fish_complete_path (commandline -ct)
        case :hosts
            __fish_print_hostnames
        case '*'
            printf '%s\n' $answer
    end
end

complete -c gpusupervisorctl -f -a '(__gpusupervisorctl_complete)'
