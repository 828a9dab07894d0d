#compdef pulsegate
# Completion of pulsegate for zsh. Put it into a directory of $fpath as
# "_pulsegate", or source it after compinit.
_pulsegate() {
	local line
	local -a candidates
	for line in "${(@f)$("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
		if [[ $line == :files ]]; then
			compset -P '--*='
			_files
		elif [[ -n $line ]]; then
			candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
		fi
	done
	if (( $#candidates )); then
		_describe pulsegate candidates
	fi
}
if [[ "${funcstack[1]}" == _pulsegate ]]; then
	_pulsegate "$@"
else
	compdef _pulsegate pulsegate
fi
