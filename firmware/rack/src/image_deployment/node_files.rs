//! The files that the agent of a node fetches at URLs of its own: its image and its config drive.

use std::net::IpAddr;

use trivet_model::{Node, NodeId, Now};

use crate::{FileGrant, Rack};

impl Rack {
    /// The image of a deployment, or its chunk list, for its own node and a URL with its token.
    pub(crate) fn node_image(
        &mut self,
        now: Now,
        peer: IpAddr,
        id: NodeId,
        path: &str,
    ) -> Option<FileGrant> {
        let node = self.requesting_node(peer, id)?;
        let (deployment, wanted) = self.fetched_image(node)?;
        let own = deployment.image.cache_path(id)?;
        let list = path.strip_suffix(trivet_bootfiles::CHUNK_LIST_END);
        if is_equal_constant_time(&own, path) {
            let node = node.clone();
            self.offer_pull_secret(now, &node);
            Some(self.image_grant(now, wanted?))
        } else if list.is_some_and(|of| is_equal_constant_time(&own, of)) {
            self.images.grant_chunk_list(&wanted?)
        } else {
            None
        }
    }

    /// The config drive of a deployment, with the same restrictions.
    pub(crate) fn node_drive(&self, peer: IpAddr, id: NodeId, path: &str) -> Option<FileGrant> {
        let node = self.requesting_node(peer, id)?;
        let own = node.deployment()?.drive.as_ref()?.path(id);
        if !is_equal_constant_time(&own, path) {
            return None;
        }
        let drive = node.instance_info.get("configdrive")?.as_str()?;
        Some(FileGrant::Bytes(drive.as_bytes().to_vec()))
    }

    /// The node, if the request comes from its own address.
    pub(crate) fn requesting_node(&self, peer: IpAddr, id: NodeId) -> Option<&Node> {
        if self.node_of_peer(peer).is_some_and(|other| other != id) {
            return None;
        }
        let node = self.records.node(id)?;
        self.is_of_node(node, peer).then_some(node)
    }
}

/// Compares secrets in a time that does not depend on where they differ.
fn is_equal_constant_time(one: &str, other: &str) -> bool {
    let pairs = one.bytes().zip(other.bytes());
    one.len() == other.len() && pairs.fold(0, |differ, (one, other)| differ | (one ^ other)) == 0
}
