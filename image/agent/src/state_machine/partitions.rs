//! The partitions that are made for an image of one file system.

use serde_json::Value;
use trivet_agent_wire::ImageInfo;

/// The file system of an ephemeral partition, if none is named; Ironic's default.
const EPHEMERAL_FORMAT: &str = "ext4";

/// Longest name of a file system. Ours.
const FORMAT_CHARACTERS_MAX: usize = 16;

/// Partitions to make.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PartitionOrder {
    /// Size of the root partition.
    pub root_mib: u64,
    /// Size of the swap partition; zero is none.
    pub swap_mib: u64,
    /// Size of the ephemeral partition; zero is none.
    pub ephemeral_mib: u64,
    /// Its file system, the end of the name of a program `mkfs.`.
    pub ephemeral_format: String,
    /// It is there already, and keeps its content.
    pub keeps_ephemeral: bool,
    /// Whether the machine boots its disk by UEFI; none: as it has booted now.
    pub is_uefi: Option<bool>,
    /// Whether a machine with a BIOS gets a GPT.
    pub wants_gpt: bool,
}

/// Reads the sizes of an image, and from the node what the stock agent reads there: how the
/// machine boots and the kind of the partition table.
pub(super) fn parse_partition_order(
    info: &ImageInfo,
    node: &Value,
) -> Result<PartitionOrder, String> {
    let sizes = info.partitions.as_ref().ok_or(
        "A partition image needs 'root_mb', 'swap_mb', 'ephemeral_mb', 'ephemeral_format' and \
         'preserve_ephemeral'.",
    )?;
    let format = sizes.ephemeral_format.as_deref();
    let format = format.unwrap_or(EPHEMERAL_FORMAT);
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if format.is_empty() || format.len() > FORMAT_CHARACTERS_MAX || !is_name(format) {
        return Err("'ephemeral_format' is not the name of a file system.".to_owned());
    }
    Ok(PartitionOrder {
        root_mib: sizes.root_mb,
        swap_mib: sizes.swap_mb,
        ephemeral_mib: sizes.ephemeral_mb,
        ephemeral_format: format.to_owned(),
        keeps_ephemeral: sizes.preserve_ephemeral && sizes.ephemeral_mb > 0,
        is_uefi: is_uefi(node),
        wants_gpt: capability(node, "disk_label").as_deref() == Some("gpt"),
    })
}

/// Whether the node says that it boots by UEFI.
fn is_uefi(node: &Value) -> Option<bool> {
    if capability(node, "secure_boot").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Some(true);
    }
    let field = |part: &str| {
        let mode = node.get(part)?.get("deploy_boot_mode")?.as_str()?;
        Some(mode.to_owned())
    };
    let mode = field("instance_info")
        .or_else(|| capability(node, "boot_mode"))
        .or_else(|| field("driver_internal_info"))?;
    match mode.to_ascii_lowercase().as_str() {
        "uefi" => Some(true),
        "bios" => Some(false),
        _ => None,
    }
}

/// A capability of the node; that of its instance wins. They are `key:value,key:value` or an
/// object.
fn capability(node: &Value, name: &str) -> Option<String> {
    let of = |part: &str| match node.get(part)?.get("capabilities")? {
        Value::String(pairs) => pairs.split(',').find_map(|pair| {
            let (key, value) = pair.trim().split_once(':')?;
            (key == name).then(|| value.to_owned())
        }),
        Value::Object(all) => match all.get(name)? {
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        },
        _ => None,
    };
    of("instance_info").or_else(|| of("properties"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(change: impl FnOnce(&mut Value), node: &Value) -> Result<PartitionOrder, String> {
        let mut info = json!({"id": "a", "urls": ["u"], "image_type": "partition",
            "root_mb": 2048, "swap_mb": 64, "ephemeral_mb": 0, "ephemeral_format": null,
            "preserve_ephemeral": false});
        change(&mut info);
        parse_partition_order(&serde_json::from_value(info).unwrap(), node)
    }

    #[test]
    fn sizes_come_from_the_image() {
        let order = parsed(|_| (), &Value::Null).unwrap();
        assert_eq!((order.root_mib, order.swap_mib), (2048, 64));
        assert_eq!(order.ephemeral_format, "ext4");
        assert!(!order.keeps_ephemeral && !order.wants_gpt);
        assert_eq!(order.is_uefi, None);
        let order = parsed(
            |info| {
                info["ephemeral_mb"] = json!(10);
                info["ephemeral_format"] = json!("xfs");
                info["preserve_ephemeral"] = json!(true);
            },
            &Value::Null,
        );
        let order = order.unwrap();
        assert_eq!(
            (order.ephemeral_mib, order.ephemeral_format.as_str()),
            (10, "xfs")
        );
        assert!(order.keeps_ephemeral);
        let order = parsed(
            |info| info["preserve_ephemeral"] = json!(true),
            &Value::Null,
        );
        assert!(!order.unwrap().keeps_ephemeral, "there is none");
    }

    #[test]
    fn names_of_programs_are_not_taken_from_outside() {
        for format in ["", "../x", "ext4 -F", "aaaaaaaaaaaaaaaaa"] {
            let refused = parsed(
                |info| info["ephemeral_format"] = json!(format),
                &Value::Null,
            );
            assert!(
                refused.unwrap_err().contains("ephemeral_format"),
                "{format}"
            );
        }
        let refused = parsed(|info| info["root_mb"] = Value::Null, &Value::Null);
        assert!(refused.unwrap_err().contains("'root_mb'"));
    }

    #[test]
    fn the_node_says_how_it_boots() {
        for (node, want) in [
            (
                json!({"properties": {"capabilities": "cpu:1, boot_mode:uefi"}}),
                Some(true),
            ),
            (
                json!({"properties": {"capabilities": {"boot_mode": "bios"}}}),
                Some(false),
            ),
            (
                json!({"properties": {"capabilities": "boot_mode:uefi"},
                       "instance_info": {"deploy_boot_mode": "bios"}}),
                Some(false),
            ),
            (
                json!({"driver_internal_info": {"deploy_boot_mode": "UEFI"}}),
                Some(true),
            ),
            (
                json!({"instance_info": {"capabilities": {"secure_boot": true}}}),
                Some(true),
            ),
            (
                json!({"properties": {"capabilities": "boot_mode:other"}}),
                None,
            ),
            (json!({}), None),
        ] {
            assert_eq!(parsed(|_| (), &node).unwrap().is_uefi, want, "{node}");
        }
        let node = json!({"properties": {"capabilities": "disk_label:msdos"},
                          "instance_info": {"capabilities": {"disk_label": "gpt"}}});
        assert!(parsed(|_| (), &node).unwrap().wants_gpt);
    }
}
