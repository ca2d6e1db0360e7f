#!/bin/sh
# enter CGROUP USER: enters the cgroup, then becomes the user and the command, each unless it is
# empty; no process is left in between.
export PATH=/usr/bin
[ -z "$1" ] || echo $$ >"$1/cgroup.procs"
[ -z "$2" ] || exec su -p "$2" /lab/command
exec /lab/command
