//! Images that are written to the disk of an idle node before a deployment needs them.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{Digest, ImageDeployment, Node, UnixMs, words};

words! {
    /// How far an image is that is written ahead.
    ImageAheadPhase {
        /// The agent writes it, or may write it: the disk has no image.
        Writing = "writing",
        /// The agent has confirmed it.
        Written = "written",
        /// The last try failed.
        Failed = "failed",
    }
}

/// An image that the agent of an idle node writes, or has written. It belongs to the session of
/// that agent: the agent keeps what a deployment still has to write.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct ImageAhead {
    /// The name of the image in the catalogue.
    pub name: String,
    /// What a deployment would write, and where the agent fetches it.
    pub deployment: ImageDeployment,
    /// The digest of the bytes on the disk: for a packed image not that of its file.
    pub digest: Digest,
    /// The root device hints that choose the disk; null if there are none.
    pub root_device: Value,
    /// How far it is.
    pub phase: ImageAheadPhase,
    /// How often it was tried, with this agent.
    pub tries: u32,
    /// When the present try began.
    pub started_at: UnixMs,
}

impl ImageAhead {
    /// Whether the disk of the node has, or is being given, the image of this digest.
    pub fn is_of(&self, node: &Node, digest: Digest) -> bool {
        self.digest == digest
            && self.phase != ImageAheadPhase::Failed
            && self.root_device == root_device(node)
    }
}

/// The root device hints of a node, as an agent reads them: those of the instance win.
pub fn root_device(node: &Node) -> Value {
    let of = [&node.instance_info, &node.properties];
    let mut hints = of.into_iter().filter_map(|info| info.get("root_device"));
    let set = |hints: &&Value| hints.as_object().is_some_and(|hints| !hints.is_empty());
    hints.find(set).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::deployment::{ImageChecksum, ImageLocation};
    use crate::{NodeId, SeededRandom};

    #[test]
    fn an_image_is_on_the_disk_that_the_hints_choose() {
        let mut node = Node::new(NodeId::random(&mut SeededRandom::new(1)), "ipmi", UnixMs(0));
        let hints = json!({"serial": "A"});
        node.properties.insert("root_device".into(), hints.clone());
        let digest = Digest::Sha256([7; 32]);
        let mut ahead = ImageAhead {
            name: "debian".to_owned(),
            deployment: ImageDeployment {
                file_name: "debian".to_owned(),
                image: ImageLocation::Url("http://h/a".to_owned()),
                checksum: ImageChecksum::Digest(digest),
                format: None,
                is_streamed: true,
                partitions: None,
                drive: None,
            },
            digest,
            root_device: hints,
            phase: ImageAheadPhase::Writing,
            tries: 1,
            started_at: UnixMs(0),
        };
        assert!(ahead.is_of(&node, digest));
        assert!(!ahead.is_of(&node, Digest::Sha256([8; 32])));
        ahead.phase = ImageAheadPhase::Failed;
        assert!(!ahead.is_of(&node, digest));
        ahead.phase = ImageAheadPhase::Written;
        // Empty hints of the instance are none.
        node.instance_info.insert("root_device".into(), json!({}));
        assert!(ahead.is_of(&node, digest));
        let other = json!({"serial": "B"});
        node.instance_info.insert("root_device".into(), other);
        assert!(!ahead.is_of(&node, digest), "another disk");
        node.instance_info.clear();
        node.properties.clear();
        assert_eq!(root_device(&node), Value::Null);
    }
}
