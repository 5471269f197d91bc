# Sourced after harness.sh by tests that need a LAN: network namespaces with links between them,
# a box in one of them, captures, a kernel with a small ramdisk, and QEMU guests with real
# firmware. All names contain this process's id; everything ends with the test. Needs root. No
# traffic leaves the namespaces.
# shellcheck shell=bash disable=SC2154

[ "$(id -u)" -eq 0 ] || {
    echo "network namespaces need root" >&2
    exit 3
}
need ip curl python3 tcpdump

interop=$root/tests/interop
lab_cache=${CARGO_TARGET_DIR:-$root/target}/lab
spaces=()

lab_cleanup() {
    local space
    cleanup
    for space in "${spaces[@]+"${spaces[@]}"}"; do
        ip netns del "$space" 2>/dev/null || true
    done
}
trap lab_cleanup EXIT

# space NAME: a namespace, in $NAME. IPv6 is off by default, so that only the programs under
# test send frames.
space() {
    local name=trivet-$1-$$
    ip netns add "$name"
    spaces+=("$name")
    ip netns exec "$name" sysctl -qw net.ipv6.conf.default.disable_ipv6=1 \
        net.ipv6.conf.all.disable_ipv6=1
    ip -n "$name" link set lo up
    printf -v "$1" %s "$name"
}

# in_space SPACE COMMAND...: `start` may run it too, its process is the command's own.
in_space() { ip netns exec "$@"; }

# bridge SPACE NAME: a switch that forwards at once and sends nothing itself.
bridge() {
    ip -n "$1" link add name "$2" type bridge forward_delay 0 mcast_snooping 0
    ip -n "$1" link set dev "$2" up
}

# leg SPACE INTERFACE WIRE BRIDGE [ADDRESS [MAC]]: an interface connected to a bridge of WIRE.
legs=0
leg() {
    local peer
    legs=$((legs + 1))
    peer=leg$legs
    ip link add "$2" netns "$1" type veth peer name "$peer" netns "$3"
    [ -z "${6-}" ] || ip -n "$1" link set dev "$2" address "$6"
    ip -n "$3" link set dev "$peer" master "$4"
    ip -n "$3" link set dev "$peer" up
    [ -z "${5-}" ] || ip -n "$1" addr add "$5" dev "$2"
    ip -n "$1" link set dev "$2" up
}

# peer_of SPACE INTERFACE: the far end of a leg, in $wire.
peer_of() {
    local number
    number=$(in_space "$1" cat "/sys/class/net/$2/iflink")
    ip -n "$wire" -o link | awk -F'[: @]+' -v number="$number" '$1 == number {print $2}'
}

# mac_of SPACE INTERFACE
mac_of() { in_space "$1" cat "/sys/class/net/$2/address"; }

# capture SPACE INTERFACE FILE [FILTER...]: every frame, until `end $pid`.
capture() {
    local where=$1 interface=$2 file=$3
    shift 3
    start "$work/tcpdump" ip netns exec "$where" tcpdump -i "$interface" -n -s 0 -U \
        --immediate-mode -Z root -w "$file" "$@"
    # The file's header is written when the capture has started.
    await 30 test -s "$file" || give_up "tcpdump does not start" "$work/tcpdump"
}

# end PID [SIGNAL]: ends a process of the test and waits for its end.
end() {
    kill "-${2:-TERM}" "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
    forget "$1"
}

# frames FILE: the DHCP messages of a capture, one line per frame (see frames.py).
frames() { python3 "$interop/frames.py" "$@"; }

# hears SECONDS PATTERN FILE: waits until a line matches.
hears() { await "$1" grep -Eqa -- "$2" "$3"; }

# Settings of the box up to its DHCP sections, which the caller adds to $work/trivet.toml.
# box_settings ADDRESS: where nodes reach it.
box_settings() {
    box=$1
    api=http://$box:6385
    mkdir -p "$work/data/images" "$work/loaders"
    cat >"$work/trivet.toml" <<TOML
[box]
data = "$work/data"
store_mib = 16
[api]
listen = "$box:6385"
allow_open = true
[http]
listen = "$box:8080"
[tftp]
listen = "$box:69"
TOML
}

# box_serve SPACE: starts a box and waits for its API; its process is $box_pid, its log
# $work/box.
box_serve() {
    box_space=$1
    start "$work/box" ip netns exec "$1" "$trivet" serve --config "$work/trivet.toml"
    box_pid=$pid
    await 300 in_space "$1" curl -sf --max-time 10 -o "$work/answer" "$api/v1" ||
        give_up "the box does not answer at $api" "$work/box"
    # The reply may come from another box that still has the port.
    kill -0 "$box_pid" || give_up "the box has ended" "$work/box"
}

# box_ends [SIGNAL]
box_ends() { end "$box_pid" "${1:-TERM}"; }

# call METHOD PATH [BODY]: a request to the box's API; prints the reply.
call() {
    in_space "$box_space" curl -sS --fail-with-body --max-time 60 -X "$1" \
        -H 'Content-Type: application/json' -H 'X-OpenStack-Ironic-API-Version: 1.104' \
        ${3:+-d "$3"} "$api$2"
}

# enrol NAME MAC: a node under inspection, so that it must boot the agent. Its power is switched
# manually: here by starting QEMU.
enrol() {
    local uuid
    uuid=$(call POST /v1/nodes "{\"name\": \"$1\", \"driver\": \"manual-management\"}" |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["uuid"])')
    call POST /v1/ports "{\"node_uuid\": \"$uuid\", \"address\": \"$2\"}" >"$work/answer"
    call PUT "/v1/nodes/$uuid/states/provision" '{"target": "manage"}'
    hears 60 "$1: (enroll|verifying) -> manageable" "$work/box" ||
        give_up "$1 does not become manageable" "$work/box"
    call PUT "/v1/nodes/$uuid/states/provision" '{"target": "inspect"}'
    hears 60 "$1: inspecting -> inspect wait" "$work/box" ||
        give_up "$1 does not wait for its agent" "$work/box"
}

# kernel_and_ramdisk: Debian's kernel for virtual machines and a ramdisk that prints its boot
# interface and switches off: $kernel and $ramdisk. Cached in target.
kernel_and_ramdisk() {
    local package tree=$lab_cache/ramdisk
    need apt-get busybox cpio dpkg-deb gzip
    kernel=$lab_cache/vmlinuz ramdisk=$lab_cache/ramdisk.gz
    mkdir -p "$lab_cache"
    if [ ! -s "$kernel" ]; then
        (cd "$lab_cache" && { fetch_kernel cloud-amd64 ||
            { apt-get -qq update && fetch_kernel cloud-amd64; }; }) \
            >"$work/apt" 2>&1 || give_up "no kernel from Debian" "$work/apt"
        package=$(ls -t "$lab_cache"/linux-image-*.deb | head -n 1)
        rm -rf "$lab_cache/kernel"
        dpkg-deb -x "$package" "$lab_cache/kernel"
        cp "$lab_cache"/kernel/boot/vmlinuz-* "$kernel.new"
        rm -rf "$lab_cache/kernel" "$package"
        mv "$kernel.new" "$kernel"
    fi
    rm -rf "$tree"
    mkdir -p "$tree/bin" "$tree/dev" "$tree/proc"
    cp "$(command -v busybox)" "$tree/bin/busybox"
    cat >"$tree/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
for word in $(/bin/busybox cat /proc/cmdline); do
    case $word in
    BOOTIF=*) from=${word#BOOTIF=} ;;
    ipa-api-url=*) box=${word#ipa-api-url=} ;;
    esac
done
echo "TRIVET-INIT booted from $from, box $box" >/dev/ttyS0
/bin/busybox poweroff -f
INIT
    chmod +x "$tree/init"
    (cd "$tree" && find . | cpio --quiet -o -H newc | gzip -1) >"$ramdisk"
}

fetch_kernel() { # FLAVOUR
    local package
    package=$(apt-cache depends "linux-image-$1" |
        awk '/Depends: linux-image/ {print $2; exit}')
    [ -n "$package" ] && apt-get -qq download "$package"
}

# Modules of the kernel for real machines that guests of some test load.
FULL_MODULES="ahci button cdrom crc-t10dif crc16 crc32c_generic crc64 crc64-rocksoft
    crct10dif_common evdev ext4 ipmi_devintf ipmi_msghandler ipmi_si isofs jbd2 libahci libata
    mbcache md-mod nvme nvme-core raid1 scsi_common scsi_mod sd_mod t10-pi virtio virtio_blk
    virtio_pci virtio_pci_legacy_dev virtio_pci_modern_dev virtio_ring"

# full_kernel: Debian's kernel for real machines in $kernel, and these modules of it in
# $lab_modules. Cached in target.
full_kernel() {
    local tree=$lab_cache/full
    need apt-get dpkg-deb
    kernel=$tree/vmlinuz lab_modules=$tree/modules
    mkdir -p "$lab_cache"
    (
        # Suites that run at the same time do not unpack the same.
        flock 9
        unpack_full_kernel "$tree"
    ) 9>"$lab_cache/full.lock" || exit 1
}

unpack_full_kernel() { # TREE
    local module package tree=$1
    for module in $FULL_MODULES; do
        [ -s "$lab_modules/$module.ko" ] || rm -f "$kernel"
    done
    [ ! -s "$kernel" ] || return 0
    rm -rf "$tree"
    mkdir -p "$lab_modules"
    (cd "$tree" && { fetch_kernel amd64 || { apt-get -qq update && fetch_kernel amd64; }; }) \
        >"$work/apt" 2>&1 || give_up "no kernel from Debian" "$work/apt"
    package=$(ls -t "$tree"/linux-image-*.deb | head -n 1)
    dpkg-deb -x "$package" "$tree/all"
    for module in $FULL_MODULES; do
        find "$tree/all/lib/modules" -name "$module.ko" -exec cp {} "$lab_modules/" \;
        [ -s "$lab_modules/$module.ko" ] || give_up "Debian's kernel has no module $module"
    done
    cp "$tree"/all/boot/vmlinuz-* "$kernel.new"
    rm -rf "$tree/all" "$package"
    mv "$kernel.new" "$kernel"
}

# copy_program NAME TREE: a program of this machine and its libraries.
copy_program() {
    local file
    file=$(command -v "$1") || give_up "no program $1"
    mkdir -p "$2/bin"
    cp -L "$file" "$2/bin/"
    for file in $(ldd "$file" | grep -o '/[^ ]*'); do
        mkdir -p "$2$(dirname "$file")"
        cp -L "$file" "$2$file"
    done
}

# tap_of MAC: the switch port of a guest.
tap_of() {
    local digits=${1//:/}
    echo "tap-${digits: -8}"
}

# guest NAME FIRMWARE SPACE BRIDGE MAC: power on. FIRMWARE is bios (SeaBIOS with the iPXE ROM of
# its card), pxe (OVMF's own PXE) or http (OVMF's HTTP boot). Its process is $pid, its serial
# console $work/NAME.serial. Emulated, because not every machine has KVM.
guest() {
    local name=$1 firmware=$2 where=$3 switch=$4 mac=$5 tap options
    tap=$(tap_of "$mac")
    # It may have been on before.
    ip -n "$where" link del "$tap" 2>/dev/null || true
    ip -n "$where" tuntap add "$tap" mode tap
    ip -n "$where" link set dev "$tap" master "$switch"
    ip -n "$where" link set dev "$tap" up
    case $firmware in
    bios)
        options=(-machine "q35,graphics=off" -boot n
            -device "virtio-net-pci,netdev=n0,mac=$mac")
        ;;
    pxe | http)
        cp /usr/share/OVMF/OVMF_VARS_4M.fd "$work/$name.vars"
        options=(-machine q35 -device virtio-rng-pci
            -drive "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd"
            -drive "if=pflash,format=raw,file=$work/$name.vars"
            -device "virtio-net-pci,netdev=n0,mac=$mac,bootindex=1,romfile=")
        [ "$firmware" = pxe ] || options+=(
            -fw_cfg "name=opt/org.tianocore/IPv4PXESupport,string=n"
            -fw_cfg "name=opt/org.tianocore/IPv6PXESupport,string=n")
        ;;
    esac
    start "$work/$name.qemu" ip netns exec "$where" qemu-system-x86_64 -accel tcg -nodefaults \
        -display none -cpu max -m 512 -smp 1 -no-reboot -serial "file:$work/$name.serial" \
        -uuid "00112233-4455-6677-8899-${mac//:/}" \
        -netdev "tap,id=n0,ifname=$tap,script=no,downscript=no" "${options[@]}"
}
