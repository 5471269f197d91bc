//! Converts arguments to requests, and defines the action after the last of them.

mod images;
mod lan;
mod stories;

use std::fmt::Write as _;

use serde_json::{Value, json};
use trivet_net::percent::encode;

use crate::arguments::{
    MaintenanceSwitch, NodeBootDeviceArguments, NodeCleanArguments, NodeCommand,
    NodeCreateArguments, NodeDeployArguments, NodeFieldArguments, NodeListArguments,
    NodeMaintenanceArguments, NodePowerArguments, NodeSetArguments, NodeVerbArguments,
    NodeWatchArguments, PortCommand, PowerAction, WaitArguments,
};
use crate::fault::CliFault;
use crate::request::{CliRequest, node_path, own_node_path};
use crate::show::OutputView;
use crate::values::{FileTextReader, file_json, file_text, object, value};
use crate::wait::WaitGoal;

use images::image_info;
pub(crate) use images::{NewImage, image, look_image, new_image, put_image};
pub(crate) use lan::lan;
pub(crate) use stories::status;

/// The fields of a node that are requested while waiting.
pub(crate) const LOOK_FIELDS: &str = "uuid,name,provision_state,target_provision_state,\
power_state,target_power_state,last_error,maintenance,clean_step,deploy_step,service_step,\
driver_internal_info";

/// Columns of a list.
const LIST_FIELDS: &str = "uuid,name,driver,provision_state,target_provision_state,power_state,\
target_power_state,maintenance,last_error";

/// Requests one after the other, and the end of the command.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CommandPlan {
    /// The object of the command, such as `node n1`.
    pub(crate) subject: String,
    pub(crate) requests: Vec<CliRequest>,
    pub(crate) then: FinalAction,
}

/// The action after the last request has succeeded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FinalAction {
    /// Show the response.
    Show(OutputView),
    /// Print a sentence.
    Print(String),
    /// Poll the node until it has reached the goal.
    Wait {
        node: String,
        goal: WaitGoal,
        limit_ms: u64,
    },
    /// Poll the image until it is complete.
    WaitImage { image: String, limit_ms: u64 },
    /// Poll nodes and print changes.
    Watch {
        nodes: Vec<String>,
        until: Option<String>,
        limit_ms: Option<u64>,
    },
    /// Delete the one port in the response.
    DeletePort,
}

/// The requests of `trivet node ...`.
pub(crate) fn node(
    command: &NodeCommand,
    json: bool,
    read: FileTextReader<'_>,
) -> Result<CommandPlan, CliFault> {
    use NodeCommand as C;
    match command {
        C::List(list) => Ok(self::list(list, json)),
        C::Show(one) => Ok(CommandPlan {
            subject: format!("node {}", one.node),
            requests: vec![show_node(&one.node)],
            then: FinalAction::Show(OutputView::Node),
        }),
        C::Create(one) => create(one, read),
        C::Delete(one) => Ok(print_plan(
            &one.node,
            vec![CliRequest::new("DELETE", node_path(&one.node, ""))],
            "deleted",
        )),
        C::Set(one) => set(one, read),
        C::Watch(one) => Ok(watch(one)),
        C::Manage(one) => Ok(plain(one, "manage", "manageable", json)),
        C::Inspect(one) => Ok(plain(one, "inspect", "manageable", json)),
        C::Provide(one) => Ok(plain(one, "provide", "available", json)),
        C::Undeploy(one) => Ok(plain(one, "undeploy", "available", json)),
        C::Unrescue(one) => Ok(plain(one, "unrescue", "active", json)),
        C::Adopt(one) => Ok(plain(one, "adopt", "active", json)),
        C::Abort(one) => {
            let request = provision(&one.node, "abort");
            Ok(verb(
                &one.node,
                vec![request],
                WaitGoal::Rest,
                &one.waiting,
                json,
            ))
        }
        C::Clean(one) => clean(one, json, read),
        C::Deploy(one) => deploy(one, "active", json, read),
        C::Rebuild(one) => deploy(one, "rebuild", json, read),
        C::Rescue(one) => {
            let password = file_text("--rescue-password-file", &one.ramdisk_password_file, read)?;
            let body = json!({"target": "rescue", "rescue_password": password});
            let request = states(&one.node, "provision", body);
            let goal = WaitGoal::State("rescue".to_owned());
            Ok(verb(&one.node, vec![request], goal, &one.waiting, json))
        }
        C::Power(one) => power(one, json),
        C::BootDevice(one) => Ok(boot_device(one)),
        C::Maintenance(one) => Ok(maintenance(one)),
        C::Validate(one) => Ok(shown(&one.node, "/validate", OutputView::Validation)),
        C::History(one) => Ok(shown(
            &one.node,
            "/history?detail=True",
            OutputView::History,
        )),
        C::Story(one) => Ok(stories::story(one)),
        C::Why(one) => Ok(stories::why(&one.node)),
        C::Inventory(one) => Ok(shown(&one.node, "/inventory", OutputView::Inventory)),
        C::Steps(one) => Ok(agent_artifacts(&one.node, "steps", OutputView::Steps)),
        C::Logs(one) if one.collect => {
            let path = format!("/trivet/nodes/{}/logs", encode(&one.node));
            let what = "the agent's logs are being collected; `trivet node logs` lists them";
            Ok(print_plan(
                &one.node,
                vec![CliRequest::new("POST", path)],
                what,
            ))
        }
        C::Logs(one) => Ok(agent_artifacts(&one.node, "logs", OutputView::Logs)),
    }
}

/// The requests of `trivet port ...`.
pub(crate) fn port(command: &PortCommand) -> CommandPlan {
    match command {
        PortCommand::List { node } => {
            let mut path = "/v1/ports?detail=True".to_owned();
            if let Some(node) = node {
                let _ = write!(path, "&node={}", encode(node));
            }
            let subject = node
                .as_ref()
                .map_or("ports".to_owned(), |node| format!("node {node}"));
            CommandPlan {
                subject,
                requests: vec![CliRequest::get(path)],
                then: FinalAction::Show(OutputView::Ports),
            }
        }
        PortCommand::Create {
            node,
            address,
            pxe_enabled,
        } => {
            let mut body = json!({"node_ident": node, "address": address});
            if let Some(enabled) = pxe_enabled {
                body["pxe_enabled"] = json!(enabled);
            }
            CommandPlan {
                subject: format!("port {address} of node {node}"),
                requests: vec![CliRequest::new("POST", "/v1/ports").with(body)],
                then: FinalAction::Show(OutputView::Port),
            }
        }
        PortCommand::Delete { port } => {
            let subject = format!("port {port}");
            // The API finds ports by UUID only; operators know their MAC addresses.
            if port.contains(':') {
                let path = format!("/v1/ports?address={}", encode(port));
                return CommandPlan {
                    subject,
                    requests: vec![CliRequest::get(path)],
                    then: FinalAction::DeletePort,
                };
            }
            CommandPlan {
                requests: vec![delete_port(port)],
                then: FinalAction::Print(format!("{subject}: deleted")),
                subject,
            }
        }
    }
}

/// Deletes a port by its UUID.
pub(crate) fn delete_port(uuid: &str) -> CliRequest {
    CliRequest::new("DELETE", format!("/v1/ports/{}", encode(uuid)))
}

/// Polls one node, or all.
pub(crate) fn look(node: Option<&str>) -> CliRequest {
    let path = match node {
        Some(node) => node_path(node, ""),
        None => "/v1/nodes".to_owned(),
    };
    CliRequest::get(format!("{path}?fields={LOOK_FIELDS}"))
}

/// A node with all its fields. Another Ironic does not have Trivet's own fields.
fn show_node(node: &str) -> CliRequest {
    CliRequest::get(own_node_path(node)).or_at(node_path(node, ""))
}

fn shown(node: &str, below: &str, view: OutputView) -> CommandPlan {
    CommandPlan {
        subject: format!("node {node}"),
        requests: vec![CliRequest::get(node_path(node, below))],
        then: FinalAction::Show(view),
    }
}

/// The data that its agents sent to the box: logs and steps.
fn agent_artifacts(node: &str, what: &str, view: OutputView) -> CommandPlan {
    let path = format!("/trivet/nodes/{}/{what}", encode(node));
    CommandPlan {
        subject: format!("node {node}"),
        requests: vec![CliRequest::get(path)],
        then: FinalAction::Show(view),
    }
}

fn print_plan(node: &str, requests: Vec<CliRequest>, what: &str) -> CommandPlan {
    CommandPlan {
        subject: format!("node {node}"),
        requests,
        then: FinalAction::Print(format!("node {node}: {what}")),
    }
}

fn list(list: &NodeListArguments, json: bool) -> CommandPlan {
    let mut path = if json {
        "/v1/nodes?detail=True".to_owned()
    } else {
        format!("/v1/nodes?fields={LIST_FIELDS}")
    };
    let filters = [
        ("provision_state", list.state.as_deref()),
        ("maintenance", list.maintenance.then_some("true")),
        ("resource_class", list.resource_class.as_deref()),
        ("driver", list.driver.as_deref()),
    ];
    for (key, value) in filters {
        if let Some(value) = value {
            let _ = write!(path, "&{key}={}", encode(value));
        }
    }
    CommandPlan {
        subject: "nodes".to_owned(),
        requests: vec![CliRequest::get(path)],
        then: FinalAction::Show(OutputView::Nodes),
    }
}

fn create(one: &NodeCreateArguments, read: FileTextReader<'_>) -> Result<CommandPlan, CliFault> {
    let mut body = json!({"driver": one.driver});
    for (name, value) in whole_fields(&one.fields) {
        body[name] = value;
    }
    if let Some(uuid) = &one.uuid {
        body["uuid"] = json!(uuid);
    }
    for (flag, name, pairs) in objects(&one.fields) {
        if !pairs.is_empty() {
            body[name] = object(flag, pairs, read)?;
        }
    }
    for pair in &one.fields.interface {
        let (kind, name) = value("--interface", pair, read)?;
        body[format!("{kind}_interface")] = name;
    }
    let name = one.fields.name.as_deref().or(one.uuid.as_deref());
    Ok(CommandPlan {
        subject: format!("node {}", name.unwrap_or("without a name")),
        requests: vec![CliRequest::new("POST", "/v1/nodes").with(body)],
        then: FinalAction::Show(OutputView::Node),
    })
}

/// Fields that are given as one value.
fn whole_fields(fields: &NodeFieldArguments) -> Vec<(&'static str, Value)> {
    let given = [
        ("name", fields.name.as_ref().map(|text| json!(text))),
        (
            "resource_class",
            fields.resource_class.as_ref().map(|text| json!(text)),
        ),
        (
            "description",
            fields.description.as_ref().map(|text| json!(text)),
        ),
        (
            "automated_clean",
            fields.automated_clean.map(|flag| json!(flag)),
        ),
    ];
    let given = given.into_iter();
    given
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

/// Fields that are given key by key.
fn objects(fields: &NodeFieldArguments) -> [(&'static str, &'static str, &[String]); 4] {
    [
        ("--driver-info", "driver_info", &fields.driver_info),
        ("--property", "properties", &fields.property),
        ("--instance-info", "instance_info", &fields.instance_info),
        ("--extra", "extra", &fields.extra),
    ]
}

fn set(one: &NodeSetArguments, read: FileTextReader<'_>) -> Result<CommandPlan, CliFault> {
    let add = |path: String, value: Value| json!({"op": "add", "path": path, "value": value});
    let mut patch = Vec::new();
    if let Some(driver) = &one.driver {
        patch.push(add("/driver".to_owned(), json!(driver)));
    }
    for (name, value) in whole_fields(&one.fields) {
        patch.push(add(format!("/{name}"), value));
    }
    for (flag, name, pairs) in objects(&one.fields) {
        for pair in pairs {
            let (key, value) = value(flag, pair, read)?;
            patch.push(add(format!("/{name}/{}", pointer(&key)), value));
        }
    }
    for pair in &one.fields.interface {
        let (kind, name) = value("--interface", pair, read)?;
        patch.push(add(format!("/{}_interface", pointer(&kind)), name));
    }
    for field in one.unset.iter().filter(|field| *field != "location") {
        let path = match field.split_once('.') {
            Some((name, key)) => format!("/{}/{}", pointer(name), pointer(key)),
            None => format!("/{}", pointer(field)),
        };
        patch.push(json!({"op": "remove", "path": path}));
    }
    let own = one.own_fields();
    if patch.is_empty() && own.is_empty() {
        return Err(CliFault::usage("nothing to set: name a field, see --help"));
    }
    let mut requests = Vec::new();
    if !patch.is_empty() {
        let query = match one.driver {
            Some(_) => "?reset_interfaces=true",
            None => "",
        };
        let path = node_path(&one.node, query);
        requests.push(CliRequest::new("PATCH", path).with(Value::Array(patch)));
    }
    if !own.is_empty() {
        let path = own_node_path(&one.node);
        requests.push(CliRequest::new("PATCH", path).with(Value::Object(own)));
        requests.push(show_node(&one.node));
    }
    Ok(CommandPlan {
        subject: format!("node {}", one.node),
        requests,
        then: FinalAction::Show(OutputView::Node),
    })
}

/// One part of a JSON pointer (RFC 6901).
fn pointer(part: &str) -> String {
    part.replace('~', "~0").replace('/', "~1")
}

fn watch(one: &NodeWatchArguments) -> CommandPlan {
    let subject = match one.nodes.as_slice() {
        [] => "nodes".to_owned(),
        nodes => format!("node {}", nodes.join(", ")),
    };
    CommandPlan {
        subject,
        requests: Vec::new(),
        then: FinalAction::Watch {
            nodes: one.nodes.clone(),
            until: one.until.clone(),
            limit_ms: one.timeout.map(|seconds| u64::from(seconds) * 1000),
        },
    }
}

fn states(node: &str, what: &str, body: Value) -> CliRequest {
    CliRequest::new("PUT", node_path(node, &format!("/states/{what}"))).with(body)
}

fn provision(node: &str, target: &str) -> CliRequest {
    states(node, "provision", json!({ "target": target }))
}

fn plain(one: &NodeVerbArguments, target: &str, end: &str, json: bool) -> CommandPlan {
    let request = provision(&one.node, target);
    let goal = WaitGoal::State(end.to_owned());
    verb(&one.node, vec![request], goal, &one.waiting, json)
}

/// Requests that start a job, and the wait for its end.
fn verb(
    node: &str,
    mut requests: Vec<CliRequest>,
    goal: WaitGoal,
    waiting: &WaitArguments,
    json: bool,
) -> CommandPlan {
    if !waiting.no_wait {
        return CommandPlan {
            subject: format!("node {node}"),
            requests,
            then: FinalAction::Wait {
                node: node.to_owned(),
                goal,
                limit_ms: u64::from(waiting.timeout) * 1000,
            },
        };
    }
    if json {
        requests.push(CliRequest::get(node_path(node, "")));
        return CommandPlan {
            subject: format!("node {node}"),
            requests,
            then: FinalAction::Show(OutputView::Node),
        };
    }
    let follow = format!("accepted; `trivet node watch {node}` follows it");
    print_plan(node, requests, &follow)
}

fn clean(
    one: &NodeCleanArguments,
    json: bool,
    read: FileTextReader<'_>,
) -> Result<CommandPlan, CliFault> {
    let steps = match &one.steps {
        Some(file) => step_list(file, read)?,
        None => {
            let steps: Result<Vec<Value>, CliFault> =
                one.step.iter().map(|text| step(text)).collect();
            Value::Array(steps?)
        }
    };
    let body = json!({"target": "clean", "clean_steps": steps});
    let request = states(&one.node, "provision", body);
    let goal = WaitGoal::State("manageable".to_owned());
    Ok(verb(&one.node, vec![request], goal, &one.waiting, json))
}

fn step(text: &str) -> Result<Value, CliFault> {
    let parts = text
        .split_once('.')
        .filter(|(interface, step)| !interface.is_empty() && !step.is_empty());
    let (interface, step) = parts.ok_or_else(|| {
        CliFault::usage(format!(
            "--step wants INTERFACE.STEP, such as deploy.erase_devices, not {text:?}"
        ))
    })?;
    Ok(json!({"interface": interface, "step": step}))
}

fn step_list(file: &str, read: FileTextReader<'_>) -> Result<Value, CliFault> {
    let steps = file_json("--steps", file, read)?;
    if steps.is_array() {
        return Ok(steps);
    }
    Err(CliFault::usage(format!(
        "--steps: {file} holds no JSON list of steps"
    )))
}

fn deploy(
    one: &NodeDeployArguments,
    target: &str,
    json: bool,
    read: FileTextReader<'_>,
) -> Result<CommandPlan, CliFault> {
    let mut body = json!({ "target": target });
    if let Some(drive) = &one.config_drive {
        body["configdrive"] = config_drive(drive, read)?;
    }
    if let Some(file) = &one.steps {
        body["deploy_steps"] = step_list(file, read)?;
    }
    let request = match &one.image {
        // One request: after a PATCH and a refused verb the node would keep the new
        // image.
        Some(image) => {
            body["instance_info"] = image_info(image, one.sha256.as_deref());
            CliRequest::new("PUT", provision_with_image_path(&one.node)).with(body)
        }
        None => states(&one.node, "provision", body),
    };
    let goal = WaitGoal::State("active".to_owned());
    Ok(verb(&one.node, vec![request], goal, &one.waiting, json))
}

/// The path of a request that combines a verb and a change of `instance_info`. Only
/// Trivet has it.
pub(crate) fn provision_with_image_path(node: &str) -> String {
    format!("/trivet/nodes/{}/provision", encode(node))
}

fn config_drive(given: &str, read: FileTextReader<'_>) -> Result<Value, CliFault> {
    if given.starts_with("http://") || given.starts_with("https://") {
        return Ok(json!(given));
    }
    let text = file_text("--config-drive", given, read)?;
    match serde_json::from_str::<Value>(&text) {
        Ok(object @ Value::Object(_)) => Ok(object),
        _ => Ok(json!(text)),
    }
}

fn power(one: &NodePowerArguments, json: bool) -> Result<CommandPlan, CliFault> {
    let (target, end) = match (one.action, one.soft) {
        (PowerAction::On, false) => ("power on", "power on"),
        (PowerAction::Off, false) => ("power off", "power off"),
        (PowerAction::Off, true) => ("soft power off", "power off"),
        (PowerAction::Reboot, false) => ("rebooting", "power on"),
        (PowerAction::Reboot, true) => ("soft rebooting", "power on"),
        (PowerAction::Status, false) => {
            return Ok(shown(
                &one.node,
                "/states",
                OutputView::Power(one.node.clone()),
            ));
        }
        (PowerAction::On | PowerAction::Status, true) => {
            return Err(CliFault::usage("--soft goes with off and reboot only"));
        }
    };
    let request = states(&one.node, "power", json!({ "target": target }));
    let goal = WaitGoal::Power(end.to_owned());
    Ok(verb(&one.node, vec![request], goal, &one.waiting, json))
}

fn boot_device(one: &NodeBootDeviceArguments) -> CommandPlan {
    let below = "/management/boot_device";
    let Some(device) = &one.device else {
        if one.supported {
            return shown(
                &one.node,
                &format!("{below}/supported"),
                OutputView::BootDevices,
            );
        }
        return shown(&one.node, below, OutputView::BootDevice);
    };
    let body = json!({"boot_device": device, "persistent": one.persistent});
    let request = CliRequest::new("PUT", node_path(&one.node, below)).with(body);
    let when = if one.persistent {
        "from now on"
    } else {
        "once, at its next boot"
    };
    let text = format!("boots from {device} {when}");
    print_plan(&one.node, vec![request], &text)
}

fn maintenance(one: &NodeMaintenanceArguments) -> CommandPlan {
    let path = node_path(&one.node, "/maintenance");
    let (request, what) = match one.switch {
        MaintenanceSwitch::On => {
            let body = one
                .reason
                .as_ref()
                .map_or(json!({}), |why| json!({ "reason": why }));
            (CliRequest::new("PUT", path).with(body), "in maintenance")
        }
        MaintenanceSwitch::Off => (CliRequest::new("DELETE", path), "out of maintenance"),
    };
    print_plan(&one.node, vec![request], what)
}

#[cfg(test)]
mod tests;
