# Sourced by run: our agent as a service, isolated, with one loop device as its only disk, in a
# cgroup with a limit of its memory.
# shellcheck shell=bash disable=SC2154

# service_disk GIB: a file of this size and its loop device. Both are removed with the test.
service_disk() {
    truncate -s "$1G" "$work/large.disk"
    # Without the page cache, which would be counted as memory of the agent.
    loop=$(losetup --find --show --direct-io=on "$work/large.disk") ||
        give_up "no loop device"
    trap service_cleanup EXIT
}
service_cleanup() {
    scenario_cleanup
    losetup --detach "$loop" 2>/dev/null || true
    [ -z "${group-}" ] || rmdir "$group" 2>/dev/null || true
}

# memory_group: a cgroup in $group with this limit; of version 2, or of version 1.
memory_group() {
    local root=/sys/fs/cgroup
    if [ -e "$root/cgroup.controllers" ]; then
        echo +memory >"$root/cgroup.subtree_control" || give_up "no memory controller"
        group=$root/trivet-agent-$$
        mkdir "$group"
        echo "$1" >"$group/memory.max"
        # Not available everywhere: without it, nothing is swapped anyway.
        echo 0 >"$group/memory.swap.max" 2>/dev/null || true
    elif [ -d "$root/memory" ]; then
        group=$root/memory/trivet-agent-$$
        mkdir "$group"
        echo "$1" >"$group/memory.limit_in_bytes"
    else
        give_up "no cgroup for memory"
    fi
}
peak() { cat "$group/memory.peak" 2>/dev/null || cat "$group/memory.max_usage_in_bytes"; }
kills() {
    local file=$group/memory.events
    [ -e "$file" ] || file=$group/memory.oom_control
    awk '$1 == "oom_kill" { print $2 }' "$file"
}

# service: the agent, in its own namespace and cgroup. It sees the loop device as /dev/vda, and
# no other disk. In a subshell, as `start` makes one.
service() {
    # shellcheck disable=SC2016
    exec bash -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' _ "$group" \
        ip netns exec "$svc" bwrap --die-with-parent --unshare-pid --clearenv \
        --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib \
        --symlink usr/lib64 /lib64 --ro-bind /sys /sys --tmpfs /sys/block \
        --symlink "../devices/virtual/block/${loop#/dev/}" /sys/block/vda \
        --proc /proc --dev /dev --dev-bind "$loop" /dev/vda --tmpfs /tmp --tmpfs /run \
        --ro-bind "$agent_program" /trivet-agent -- /trivet-agent --api-url "$api"
}

# service_deploys NAME: the box deploys the image NAME.raw to the service.
service_deploys() {
    space svc
    # The name of a VLAN: other interfaces without a device of their own are not listed.
    leg "$svc" eth0.5 "$wire" lan "$net.90/24" 52:54:00:89:00:09
    node=$work/$1
    mkdir -p "$node"
    awaited "$1" 52:54:00:89:00:09
    memory_group "$MEMORY_BYTES_MAX"
    start "$work/service" service
    await "$JOB_SECONDS_MAX" is_switched_off "$1" || true
    end "$pid"
    await "$JOB_SECONDS_MAX" settled active || true
    if is provision_state active; then pass; else
        fail "$1" active "$(field provision_state): $(field last_error)"
        tail -n 20 "$work/service" >&2
    fi
}
