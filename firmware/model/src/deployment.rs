//! The image of a deployment: what is written to the disk of a node, and where its agent fetches
//! it.
//!
//! The agent and the API get it as JSON, which `firmware/agent/wire` writes.

use serde::{Deserialize, Serialize};

use crate::image::{ImageFormat, UnpackedImage};
use crate::{Digest, NodeId, OciReference};

/// The image that a job writes to its node.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct ImageDeployment {
    /// The name of the agent's temporary file: safe as a file name.
    pub file_name: String,
    /// Where the agent fetches it.
    pub image: ImageLocation,
    /// What its bytes are verified against.
    pub checksum: ImageChecksum,
    /// Its format; none until a registry has told it.
    pub format: Option<ImageFormat>,
    /// The agent writes the image while it receives it.
    pub is_streamed: bool,
    /// The partitions for a partition image; none for a whole-disk image.
    pub partitions: Option<PartitionSizes>,
    /// The config drive, where this box serves it; none where it is sent with the order.
    pub drive: Option<DriveLocation>,
}

/// Where the agent fetches its image.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageLocation {
    /// In the cache of this box, at a path that is valid for this deployment only.
    Cache {
        /// Scheme, host and port of this box, as its machine reaches it.
        base: String,
        /// The secret in the path.
        token: String,
        /// The last part of the path.
        name: String,
    },
    /// At this URL, of this box or of another server.
    Url(String),
}

impl ImageLocation {
    /// The path at this box, for an image of the cache.
    pub fn cache_path(&self, node: NodeId) -> Option<String> {
        match self {
            Self::Cache { token, name, .. } => Some(node_image_path(node, token, name)),
            Self::Url(_) => None,
        }
    }

    /// The URL for the agent.
    pub fn url(&self, node: NodeId) -> String {
        match self {
            Self::Cache { base, token, name } => {
                format!("{base}{}", node_image_path(node, token, name))
            }
            Self::Url(url) => url.clone(),
        }
    }
}

/// Where the agent fetches its config drive: at a path of this box that is valid for this
/// deployment only.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct DriveLocation {
    /// Scheme, host and port of this box, as its machine reaches it.
    pub base: String,
    /// The secret in the path.
    pub token: String,
}

impl DriveLocation {
    /// The path at this box.
    pub fn path(&self, node: NodeId) -> String {
        node_drive_path(node, &self.token)
    }

    /// The URL for the agent.
    pub fn url(&self, node: NodeId) -> String {
        format!("{}{}", self.base, self.path(node))
    }
}

/// The path of the image that a node is being deployed with. The token is valid for one
/// deployment.
pub fn node_image_path(node: NodeId, token: &str, name: &str) -> String {
    format!("/nodes/{node}/{token}/{name}")
}

/// The path of the config drive of a deployment.
pub fn node_drive_path(node: NodeId, token: &str) -> String {
    format!("/drives/{node}/{token}")
}

/// What the bytes of an image are verified against.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageChecksum {
    /// This digest.
    Digest(Digest),
    /// The digest in the checksum file at this URL, which is not read yet.
    File(String),
    /// The digest in the manifest of this reference, which is not looked up yet.
    Registry(OciReference),
}

impl ImageChecksum {
    /// The digest, if it is known.
    pub fn digest(&self) -> Option<Digest> {
        match self {
            Self::Digest(digest) => Some(*digest),
            Self::File(_) | Self::Registry(_) => None,
        }
    }
}

/// The partitions that the agent creates for a partition image.
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

impl ImageDeployment {
    /// Sets what was found in a checksum file or in a registry.
    pub fn set_digest(&mut self, digest: Digest) {
        self.checksum = ImageChecksum::Digest(digest);
    }

    /// The deployment as the agent sees an image of the cache: always a raw disk image, with the
    /// digest of what was unpacked.
    #[must_use]
    pub fn unpacked(mut self, raw: Option<&UnpackedImage>) -> Self {
        if let Some(raw) = raw {
            self.set_digest(raw.digest);
        }
        self.format = Some(ImageFormat::Raw);
        self
    }

    /// The secrets in the URLs.
    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        let image = match &self.image {
            ImageLocation::Cache { token, .. } => Some(token.as_str()),
            ImageLocation::Url(_) => None,
        };
        let drive = self.drive.as_ref().map(|drive| drive.token.as_str());
        image.into_iter().chain(drive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeId {
        "01234567-89ab-4def-8123-456789abcdef".parse().unwrap()
    }

    fn deployment() -> ImageDeployment {
        ImageDeployment {
            file_name: "a.qcow2".to_owned(),
            image: ImageLocation::Cache {
                base: "http://10.0.0.1:8080".to_owned(),
                token: "t1".to_owned(),
                name: "a.qcow2".to_owned(),
            },
            checksum: ImageChecksum::File("http://h/SUMS".to_owned()),
            format: Some(ImageFormat::Qcow2),
            is_streamed: true,
            partitions: None,
            drive: Some(DriveLocation {
                base: "http://10.0.0.1:8080".to_owned(),
                token: "t2".to_owned(),
            }),
        }
    }

    #[test]
    fn urls_of_a_deployment_have_the_node_and_the_token() {
        let deployment = deployment();
        let id = node();
        assert_eq!(
            deployment.image.url(id),
            format!("http://10.0.0.1:8080/nodes/{id}/t1/a.qcow2")
        );
        assert_eq!(
            deployment.drive.as_ref().unwrap().url(id),
            format!("http://10.0.0.1:8080/drives/{id}/t2")
        );
        assert_eq!(deployment.tokens().collect::<Vec<_>>(), ["t1", "t2"]);
        let elsewhere = ImageLocation::Url("http://far/a".to_owned());
        assert_eq!(elsewhere.url(id), "http://far/a");
        assert_eq!(elsewhere.cache_path(id), None);
    }

    #[test]
    fn the_agent_gets_a_raw_image_with_the_digest_of_the_unpacked_one() {
        let raw = UnpackedImage {
            digest: Digest::Sha256([7; 32]),
            size: 1,
        };
        let mut deployment = deployment();
        assert_eq!(deployment.checksum.digest(), None);
        deployment.set_digest(Digest::Sha256([1; 32]));
        let same = deployment.clone().unpacked(None);
        assert_eq!(same.checksum.digest(), Some(Digest::Sha256([1; 32])));
        let sent = deployment.unpacked(Some(&raw));
        assert_eq!(sent.checksum.digest(), Some(raw.digest));
        assert_eq!(sent.format, Some(ImageFormat::Raw));
    }
}
