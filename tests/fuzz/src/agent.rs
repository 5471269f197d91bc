//! Our own agent: texts and volumes that it reads when it starts, and requests to its API.

use trivet_image_agent::parameters::{API_URLS_MAX, AgentParameters};
use trivet_image_agent::ramdisk::modules_list::ModuleList;
use trivet_image_agent::ramdisk::network_data::{ADDRESSES_MAX, static_addresses};
use trivet_image_agent::ramdisk::uevent::added_alias;
use trivet_image_agent::ramdisk::volume_label::{LABEL_BYTES, volume_label};
use trivet_image_agent::state_machine::{
    AgentIntervals, AgentMachineIdentity, AgentPlan, AgentState, AgentWorkError, COMMANDS_MAX,
};
use trivet_model::Tick;

use crate::FuzzTarget;
use crate::input::FuzzInput;

pub(crate) const STARTUP: FuzzTarget = FuzzTarget {
    name: "agent_startup",
    run: startup,
    seeds: startup_seeds,
    regressions: &[],
};

pub(crate) const COMMANDS: FuzzTarget = FuzzTarget {
    name: "agent_commands",
    run: commands,
    seeds: command_seeds,
    regressions: &[],
};

const TOKEN: &str = "a-token-of-at-least-thirty-two-characters";

/// The first byte chooses the parser.
fn startup(bytes: &[u8]) {
    let mut input = FuzzInput::new(bytes);
    let kind = input.byte() % 5;
    let rest = input.take(bytes.len());
    let text = String::from_utf8_lossy(rest);
    match kind {
        0 => {
            let mut parameters = AgentParameters::default();
            parameters.read_kernel_line(&text);
            parameters.read_settings_file(&text);
            let _ = parameters.read_arguments(text.split_whitespace());
            let _ = parameters.boot_mac();
            assert!(parameters.api_urls.len() <= API_URLS_MAX);
            assert!(
                parameters
                    .static_addresses
                    .iter()
                    .all(|one| one.prefix <= 32)
            );
        }
        1 => {
            let (aliases, device) = text.split_once('\0').unwrap_or((&text, "pci:v1d2"));
            let list = ModuleList::new(aliases, aliases);
            for module in list.modules_for(device) {
                assert!(list.files_for(module).len() <= text.len());
            }
        }
        2 => {
            // The descriptor of an ISO image is far from its start.
            let mut volume = vec![0; LABEL_BYTES];
            let at = if rest.len() < 512 { 16 * 2048 } else { 0 };
            let length = rest.len().min(LABEL_BYTES - at);
            volume[at..at + length].copy_from_slice(&rest[..length]);
            for bytes in [&volume[..], rest] {
                assert!(volume_label(bytes).is_none_or(|label| label.len() <= 32));
            }
        }
        3 => {
            let found = static_addresses(&text);
            assert!(found.len() <= ADDRESSES_MAX);
            assert!(found.iter().all(|one| one.prefix <= 32));
        }
        _ => {
            let _ = added_alias(rest);
        }
    }
}

fn startup_seeds() -> Vec<Vec<u8>> {
    let seed = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
    let mut iso = b"\x01CD001".to_vec();
    iso.resize(40, 0);
    iso.extend_from_slice(b"config-2");
    vec![
        seed(
            0,
            b"quiet ipa-api-url=http://192.0.2.1:6385,http://192.0.2.2 \
              BOOTIF=01-52-54-00-00-00-01 \
              ip=192.0.2.9::192.0.2.1:255.255.255.0:host:eth0:off:192.0.2.3 ipa-debug=1",
        ),
        seed(
            0,
            b"[DEFAULT]\napi_url = http://192.0.2.1\ncafile=/ca\n[other]\n",
        ),
        seed(
            1,
            b"alias pci:v00001AF4d*sv*[0-9A-F]i* virtio_pci\n\
              kernel/virtio_pci.ko: kernel/virtio.ko\n\
              \0pci:v00001AF4d1sv2Ai3",
        ),
        seed(2, &iso),
        seed(
            3,
            br#"{"links": [{"id": "a", "ethernet_mac_address": "52:54:00:00:00:01"}],
                "networks": [{"link": "a", "type": "ipv4", "ip_address": "192.0.2.9/24"}]}"#,
        ),
        seed(4, b"add@/devices/x\0ACTION=add\0MODALIAS=virtio:d1v1\0"),
    ]
}

/// Requests to one agent, each a line; every second piece of work fails.
fn commands(bytes: &[u8]) {
    let identity = AgentMachineIdentity {
        token: Some(TOKEN.to_owned()),
        ..AgentMachineIdentity::default()
    };
    let plan = AgentPlan {
        callback_url: "https://192.0.2.9:9999".to_owned(),
        inspect: false,
        sends_heartbeats: false,
        intervals: AgentIntervals::STOCK,
        api_minor: 68,
        certificate: None,
    };
    let mut state = AgentState::new(identity, plan);
    for (number, line) in bytes
        .split(|&byte| byte == b'\n')
        .take(COMMANDS_MAX * 2)
        .enumerate()
    {
        let now = Tick(number as u64);
        let target = format!("/v1/commands/?agent_token={TOKEN}");
        let reply = state.handle_request(now, "POST", &target, line);
        assert!((200..=500).contains(&reply.status), "{}", reply.status);
        assert!(!String::from_utf8_lossy(&reply.body).contains(TOKEN));
        let text = String::from_utf8_lossy(line);
        let path = text.split_whitespace().next().unwrap_or_default();
        let _ = state.handle_request(now, "GET", path, b"");
        if let Some((id, _)) = reply.work {
            let failure = AgentWorkError::Write("no disk".to_owned());
            let _ = state.work_done(now, &id, Err(failure));
            assert!(state.is_finished(&id));
        }
    }
}

fn command_seeds() -> Vec<Vec<u8>> {
    vec![
        br#"{"name": "clean.get_clean_steps", "params": {"node": {}, "ports": []}}
{"name": "clean.execute_clean_step", "params": {"step": {"step": "erase_devices"}, "node": {}}}
{"name": "standby.sync", "params": {}}"#
            .to_vec(),
        br#"{"name": "standby.prepare_image", "params": {"image_info": {"id": "a"}}}
/v1/commands/00000000-0000-4000-8000-000000000001?agent_token=x&wait=true
{"name": "rescue.finalize_rescue", "params": {"rescue_password": "$6$a$b", "hashed": true}}"#
            .to_vec(),
    ]
}
