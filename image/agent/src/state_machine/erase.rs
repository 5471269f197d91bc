//! What a step that erases is asked to do: the settings of the node.

use serde_json::{Map, Value};
use trivet_image_disks::{EraseSettings, RootDeviceHints};

/// Most entries of `skip_block_devices`. Ours.
const SKIPPED_DISKS_MAX: usize = 64;

/// Disks to erase.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentEraseOrder {
    /// All data; otherwise partition tables and signatures.
    pub whole: bool,
    /// How.
    pub settings: EraseSettings,
    /// Whether disks with a file system that several machines share are refused.
    pub guards_shared: bool,
    /// Disks that match one of these are not erased.
    pub skipped: Vec<RootDeviceHints>,
}

/// Reads `driver_internal_info` and `skip_block_devices` of a node. Hints that cannot be read are
/// an error: they may name a disk with data.
pub(super) fn parse_erase_order(whole: bool, node: &Value) -> Result<AgentEraseOrder, String> {
    let none = Map::new();
    let info = node.get("driver_internal_info").and_then(Value::as_object);
    let info = info.unwrap_or(&none);
    let wipes_shared = info.get("wipe_special_filesystems");
    Ok(AgentEraseOrder {
        whole,
        settings: EraseSettings::parse(info),
        guards_shared: wipes_shared.and_then(Value::as_bool) != Some(true),
        skipped: skipped_disks(node)?,
    })
}

fn skipped_disks(node: &Value) -> Result<Vec<RootDeviceHints>, String> {
    let properties = node.get("properties");
    let list = match properties.and_then(|all| all.get("skip_block_devices")) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() <= SKIPPED_DISKS_MAX => list,
        Some(_) => {
            return Err(format!(
                "'skip_block_devices' must be a list of at most {SKIPPED_DISKS_MAX} objects"
            ));
        }
    };
    let hints = list.iter().map(|one| {
        let parsed = RootDeviceHints::parse(one);
        let parsed = parsed.map_err(|error| format!("'skip_block_devices': {error}"))?;
        if parsed.is_empty() {
            return Err("'skip_block_devices' has an entry without hints".to_owned());
        }
        Ok(parsed)
    });
    hints.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_settings_of_the_node_are_read() {
        let plain = parse_erase_order(true, &Value::Null).unwrap();
        assert_eq!(plain.settings, EraseSettings::default());
        assert!(plain.whole && plain.guards_shared && plain.skipped.is_empty());
        let node = json!({
            "driver_internal_info": {"agent_erase_skip_read_only": true,
                                     "agent_erase_devices_iterations": 3,
                                     "wipe_special_filesystems": true},
            "properties": {"skip_block_devices": [{"name": "/dev/sdb"}]}});
        let order = parse_erase_order(false, &node).unwrap();
        assert!(order.settings.skips_read_only && !order.guards_shared && !order.whole);
        assert_eq!((order.settings.passes, order.skipped.len()), (3, 1));
    }

    #[test]
    fn disks_to_skip_that_cannot_be_read_stop_the_step() {
        for list in [
            json!("sdb"),
            json!([{}]),
            json!(["sdb"]),
            json!([{"colour": "red"}]),
            json!(vec![json!({"name": "/dev/sdb"}); SKIPPED_DISKS_MAX + 1]),
        ] {
            let node = json!({"properties": {"skip_block_devices": list}});
            let error = parse_erase_order(true, &node).unwrap_err();
            assert!(error.contains("skip_block_devices"), "{error}");
        }
    }
}
