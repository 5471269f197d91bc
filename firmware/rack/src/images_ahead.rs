//! Images that are written ahead: which image goes to which idle node.
//!
//! At the heartbeat of an idle agent the rules of the settings are compared with all nodes whose
//! disk may be written, in the order of their creation. So the choice follows from the records
//! alone. What is on the disk of a node is in the session of its agent, and the agent verifies
//! it when the node is deployed: an error here can cost time, but never causes a wrong image.

use serde_json::Value;
use trivet_images::ImageSpec;
use trivet_model::image_ahead::root_device;
use trivet_model::{Digest, ImageAhead, ImageAheadPhase, ImageDeployment, Node, NodeId, Now};
use trivet_node::{NodeEvent, NodeLimits, may_write_ahead};

use crate::Rack;
use crate::disk_size::may_hold;

/// Most nodes that are written ahead at the same time. Ours: deployments share the link.
pub const AHEAD_WRITES_MAX: usize = 4;

/// Most tries for one image with one agent. Ours.
pub const AHEAD_TRIES_MAX: u32 = 3;

/// An image that the settings want on idle nodes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageAheadRule {
    /// Its name in the catalogue.
    pub image: String,
    /// On how many of the nodes that can have it.
    pub amount: ImageAheadAmount,
    /// Only nodes of this resource class.
    pub resource_class: Option<String>,
}

/// How many nodes have an image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ImageAheadAmount {
    /// This many.
    Nodes(u32),
    /// This share in percent, rounded up.
    Percent(u8),
}

impl ImageAheadAmount {
    fn of(self, nodes: usize) -> usize {
        match self {
            Self::Nodes(count) => usize::try_from(count).unwrap_or(usize::MAX),
            Self::Percent(share) => (nodes * usize::from(share)).div_ceil(100),
        }
    }
}

/// A rule, and the image that it means now.
struct WantedAhead<'a> {
    rule: &'a ImageAheadRule,
    digest: Digest,
    bytes: Option<u64>,
}

impl WantedAhead<'_> {
    /// Whether a node is of the class that the rule names.
    fn concerns(&self, node: &Node) -> bool {
        let class = self.rule.resource_class.as_ref();
        class.is_none() || node.resource_class.as_ref() == class
    }

    /// Whether the node has the image, or gets it now.
    fn is_on(&self, node: &Node) -> bool {
        ahead(node).is_some_and(|ahead| ahead.is_of(node, self.digest))
    }

    fn may_be_tried(&self, node: &Node) -> bool {
        tries(node, self.digest) < AHEAD_TRIES_MAX
            && self.bytes.is_none_or(|bytes| may_hold(node, bytes))
    }
}

/// The rule whose image goes to this node next. The nodes are those that may be written, in the
/// order of their creation.
fn choose(wanted: &[WantedAhead<'_>], nodes: &[&Node], id: NodeId) -> Option<usize> {
    let has_any = |node: &Node| wanted.iter().any(|image| image.is_on(node));
    let mut free: Vec<&Node> = nodes
        .iter()
        .copied()
        .filter(|node| !has_any(node))
        .collect();
    for (index, image) in wanted.iter().enumerate() {
        let concerned = nodes.iter().filter(|node| image.concerns(node));
        let (all, having) = concerned.fold((0, 0), |(all, having), node| {
            (all + 1, having + usize::from(image.is_on(node)))
        });
        let mut missing = image.rule.amount.of(all).saturating_sub(having);
        let mut is_chosen = false;
        free.retain(|node| {
            if missing == 0 || !image.concerns(node) || !image.may_be_tried(node) {
                return true;
            }
            missing -= 1;
            is_chosen |= node.id == id;
            false
        });
        if is_chosen {
            return Some(index);
        }
    }
    None
}

fn ahead(node: &Node) -> Option<&ImageAhead> {
    node.agent.as_ref()?.ahead.as_ref()
}

/// How often this image failed on the node.
fn tries(node: &Node, digest: Digest) -> u32 {
    let same =
        |ahead: &&ImageAhead| ahead.phase == ImageAheadPhase::Failed && ahead.digest == digest;
    ahead(node).filter(same).map_or(0, |ahead| ahead.tries)
}

/// Whether this node may be written, and by an agent that can: our own.
fn can_write_ahead(node: &Node, limits: &NodeLimits) -> bool {
    let agent = node.agent.as_ref();
    agent.is_some_and(trivet_agent::writes_ahead) && may_write_ahead(node, limits)
}

impl Rack {
    /// The idle agent of a node has sent a heartbeat: an image may be written ahead.
    pub(crate) fn plan_image_ahead(&mut self, now: Now, id: NodeId) {
        let limits = self.settings.limits;
        let node = self.records.node(id).cloned();
        let node = node.filter(|node| can_write_ahead(node, &limits));
        let Some(node) = node.filter(|_| !self.settings.images_ahead.is_empty()) else {
            return;
        };
        if ahead(&node).is_some_and(|ahead| ahead.phase == ImageAheadPhase::Writing) {
            return;
        }
        let rules = self.settings.images_ahead.clone();
        let found: Vec<_> = rules
            .iter()
            .filter_map(|rule| Some((rule, self.ready_image(now, &node, &rule.image)?)))
            .collect();
        let wanted: Vec<_> = found
            .iter()
            .map(|(rule, image)| WantedAhead {
                rule,
                digest: image.digest,
                bytes: image.bytes,
            })
            .collect();
        // In the usual case, without a look at the other nodes.
        if wanted.iter().any(|image| image.is_on(&node)) {
            return;
        }
        let all = self.records.view.nodes.values();
        let mut nodes: Vec<&Node> = all.map(|view| &*view.node).collect();
        let writes = nodes.iter().filter_map(|node| ahead(node));
        let writes = writes.filter(|ahead| ahead.phase == ImageAheadPhase::Writing);
        if writes.count() >= AHEAD_WRITES_MAX {
            return;
        }
        nodes.retain(|node| can_write_ahead(node, &limits));
        nodes.sort_by_key(|node| node.serial);
        let chosen = choose(&wanted, &nodes, id).and_then(|index| found.get(index));
        let Some((rule, image)) = chosen else {
            return;
        };
        let due = ImageAhead {
            name: rule.image.clone(),
            deployment: image.deployment.clone(),
            digest: image.digest,
            root_device: root_device(&node),
            phase: ImageAheadPhase::Writing,
            tries: tries(&node, image.digest) + 1,
            started_at: now.wall,
        };
        let event = NodeEvent::ImageAheadDue(Box::new(due));
        self.events.push_back((id, event));
    }

    /// The image of this name for a node, if it is ready to be written. Otherwise it is fetched.
    fn ready_image(&mut self, now: Now, node: &Node, name: &str) -> Option<ReadyImage> {
        let node = with_image(node, name);
        // Without the cache there is no chunk list, which the agent needs.
        if !self.is_cached(&node) {
            return None;
        }
        // What cannot be deployed is reported by the deployment that wants it.
        let deployment = self.image_deployment(&node).ok();
        let deployment = deployment.filter(|deployment| deployment.partitions.is_none())?;
        let deployment = ImageDeployment {
            drive: None,
            ..deployment
        };
        let spec = self.wanted_for(&node, &deployment)?;
        if self.images.failure_of(&spec).is_some() {
            return None;
        }
        let raw = self.images.unpacked(&spec);
        let lacks_disk = spec.format.is_packed() && raw.is_none();
        if lacks_disk || !(raw.is_some() || self.images.is_complete(&spec)) {
            self.fill(now, spec, false);
            return None;
        }
        let size = self.images.status(&spec).and_then(|status| status.size);
        Some(ReadyImage {
            digest: raw.as_ref().map_or(spec.digest, |raw| raw.digest),
            bytes: raw.as_ref().map(|raw| raw.size).or(size),
            deployment,
        })
    }

    /// The image that the agent of a node may fetch now, and what it is in the cache.
    pub(crate) fn fetched_image<'a>(
        &self,
        node: &'a Node,
    ) -> Option<(&'a ImageDeployment, Option<ImageSpec>)> {
        if let Some(deployment) = node.deployment() {
            return Some((deployment, self.wanted_for(node, deployment)));
        }
        let ahead = ahead(node).filter(|ahead| ahead.phase == ImageAheadPhase::Writing)?;
        let spec = self.wanted_for(&with_image(node, &ahead.name), &ahead.deployment);
        Some((&ahead.deployment, spec))
    }

    /// The arguments of the order to write an image ahead.
    pub(crate) fn image_ahead_args(node: &Node) -> Option<Value> {
        let ahead = ahead(node)?;
        let mut sent = ahead.deployment.clone().unpacked(None);
        sent.set_digest(ahead.digest);
        Some(trivet_agent::write_image_args(&sent, node.id))
    }
}

/// An image that can be sent to an agent.
struct ReadyImage {
    deployment: ImageDeployment,
    digest: Digest,
    bytes: Option<u64>,
}

/// The node as it would be deployed with this image.
fn with_image(node: &Node, name: &str) -> Node {
    let mut node = node.clone();
    node.instance_info.clear();
    node.instance_info
        .insert("image_source".to_owned(), name.into());
    node
}

#[cfg(test)]
mod tests;
