# Sourced after harness.sh and lab.sh: the stock agent in its own isolated process. Each one has
# a network namespace with an interface that looks real to it (its name ends in a dot and a
# number), a read-only root of its own, no disks in /dev nor in /sys, no capabilities, and a
# PATH with read-only programs.
# shellcheck shell=bash disable=SC2034,SC2154

# The programs it may run. It needs lscpu; none of them changes anything.
AGENT_TOOLS="ethtool ip lsblk lscpu lshw udevadm"
# A stock agent is ready after 2 s; the cores may be busy with other work.
AGENT_SECONDS_MAX=120

venv=$(readlink -f "$root/target/venv-agent")
[ -x "$venv/bin/ironic-python-agent" ] || give_up "no agent in $venv; tests/run makes it"

# agent_tools: links to AGENT_TOOLS in $work/tools.
agent_tools() {
    local tool
    mkdir -p "$work/tools"
    for tool in $AGENT_TOOLS; do
        ln -s "$(readlink -f "$(command -v "$tool")")" "$work/tools/$tool"
    done
}

# place NAME BOX_ADDRESS AGENT_ADDRESS MAC: a namespace, in $NAME, with a veth pair from its own
# interface to one in $boxed.
place() {
    space "$1"
    ip link add eth0.5 netns "${!1}" address "$4" type veth peer name "to-$1" netns "$boxed"
    ip -n "$boxed" addr add "$2/32" peer "$3" dev "to-$1"
    ip -n "$boxed" link set dev "to-$1" up
    ip -n "${!1}" addr add "$3/32" peer "$2" dev eth0.5
    ip -n "${!1}" link set dev eth0.5 up
}

# isolated SPACE COMMAND...: in a subshell, as `start` makes one, which executes the command.
isolated() {
    local where=$1 python options
    shift
    python=$("$venv/bin/python3" -c 'import sys; print(sys.base_prefix)')
    options=(--die-with-parent --new-session --unshare-pid --unshare-ipc --unshare-uts
        --hostname agent --cap-drop ALL --clearenv --setenv PATH /tools
        --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib
        --symlink usr/lib64 /lib64 --symlink usr/sbin /sbin
        --ro-bind /sys /sys --tmpfs /sys/block --tmpfs /sys/class/block --tmpfs /sys/dev/block
        --proc /proc --ro-bind /proc/sys /proc/sys
        --ro-bind-try /proc/sysrq-trigger /proc/sysrq-trigger
        --dev /dev --tmpfs /run --tmpfs /tmp --tmpfs /var/log
        --ro-bind /etc/ld.so.cache /etc/ld.so.cache
        --ro-bind "$work/tools" /tools --ro-bind "$venv" "$venv")
    case $python in
    /usr | /usr/*) ;;
    *) options+=(--ro-bind "$python" "$python") ;;
    esac
    exec ip netns exec "$where" bwrap "${options[@]}" --remount-ro / -- "$@"
}

# harmless: ends the test if an agent would find a disk, a capability or a writable file.
harmless() {
    local found
    # shellcheck disable=SC2016
    found=$(isolated "$first" /bin/sh -c '
        lsblk --noheadings --all
        /usr/bin/find /dev /tmp /run -type b
        [ -w /proc/sysrq-trigger ] && echo sysrq
        for file in /any /usr/any /sys/any /proc/sys/vm/drop_caches; do
            (: >"$file") 2>/tmp/output && echo "$file"
        done
        while read -r name value; do
            case $name in CapEff: | CapPrm: | CapInh:) echo "$name $value" ;; esac
        done </proc/self/status' 2>&1) || true
    found=$(sort <<<"$found" | xargs)
    [ "$found" = "CapEff: 0000000000000000 CapInh: 0000000000000000 CapPrm: 0000000000000000" ] ||
        give_up "the agent is not isolated: $found"
    pass
}

# agent NAME SPACE URL [OPTION...]: starts it; its process is $pid, its log $work/NAME.
agent() {
    local name=$1 where=$2 url=$3
    shift 3
    start "$work/$name" isolated "$where" "$venv/bin/ironic-python-agent" --api_url "$url" \
        --disk_wait_attempts 1 --disk_wait_delay 0 "$@"
}
