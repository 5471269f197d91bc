//! Converts orders into HTTP requests.

use core::fmt;

use serde_json::{Map, Value, json};
use trivet_agent_wire::image::{CONFIG_DRIVE, WRITE_IMAGE, WRITE_IMAGE_AHEAD};
use trivet_agent_wire::{COMMANDS_PATH, CommandRequest, IpaStep, TOKEN_MASK, TOKEN_PARAMETER};
use trivet_model::secret::masked;
use trivet_model::{AgentOrder, AgentSession, BootPartitions, JobStep, Node, Port, StepKind};
use trivet_net::percent;

use crate::rescue::RESCUE_HASH;

/// How long an agent may take to answer. Ironic's `command_timeout`.
pub const COMMAND_TIMEOUT_MS: u64 = 60_000;

/// The two methods of the agent's API.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AgentHttpMethod {
    /// To read.
    Get,
    /// To send a command.
    Post,
}

impl AgentHttpMethod {
    /// The name of the method in HTTP.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }
}

/// One request to an agent. Its path contains the token: it is masked when the value is
/// printed, and must not be in any log or error.
#[derive(Clone, Eq, PartialEq)]
pub struct AgentHttpRequest {
    /// HTTP method.
    pub method: AgentHttpMethod,
    /// Path and query, relative to the agent's URL.
    pub path_and_query: String,
    /// JSON, if any.
    pub body: Option<Vec<u8>>,
    /// Time-out of the whole reply.
    pub timeout_ms: u64,
}

impl fmt::Debug for AgentHttpRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path_and_query.split('?').next().unwrap_or_default();
        out.debug_struct("Call")
            .field("method", &self.method)
            .field("path", &path)
            .field("query", &TOKEN_MASK)
            .field("body_bytes", &self.body.as_ref().map(Vec::len))
            .field("timeout_ms", &self.timeout_ms)
            .finish()
    }
}

/// Why an order cannot be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AgentCallError {
    /// No agent has sent a lookup for this node since it booted.
    #[error("the node has no agent; boot it into the agent first")]
    NoAgent,
    /// The agent sent a lookup but no callback URL yet.
    #[error("the agent has sent no heartbeat yet; wait for it")]
    NoHeartbeat,
}

/// The request that an order becomes.
pub fn call(
    node: &Node,
    ports: &[Port],
    order: &AgentOrder,
) -> Result<AgentHttpRequest, AgentCallError> {
    let agent = session_with_url(node)?;
    let (name, params, wait) = match order {
        AgentOrder::ListCommands | AgentOrder::ReadImageAhead => {
            return Ok(AgentHttpRequest {
                method: AgentHttpMethod::Get,
                path_and_query: path(agent, false),
                body: None,
                timeout_ms: COMMAND_TIMEOUT_MS,
            });
        }
        AgentOrder::GetSteps(kind) => {
            let params = object([
                ("node", node_for_agent(node, false)),
                ("ports", ports_for_agent(ports)),
            ]);
            (format!("{kind}.get_{kind}_steps"), params, true)
        }
        AgentOrder::Execute {
            kind,
            step,
            at,
            versions,
        } => {
            // Only this step needs the config drive itself, and not even this one where it has
            // a URL to fetch it.
            let fetched = step.args.get(CONFIG_DRIVE).is_some();
            let whole = *kind == StepKind::Deploy && !fetched;
            // No versions means: do not check. The agent compares the whole map.
            let versions = if versions.is_empty() {
                Value::Null
            } else {
                json!(versions)
            };
            let mut params = object([
                ("step", step_for_agent(node, step, *at)),
                ("node", node_for_agent(node, whole)),
                ("ports", ports_for_agent(ports)),
            ]);
            params.insert(format!("{kind}_version"), versions);
            (format!("{kind}.execute_{kind}_step"), params, false)
        }
        AgentOrder::WriteImageAhead { args } => {
            let mut params = args.as_object().cloned().unwrap_or_default();
            params.insert("node".to_owned(), node_for_agent(node, false));
            (format!("standby.{WRITE_IMAGE_AHEAD}"), params, false)
        }
        AgentOrder::FinishRescue => {
            let hash = node.instance_info.get(RESCUE_HASH).cloned();
            let params = object([
                ("rescue_password", hash.unwrap_or_default()),
                ("hashed", true.into()),
            ]);
            ("rescue.finalize_rescue".to_owned(), params, true)
        }
        AgentOrder::FindPartitions => ("standby.get_partition_uuids".to_owned(), Map::new(), true),
        AgentOrder::InstallBootloader {
            partitions: parts,
            boot_mode,
        } => {
            let name = "image.install_bootloader".to_owned();
            (name, loader_params(node, parts, boot_mode), false)
        }
        AgentOrder::Sync => ("standby.sync".to_owned(), Map::new(), true),
        AgentOrder::PowerOff => ("standby.power_off".to_owned(), Map::new(), false),
        AgentOrder::Lockdown => ("system.lockdown".to_owned(), Map::new(), true),
    };
    Ok(post(agent, name, params, wait))
}

/// The parameters of the boot loader installation. The agent does not find the root of an image
/// on a software RAID: it comes from the image's properties.
fn loader_params(node: &Node, parts: &BootPartitions, boot_mode: &str) -> Map<String, Value> {
    let reported = node.instance_info.get("image_rootfs_uuid");
    let root = reported.filter(|reported| reported.is_string()).cloned();
    object([
        ("root_uuid", root.unwrap_or_else(|| json!(parts.root))),
        ("efi_system_part_uuid", json!(parts.efi)),
        ("prep_boot_part_uuid", json!(parts.prep)),
        ("target_boot_mode", boot_mode.into()),
    ])
}

/// The agent session of this node, if its callback URL is known.
pub(crate) fn session_with_url(node: &Node) -> Result<&AgentSession, AgentCallError> {
    let agent = node.agent.as_ref().ok_or(AgentCallError::NoAgent)?;
    if agent.url.is_none() {
        return Err(AgentCallError::NoHeartbeat);
    }
    Ok(agent)
}

/// A command to the agent.
pub(crate) fn post(
    agent: &AgentSession,
    name: String,
    params: Map<String, Value>,
    wait: bool,
) -> AgentHttpRequest {
    let body = json!(CommandRequest { name, params }).to_string();
    AgentHttpRequest {
        method: AgentHttpMethod::Post,
        path_and_query: path(agent, wait),
        body: Some(body.into_bytes()),
        timeout_ms: COMMAND_TIMEOUT_MS,
    }
}

/// Agents from before tokens refuse arguments that they do not know.
fn path(agent: &AgentSession, wait: bool) -> String {
    let token = (!agent.is_legacy())
        .then(|| format!("{TOKEN_PARAMETER}={}", percent::encode(&agent.token)));
    let wait = wait.then(|| "wait=true".to_owned());
    let query: Vec<String> = wait.into_iter().chain(token).collect();
    let base = base_path(agent.url.as_deref().unwrap_or_default());
    if query.is_empty() {
        return format!("{base}{COMMANDS_PATH}");
    }
    format!("{base}{COMMANDS_PATH}?{}", query.join("&"))
}

/// The path of an agent's `callback_url`, without a slash at its end: an agent behind a reverse
/// proxy has one.
fn base_path(url: &str) -> &str {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let rest = rest.get(..end).unwrap_or_default();
    let path = rest.find('/').and_then(|at| rest.get(at..));
    path.unwrap_or_default().trim_end_matches('/')
}

fn object<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    let owned = fields
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value));
    owned.collect()
}

/// The node as the agent caches it. Secrets are removed, except the config drive where a deploy
/// step needs it.
fn node_for_agent(node: &Node, with_configdrive: bool) -> Value {
    let mut instance_info = masked(&node.instance_info);
    if with_configdrive && let Some(drive) = node.instance_info.get("configdrive") {
        instance_info.insert("configdrive".to_owned(), drive.clone());
    }
    json!({
        "uuid": node.id.to_string(),
        "properties": node.properties,
        "instance_info": instance_info,
        "driver_internal_info": node.shown_internal_info(),
        "raid_config": node.attributes.raid_config,
        "target_raid_config": node.attributes.target_raid_config,
    })
}

fn ports_for_agent(ports: &[Port]) -> Value {
    let ports = ports.iter().map(|port| {
        json!({
            "uuid": port.id.to_string(),
            "node_uuid": port.node.to_string(),
            "address": port.address.to_string(),
            "pxe_enabled": port.pxe_enabled,
        })
    });
    ports.collect()
}

fn step_for_agent(node: &Node, step: &JobStep, at: u32) -> Value {
    // The agent uses `args` as keyword arguments, so anything but an object would end as an
    // error that it cannot even report.
    let mut args = step.args.as_object().cloned();
    if step.step == WRITE_IMAGE
        && let Some(drive @ Value::String(_)) = node.instance_info.get(CONFIG_DRIVE)
    {
        let args = args.get_or_insert_default();
        args.entry(CONFIG_DRIVE).or_insert_with(|| drive.clone());
    }
    json!(IpaStep {
        step: step.step.clone(),
        interface: Some(step.interface.clone()),
        priority: step.priority,
        reboot_requested: step.reboot_requested,
        abortable: Some(step.abortable),
        args,
        argsinfo: None,
        trivet_at: Some(at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use trivet_model::{AgentSession, NodeId, PortId, SeededRandom, UnixMs};

    const TOKEN: &str = "0123456789-_abcdefghijklmnopqrstuvwxyzABCDEF";

    fn node() -> Node {
        let mut node = Node::new(NodeId::random(&mut SeededRandom::new(1)), "ipmi", UnixMs(0));
        node.agent = Some(AgentSession {
            token: TOKEN.to_owned(),
            url: Some("http://192.0.2.10:9999".to_owned()),
            former_token: None,
            verify_ca: None,
            version: Some("13.0.0".to_owned()),
            is_clean: false,
            ahead: None,
        });
        let info = json!({"image_source": "x", "configdrive": "H4sI", "admin_password": "p"});
        node.instance_info = info.as_object().unwrap().clone();
        let internal = json!({"agent_secret_token": TOKEN, "agent_erase_devices_iterations": 1});
        node.driver_internal_info = internal.as_object().unwrap().clone();
        node
    }

    #[test]
    fn every_call_keeps_the_path_of_the_callback_url() {
        for (url, base) in [
            ("http://192.0.2.10:9999", ""),
            ("http://192.0.2.10:9999/", ""),
            ("https://192.0.2.10/agents/7/", "/agents/7"),
            ("http://[2001:db8::7]:80/a/b?x=/c#/d", "/a/b"),
            ("nonsense", ""),
        ] {
            let mut node = node();
            if let Some(agent) = &mut node.agent {
                agent.url = Some(url.to_owned());
            }
            let agent = node.agent.clone().unwrap();
            let logs = crate::logs_call(&agent);
            let raw = crate::raw_call(&node, "x.y", Map::new(), true).unwrap();
            let sync = call(&node, &[], &AgentOrder::Sync).unwrap();
            let look = call(&node, &[], &AgentOrder::ListCommands).unwrap();
            for call in [logs, raw, sync, look] {
                let path = call.path_and_query;
                let want = format!("{base}/v1/commands/?");
                assert!(path.starts_with(&want), "{path} of {url}");
            }
        }
    }

    fn step() -> JobStep {
        JobStep {
            step: "write_image".to_owned(),
            interface: "deploy".to_owned(),
            priority: 80,
            args: json!({"image_info": {"id": "x"}}),
            reboot_requested: false,
            abortable: false,
        }
    }

    #[test]
    fn an_image_is_written_ahead_by_a_command_of_our_own_agent() {
        let args = json!({"image_info": {"id": "x"}});
        let order = AgentOrder::WriteImageAhead { args };
        let request = call(&node(), &[], &order).unwrap();
        let body: Value = serde_json::from_slice(&request.body.unwrap()).unwrap();
        assert_eq!(body["name"], "standby.write_image_ahead");
        assert_eq!(body["params"]["image_info"]["id"], "x");
        let shown = &body["params"]["node"]["instance_info"];
        assert_ne!(shown["configdrive"], "H4sI", "no secret of the instance");
        assert!(!request.path_and_query.contains("wait"));
        let request = call(&node(), &[], &AgentOrder::ReadImageAhead).unwrap();
        assert_eq!((request.method, request.body), (AgentHttpMethod::Get, None));
    }

    fn execute(kind: StepKind, versions: BTreeMap<String, String>) -> AgentOrder {
        AgentOrder::Execute {
            kind,
            step: step(),
            at: 2,
            versions,
        }
    }

    #[track_caller]
    fn sent(order: &AgentOrder) -> (AgentHttpRequest, Value) {
        let call = call(&node(), &[], order).unwrap();
        let body = call.body.as_deref().map(serde_json::from_slice);
        let body = body.map_or(Value::Null, Result::unwrap);
        (call, body)
    }

    fn keys(value: &Value) -> Vec<&str> {
        value
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect()
    }

    #[test]
    fn a_look_reads_the_list_with_the_slash_that_avoids_the_redirect() {
        let (call, body) = sent(&AgentOrder::ListCommands);
        assert_eq!(call.method, AgentHttpMethod::Get);
        assert_eq!(
            call.path_and_query,
            format!("/v1/commands/?agent_token={TOKEN}")
        );
        assert_eq!(body, Value::Null);
    }

    #[test]
    fn a_lockdown_is_a_command_without_params_whose_result_is_waited_for() {
        let (call, body) = sent(&AgentOrder::Lockdown);
        assert_eq!(call.method, AgentHttpMethod::Post);
        assert!(call.path_and_query.contains("wait=true"));
        assert_eq!(body, json!({"name": "system.lockdown", "params": {}}));
    }

    #[test]
    fn steps_are_requested_with_wait_and_only_the_params_of_the_command() {
        let (call, body) = sent(&AgentOrder::GetSteps(StepKind::Clean));
        assert_eq!(
            call.path_and_query,
            format!("/v1/commands/?wait=true&agent_token={TOKEN}")
        );
        assert_eq!(body["name"], "clean.get_clean_steps");
        assert_eq!(keys(&body["params"]), ["node", "ports"]);
        assert_eq!(
            keys(&body["params"]["node"]),
            [
                "driver_internal_info",
                "instance_info",
                "properties",
                "raid_config",
                "target_raid_config",
                "uuid"
            ]
        );
    }

    #[test]
    fn a_step_is_sent_with_its_kind_of_version_and_without_wait() {
        let versions = BTreeMap::from([("generic_hardware_manager".to_owned(), "1.2".to_owned())]);
        for (kind, name, field) in [
            (StepKind::Clean, "clean.execute_clean_step", "clean_version"),
            (
                StepKind::Deploy,
                "deploy.execute_deploy_step",
                "deploy_version",
            ),
            (
                StepKind::Service,
                "service.execute_service_step",
                "service_version",
            ),
        ] {
            let (call, body) = sent(&execute(kind, versions.clone()));
            assert!(!call.path_and_query.contains("wait"));
            assert_eq!(body["name"], name);
            assert_eq!(keys(&body["params"]), {
                let mut want = ["node", "ports", "step", field];
                want.sort_unstable();
                want
            });
            assert_eq!(body["params"][field]["generic_hardware_manager"], "1.2");
            assert_eq!(body["params"]["step"]["args"]["image_info"]["id"], "x");
        }
    }

    #[test]
    fn unknown_versions_skip_the_check() {
        let (_, body) = sent(&execute(StepKind::Clean, BTreeMap::new()));
        assert_eq!(body["params"]["clean_version"], Value::Null);
    }

    #[test]
    fn the_step_that_writes_the_image_brings_the_config_drive() {
        let (_, body) = sent(&execute(StepKind::Deploy, BTreeMap::new()));
        assert_eq!(body["params"]["step"]["args"]["configdrive"], "H4sI");
    }

    #[test]
    fn only_deploy_steps_see_the_config_drive_and_none_sees_other_secrets() {
        let (_, body) = sent(&execute(StepKind::Deploy, BTreeMap::new()));
        let node = &body["params"]["node"];
        assert_eq!(node["instance_info"]["configdrive"], "H4sI");
        assert_eq!(node["instance_info"]["admin_password"], TOKEN_MASK);
        assert_eq!(
            node["driver_internal_info"]["agent_secret_token"],
            TOKEN_MASK
        );
        assert_eq!(
            node["driver_internal_info"]["agent_erase_devices_iterations"],
            1
        );
        let (_, body) = sent(&execute(StepKind::Clean, BTreeMap::new()));
        assert_eq!(
            body["params"]["node"]["instance_info"]["configdrive"],
            TOKEN_MASK
        );
    }

    #[test]
    fn a_boot_loader_is_ordered_with_just_the_params_the_agent_knows() {
        let parts = BootPartitions {
            root: Some("0x1a2b".to_owned()),
            efi: Some("e".to_owned()),
            prep: None,
        };
        let order = AgentOrder::InstallBootloader {
            partitions: parts,
            boot_mode: "uefi",
        };
        let (call, body) = sent(&order);
        assert!(!call.path_and_query.contains("wait"));
        assert_eq!(
            body,
            json!({"name": "image.install_bootloader", "params": {
                "root_uuid": "0x1a2b", "efi_system_part_uuid": "e",
                "prep_boot_part_uuid": null, "target_boot_mode": "uefi"}})
        );
        let mut reported = node();
        reported
            .instance_info
            .insert("image_rootfs_uuid".to_owned(), "root".into());
        let call = super::call(&reported, &[], &order).unwrap();
        let body: Value = serde_json::from_slice(&call.body.unwrap()).unwrap();
        assert_eq!(body["params"]["root_uuid"], "root");
    }

    #[test]
    fn an_agent_receives_the_wanted_raid() {
        let mut node = node();
        let target = json!({"logical_disks": [{"controller": "software"}]});
        node.attributes
            .set("target_raid_config", Some(target.clone()))
            .unwrap();
        let call = call(&node, &[], &AgentOrder::GetSteps(StepKind::Clean)).unwrap();
        let body: Value = serde_json::from_slice(&call.body.unwrap()).unwrap();
        assert_eq!(body["params"]["node"]["target_raid_config"], target);
    }

    #[test]
    fn standby_commands_have_empty_params() {
        for (order, name) in [
            (AgentOrder::Sync, "standby.sync"),
            (AgentOrder::PowerOff, "standby.power_off"),
        ] {
            let (_, body) = sent(&order);
            assert_eq!(body, json!({"name": name, "params": {}}));
        }
    }

    #[test]
    fn only_the_end_of_a_rescue_brings_the_hash() {
        let mut rescued = node();
        rescued
            .instance_info
            .insert(RESCUE_HASH.to_owned(), "$6$x".into());
        let body = |order: &AgentOrder| {
            let call = call(&rescued, &[], order).unwrap();
            String::from_utf8(call.body.unwrap()).unwrap()
        };
        let sent: Value = serde_json::from_str(&body(&AgentOrder::FinishRescue)).unwrap();
        let params = json!({"rescue_password": "$6$x", "hashed": true});
        assert_eq!(sent["name"], "rescue.finalize_rescue");
        assert_eq!(sent["params"], params);
        let other = body(&AgentOrder::GetSteps(StepKind::Clean));
        assert!(!other.contains("$6$x"), "{other}");
    }

    #[test]
    fn ports_travel_with_their_addresses() {
        let node = node();
        let port = Port {
            id: PortId::random(&mut SeededRandom::new(2)),
            revision: 0,
            serial: 0,
            node: node.id,
            address: "52:54:00:aa:bb:01".parse().unwrap(),
            pxe_enabled: true,
            extra: Map::new(),
            attributes: trivet_model::attributes::PortAttributes::default(),
            created_at: UnixMs(0),
            updated_at: None,
        };
        let call = call(&node, &[port], &AgentOrder::GetSteps(StepKind::Deploy)).unwrap();
        let body: Value = serde_json::from_slice(&call.body.unwrap()).unwrap();
        assert_eq!(body["params"]["ports"][0]["address"], "52:54:00:aa:bb:01");
    }

    #[test]
    fn no_order_is_sent_to_an_agent_without_a_heartbeat() {
        let mut node = node();
        node.agent.as_mut().unwrap().url = None;
        assert_eq!(
            call(&node, &[], &AgentOrder::ListCommands),
            Err(AgentCallError::NoHeartbeat)
        );
        node.agent = None;
        assert_eq!(
            call(&node, &[], &AgentOrder::ListCommands),
            Err(AgentCallError::NoAgent)
        );
    }

    #[test]
    fn a_printed_call_shows_no_token_and_odd_tokens_are_encoded() {
        let (call, _) = sent(&AgentOrder::ListCommands);
        assert!(!format!("{call:?}").contains(TOKEN));
    }

    #[test]
    fn args_that_are_no_object_are_left_out() {
        let mut odd = step();
        odd.args = json!([1]);
        let plain = Node {
            instance_info: Map::new(),
            ..node()
        };
        assert!(step_for_agent(&plain, &odd, 0).get("args").is_none());
    }
}
