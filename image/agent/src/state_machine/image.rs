//! Parses and validates the image to write, before anything is changed.

use serde_json::{Map, Value};
use trivet_agent_wire::ImageInfo;
use trivet_agent_wire::image::PARTITION;
use trivet_model::Digest;

use super::partitions::{PartitionOrder, parse_partition_order};

/// Most URLs of an image. Ours.
pub(super) const IMAGE_URLS_MAX: usize = 8;

/// An image to write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageOrder {
    /// Its name.
    pub id: String,
    /// Its URLs, in order.
    pub urls: Vec<String>,
    /// The expected digest.
    pub digest: Digest,
    /// The config drive: base64 of a gzip file, or a URL of such a text.
    pub config_drive: Option<String>,
    /// Hints for the disk, as in `root_device`; null if there are none.
    pub root_device: Value,
    /// The partitions to make, if the image is that of one file system.
    pub partitions: Option<PartitionOrder>,
    /// It is written before a deployment needs it: its first chunk is not written, so the disk
    /// does not boot. Its later deployment verifies the disk and adds that chunk.
    pub is_ahead: bool,
}

/// The root device hints of a node: those of its instance win.
pub(super) fn root_device(node: &Value) -> Value {
    let of = |part: &str| {
        let hints = node.get(part)?.get("root_device")?;
        hints.as_object().filter(|hints| !hints.is_empty())
    };
    let hints = of("instance_info").or_else(|| of("properties"));
    hints.cloned().map_or(Value::Null, Value::Object)
}

/// Parses `image_info` and `configdrive`. The first three error messages are the stock agent's.
pub(super) fn parse_image_order(
    params: &Map<String, Value>,
    node: &Value,
) -> Result<ImageOrder, String> {
    let info = params.get("image_info").cloned().unwrap_or_default();
    let info: ImageInfo =
        serde_json::from_value(info).map_err(|_| "Image info must be an object.".to_owned())?;
    let id = info.id.clone().ok_or("Image is missing 'id' field.")?;
    if info.urls.is_empty() {
        return Err("Image 'urls' list must contain at least one element.".to_owned());
    }
    if info.urls.len() > IMAGE_URLS_MAX {
        return Err(format!("Image has more than {IMAGE_URLS_MAX} urls."));
    }
    let digest = digest(&info)?;
    if info
        .disk_format
        .as_deref()
        .is_some_and(|format| format != "raw")
    {
        return Err("This agent writes raw images only.".to_owned());
    }
    let partitions = match info.image_type.as_deref() {
        Some(PARTITION) => Some(parse_partition_order(&info, node)?),
        _ => None,
    };
    let config_drive = match params.get("configdrive") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(_) => return Err("The config drive must be a text.".to_owned()),
    };
    Ok(ImageOrder {
        id,
        urls: info.urls,
        digest,
        config_drive,
        root_device: root_device(node),
        partitions,
        is_ahead: false,
    })
}

fn digest(info: &ImageInfo) -> Result<Digest, String> {
    let value = info.os_hash_value.as_ref().or(info.checksum.as_ref());
    let value = value.ok_or("Image is missing 'os_hash_value' or 'checksum' field.")?;
    let digest: Digest = value
        .parse()
        .map_err(|_| "Image checksum must be a SHA-256 or SHA-512 in hexadecimal.".to_owned())?;
    let named = info.os_hash_algo.as_deref();
    if info.os_hash_value.is_some() && named.is_some_and(|name| name != digest.algorithm()) {
        return Err("Image 'os_hash_algo' does not fit 'os_hash_value'.".to_owned());
    }
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn params(change: impl FnOnce(&mut Value)) -> Map<String, Value> {
        let mut params = json!({"image_info": {
            "id": "a.raw", "urls": ["http://h/a.raw"], "os_hash_algo": "sha256",
            "os_hash_value": "ab".repeat(32), "disk_format": "raw",
            "stream_raw_images": true, "image_type": "whole-disk"}});
        change(&mut params);
        params.as_object().unwrap().clone()
    }

    #[test]
    fn parses_what_the_driver_sends() {
        let order = parse_image_order(&params(|_| ()), &Value::Null).unwrap();
        assert_eq!(order.urls, ["http://h/a.raw"]);
        assert_eq!(order.digest.to_string(), "ab".repeat(32));
    }

    #[test]
    fn accepts_the_older_checksum() {
        let params = params(|params| {
            params["image_info"] =
                json!({"id": "a", "urls": ["http://h/a"], "checksum": "cd".repeat(64)});
        });
        assert_eq!(
            parse_image_order(&params, &Value::Null)
                .unwrap()
                .digest
                .algorithm(),
            "sha512"
        );
    }

    #[test]
    fn refuses_what_it_cannot_write_with_a_message() {
        for (field, value, words) in [
            ("id", json!(null), "missing 'id'"),
            ("urls", json!([]), "at least one"),
            ("urls", json!(vec!["u"; IMAGE_URLS_MAX + 1]), "more than"),
            ("os_hash_value", json!(null), "missing 'os_hash_value'"),
            ("os_hash_value", json!("ab"), "SHA-256"),
            ("os_hash_algo", json!("md5"), "does not fit"),
            ("disk_format", json!("qcow2"), "raw images only"),
            ("image_type", json!("partition"), "'root_mb'"),
        ] {
            let params = params(|params| params["image_info"][field] = value);
            let message = parse_image_order(&params, &Value::Null).unwrap_err();
            assert!(message.contains(words), "{field}: {message}");
        }
        let other = params(|params| params["configdrive"] = json!({"meta_data": {}}));
        assert!(parse_image_order(&other, &Value::Null).is_err());
        let other = params(|params| params["image_info"] = json!(7));
        assert!(parse_image_order(&other, &Value::Null).is_err());
        let most = json!(vec!["u"; IMAGE_URLS_MAX]);
        let most = params(|params| params["image_info"]["urls"] = most);
        assert!(parse_image_order(&most, &Value::Null).is_ok());
    }

    #[test]
    fn takes_config_drive_and_root_device_hints() {
        let params = params(|params| params["configdrive"] = json!("H4sI"));
        let node = json!({"properties": {"root_device": {"size": 10}},
                          "instance_info": {"root_device": {"serial": "A"}}});
        let order = parse_image_order(&params, &node).unwrap();
        assert_eq!(order.config_drive.as_deref(), Some("H4sI"));
        assert_eq!(order.root_device, json!({"serial": "A"}));
        let node = json!({"properties": {"root_device": {"size": 10}},
                          "instance_info": {"root_device": {}}});
        assert_eq!(root_device(&node), json!({"size": 10}));
        assert_eq!(root_device(&json!({"instance_info": {}})), Value::Null);
    }
}
