# The guard of a server, in its own process group; $1 is the private folder of the server.
# Waits until its standard input closes, which happens when the test process ends, even by SIGKILL.
# Then stops the server and deletes the folder. A line on standard input means: leave both alone.
trap '' HUP INT TERM
read -r _ && exit 0

pid= signal=
[ -f "$1/pid" ] && read -r pid signal <"$1/pid"

# Another program may have got the process id, but its command line does not name the folder.
alive() {
	[ -n "$pid" ] || return 1
	{ tr '\0' ' ' <"/proc/$pid/cmdline" || ps -o command= -p "$pid"; } 2>/dev/null | grep -qF -- "$1"
}

if alive "$1"; then
	kill -s "$signal" "$pid"
	tries=0
	while alive "$1" && [ "$tries" -lt 200 ]; do
		sleep 0.05
		tries=$((tries + 1))
	done
	if alive "$1"; then kill -s KILL "$pid"; fi
fi
case "$1" in
*/twinbox-*)
	[ ! -d "$1/disk" ] || umount -l "$1/disk"
	rm -rf "$1"
	;;
esac
