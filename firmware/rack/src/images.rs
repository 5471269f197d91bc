//! Images from elsewhere: nodes fetch them through the cache, and what becomes of
//! them there.

use std::net::IpAddr;
use std::path::{Component, Path};
use std::sync::Arc;

use serde_json::Value;
use trivet_images::{Format, IMAGES_MAX, SOURCES_MAX, Wanted, file_name, is_name};
use trivet_model::image::{ImageNews, ImageState};
use trivet_model::{
    Fault, Node, NodeId, NoteKind, Now, Refusal, RefusalKind, Resource, ResourceId, ResourceKind,
};

use crate::{Grant, Output, Rack};

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

    /// What the catalogue says of the image of this name.
    pub(crate) fn catalogued(&self, name: &str) -> Option<Wanted> {
        let resource = self.book.view.resource(ResourceKind::Image, name)?;
        wanted(resource)
    }

    /// A name means one image, and each can be fetched.
    pub(crate) fn check_image(&self, resource: &Resource) -> Result<(), Refusal> {
        let name = resource.name.as_deref().unwrap_or_default();
        if self.settings.images.find(name).is_some() {
            let sentence = format!("An image with name {name} lies in the box's own directory.");
            return Err(Refusal::new(RefusalKind::Conflict, sentence));
        }
        let of_kind = self.book.view.resources_of(ResourceKind::Image);
        if of_kind.count() >= IMAGES_MAX {
            let sentence = format!("The catalogue has {IMAGES_MAX} images; remove some.");
            return Err(Refusal::new(RefusalKind::Unavailable, sentence));
        }
        match wanted(resource) {
            Some(wanted) => wanted
                .sources
                .iter()
                .try_for_each(|url| self.check_file(url)),
            None => Err(Refusal::new(
                RefusalKind::Invalid,
                "An image needs a digest of SHA-256 or SHA-512.",
            )),
        }
    }

    /// Files of the box may be read that everybody can read anyway, and no others.
    fn check_file(&self, url: &str) -> Result<(), Refusal> {
        let Some(path) = url.strip_prefix("file://") else {
            return Ok(());
        };
        let path = Path::new(path);
        let plain = path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        let open = self.settings.files.operator.as_ref();
        if plain && open.is_some_and(|root| path.starts_with(root)) {
            return Ok(());
        }
        let sentence = format!("{url} is not below boot.files, where files for everybody are.");
        Err(Refusal::new(RefusalKind::Invalid, sentence))
    }

    pub(crate) fn fill_image(&mut self, id: ResourceId) -> Result<(), Refusal> {
        let resource = self.book.view.resources.get(&(ResourceKind::Image, id));
        let Some(wanted) = resource.and_then(|resource| wanted(resource)) else {
            let sentence = ResourceKind::Image.missing(&id.to_string());
            return Err(Refusal::new(RefusalKind::NotFound, sentence));
        };
        self.outputs.push(Output::FillImage(Box::new(wanted)));
        Ok(())
    }

    /// Tells the cache what must stay.
    pub(crate) fn pin_images(&mut self) {
        let pinned = |resource: &Resource| resource.fields.get("pinned") == Some(&true.into());
        let all = self.book.view.resources_of(ResourceKind::Image);
        let kept = all.filter(|resource| pinned(resource));
        let digests = kept.filter_map(|resource| Some(wanted(resource)?.digest));
        let digests = digests.collect();
        self.outputs.push(Output::PinImages(digests));
    }

    /// The record is gone; its bytes go too, unless another record means them.
    pub(crate) fn drop_image(&mut self, resource: &Resource) {
        let Some(Wanted { digest, .. }) = wanted(resource) else {
            return;
        };
        let mut others = self.book.view.resources_of(ResourceKind::Image);
        let same = |other: &Resource| wanted(other).is_some_and(|other| other.digest == digest);
        let used = others.any(|other| same(other));
        drop(others);
        if !used {
            self.outputs.push(Output::DropImage(digest));
            let key = trivet_images::Key(digest).to_string();
            self.book.view.images.remove(&key);
        }
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
            format: Format::Raw,
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
            ImageState::Unpacking => NoteKind::ImageUnpacks { image },
            ImageState::Rotten(chunks) => NoteKind::ImageRotten {
                image,
                chunks: *chunks,
            },
            ImageState::Whole => NoteKind::ImageIsWhole {
                image,
                bytes: news.have,
            },
            ImageState::Gone => NoteKind::ImageGone { image },
            ImageState::Failed(why) => NoteKind::ImageFailed { why: why.clone() },
        };
        self.image_faults(now, &news);
        let images = &mut self.book.view.images;
        if news.state == ImageState::Gone {
            images.remove(&news.key);
        } else {
            images.insert(news.key.clone(), Arc::new(news));
        }
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
            ImageState::Filling | ImageState::Unpacking | ImageState::Rotten(_) => return,
            ImageState::Whole | ImageState::Gone => None,
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

/// An image of the catalogue, as the cache wants it.
fn wanted(resource: &Resource) -> Option<Wanted> {
    let sources = resource.fields.get("sources").and_then(Value::as_array);
    let sources = sources.into_iter().flatten().filter_map(Value::as_str);
    Some(Wanted {
        name: resource.name.clone()?,
        digest: resource.text("checksum")?.parse().ok()?,
        sources: sources.take(SOURCES_MAX).map(str::to_owned).collect(),
        format: resource
            .text("format")
            .and_then(Format::parse)
            .unwrap_or_default(),
    })
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
