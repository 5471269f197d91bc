//! `PUT /v1/nodes/<ident>/states/raid`: the logical disks an operator wants.

use serde_json::{Value, json};
use trivet_drivers::{HardwareCapability, can};
use trivet_model::Node;
use trivet_model::attributes::RaidConfig;
use trivet_model::node::JsonObject;
use trivet_model::view::NodeView;

use super::{replace, unlocked};
use crate::ApiOutcome;
use crate::table::body;
use crate::table::call::{ApiCall, empty};
use crate::table::error::ApiFault;
use crate::table::field;

/// Most logical disks of one node. Ours.
pub(crate) const LOGICAL_DISKS_MAX: usize = 64;

/// Largest target configuration, in bytes of JSON. Ours: it is stored in the record.
pub(crate) const RAID_BYTES_MAX: usize = 8 * 1024;

/// The properties of a logical disk, and the description of each.
pub(crate) const PROPERTIES: [(&str, &str); 10] = [
    (
        "controller",
        "Which RAID controller makes the disk. Optional: any that can.",
    ),
    (
        "disk_type",
        "Which kind of physical disks to take, 'hdd' or 'ssd'. Optional: either.",
    ),
    (
        "interface_type",
        "How the physical disks are attached: 'sata', 'scsi' or 'sas'. Optional: any.",
    ),
    (
        "is_root_volume",
        "Whether the image goes onto this disk. Optional, false by default; one disk at most.",
    ),
    (
        "number_of_physical_disks",
        "How many physical disks to use. Optional: as few as the level needs.",
    ),
    (
        "physical_disks",
        "Which physical disks to use. Optional; needs a controller.",
    ),
    (
        "raid_level",
        "One of 'JBOD', '0', '1', '2', '5', '6', '1+0', '5+0' and '6+0'. Required.",
    ),
    (
        "share_physical_disks",
        "Whether other logical disks may use the same physical ones. Optional, false by default.",
    ),
    (
        "size_gb",
        "Size in GiB as a whole number, or 'MAX' for all that is left. Required.",
    ),
    ("volume_name", "What to call the disk. Optional."),
];

const LEVELS: [&str; 9] = ["JBOD", "0", "1", "2", "5", "6", "1+0", "5+0", "6+0"];

pub(crate) fn set(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let target = body::object(call)?;
    if !can(&view.node, HardwareCapability::Raid) {
        return Err(ApiFault::not_found(format!(
            "Driver {} does not support raid (disabled or not implemented).",
            view.node.driver
        )));
    }
    if !target.is_empty() {
        check(&target)?;
    }
    unlocked(call, &view.node)?;
    let mut node = Node::clone(&view.node);
    node.attributes.target_raid_config = RaidConfig(target);
    replace(view, node, empty(204, None))
}

fn bad(why: &str) -> ApiFault {
    ApiFault::bad(format!("RAID config validation error: {why}"))
}

fn check(target: &JsonObject) -> Result<(), ApiFault> {
    if let Some(strange) = target.keys().find(|key| *key != "logical_disks") {
        return Err(bad(&unexpected(strange)));
    }
    let disks = match target.get("logical_disks") {
        Some(Value::Array(disks)) => disks,
        Some(other) => return Err(bad(&format!("{other} is not of type 'array'"))),
        None => return Err(bad("'logical_disks' is a required property")),
    };
    if disks.is_empty() {
        return Err(bad("[] should be non-empty"));
    }
    if disks.len() > LOGICAL_DISKS_MAX {
        return Err(bad(&format!(
            "a node has at most {LOGICAL_DISKS_MAX} logical disks"
        )));
    }
    if json!(target).to_string().len() > RAID_BYTES_MAX {
        return Err(bad(&format!("at most {RAID_BYTES_MAX} bytes are stored")));
    }
    for disk in disks {
        let disk = disk.as_object();
        check_disk(disk.ok_or_else(|| bad("a logical disk must be an object"))?)?;
    }
    let is_root = |disk: &&Value| disk.get("is_root_volume") == Some(&Value::Bool(true));
    let roots = disks.iter().filter(is_root).count();
    if roots > 1 {
        return Err(ApiFault::bad(format!(
            "Raid config cannot have more than one root volume. {roots} root volumes were \
             specified"
        )));
    }
    Ok(())
}

fn unexpected(name: &str) -> String {
    let name = name.escape_debug();
    format!("Additional properties are not allowed ('{name}' was unexpected)")
}

fn check_disk(disk: &JsonObject) -> Result<(), ApiFault> {
    for name in ["raid_level", "size_gb"] {
        if !disk.contains_key(name) {
            return Err(bad(&format!("'{name}' is a required property")));
        }
    }
    if disk.contains_key("physical_disks") && !disk.contains_key("controller") {
        return Err(bad("'controller' is a dependency of 'physical_disks'"));
    }
    for (name, value) in disk {
        let text = value.as_str();
        let is = |words: &[&str]| text.is_some_and(|text| words.contains(&text));
        let words: &[&str] = match name.as_str() {
            "raid_level" => &LEVELS,
            "size_gb" if !value.is_u64() => &["MAX"],
            "disk_type" => &["hdd", "ssd"],
            "interface_type" => &["sata", "scsi", "sas"],
            _ => &[],
        };
        if !words.is_empty() && !is(words) {
            let shown = field::quoted(value);
            return Err(bad(&format!("{shown} is not one of {words:?}: {name}")));
        }
        let fits = match name.as_str() {
            "raid_level" | "size_gb" | "disk_type" | "interface_type" => true,
            "number_of_physical_disks" => value.as_u64().is_some_and(|count| count > 0),
            "is_root_volume" | "share_physical_disks" => value.is_boolean(),
            "controller" | "volume_name" => text.is_some(),
            "physical_disks" => value.as_array().is_some_and(|disks| {
                disks.iter().all(Value::is_string)
                    || (disks.len() > 1 && disks.iter().all(Value::is_object))
            }),
            _ => return Err(bad(&unexpected(name))),
        };
        if !fits {
            return Err(bad(&format!("{value} is not a valid {name}")));
        }
    }
    Ok(())
}
