# Completion of pulsegate for fish. Put it into a directory of $fish_complete_path
# as "pulsegate.fish", or source it.
function __pulsegate_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] __complete -- $words[2..-1] 2>/dev/null)
        if test "$line" = ":files"
            __fish_complete_path (string replace -r '^--[^=]*=' '' -- (commandline -ct))
        else
            echo $line
        end
    end
end
complete -c pulsegate -f -a '(__pulsegate_complete)'
