# Sourced after harness.sh by tests that drive an agent end to end, the stock Ironic Python Agent
# or our own: the ramdisk that `trivet-image` builds, QEMU machines behind ipmi_sim, a box that is driven by the
# `baremetal` command, and a system image that prints its config drive on the serial line. Needs
# root.
# shellcheck shell=bash disable=SC2154

# shellcheck source=../lab.sh
. "$root/tests/interop/lab.sh"
# shellcheck source=../bmc_sim/scenario.sh
. "$root/tests/interop/bmc_sim/scenario.sh"
PATH=$PATH:/usr/sbin:/sbin
need busybox cpio mcopy mkfs.fat qemu-img sfdisk syslinux
baremetal=$root/target/venv/bin/baremetal
[ -x "$baremetal" ] || give_up "no baremetal in target/venv; tests/run makes it"
build
marker=trivet-marker-$$

# A machine's own steps take some hundred seconds of a core; a busy machine has less.
JOB_SECONDS_MAX=1500
SYSTEM_SECONDS_MAX=400
# Memory that the agent and the ramdisk need.
MEMORY_MIB=3072
KERNEL_ARGS="console=ttyS0 quiet mitigations=off"

# The modules that the system loads.
SYSTEM_MODULES="virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci
    virtio_blk cdrom isofs crc16 crc32c_generic mbcache jbd2 ext4 md-mod raid1 crct10dif_common
    crc-t10dif crc64 crc64-rocksoft t10-pi scsi_common scsi_mod sd_mod libata libahci ahci
    nvme-core nvme"

# took SINCE: the duration of a stage, for display.
took() { echo "$((SECONDS - $1)) s"; }

# static_agent: our agent as its ramdisk needs it, in $agent_program; built where it was not
# built before.
static_agent() {
    local target=x86_64-unknown-linux-musl built=${CARGO_TARGET_DIR:-$root/target}
    agent_program=${TRIVET_AGENT_PROGRAM:-$built/$target/appliance/trivet-agent}
    [ -z "${TRIVET_AGENT_PROGRAM-}" ] || return 0
    mkdir -p "$built"
    # rustup fails when two suites add the target at the same time.
    (
        exec 9>"$built/static-agent.lock"
        flock 9
        cd "$root"
        rustup target list --installed | grep -qx "$target" || rustup -q target add "$target"
        cargo build --locked -q --profile appliance --target "$target" -p trivet-image-agent 9>&-
    ) || give_up "the agent cannot be built"
}

# agent_ramdisk [AGENT [OPTION...]]: kernel and ramdisk with an agent, in $work/agent: ipa
# (default) is the stock one, trivet our own. Cached in target.
agent_ramdisk() {
    local since=$SECONDS lock
    agent=${1:-ipa}
    shift $(($# > 0))
    trivet_image=${CARGO_TARGET_DIR:-$root/target}/release/trivet-image
    [ -x "$trivet_image" ] ||
        (cd "$root" && cargo build --locked -q --release -p trivet-image-ramdisk)
    mkdir -p "$lab_cache"
    # Suites that run at the same time do not build the same.
    lock=$lab_cache/$agent-$(cksum <<<"$*" | cut -d ' ' -f 1).lock
    flock "$lock" "$trivet_image" ramdisk --agent "$agent" \
        --output "$work/agent" --cache "$lab_cache/ipa" "$@" ||
        give_up "the ramdisk cannot be built"
    echo "  the ramdisk: ready after $(took "$since")"
}

# system_initrd FILE [PROGRAM...]: a system in a ramdisk, with these programs of this machine.
# It assembles RAID volumes if it has mdadm, switches to a root file system if the kernel line
# names one, and prints the content of its config drive.
system_initrd() {
    local file=$1 tree=$work/system module program
    shift
    rm -rf "$tree"
    mkdir -p "$tree/bin" "$tree/dev" "$tree/proc" "$tree/sys" "$tree/mnt" "$tree/root" "$tree/modules"
    cp "$(command -v busybox)" "$tree/bin/busybox"
    for program; do copy_program "$program" "$tree"; done
    for module in $SYSTEM_MODULES; do
        cp "$lab_modules/$module.ko" "$tree/modules/"
    done
    echo "$SYSTEM_MODULES" >"$tree/modules/order"
    cat >"$tree/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
exec </dev/console >/dev/ttyS0 2>&1
# Module dependencies differ between kernels: a module that cannot load yet loads in the next
# round.
for round in 1 2 3 4; do
    for module in $(cat /modules/order); do insmod "/modules/$module.ko" 2>/dev/null; done
done
for word in $(cat /proc/cmdline); do
    case $word in
    trivet.root=*) label=${word#trivet.root=} ;;
    esac
done
! command -v mdadm >/dev/null || { sleep 1; mdadm --assemble --scan; }
if [ -n "${label-}" ]; then
    for try in 1 2 3 4 5 6 7 8 9 10; do
        disk=$(findfs "LABEL=$label") && mount -t ext4 "$disk" /root && break
        sleep 1
    done
    umount /proc /sys
    exec switch_root /root /sbin/init "$disk"
fi
. /say
INIT
    cat >"$tree/say" <<'SAY'
for try in 1 2 3 4 5 6 7 8 9 10; do
    for disk in /dev/vd?[0-9]* /dev/sd?[0-9]* /dev/nvme?n?p* /dev/md*p*; do
        mount -t iso9660 -o ro "$disk" /mnt 2>/dev/null && break 2
    done
    sleep 1
done
firmware=bios
[ ! -d /sys/firmware/efi ] || firmware=uefi
echo "TRIVET-BOOTED by $firmware"
[ ! -e /proc/mdstat ] || sed -n 's/^\(md.*\)/TRIVET-RAID \1/p' /proc/mdstat
echo "TRIVET-SYSTEM $(cat /mnt/openstack/latest/meta_data.json)"
echo "TRIVET-USER-DATA $(cat /mnt/openstack/latest/user_data)"
echo "TRIVET-END"
while :; do sleep 1000; done
SAY
    chmod +x "$tree/init"
    (cd "$tree" && find . | cpio --quiet -o -H newc | gzip -1) >"$file"
}

# system_image FILE LOADER [PROGRAM...]: a disk of 256 MiB with that system, which BIOS and UEFI
# boot. UEFI finds its loader by the default path (LOADER is fallback), or only by a boot entry
# in the firmware (named).
system_image() {
    local file=$1 loader=$2 part=$work/part.img
    shift 2
    system_initrd "$work/initrd.gz" "$@"
    rm -f "$part" "$file"
    truncate -s 64M "$part"
    mkfs.fat -n SYSTEM "$part" >"$work/answer"
    printf 'SERIAL 0\nDEFAULT s\nLABEL s\n  KERNEL vmlinuz\n  INITRD initrd.gz\n  APPEND %s\n' \
        "$KERNEL_ARGS" >"$work/syslinux.cfg"
    printf 'title system\nlinux /vmlinuz\ninitrd /initrd.gz\noptions %s\n' "$KERNEL_ARGS" \
        >"$work/system.conf"
    printf 'system.efi,Trivet system,,the system of a test\n' | iconv -t UTF-16 >"$work/boot.csv"
    mmd -i "$part" ::loader ::loader/entries ::EFI
    mcopy -i "$part" "$kernel" ::vmlinuz
    mcopy -i "$part" "$work/initrd.gz" "$work/syslinux.cfg" ::
    mcopy -i "$part" "$work/system.conf" ::loader/entries/system.conf
    case $loader in
    fallback)
        mmd -i "$part" ::EFI/BOOT
        mcopy -i "$part" "$EFI_LOADER" ::EFI/BOOT/BOOTX64.EFI
        ;;
    named)
        mmd -i "$part" ::EFI/trivet
        mcopy -i "$part" "$EFI_LOADER" ::EFI/trivet/system.efi
        mcopy -i "$part" "$work/boot.csv" ::EFI/trivet/BOOTX64.CSV
        ;;
    esac
    syslinux --install "$part"
    truncate -s 256M "$file"
    printf 'label: gpt\nstart=2048, size=131072, type=U, attrs=LegacyBIOSBootable\n' |
        sfdisk -q "$file"
    dd if=/usr/lib/syslinux/mbr/gptmbr.bin of="$file" bs=440 count=1 conv=notrunc status=none
    dd if="$part" of="$file" bs=1M seek=1 conv=notrunc status=none
}
EFI_LOADER=/usr/lib/systemd/boot/efi/systemd-bootx64.efi

# empty_disk FILE: a disk of 6 GiB; the agent writes to none below 4 GiB.
empty_disk() { qemu-img create -q -f qcow2 "$1" 6G; }

# offer FILE...: images that the box has when it starts.
offer() {
    mkdir -p "$work/data/images"
    cp "$@" "$work/data/images/"
}

# life_box [TOML]: a box for the machines of the scenario, with more settings.
life_box() {
    box_settings "$net.1"
    cat >>"$work/trivet.toml" <<TOML
[boot]
loaders = "/usr/lib/ipxe"
kernel = "$work/agent/$agent.kernel"
ramdisk = "$work/agent/$agent.initramfs"
kernel_args = "$KERNEL_ARGS"
[agent]
heartbeat_timeout_s = 60
${1-}
$(scenario_dhcp)
TOML
    box_serve "$boxed"
}

cli() { ip netns exec "$boxed" "$baremetal" --os-auth-type none --os-endpoint "$api" "$@"; }

# enlist NAME WORD...: creates the node of a machine, with more arguments of `node create`.
enlist() {
    local name=$1
    shift
    at "$name"
    uuid=$(cli node create --driver ipmi --name "$name" --driver-info "ipmi_address=$bmc" \
        --driver-info ipmi_username=admin --driver-info ipmi_password=password \
        -f value -c uuid "$@") || give_up "no node $name" "$work/box"
    echo "$uuid" >"$node/uuid"
    cli port create "$mac" --node "$uuid" >"$work/output" || give_up "no port of $name" "$work/output"
}

# ask NAME VERB WORD...: runs a verb of the command for a node, without waiting.
ask() {
    local name=$1 verb=$2
    shift 2
    cli node "$verb" "$name" "$@" >"$work/output" 2>&1 || {
        fail "$verb $name" "taken" "$(cat "$work/output")"
        finish life "$work/box"
        exit 1
    }
    requested=$SECONDS
}

settled() {
    local state
    state=$(field provision_state)
    [ "$state" = "$1" ] && is target_provision_state None || [[ "$state" =~ failed|error ]]
}

# comes NAME STATE [SINCE]: waits for the state and prints how long it took. Otherwise the test
# ends.
comes() {
    local name=$1 state=$2 since=${3:-$requested}
    at "$name"
    await "$JOB_SECONDS_MAX" settled "$state" || true
    if is provision_state "$state"; then
        pass
        echo "  $name: $state after $(took "$since")"
    else
        tail -c 1500 "$node/serial" | tr -d '\033' >&2
        fail "$name" "$state" "$(field provision_state): $(field last_error)"
        finish life "$work/box"
        exit 1
    fi
}

# does NAME STATE VERB WORD...: runs a verb and waits for the state.
does() {
    local name=$1 state=$2
    shift 2
    echo "  $name: $1"
    ask "$name" "$@"
    comes "$name" "$state"
}

# The config drive of a machine, and a check that the system has read it.
config_drive() { # NAME
    echo "{\"meta_data\": {\"marker\": \"$marker-$1\"}, \"user_data\": \"user-$marker-$1\"}"
}

# system_boots NAME FIRMWARE: the deployed system has booted with this firmware and has printed
# all.
system_boots() {
    local since=$SECONDS
    at "$1"
    await "$SYSTEM_SECONDS_MAX" reached TRIVET-END 1 || {
        fail "$1" "its system" "$(tail -c 1500 "$node/serial" | tr -d '\033')"
        finish life "$work/box"
        exit 1
    }
    echo "  $1: its system runs after $(took "$since")"
    said_times "$1: and the node's name" 1 "TRIVET-SYSTEM .*\"name\":\"$1\"" 1
    said_times "$1: booted by $2" 1 "TRIVET-BOOTED by $2" 1
}

# system_runs NAME FIRMWARE: the same, with the config drive of `config_drive`.
system_runs() {
    system_boots "$1" "$2"
    said_times "$1: the system reads its config drive" 1 \
        "TRIVET-SYSTEM .*\"marker\":\"$marker-$1\"" 1
    said_times "$1: and its user data" 1 "TRIVET-USER-DATA user-$marker-$1" 1
}

# is_off NAME: switched off, and its process has ended.
is_off() {
    at "$1"
    cli node power off "$1" --power-timeout 60
    await "$POWER_SECONDS_MAX" stands || fail "$1: power off" "no process" "$(process)"
}

# disk_is DISK IMAGE: its bytes are the image's, except for the partition table at the start and
# its copy at the end, which grow with the disk.
disk_is() {
    local size
    size=$(stat -c %s "$2")
    qemu-img convert -O raw "$1" "$work/disk.raw"
    if cmp -i $((1 << 20)) -n $((size - (2 << 20))) "$work/disk.raw" "$2"; then pass; else
        fail "the disk" "the image's bytes" "others"
    fi
}

# disk_is_empty DISK: no partition is left.
disk_is_empty() {
    qemu-img convert -O raw "$1" "$work/disk.raw"
    same "partitions that are left" 0 "$(sfdisk -d "$work/disk.raw" 2>/dev/null | grep -c start= || true)"
}

# inspection_is_complete NAME: the agent has reported memory and BMC address.
inspection_is_complete() {
    at "$1"
    same "the agent counted its memory" 1 \
        "$(field properties | grep -c "'memory_mb': $MEMORY_MIB")"
    cli node inventory save "$1" --file "$work/inventory"
    same "and found its BMC" 1 "$(grep -c "\"bmc_address\": *\"$bmc\"" "$work/inventory")"
}

# whole_life NAME FIRMWARE WORD...: enrol (with more arguments of `node create`), manage,
# inspect, provide (which erases partition tables), deploy with a config drive: the system runs.
# Its image is $work/system.raw.
whole_life() {
    local name=$1 firmware=$2
    shift 2
    echo "== the lifecycle of a machine"
    enlist "$name" "$@"
    does "$name" manageable manage
    does "$name" manageable inspect
    inspection_is_complete "$name"
    does "$name" available provide
    cli node set "$name" --instance-info image_source=system.raw
    does "$name" active deploy --config-drive "$(config_drive "$name")"
    system_runs "$name" "$firmware"
}

# life_ends NAME DISK: its disk has the image until it is undeployed, and is then empty.
life_ends() {
    echo "== undeploy"
    is_off "$1"
    disk_is "$2" "$work/system.raw"
    does "$1" available undeploy
    # An agent may still run.
    is_off "$1"
    disk_is_empty "$2"
}
