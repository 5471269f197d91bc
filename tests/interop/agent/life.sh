# Sourced by run: one life of an agent with a real box, the same for the stock agent and ours.
# shellcheck shell=bash disable=SC2034,SC2154

# ask METHOD PATH [BODY]: sends a request as an agent does, from $caller. The reply is in $output,
# its status in $status, and all replies in $work/replies.
number=0
ask() {
    number=$((number + 1))
    status=$(in_space "$caller" curl -s --max-time 60 -X "$1" -o "$work/replies/$number" \
        -w '%{http_code}' -H 'Content-Type: application/json' \
        -H 'X-OpenStack-Ironic-API-Version: 1.68' ${3:+-d "$3"} "$api$2") || true
    output=$(cat "$work/replies/$number")
}
answers_so() { # NAME STATUS PATTERN METHOD PATH [BODY]
    local name=$1 want=$2 pattern=$3
    shift 3
    ask "$@"
    if [ "$status" = "$want" ] && grep -Eq -- "$pattern" <<<"$output"; then pass; else
        fail "$name" "$want and $pattern" "$status $output"
    fi
}
verb() { # TARGET [MORE]
    call PUT "/v1/nodes/$node/states/provision" "{\"target\": \"$1\"${2-}}"
}
field() { # NAME: of the node
    call GET "/v1/nodes/$node" | tee "$work/replies/node-$1" |
        python3 -c "import json, sys; print(json.load(sys.stdin)[\"$1\"])"
}
# happens NAME PATTERN [COUNT]: the pattern is in the box's log, COUNT times.
happens() {
    local count=${3:-1}
    # shellcheck disable=SC2016
    if await "$AGENT_SECONDS_MAX" bash -c '[ "$(grep -Ec -- "$1" "$2")" -ge "$3" ]' _ \
        "$2" "$work/box" "$count"; then pass; else
        fail "$1" "$2 ($count)" 'no such line'
        finish agent "$work/box" "$work/$where"
        exit 1
    fi
}
happens_not() { # NAME PATTERN
    if grep -Eq -- "$2" "$work/box"; then fail "$1" 'nothing' "$(grep -E -- "$2" "$work/box")"; else
        pass
    fi
}
# The token that the box sent last to the agent: it is in the requests of the box too, but those
# are encrypted.
token_of() {
    tcpdump -A -n -r "$work/$1.pcap" 2>"$work/tcpdump.read" |
        sed -n 's/.*"agent_token":"\([A-Za-z0-9_-]*\)".*/\1/p' | tail -n 1
}

beat() { # TOKEN URL FILE
    python3 - "$@" <<'PYTHON'
import json, sys
token, url, certificate = sys.argv[1:]
beat = {"callback_url": url, "agent_version": "13.0.0"}
if token:
    beat["agent_token"] = token
if certificate:
    beat["agent_verify_ca"] = open(certificate).read()
print(json.dumps(beat))
PYTHON
}

# life START WHERE NODE ADDRESS MAC VERSION SIGNATURE: START is the function that starts the
# agent, VERSION and SIGNATURE are patterns. The tokens are in $token and $later.
life() {
    start_agent=$1 where=$2 node=$3 address=$4 mac=$5 version=$6 signature=$7
    dotted=${address//./\\.}
    caller=${!where}
    capture "$boxed" "to-$where" "$work/$where.pcap" tcp port 6385
    call POST /v1/nodes "{\"name\": \"$node\", \"driver\": \"fake_agent\",
        \"inspect_interface\": \"agent\"}" >"$work/replies/created"
    uuid=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["uuid"])' <"$work/replies/created")
    call POST /v1/ports "{\"node_uuid\": \"$uuid\", \"address\": \"$mac\"}" \
        >"$work/replies/port"
    by_address="/v1/lookup?addresses=$mac"
    verb manage
    happens 'the node' "$node: verifying -> manageable"
    answers_so 'a lookup of nobody who is waited for' 404 'could not be found' GET "$by_address"

    # It inspects, repeats its lookup, and is accepted when it must clean.
    verb inspect
    happens 'an inspection' "$node: inspecting -> inspect wait"
    "$start_agent" "$where" "$api" --inspection_collectors default
    first_pid=$pid
    happens 'an inventory' "$node: inventory arrived"
    happens 'the end of the inspection' "$node: inspecting -> manageable"
    same 'its inventory' 1 "$(field properties | grep -c "'cpus': [1-9]")"
    verb clean ', "clean_steps": [{"interface": "deploy", "step": "erase_devices_metadata"},
        {"interface": "power", "step": "wait"}, {"interface": "deploy", "step": "burnin_cpu"}]'
    happens 'a lookup' "$node: agent looked its node up; the token was sent to $dotted"
    # Nobody leases addresses here.
    happens 'no lease' "$node: weakly authenticated: the agent calls from $dotted"
    happens 'a heartbeat' "$node: agent $version is ready"
    # Its steps were called over its own certificate, and the end of one forced a heartbeat.
    happens 'a step' "$node: step erase_devices_metadata done"
    happens 'a step of the box' "$node: step wait started"

    # Which requests the agent accepts, and with which certificate.
    token=$(token_of "$where")
    same 'a token' 43 "${#token}"
    certificate=$work/$where.certificate.pem
    in_space "$boxed" python3 -c '
import ssl, sys
print(ssl.get_server_certificate((sys.argv[1], 9999)), end="")' "$address" >"$certificate"
    expect 'its signature' "$signature" openssl x509 -in "$certificate" -noout -text
    expect 'its name' "IP Address:$dotted\$" openssl x509 -in "$certificate" -noout -text
    commands=https://$address:9999/v1/commands/
    list=(ip netns exec "$boxed" curl -s --max-time 60 --cacert "$certificate" -w ' %{http_code}')
    expect 'no token' 'Token invalid.* 401$' "${list[@]}" "$commands"
    expect 'a wrong token' 'Token invalid.* 401$' "${list[@]}" "$commands?agent_token=${token}0"
    run "${list[@]}" "$commands?agent_token=$token"
    same 'the commands of the box' 'get_clean_steps execute_clean_step 200' \
        "$(grep -Eo '"command_name": ?"[a-z_]*"' <<<"$output" | cut -d'"' -f4 | xargs) ${output##* }"
    same 'and how it ended' 2 "$(grep -Eo '"command_status": ?"SUCCEEDED"' <<<"$output" | grep -c .)"

    # Which requests the box accepts.
    answers_so 'a second lookup' 200 '"agent_token":"\*{6}"' GET "$by_address"
    answers_so 'one by its number' 200 '"agent_token":"\*{6}"' GET "$by_address&node_uuid=$uuid"
    heartbeat=/v1/heartbeat/$uuid
    here_it_is=https://$address:9999
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -sha512 -nodes -days 1 \
        -subj /CN=agent -addext "subjectAltName=critical,IP:$address" -keyout "$work/other.key" \
        -out "$work/other.pem" 2>"$work/openssl" || give_up "no certificate" "$work/openssl"
    answers_so 'a wrong token' 400 'agent_token is missing or wrong' \
        POST "$heartbeat" "$(beat "${token}0" "$here_it_is" "$certificate")"
    answers_so 'no token' 400 'agent_token is required' \
        POST "$heartbeat" "$(beat '' "$here_it_is" "$certificate")"
    answers_so 'another address' 400 'callback_url differs' \
        POST "$heartbeat" "$(beat "$token" "https://$address:9998" "$certificate")"
    answers_so 'the address of somebody else' 400 'not at the address the agent calls from' \
        POST "$heartbeat" "$(beat "$token" https://10.97.2.2:9999 "$certificate")"
    answers_so 'no TLS' 400 'callback_url must be https' \
        POST "$heartbeat" "$(beat "$token" "http://$address:9999" '')"
    answers_so 'another certificate' 400 'agent_verify_ca differs' \
        POST "$heartbeat" "$(beat "$token" "$here_it_is" "$work/other.pem")"
    answers_so 'no certificate' 400 'agent_verify_ca differs' \
        POST "$heartbeat" "$(beat "$token" "$here_it_is" '')"
    answers_so 'no such node' 400 'agent_token is missing or wrong' \
        POST "/v1/heartbeat/00000000-0000-4000-8000-000000000000" \
        "$(beat "$token" "$here_it_is" "$certificate")"
    # None of them counted as a heartbeat of the agent: a valid one ends the step.
    happens_not 'beats that were refused' "$node: step wait done"
    answers_so 'a right one' 202 '^$' \
        POST "$heartbeat" "$(beat "$token" "$here_it_is" "$certificate")"
    happens 'which counts' "$node: step wait done"
    # The agent cannot execute the next step; its error message reaches the operator.
    happens 'a step that fails' "$node: clean(ing| wait) -> clean failed"
    same 'its error message' 1 "$(field last_error | grep -c 'burnin_cpu.*stress-ng')"
    answers_so 'the end of its token' 400 'agent_token is missing or wrong' \
        POST "$heartbeat" "$(beat "$token" "$here_it_is" "$certificate")"
    answers_so 'and of lookups' 404 'could not be found' GET "$by_address"

    # The same machine, booted again, gets its own token.
    end "$first_pid"
    verb manage
    happens 'another try' "$node: clean failed -> manageable"
    verb clean ', "clean_steps": [{"interface": "power", "step": "wait"}]'
    "$start_agent" "$where-again" "$api"
    pid_again=$pid
    happens 'its agent' "$node: agent $version is ready" 2
    happens 'its step' "$node: step wait started" 2
    later=$(token_of "$where")
    same 'another token' 43 "$([ "$later" = "$token" ] || echo "${#later}")"
    answers_so 'the older one' 400 'agent_token is missing or wrong' \
        POST "$heartbeat" "$(beat "$token" "$here_it_is" "$certificate")"
    # A lookup from another address: one of the two is not the machine, and the job ends.
    caller=$boxed
    answers_so 'a lookup from elsewhere' 404 'could not be found' GET "$by_address"
    happens 'a fault' "fault: node $node: the agent at $dotted received.*10\.97\.3\.1 requested"
    happens 'an end' "$node: failed: .*one of them is not this machine"
    end "$pid_again"
}
