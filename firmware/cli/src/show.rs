//! Shows responses as tables.

pub(crate) mod bmc;
mod story;

use std::fmt::Write as _;

use serde_json::Value;

use crate::exit::Exit;
use crate::fault::CliFault;
use crate::table::TextTable;

/// The kind of a response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum OutputView {
    /// A list of nodes.
    Nodes,
    /// One node.
    Node,
    /// A list of ports.
    Ports,
    /// One port.
    Port,
    /// The images of the box.
    Images,
    /// One of the images.
    Image(String),
    /// Networks and the other DHCP servers on them.
    Networks,
    /// Current faults.
    Faults,
    /// Machines that are not enrolled.
    UnknownMachines,
    /// What a deployment lacks.
    Validation,
    /// The errors of a node.
    History,
    /// What happened to a node.
    Story,
    /// What is wrong with a node.
    Why,
    /// What needs attention.
    Status,
    /// The result of an inspection.
    Inventory,
    /// The steps that agents offered.
    Steps,
    /// The stored logs of agents.
    Logs,
    /// The boot device of the node.
    BootDevice,
    /// The devices it can boot from.
    BootDevices,
    /// The power state of this node.
    Power(String),
    /// A response of a BMC.
    Bmc(bmc::BmcTable),
}

/// The key of the activity text in a node of a list.
pub(crate) const ACTIVITY: &str = "activity";

/// Interfaces that a deployment needs.
const NEEDED: [&str; 6] = [
    "boot",
    "deploy",
    "management",
    "network",
    "power",
    "storage",
];

impl OutputView {
    /// The key of a list that is paginated.
    pub(crate) fn list(&self) -> Option<&'static str> {
        match self {
            Self::Nodes => Some("nodes"),
            Self::Ports => Some("ports"),
            _ => None,
        }
    }

    /// Selects what to show, and its exit code.
    pub(crate) fn chosen(&self, body: Value) -> Result<(Value, Exit), CliFault> {
        match self {
            Self::Image(name) => {
                let mut images = items(&body, "images").iter();
                let found = images.find(|image| image["name"] == name.as_str());
                let found = found.cloned().ok_or_else(|| {
                    let sentence = format!(
                        "image {name}: the box has no image of this name. `trivet image list` \
                         shows those it has."
                    );
                    CliFault::new(Exit::NotFound, sentence)
                })?;
                Ok((found, Exit::Fine))
            }
            Self::Validation => {
                let fit = NEEDED.iter().all(|kind| body[*kind]["result"] != false);
                Ok((body, if fit { Exit::Fine } else { Exit::Failed }))
            }
            Self::Why => {
                let exit = story::why_exit(&body);
                let answer = serde_json::json!({
                    "uuid": body["uuid"], "name": body["name"], "why": body["why"],
                });
                Ok((answer, exit))
            }
            Self::Status => {
                let exit = story::status_exit(&body);
                Ok((body, exit))
            }
            _ => Ok((body, Exit::Fine)),
        }
    }

    /// The lines of a response, cut to `width` where there is one.
    pub(crate) fn lines(&self, body: &Value, width: Option<usize>) -> Vec<String> {
        match self {
            Self::Story => story::story(body, width),
            Self::Why => story::why(body, width),
            Self::Status => story::status(body, width),
            _ => self.table(body).lines(width),
        }
    }

    /// The table of a response.
    pub(crate) fn table(&self, body: &Value) -> TextTable {
        match self {
            Self::Nodes => nodes(body),
            Self::Ports => ports(body),
            Self::Images => images(body),
            Self::Networks => networks(body),
            Self::Faults => faults(body),
            Self::UnknownMachines => unknown_machines(body),
            Self::Node | Self::Port | Self::Image(_) => fields(body),
            Self::BootDevice => boot_device(body),
            Self::Validation => validation(body),
            Self::History => history(body),
            Self::Inventory => inventory(&body["inventory"]),
            // These are more than one table, see [`Self::lines`].
            Self::Story | Self::Why | Self::Status => TextTable::default(),
            Self::Steps => steps(body),
            Self::Logs => logs(body),
            Self::BootDevices => {
                let mut table = TextTable::default();
                for device in items(body, "supported_boot_devices") {
                    table.row([cell(device)]);
                }
                table
            }
            Self::Power(node) => power(node, body),
            Self::Bmc(table) => table.rows(body),
        }
    }
}

fn items<'a>(body: &'a Value, key: &str) -> &'a [Value] {
    body[key].as_array().map_or(&[], Vec::as_slice)
}

/// Any value as one cell; null is empty.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        other => other.to_string(),
    }
}

fn nodes(body: &Value) -> TextTable {
    let mut table = TextTable::new(&["NAME", "UUID", "STATE", "POWER", "DRIVER", "REMARK"]);
    // The activity or the error is more useful than a UUID that is cut.
    table.spare = &[1, 4];
    for node in items(body, "nodes") {
        let power = cell(&node["power_state"]);
        let activity = &node[ACTIVITY];
        let state = match node["target_provision_state"].as_str() {
            // The activity is more useful than the target state.
            Some(target) if activity.is_null() => {
                format!("{} -> {target}", cell(&node["provision_state"]))
            }
            _ => cell(&node["provision_state"]),
        };
        let parts = [activity, &node["last_error"]].map(cell);
        let parts = parts.iter().filter(|part| !part.is_empty());
        let what = parts.cloned().collect::<Vec<String>>().join("; ");
        let remark = match node["maintenance"] == true {
            true if what.is_empty() => "maintenance".to_owned(),
            true => format!("maintenance: {what}"),
            false => what,
        };
        let name = match &node["name"] {
            Value::Null => cell(&node["uuid"]),
            name => cell(name),
        };
        table.row([
            name,
            cell(&node["uuid"]),
            state,
            power.strip_prefix("power ").unwrap_or(&power).to_owned(),
            cell(&node["driver"]),
            remark,
        ]);
    }
    table
}

fn steps(body: &Value) -> TextTable {
    let mut table = TextTable::new(&["KIND", "INTERFACE", "STEP", "PRIORITY", "ARGUMENTS"]);
    for step in items(body, "steps") {
        let known = step["argsinfo"].as_object().into_iter().flatten();
        let arguments: Vec<String> = known
            .map(|(name, about)| {
                if about["required"] == true {
                    name.clone()
                } else {
                    format!("[{name}]")
                }
            })
            .collect();
        table.row([
            cell(&step["kind"]),
            cell(&step["interface"]),
            cell(&step["step"]),
            cell(&step["priority"]),
            arguments.join(" "),
        ]);
    }
    table
}

fn logs(body: &Value) -> TextTable {
    let mut table = TextTable::new(&["NAME", "SIZE"]);
    for bundle in items(body, "logs") {
        let bytes = bundle["size"].as_u64().map(size).unwrap_or_default();
        table.row([cell(&bundle["name"]), bytes]);
    }
    table
}

fn ports(body: &Value) -> TextTable {
    let mut table = TextTable::new(&["ADDRESS", "UUID", "NODE", "PXE"]);
    for port in items(body, "ports") {
        table.row(["address", "uuid", "node_uuid", "pxe_enabled"].map(|key| cell(&port[key])));
    }
    table
}

fn images(body: &Value) -> TextTable {
    let mut table = TextTable::new(&["NAME", "FORMAT", "SIZE", "STATE", "CACHED", "SHA256"]);
    for image in items(body, "images") {
        table.row([
            cell(&image["name"]),
            cell(&image["format"]),
            image["size"].as_u64().map(size).unwrap_or_default(),
            cell(&image["state"]),
            here(image),
            cell(&image["sha256"]),
        ]);
    }
    table
}

/// One row for each other DHCP server, or one row with "none detected".
fn networks(body: &Value) -> TextTable {
    let mut table = TextTable::new(&["NETWORK", "MODE", "OTHER SERVER", "MAC", "VENDOR", "SEEN"]);
    for network in items(body, "networks") {
        let [name, mode] = ["name", "mode"].map(|key| cell(&network[key]));
        let servers = items(network, "other_servers");
        for server in servers {
            let [address, mac, vendor, seen] =
                ["address", "mac", "vendor", "seen_at"].map(|key| cell(&server[key]));
            table.row([name.clone(), mode.clone(), address, mac, vendor, seen]);
        }
        if servers.is_empty() {
            table.row([name, mode, "none detected".to_owned()]);
        }
    }
    table
}

fn faults(body: &Value) -> TextTable {
    let mut table = TextTable::new(&["SINCE", "WHAT IS WRONG"]);
    for fault in items(body, "faults") {
        table.row(["since", "fault"].map(|key| cell(&fault[key])));
    }
    table
}

fn unknown_machines(body: &Value) -> TextTable {
    let mut table = TextTable::new(&[
        "MAC", "VENDOR", "ARCH", "UUID", "NETWORK", "ADDRESS", "SEEN",
    ]);
    let keys = [
        "mac",
        "vendor",
        "architecture",
        "uuid",
        "network",
        "address",
        "seen_at",
    ];
    for unknown in items(body, "strangers") {
        table.row(keys.map(|key| cell(&unknown[key])));
    }
    table
}

/// How much of an image the box has, in percent.
fn here(image: &Value) -> String {
    match (image["here"].as_u64(), image["size"].as_u64()) {
        (Some(here), Some(all)) if all > 0 => {
            format!("{}%", u128::from(here) * 100 / u128::from(all))
        }
        _ => String::new(),
    }
}

/// One row per field that is not empty; objects have one row per key.
fn fields(body: &Value) -> TextTable {
    let mut table = TextTable::default();
    for (key, value) in body.as_object().into_iter().flatten() {
        // Links to the API are not useful in a table.
        if ["links", "ports", "portgroups", "states", "volume"].contains(&key.as_str()) {
            continue;
        }
        match value {
            Value::Null => {}
            Value::Object(inner) => {
                for (inner_key, inner) in inner {
                    table.row([format!("{key}.{inner_key}"), cell(inner)]);
                }
            }
            Value::Array(list) if list.is_empty() => {}
            Value::String(text) if text.is_empty() => {}
            other => table.row([key.clone(), cell(other)]),
        }
    }
    table
}

fn validation(body: &Value) -> TextTable {
    let mut table = TextTable::new(&["INTERFACE", "VALID", "REASON"]);
    for (kind, found) in body.as_object().into_iter().flatten() {
        table.row([kind.clone(), cell(&found["result"]), cell(&found["reason"])]);
    }
    table
}

fn history(body: &Value) -> TextTable {
    let mut table = TextTable::new(&["WHEN", "SEVERITY", "EVENT"]);
    for record in items(body, "history") {
        table.row(["created_at", "severity", "event"].map(|key| cell(&record[key])));
    }
    table
}

fn inventory(found: &Value) -> TextTable {
    let mut table = TextTable::default();
    let vendor = &found["system_vendor"];
    let system = ["manufacturer", "product_name", "serial_number"].map(|key| cell(&vendor[key]));
    table.row(["system".to_owned(), system.join(" ").trim().to_owned()]);
    let cpu = &found["cpu"];
    let of = [&cpu["count"], &cpu["architecture"], &cpu["model_name"]].map(cell);
    table.row(["cpu".to_owned(), of.join(" ").trim().to_owned()]);
    if let Some(mb) = found["memory"]["physical_mb"].as_u64() {
        table.row(["memory".to_owned(), size(mb.saturating_mul(1 << 20))]);
    }
    for disk in items(found, "disks") {
        let bytes = disk["size"].as_u64().map(size).unwrap_or_default();
        let of = [
            cell(&disk["name"]),
            bytes,
            cell(&disk["model"]),
            cell(&disk["serial"]),
        ];
        table.row(["disk".to_owned(), of.join(" ").trim().to_owned()]);
    }
    for port in items(found, "interfaces") {
        let of = ["name", "mac_address", "ipv4_address", "product"].map(|key| cell(&port[key]));
        table.row(["interface".to_owned(), of.join(" ").trim().to_owned()]);
    }
    let boot = cell(&found["boot"]["current_boot_mode"]);
    for (name, value) in [("boot mode", boot), ("bmc", cell(&found["bmc_address"]))] {
        if !value.is_empty() {
            table.row([name.to_owned(), value]);
        }
    }
    table
}

fn boot_device(body: &Value) -> TextTable {
    let mut table = TextTable::default();
    for key in ["boot_device", "persistent"] {
        let value = match &body[key] {
            Value::Null => "unknown".to_owned(),
            known => cell(known),
        };
        table.row([key.to_owned(), value]);
    }
    table
}

fn power(node: &str, body: &Value) -> TextTable {
    let mut table = TextTable::default();
    let mut state = cell(&body["power_state"]);
    if state.is_empty() {
        state.push_str("unknown");
    }
    if let Some(target) = body["target_power_state"].as_str() {
        let _ = write!(state, " -> {target}");
    }
    table.row([node.to_owned(), state]);
    table
}

/// A size in bytes with a suitable unit.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut tenths = u128::from(bytes) * 10 / 1024;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests;
