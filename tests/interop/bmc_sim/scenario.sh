# Sourced after lab.sh by tests whose machines are QEMU processes behind OpenIPMI's ipmi_sim:
# one switch in the namespace $wire with the machines and their BMCs, a box in $boxed. Functions
# act on the machine that was selected last: its directory is $node, its address $mac, its BMC
# $bmc.
# shellcheck shell=bash disable=SC2154
need gcc ipmi_sim qemu-system-x86_64

scenario_here=$root/tests/interop/bmc_sim
machines=()
# Software emulation on a busy machine: wait for events, with long timeouts.
POWER_SECONDS_MAX=120

scenario_cleanup() {
    local name pid
    for name in "${machines[@]+"${machines[@]}"}"; do
        pid=$(cat "$work/$name/pid" 2>/dev/null || true)
        [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true
    done
    lab_cleanup
}
trap scenario_cleanup EXIT

# stage NET: creates the network NET.0/24; the box is NET.1.
stage() {
    net=$1
    gcc -shared -fPIC -O2 -o "$work/options.so" "$scenario_here/options.c" ||
        give_up "the boot options do not compile"
    space wire
    space boxed
    bridge "$wire" lan
    leg "$boxed" eth0 "$wire" lan "$net.1/24"
}

# machine NAME NUMBER FIRMWARE MEMORY_MIB DRIVE...: adds a machine with these disks (arguments
# of `qemu -drive`). FIRMWARE is bios or uefi (OVMF's own PXE). It is off; its BMC has the
# address NET.(200 + NUMBER).
machine() {
    local name=$1 number=$2 firmware=$3 memory=$4 octet=${net#*.} tap=tap$2 file drive id=0
    shift 4
    node=$work/$name mac=52:54:00:${octet%.*}:00:0$number bmc=$net.$((200 + number))
    machines+=("$name")
    mkdir -p "$node/state"
    printf '%s\n' "$mac" >"$node/mac"
    printf '%s\n' "$bmc" >"$node/bmc"
    for file in lan.conf sim.emu; do
        sed -e "s|@WORK@|$work|g; s|@NODE@|$node|g; s|@HERE@|$scenario_here|g" \
            -e "s|@BMC@|$bmc|; s|@NUMBER@|$number|; s|@MAC@|02${mac#52}|" \
            "$scenario_here/$file" >"$node/$file"
    done
    ip -n "$wire" addr add "$bmc/24" dev lan
    ip -n "$wire" tuntap add "$tap" mode tap
    ip -n "$wire" link set dev "$tap" master lan
    ip -n "$wire" link set dev "$tap" up
    {
        echo "-accel tcg -nodefaults -display none -cpu max -m $memory -smp 1"
        echo "-uuid 00112233-4455-6677-8899-${mac//:/} -device virtio-rng-pci"
        echo "-netdev tap,id=n0,ifname=$tap,script=no,downscript=no"
        case $firmware in
        bios)
            echo "-machine q35,graphics=off -device virtio-net-pci,netdev=n0,mac=$mac"
            for drive; do echo "-drive $drive,if=virtio"; done
            ;;
        uefi)
            cp /usr/share/OVMF/OVMF_VARS_4M.fd "$node/vars"
            echo "-machine q35"
            echo "-drive if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd"
            echo "-drive if=pflash,format=raw,file=$node/vars"
            echo "-device virtio-net-pci,netdev=n0,mac=$mac,bootindex=@NET@,romfile="
            for drive; do
                echo "-drive $drive,if=none,id=d$id"
                # By default only the first disk is a boot device.
                echo "-device virtio-blk-pci,drive=d$id$([ $id -ne 0 ] || echo ,bootindex=@DISK@)"
                id=$((id + 1))
            done
            ;;
        esac
        echo "-chardev socket,id=ipmi0,host=127.0.0.1,port=910$number,reconnect=1"
        echo "-device ipmi-bmc-extern,id=bmc0,chardev=ipmi0 -device isa-ipmi-kcs,bmc=bmc0,irq=5"
    } >"$node/command"
    start "$node/sim" ip netns exec "$wire" \
        ipmi_sim -c "$node/lan.conf" -f "$node/sim.emu" -s "$node/state" -n
}

# at NAME: selects that machine.
at() {
    node=$work/$1
    mac=$(cat "$node/mac") bmc=$(cat "$node/bmc")
    uuid=$(cat "$node/uuid" 2>/dev/null || true)
}

# scenario_dhcp: the section of a box that gives addresses on this network.
scenario_dhcp() {
    cat <<TOML
[[dhcp]]
interface = "eth0"
mode = "server"
network = "$net.0/24"
first = "$net.50"
last = "$net.60"
server = "$net.1"
TOML
}

# The machine's process and its console output.
process() { cat "$node/pid" 2>/dev/null || true; }
runs() { [ -n "$(process)" ] && kill -0 "$(process)" 2>/dev/null; }
stands() { ! runs; }
count() { grep -Eac -- "$1" "$node/serial" 2>/dev/null || true; }
reached() { [ "$(count "$1")" -ge "$2" ]; }

# said_times NAME TIMES PATTERN SECONDS: this many lines of its console match.
said_times() {
    if await "$4" reached "$3" "$2"; then
        pass
    else
        fail "$1" "$2 times $3" "$(tail -c 1500 "$node/serial" 2>/dev/null | tr -d '\033')"
    fi
}

# field NAME: of the record of the node $uuid.
field() {
    call GET "/v1/nodes/$uuid" | python3 -c "import json, sys; print(json.load(sys.stdin)['$1'])"
}
is() { [ "$(field "$1")" = "$2" ]; }
