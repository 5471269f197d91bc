//! The information on an image for the agent.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trivet_model::deployment::{ImageChecksum, PartitionSizes};
use trivet_model::{AgentSession, ImageDeployment, NodeId};

use crate::lenient;

/// The two types of images, as Ironic names them.
pub const WHOLE_DISK: &str = "whole-disk";
/// An image of one file system.
pub const PARTITION: &str = "partition";

/// The name of the step that writes an image.
pub const WRITE_IMAGE: &str = "write_image";

/// The command of our own agent that writes an image ahead, below the extension `standby`. The
/// stock agent does not have it.
pub const WRITE_IMAGE_AHEAD: &str = "write_image_ahead";

/// How the version of our own agent ends.
pub const OWN_AGENT: &str = "-trivet";

/// Whether the agent of this session can write an image ahead. The stock agent cannot: it has no
/// command for it since version 9.11, and it writes an image that it streams again each time.
pub fn writes_ahead(session: &AgentSession) -> bool {
    let version = session.version.as_deref();
    version.is_some_and(|version| version.ends_with(OWN_AGENT))
}

/// The size of an image, in the result of [`WRITE_IMAGE_AHEAD`].
pub const IMAGE_BYTES: &str = "image_bytes";

/// The digest of an image, in the result of [`WRITE_IMAGE_AHEAD`].
pub const IMAGE_DIGEST: &str = "os_hash_value";

/// In the result of [`WRITE_IMAGE`] by our own agent: true if the image was written ahead and
/// nothing of it was fetched.
pub const IMAGE_WAS_ON_DISK: &str = "image_was_on_disk";

/// The argument of the step with the config drive: its URL, or all of it.
pub const CONFIG_DRIVE: &str = "configdrive";

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

impl ImageInfo {
    /// The information on the image of a deployment. Only here it becomes JSON.
    pub fn of(deployment: &ImageDeployment, node: NodeId) -> Self {
        let digest = deployment.checksum.digest();
        let kind = match deployment.partitions {
            Some(_) => PARTITION,
            None => WHOLE_DISK,
        };
        Self {
            id: Some(deployment.file_name.clone()),
            urls: vec![deployment.image.url(node)],
            os_hash_algo: digest.map(|digest| digest.algorithm().to_owned()),
            os_hash_value: digest.map(|digest| digest.to_string()),
            // Shown until the digest is known; no agent receives it.
            checksum: match &deployment.checksum {
                ImageChecksum::Digest(_) => None,
                ImageChecksum::File(url) => Some(url.clone()),
                ImageChecksum::Registry(reference) => Some(reference.to_string()),
            },
            disk_format: deployment.format.map(|format| format.name().to_owned()),
            stream_raw_images: deployment.is_streamed,
            image_type: Some(kind.to_owned()),
            node_uuid: Some(node.to_string()),
            partitions: deployment.partitions.clone(),
        }
    }
}

/// The arguments of the step that writes the image of a deployment.
pub fn write_image_args(deployment: &ImageDeployment, node: NodeId) -> Value {
    let mut args = json!({ "image_info": ImageInfo::of(deployment, node) });
    if let Some(drive) = &deployment.drive {
        args[CONFIG_DRIVE] = drive.url(node).into();
    }
    args
}

/// Whether a string is a file name in one directory: not a path, not a hidden name.
pub fn is_file_name(text: &str) -> bool {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte);
    !text.is_empty() && text.len() <= 255 && !text.starts_with('.') && text.bytes().all(safe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trivet_model::Digest;
    use trivet_model::deployment::{DriveLocation, ImageLocation};
    use trivet_model::image::ImageFormat;

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
    fn a_deployment_is_written_as_the_arguments_of_its_step() {
        let id: NodeId = "01234567-89ab-4def-8123-456789abcdef".parse().unwrap();
        let mut deployment = ImageDeployment {
            file_name: "a.raw".to_owned(),
            image: ImageLocation::Cache {
                base: "http://192.0.2.1:8080".to_owned(),
                token: "t1".to_owned(),
                name: "a b.raw".to_owned(),
            },
            checksum: ImageChecksum::File("http://h/SUMS".to_owned()),
            format: None,
            is_streamed: true,
            partitions: None,
            drive: None,
        };
        assert_eq!(
            write_image_args(&deployment, id),
            json!({"image_info": {
                "id": "a.raw", "urls": [format!("http://192.0.2.1:8080/nodes/{id}/t1/a b.raw")],
                "checksum": "http://h/SUMS", "stream_raw_images": true,
                "image_type": "whole-disk", "node_uuid": id.to_string()}})
        );
        deployment.set_digest(Digest::Sha256([0xab; 32]));
        deployment.format = Some(ImageFormat::Qcow2);
        deployment.image = ImageLocation::Url("http://h/a.raw".to_owned());
        deployment.partitions = Some(PartitionSizes {
            root_mb: 7,
            ..PartitionSizes::default()
        });
        deployment.drive = Some(DriveLocation {
            base: "http://192.0.2.1:8080".to_owned(),
            token: "t2".to_owned(),
        });
        assert_eq!(
            write_image_args(&deployment, id),
            json!({"image_info": {
                "id": "a.raw", "urls": ["http://h/a.raw"], "os_hash_algo": "sha256",
                "os_hash_value": "ab".repeat(32), "disk_format": "qcow2",
                "stream_raw_images": true, "image_type": "partition",
                "node_uuid": id.to_string(), "root_mb": 7, "swap_mb": 0, "ephemeral_mb": 0,
                "ephemeral_format": null, "preserve_ephemeral": false},
                "configdrive": format!("http://192.0.2.1:8080/drives/{id}/t2")})
        );
    }

    #[test]
    fn file_names_hold_no_path() {
        assert!(is_file_name("debian-12.raw"));
        for bad in ["", ".", "..", ".hidden", "a/b", "a b", "a\0", "caf\u{e9}"] {
            assert!(!is_file_name(bad), "{bad:?}");
        }
        assert!(!is_file_name(&"a".repeat(256)));
    }

    #[test]
    fn only_our_own_agent_writes_ahead() {
        let session = |version: Option<&str>| AgentSession {
            version: version.map(str::to_owned),
            ..AgentSession::legacy()
        };
        assert!(writes_ahead(&session(Some("13.0.0-trivet"))));
        for other in [Some("13.0.0"), Some("13.0.0-trivet.dev1"), None] {
            assert!(!writes_ahead(&session(other)), "{other:?}");
        }
    }
}
