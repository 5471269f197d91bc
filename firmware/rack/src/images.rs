//! Images from elsewhere: nodes fetch them through the cache, and what becomes of
//! them there.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;
use trivet_images::{Wanted, file_name, is_name};
use trivet_model::image::{ImageNews, ImageState};
use trivet_model::{Fault, Node, NodeId, NoteKind, Now};

use crate::{Grant, Rack};

/// What a file is called whose own name cannot stand in a path.
const NAMELESS: &str = "image";

impl Rack {
    /// Where the node fetches its image: through the cache, at an address that is
    /// good for this deployment of this node only, or where the operator said.
    pub(crate) fn image_url(&mut self, node: &Node) -> String {
        let source = source(node).to_owned();
        let base = self.settings.http_url.clone();
        let elsewhere = ["http://", "https://"]
            .iter()
            .any(|scheme| source.starts_with(scheme));
        let raw = matches!(
            node.instance_info
                .get("image_disk_format")
                .and_then(Value::as_str),
            None | Some("raw")
        );
        let ours = !base.is_empty() && source.starts_with(&base);
        if !self.settings.cache || base.is_empty() || !elsewhere || ours || !raw {
            return source;
        }
        let token = format!(
            "{:016x}{:016x}",
            self.entropy.number(),
            self.entropy.number()
        );
        let name = Some(file_name(&source)).filter(|name| is_name(name));
        let name = name.unwrap_or(NAMELESS);
        format!(
            "{base}{}",
            trivet_httpboot::node_image_path(node.id, &token, name)
        )
    }

    /// The image of a deployment. Its address has the token of that deployment in it,
    /// and another node than the one it was made for gets nothing.
    pub(crate) fn node_image(&self, peer: IpAddr, id: NodeId, path: &str) -> Option<Grant> {
        if self.node_of_peer(peer).is_some_and(|other| other != id) {
            return None;
        }
        let node = self.book.node(id)?;
        let info = image_info(node)?;
        let url = info["urls"][0].as_str()?;
        let own = url.strip_prefix(&self.settings.http_url)?;
        if !is_same(own, path) {
            return None;
        }
        let source = source(node);
        Some(Grant::Image(Box::new(Wanted {
            name: file_name(source).to_owned(),
            digest: info["os_hash_value"].as_str()?.parse().ok()?,
            sources: vec![source.to_owned()],
        })))
    }

    /// Something became of an image.
    pub(crate) fn image_news(&mut self, now: Now, news: ImageNews) {
        let image = news.name.clone();
        let digest = news.digest.to_string();
        let before = self.book.view.images.get(&news.key).cloned();
        let changed = before.is_none_or(|before| before.state != news.state);
        let kind = match &news.state {
            ImageState::Filling => NoteKind::ImageComes { image },
            ImageState::Rotten(chunks) => NoteKind::ImageRotten {
                image,
                chunks: *chunks,
            },
            ImageState::Whole => NoteKind::ImageIsWhole {
                image,
                bytes: news.have,
            },
            ImageState::Failed(why) => NoteKind::ImageFailed { why: why.clone() },
        };
        self.image_faults(now, &news);
        self.book
            .view
            .images
            .insert(news.key.clone(), Arc::new(news));
        if !changed {
            return;
        }
        for id in self.users_of(&digest) {
            self.note(now, Some(id), kind.clone());
        }
        self.note(now, None, kind);
    }

    /// A fault stands as long as the image is not to be had.
    fn image_faults(&mut self, now: Now, news: &ImageNews) {
        let image = news.name.clone();
        let failed = match &news.state {
            ImageState::Failed(why) => Some(Fault::ImageFailed {
                image: image.clone(),
                why: why.clone(),
            }),
            ImageState::Filling | ImageState::Rotten(_) => return,
            ImageState::Whole => None,
        };
        let faults = self.book.view.faults.keys();
        let of_it =
            |fault: &&Fault| matches!(fault, Fault::ImageFailed { image: of, .. } if *of == image);
        let old: Vec<Fault> = faults.filter(of_it).cloned().collect();
        for fault in old.iter().filter(|fault| Some(*fault) != failed.as_ref()) {
            self.fault_gone(now, fault);
        }
        if let Some(fault) = failed {
            self.fault(now, fault);
        }
    }

    /// The nodes that are being written with the image of this digest.
    fn users_of(&self, digest: &str) -> Vec<NodeId> {
        let uses = |node: &Node| {
            image_info(node).is_some_and(|info| info["os_hash_value"].as_str() == Some(digest))
        };
        let nodes = self.book.view.nodes.iter();
        nodes
            .filter(|(_, view)| uses(&view.node))
            .map(|(id, _)| *id)
            .collect()
    }
}

fn source(node: &Node) -> &str {
    let source = node.instance_info.get("image_source");
    source.and_then(Value::as_str).unwrap_or_default()
}

/// What the agent of a node that is being deployed is told of its image.
fn image_info(node: &Node) -> Option<&Value> {
    let steps = &node.job.as_ref()?.steps;
    let write = steps
        .iter()
        .find(|step| step.step == trivet_agent::WRITE_IMAGE)?;
    write.args.get("image_info")
}

/// Compares secrets without telling by the time it takes where they differ.
fn is_same(one: &str, other: &str) -> bool {
    let pairs = one.bytes().zip(other.bytes());
    one.len() == other.len() && pairs.fold(0, |differ, (one, other)| differ | (one ^ other)) == 0
}
