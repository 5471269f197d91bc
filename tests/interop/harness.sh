# Sourced by interop tests: the program, a directory that is removed with the test, counted
# checks, processes that end with the test, and a box on loopback.
# shellcheck shell=bash
set -eu

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
trivet=${TRIVET_PROGRAM:-${CARGO_TARGET_DIR:-$root/target}/release/trivet}
# TRIVET_KEEP=1 keeps this directory, with all logs, when the test ends.
work=$(mktemp -d)
pids=()
passes=0
failures=0

cleanup() {
    local pid
    for pid in "${pids[@]+"${pids[@]}"}"; do
        kill "$pid" 2>/dev/null || true
    done
    for pid in "${pids[@]+"${pids[@]}"}"; do
        # Processes that do not end by themselves within 10 s are killed.
        for _ in $(seq 100); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -9 "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    if [ -n "${TRIVET_KEEP-}" ]; then
        echo "kept $work" >&2
    else
        rm -rf "$work"
    fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# need PROGRAM...: ends the test with a message if one is missing.
need() {
    local program
    for program; do
        command -v "$program" >/dev/null || {
            echo "$program is missing; tests/run installs what the tests need" >&2
            exit 3
        }
    done
}

build() {
    [ -n "${TRIVET_PROGRAM-}" ] || [ -x "$trivet" ] || (cd "$root" && cargo build --locked --release)
}

# example PACKAGE NAME: the path of an example of ours, in $example. tests/run has built it, in the
# release build, which no test locks.
example() {
    example=${CARGO_TARGET_DIR:-$root/target}/release/examples/$2
    [ -x "$example" ] ||
        (cd "$root" && cargo build --locked --release --quiet -p "$1" --example "$2") ||
        give_up "the example $2 cannot be built"
}

pass() { passes=$((passes + 1)); }

# fail NAME WANTED GOT
fail() {
    failures=$((failures + 1))
    {
        echo "MISMATCH $1"
        echo "  wanted: $2"
        echo "  got:    $3"
    } >&2
}

# give_up REASON LOG...: ends the test and shows the ends of the logs.
give_up() {
    local log
    echo "GAVE UP: $1" >&2
    shift
    for log; do
        echo "--- the end of $(basename "$log"):" >&2
        tail -n 30 "$log" >&2 || true
    done
    exit 1
}

finish() { # NAME [LOG...]
    local name=$1 log
    shift
    if [ "$failures" -ne 0 ]; then
        for log; do
            echo "--- the end of $(basename "$log"):" >&2
            tail -n 30 "$log" >&2 || true
        done
    fi
    echo "$name interop: $passes checks passed, $failures failed"
    [ "$failures" -eq 0 ]
}

# run COMMAND...: its output is in $output and its exit code in $status.
run() {
    status=0
    output=$(timeout 120 "$@" 2>&1 </dev/null) || status=$?
}

# expect NAME PATTERN COMMAND...: exit code 0 and a line that matches.
expect() {
    local name=$1 pattern=$2
    shift 2
    run "$@"
    if [ "$status" -eq 0 ] && grep -Eq -- "$pattern" <<<"$output"; then
        pass
    else
        fail "$name" "exit 0 and $pattern" "exit $status: $output"
    fi
}

# refuses NAME STATUS PATTERN COMMAND...: that exit code and a line that matches.
refuses() {
    local name=$1 want=$2 pattern=$3
    shift 3
    run "$@"
    if [ "$status" -eq "$want" ] && grep -Eq -- "$pattern" <<<"$output"; then
        pass
    else
        fail "$name" "exit $want and $pattern" "exit $status: $output"
    fi
}

# same NAME WANTED GOT
same() {
    if [ "$2" = "$3" ]; then pass; else fail "$1" "$2" "$3"; fi
}

# at_most NAME LIMIT VALUE
at_most() {
    if [ "$3" -le "$2" ]; then pass; else fail "$1" "at most $2" "$3"; fi
}

# await SECONDS COMMAND...: repeats it until it succeeds or the time is over.
await() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.1
    done
}

# free_ports KIND IP COUNT: different free ports, KIND is tcp or udp.
free_ports() {
    python3 - "$@" <<'PYTHON'
import socket, sys
kind, ip, count = sys.argv[1:]
kind = socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM
held = [socket.socket(socket.AF_INET, kind) for _ in range(int(count))]
for one in held:
    one.bind((ip, 0))
print(*[one.getsockname()[1] for one in held])
PYTHON
}

# settings NET: writes $work/trivet.toml for a box on loopback and the files it serves. NET is
# the second number of its addresses, so that no two tests share a network.
settings() {
    box=127.$1.0.1
    relay=127.$1.0.2
    read -r api_port http_port panel_port <<<"$(free_ports tcp 127.0.0.1 3)"
    read -r tftp_port dhcp_port <<<"$(free_ports udp "$box" 2)"
    api=http://127.0.0.1:$api_port
    http=http://127.0.0.1:$http_port
    page=http://127.0.0.1:$panel_port
    mkdir -p "$work/data/images" "$work/loaders" "$work/agent" "$work/files"
    head -c 300000 /dev/urandom >"$work/loaders/snponly.efi"
    head -c 100000 /dev/urandom >"$work/loaders/undionly.kpxe"
    head -c 2000000 /dev/urandom >"$work/agent/kernel"
    head -c 4000000 /dev/urandom >"$work/agent/ramdisk"
    cat >"$work/trivet.toml" <<TOML
[box]
data = "$work/data"
store_mib = 16
[api]
listen = "127.0.0.1:$api_port"
auth = "none"
[http]
listen = "127.0.0.1:$http_port"
[tftp]
listen = "$box:$tftp_port"
[panel]
listen = "127.0.0.1:$panel_port"
tls = false
[boot]
files = "$work/files"
loaders = "$work/loaders"
kernel = "$work/agent/kernel"
ramdisk = "$work/agent/ramdisk"
[[dhcp]]
listen = "$box:$dhcp_port"
mode = "reservations"
network = "127.$1.0.0/16"
first = "127.$1.1.1"
last = "127.$1.2.250"
server = "$box"
[agent]
heartbeat_timeout_s = 10
plain_http = true
address_check = "off"
TOML
}

# start LOG COMMAND...: runs it in the background; its process is $pid.
start() {
    local log=$1
    shift
    "$@" >>"$log" 2>&1 </dev/null &
    pid=$!
    pids+=("$pid")
}

# forget PID: the process has ended, and its id may be reused.
forget() {
    local one rest=()
    for one in "${pids[@]}"; do
        [ "$one" = "$1" ] || rest+=("$one")
    done
    pids=("${rest[@]+"${rest[@]}"}")
}

answers() { curl --silent --fail --max-time 10 --output /dev/null "$@"; }

# serve [SETTINGS]: starts a box and waits for its API; its process is $pid, its log $work/box.
serve() {
    start "$work/box" "$trivet" serve --config "${1:-$work/trivet.toml}"
    await 60 answers "$api/v1" || give_up "the box does not answer at $api" "$work/box"
}
