//! What is asked of the agent to make a written image bootable.

use serde_json::{Map, Value, json};

use super::image::root_device;
use super::work::WrittenDisk;

/// Make a disk bootable.
#[derive(Clone, Debug, PartialEq)]
pub struct BootloaderOrder {
    /// The disk that this agent has written; none if that was before it was started.
    pub disk: Option<WrittenDisk>,
    /// Hints for the disk otherwise, as in `root_device`; null if there are none.
    pub root_device: Value,
    /// Whether a failure is only logged; none: as the parameters of the agent say.
    pub ignores_failure: Option<bool>,
}

/// Reads the parameters of `install_bootloader`. The partitions are those that this agent made:
/// their identifiers only come back from the appliance.
pub(super) fn parse_bootloader_order(
    params: &Map<String, Value>,
    written: Option<&WrittenDisk>,
    node: &Value,
) -> Result<BootloaderOrder, String> {
    let ignores_failure = match params.get("ignore_bootloader_failure") {
        None | Some(Value::Null) => None,
        Some(Value::Bool(ignores)) => Some(*ignores),
        Some(_) => return Err("'ignore_bootloader_failure' must be true or false.".to_owned()),
    };
    Ok(BootloaderOrder {
        disk: written.cloned(),
        root_device: root_device(node),
        ignores_failure,
    })
}

/// The result of `get_partition_uuids`. The keys have blanks, as those of the stock agent.
pub(super) fn partition_uuids(disk: &WrittenDisk) -> Value {
    let mut found = json!({});
    if let Some(uuid) = &disk.root_uuid {
        found["root uuid"] = uuid.as_str().into();
    }
    let efi_system = disk.partitions.as_ref();
    if let Some((_, uuid)) = efi_system.and_then(|made| made.efi_system.as_ref()) {
        found["efi system partition uuid"] = uuid.as_str().into();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_machine::WrittenPartitions;

    fn parsed(params: &Value, written: Option<&WrittenDisk>) -> Result<BootloaderOrder, String> {
        let params = params.as_object().unwrap();
        let node = json!({"instance_info": {"root_device": {"serial": "A"}}});
        parse_bootloader_order(params, written, &node)
    }

    #[test]
    fn the_written_disk_and_the_hints_are_known() {
        let disk = WrittenDisk {
            device: Some("/dev/sdb".into()),
            ..WrittenDisk::default()
        };
        let params = json!({"root_uuid": "0x1a2b3c4d", "target_boot_mode": "uefi"});
        let order = parsed(&params, Some(&disk)).unwrap();
        assert_eq!(order.disk, Some(disk));
        assert_eq!(order.root_device, json!({"serial": "A"}));
        assert_eq!(order.ignores_failure, None);
    }

    #[test]
    fn identifiers_have_the_stock_agents_keys() {
        assert_eq!(partition_uuids(&WrittenDisk::default()), json!({}));
        let disk = WrittenDisk {
            root_uuid: Some("r".to_owned()),
            partitions: Some(WrittenPartitions {
                root: 3,
                efi_system: Some((1, "1234-ABCD".to_owned())),
            }),
            ..WrittenDisk::default()
        };
        let want = json!({"root uuid": "r", "efi system partition uuid": "1234-ABCD"});
        assert_eq!(partition_uuids(&disk), want);
    }

    #[test]
    fn whether_a_failure_counts_is_a_yes_or_no() {
        let order = parsed(&json!({"ignore_bootloader_failure": true}), None).unwrap();
        assert_eq!((order.disk, order.ignores_failure), (None, Some(true)));
        let order = parsed(&json!({"ignore_bootloader_failure": null}), None).unwrap();
        assert_eq!(order.ignores_failure, None);
        let error = parsed(&json!({"ignore_bootloader_failure": "yes"}), None).unwrap_err();
        assert!(error.contains("true or false"), "{error}");
    }
}
