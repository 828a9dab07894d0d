# Completion of pulsegate for bash. Put it into a directory that bash-completion
# reads, such as /usr/share/bash-completion/completions, as "pulsegate", or source
# it.
_pulsegate() {
	local IFS=$'\n' line
	COMPREPLY=()
	for line in $("$1" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null); do
		if [[ $line == :files ]]; then
			compopt -o filenames 2>/dev/null
			COMPREPLY+=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]#=}"))
		else
			COMPREPLY+=("${line%%$'\t'*}")
		fi
	done
}
complete -F _pulsegate pulsegate
