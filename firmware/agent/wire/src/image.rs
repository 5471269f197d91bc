//! The information on an image for the agent.

use serde::{Deserialize, Serialize};

use crate::lenient;

/// The `image_info` of `write_image` and `prepare_image`, for whole-disk and partition images.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageInfo {
    /// Names the agent's temporary file: must be safe as a file name.
    #[serde(default, deserialize_with = "lenient::option")]
    pub id: Option<String>,
    /// URLs of the image, tried in order.
    #[serde(default, deserialize_with = "lenient::list")]
    pub urls: Vec<String>,
    /// Name of the digest, such as `sha256`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::option")]
    pub os_hash_algo: Option<String>,
    /// The digest in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::option")]
    pub os_hash_value: Option<String>,
    /// The older form: a digest whose length determines the algorithm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::option")]
    pub checksum: Option<String>,
    /// `raw` is neither inspected nor converted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::option")]
    pub disk_format: Option<String>,
    /// Write while downloading; needs `raw`.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub stream_raw_images: bool,
    /// `whole-disk` or `partition`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::option")]
    pub image_type: Option<String>,
    /// For the agent's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::option")]
    pub node_uuid: Option<String>,
    /// Further fields of a partition image.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<PartitionSizes>,
}

/// The partitions that the agent creates for a partition image. Our own agent creates none.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PartitionSizes {
    /// Size of the root partition.
    pub root_mb: u64,
    /// Size of the swap partition; zero is none.
    pub swap_mb: u64,
    /// Size of the ephemeral partition; zero is none.
    pub ephemeral_mb: u64,
    /// Its file system; none is the agent's choice.
    pub ephemeral_format: Option<String>,
    /// The content of the ephemeral partition is preserved.
    pub preserve_ephemeral: bool,
}

/// Whether a string is a file name in one directory: not a path, not a hidden name.
pub fn is_file_name(text: &str) -> bool {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte);
    !text.is_empty() && text.len() <= 255 && !text.starts_with('.') && text.bytes().all(safe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_empty_image_info_reads_and_lacks_everything() {
        let info: ImageInfo = serde_json::from_str("{}").unwrap();
        assert_eq!(info, ImageInfo::default());
    }

    #[test]
    fn writes_what_the_agent_needs_and_nothing_null() {
        let info = ImageInfo {
            id: Some("disk.raw".to_owned()),
            urls: vec!["http://192.0.2.1/disk.raw".to_owned()],
            os_hash_algo: Some("sha256".to_owned()),
            os_hash_value: Some("ab".repeat(32)),
            disk_format: Some("raw".to_owned()),
            stream_raw_images: true,
            image_type: Some("whole-disk".to_owned()),
            ..ImageInfo::default()
        };
        let value = serde_json::to_value(&info).unwrap();
        assert_eq!(
            value,
            json!({"id": "disk.raw", "urls": ["http://192.0.2.1/disk.raw"],
                   "os_hash_algo": "sha256", "os_hash_value": "ab".repeat(32),
                   "disk_format": "raw", "stream_raw_images": true, "image_type": "whole-disk"})
        );
        assert_eq!(serde_json::from_value::<ImageInfo>(value).unwrap(), info);
    }

    #[test]
    fn file_names_hold_no_path() {
        assert!(is_file_name("debian-12.raw"));
        for bad in ["", ".", "..", ".hidden", "a/b", "a b", "a\0", "caf\u{e9}"] {
            assert!(!is_file_name(bad), "{bad:?}");
        }
        assert!(!is_file_name(&"a".repeat(256)));
    }
}
