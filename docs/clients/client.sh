#!/bin/sh
# Sends readings to Pulsegate, and reads them, with curl and jq.
#
#	client.sh URL send < readings.json     one reading, an array of readings, or NDJSON
#	client.sh URL readings DEVICE
#	client.sh URL live PREFIX
#
# PULSEGATE_TOKEN has the token, if the server needs one.
set -eu
url=$1 command=$2
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
trap 'exit 1' HUP INT TERM
# A file keeps the token out of the command line, which every user of a machine can see.
(umask 077; printf '%s' "${PULSEGATE_TOKEN:+Authorization: Bearer $PULSEGATE_TOKEN}" >"$temp/header")

# call prints the status, and writes the answer to $temp/answer. curl repeats the request after
# Retry-After seconds, and after 408, 500 or no answer. Sending readings again is safe.
call() {
	curl -sS --retry 1000 --retry-all-errors --max-time 60 -H "@$temp/header" -o "$temp/answer" -w '%{http_code}' "$@"
}
fail() {
	echo "$1: $(cat "$temp/answer")" >&2
	exit 1
}

case $command in
send)
	cat >"$temp/body"
	status=$(call --data-binary "@$temp/body" "$url/v1/readings")
	case $status in
	200 | 207) # of a batch that was answered with 207, all but the rejected readings are stored
		jq -r '.status // "stored \(.stored), duplicate \(.duplicate)", (.rejected // [] | .[] | "rejected \(.index): \(.field) \(.reason)")' "$temp/answer"
		;;
	409) # another value is stored: sending this one again is useless
		jq -r '"conflict: \(.field) \(.reason)"' "$temp/answer"
		exit 1
		;;
	*) fail "$status" ;;
	esac
	;;
readings)
	cursor=
	while
		status=$(call "$url/v1/devices/$3/readings?limit=100${cursor:+&cursor=$cursor}")
		[ "$status" = 200 ] || fail "$status"
		jq -c '.readings[]' "$temp/answer"
		cursor=$(jq -r '.next_cursor // ""' "$temp/answer")
		[ -n "$cursor" ]
	do :; done
	;;
live)
	last='' event=''
	while :; do # a stream that ended is resumed with the id of the last event
		mkfifo "$temp/stream"
		curl -sSN --fail --retry 1000 --retry-connrefused -H "@$temp/header" ${last:+-H "Last-Event-ID: $last"} "$url/v1/live?prefix=$3" >"$temp/stream" &
		while IFS= read -r line; do
			case $line in
			'event: '*) event=${line#event: } ;;
			'id: '*) last=${line#id: } ;;
			'data: '*) [ "$event" = time ] || printf '%s\n' "${line#data: }" ;;
			esac
		done <"$temp/stream"
		wait $! || [ $? != 22 ] || exit 1 # 22: rejected
		rm "$temp/stream"
		sleep 3
	done
	;;
esac
