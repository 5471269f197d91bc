# Sourced after lab.sh by tests whose machine is a QEMU process behind OpenIPMI's ipmi_sim:
# one switch in the namespace $wire with the machine and its BMC at $bmc, a box in $boxed.
# shellcheck shell=bash disable=SC2154
need gcc ipmi_sim qemu-system-x86_64

stage_here=$root/tests/interop/chassis
node=$work/node
# Software emulation on a busy machine: wait for events, and long.
POWER_SECONDS_MAX=120

stage_cleanup() {
    local pid
    pid=$(cat "$node/pid" 2>/dev/null || true)
    [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true
    lab_cleanup
}
trap stage_cleanup EXIT

# stage NET MAC MEMORY_MIB DRIVE: lays the network NET.0/24 and puts a machine there, with
# what `qemu -drive` takes as its disk. It is off; its BMC answers at NET.201.
stage() {
    local name
    net=$1 mac=$2
    bmc=$net.201
    mkdir -p "$node" "$work/state"
    gcc -shared -fPIC -O2 -o "$work/options.so" "$stage_here/options.c" ||
        give_up "the boot options do not compile"
    for name in lan.conf sim.emu; do
        sed -e "s|@WORK@|$work|g; s|@HERE@|$stage_here|; s|@BMC@|$bmc|" "$stage_here/$name" \
            >"$work/$name"
    done
    space wire
    space boxed
    bridge "$wire" lan
    ip -n "$wire" addr add "$bmc/24" dev lan
    leg "$boxed" eth0 "$wire" lan "$net.1/24"
    ip -n "$wire" tuntap add tap0 mode tap
    ip -n "$wire" link set dev tap0 master lan
    ip -n "$wire" link set dev tap0 up
    cat >"$node/command" <<COMMAND
-accel tcg -machine q35,graphics=off -nodefaults -display none -cpu max -m $3 -smp 1
-uuid 00112233-4455-6677-8899-${mac//:/} -device virtio-rng-pci
-netdev tap,id=n0,ifname=tap0,script=no,downscript=no -device virtio-net-pci,netdev=n0,mac=$mac
-drive $4,if=virtio
-chardev socket,id=ipmi0,host=127.0.0.1,port=9101,reconnect=1
-device ipmi-bmc-extern,id=bmc0,chardev=ipmi0 -device isa-ipmi-kcs,bmc=bmc0,irq=5
COMMAND
    start "$work/sim" ip netns exec "$wire" \
        ipmi_sim -c "$work/lan.conf" -f "$work/sim.emu" -s "$work/state" -n
}

# stage_dhcp: the section of a box that gives addresses there.
stage_dhcp() {
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

# The machine's process and what it says.
process() { cat "$node/pid" 2>/dev/null || true; }
runs() { [ -n "$(process)" ] && kill -0 "$(process)" 2>/dev/null; }
stands() { ! runs; }
count() { grep -Eac -- "$1" "$node/serial" 2>/dev/null || true; }
reached() { [ "$(count "$1")" -ge "$2" ]; }

# said_times NAME TIMES PATTERN SECONDS: so many lines of its console match.
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
