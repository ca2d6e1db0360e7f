#!/bin/sh
# PID 1 of a lab guest: sets up what /lab/config asks for, runs the command once, reports how it
# ended, powers off. Lines on ttyS3 are the protocol (lab/src/control.rs); the command's standard
# output and error leave by ttyS1 and ttyS2; ttyS0 is the console.
export PATH=/usr/bin
umask 022

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
for link in fd:fd stdin:fd/0 stdout:fd/1 stderr:fd/2; do
	[ -e "/dev/${link%%:*}" ] || ln -s "/proc/self/${link#*:}" "/dev/${link%%:*}"
done

# Raw lines: what goes in comes out, byte for byte.
for port in 1 2 3; do
	stty -F /dev/ttyS$port 115200 raw -echo
done
exec 3>/dev/ttyS3

halt() {
	sync
	poweroff -f
	# The kernel panics when PID 1 ends.
	while :; do sleep 1; done
}

fail() {
	echo "failed $*" >&3
	halt
}

. /lab/config

hostname lab
ip link set lo up

# KVM takes the speed of the TSC as it is when it is loaded, and where the kernel finds another by measuring for longer,
# as on a busy host, no virtual machine has a TSC. At its switch to the clock that stays it has measured.
if [ "$nested_kvm" ]; then
	tries=100
	while grep -q -e early -e jiffies /sys/devices/system/clocksource/clocksource0/current_clocksource; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || fail "the kernel doesn't settle on a clock"
		sleep 0.1
	done
fi

for module in $modules; do
	insmod "/lab/modules/$module.ko" || fail "module $module does not load"
done

if [ "$thp" ]; then
	echo "$thp" >/sys/kernel/mm/transparent_hugepage/enabled || fail "THP mode $thp is refused"
fi

if [ "$swap" ]; then
	tries=50
	until [ -b /dev/vda ]; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || fail "the swap disk does not appear (no virtio-blk driver?)"
		sleep 0.1
	done
	mkswap /dev/vda >/dev/null || fail "mkswap fails on the swap disk"
	swapon /dev/vda || fail "swapon fails on the swap disk"
fi

if [ "$nested_kvm" ]; then
	[ -c /dev/kvm ] || fail "kvm_amd gives no /dev/kvm"
	chmod 666 /dev/kvm
fi

# The command has a cgroup of its own, so that all it leaves behind can be ended with it.
cgroups=/sys/fs/cgroup
if mount -t cgroup2 cgroup2 $cgroups && mkdir $cgroups/command; then
	cgroup=$cgroups/command
else
	cgroup=
fi
if [ "$memory_max" ]; then
	[ "$cgroup" ] || fail "no cgroup v2 in this kernel, needed for the memory limit"
	echo +memory >$cgroups/cgroup.subtree_control || fail "no memory controller in this kernel"
	echo "$memory_max" >$cgroup/memory.max || fail "memory limit $memory_max is refused"
fi

# Pipes, not the lines themselves: a program shall not think it is on a terminal.
mkfifo /run/stdout /run/stderr
cat /run/stdout >/dev/ttyS1 3>&- &
out=$!
cat /run/stderr >/dev/ttyS2 3>&- &
err=$!

cd /tmp || fail "there is no /tmp"
echo "ready $(uname -r)" >&3
# Only time(1) tells `exit 137` from SIGKILL; it writes a line of its own for a signal.
time -o /run/status -f 'exited %x' setsid env -i /lab/enter "$cgroup" "$user" \
	</dev/null >/run/stdout 2>/run/stderr 3>&-
[ "$cgroup" ] && echo 1 >$cgroup/cgroup.kill
wait $out $err
cat /run/status >&3
echo end >&3
halt
