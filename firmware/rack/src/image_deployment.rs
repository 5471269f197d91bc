//! The image that is written to a node: where its agent fetches it, how a write waits until the
//! image is verified and ready, and how a write is retried where this box caused the failure.

mod awaited_source;
mod node_files;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use trivet_agent::{DeploymentSources, WRITE_IMAGE};
use trivet_images::{ImageFormat, ImageSpec, file_name, is_name};
use trivet_model::deployment::{DriveLocation, ImageChecksum, ImageLocation};
use trivet_model::image::{ImageState, ImageStatus};
use trivet_model::{
    AgentOrder, Digest, EvidenceNote, ImageDeployment, ImageProblem, JobPhase, Node, NodeId,
    NoteKind, Now, OciReference, OrderRefusal, RefusalKind, ResourceId, ResourceKind,
};
use trivet_node::NodeEvent;
use trivet_oci::OciQuery;

use crate::Rack;
use crate::agents::callers::redacted;
use crate::images::{checksum_file, is_of_format};

/// The file name of an image whose own name is not valid in a path.
const DEFAULT_IMAGE_FILE_NAME: &str = "image";

/// Most retries of a write in one deployment because of wrong bytes of the image. Ours.
const WRITE_RETRIES_MAX: u32 = 3;

/// Writes that wait for their image; in memory only. A restart sends the agent its step again.
#[derive(Default)]
pub(crate) struct PendingImageWrites {
    by_node: BTreeMap<NodeId, PendingImageWrite>,
    retries: BTreeMap<NodeId, u32>,
    /// Checksum files that are being read, each with the name of the image file in it.
    checksum_lookups: BTreeSet<(String, String)>,
    /// References that are being looked up in registries.
    pub(crate) oci_lookups: Vec<OciQuery>,
    pub(crate) fetch_after_checksum: BTreeSet<ResourceId>,
}

enum PendingImageWrite {
    /// The step starts when the image's digest is known and its disk is unpacked.
    Start,
    /// The step is retried when the image has been verified. The text is the agent's report.
    Retry(String),
}

impl PendingImageWrites {
    /// The node is no longer being written.
    pub(crate) fn remove(&mut self, id: NodeId) {
        self.by_node.remove(&id);
        self.retries.remove(&id);
    }
}

impl Rack {
    /// The image that a deployment of the node writes, with URLs that are valid for this
    /// deployment only.
    pub(crate) fn image_deployment(
        &mut self,
        node: &Node,
    ) -> Result<ImageDeployment, OrderRefusal> {
        let mut node = node.clone();
        if let Some(why) = self.contradiction(&node, None) {
            let sentence = format!("The node was not changed: {why}.");
            return Err(OrderRefusal::new(RefusalKind::Invalid, sentence));
        }
        self.use_catalogue(&mut node);
        let base = self.http_url_for(&node)?;
        let source = image_source(&node);
        let image = if self.is_cached(&node) {
            let name = Some(file_name(source)).filter(|name| is_name(name));
            ImageLocation::Cache {
                name: name.unwrap_or(DEFAULT_IMAGE_FILE_NAME).to_owned(),
                token: self.token(),
                base: base.clone(),
            }
        } else if let Some(path) = self.own_path(source) {
            ImageLocation::Url(format!("{base}{path}"))
        } else {
            ImageLocation::Url(source.to_owned())
        };
        let drive = (!base.is_empty()).then(|| DriveLocation {
            token: self.token(),
            base,
        });
        let deployment = trivet_agent::image_deployment(&node, DeploymentSources { image, drive })
            .map_err(|problem| OrderRefusal::new(RefusalKind::Invalid, problem.to_string()))?;
        match self.image_too_large(&node, &deployment) {
            Some(why) => Err(OrderRefusal::new(
                RefusalKind::Invalid,
                format!("The {why}."),
            )),
            None => Ok(deployment),
        }
    }

    /// The URL at which the node's machine reaches this box: its own where its record has one.
    fn http_url_for(&self, node: &Node) -> Result<String, OrderRefusal> {
        let own = trivet_drivers::external_http_url(&node.driver_info)
            .map_err(|why| OrderRefusal::new(RefusalKind::Invalid, format!("{why}.")))?;
        // Without an address of its own the box serves no images.
        let own = own.filter(|_| !self.settings.http_url.is_empty());
        Ok(own.unwrap_or(&self.settings.http_url).to_owned())
    }

    /// The path in a URL of this box.
    fn own_path<'a>(&self, url: &'a str) -> Option<&'a str> {
        let base = Some(self.settings.http_url.as_str()).filter(|base| !base.is_empty())?;
        url.strip_prefix(base).filter(|path| path.starts_with('/'))
    }

    /// Refuses a deployment whose image is known to be wrong, before the node is changed. With
    /// `again`, an image outside the catalogue is fetched again: no other order does that.
    pub(crate) fn check_right(
        &mut self,
        now: Now,
        node: &Node,
        deployment: Option<&ImageDeployment>,
        again: bool,
    ) -> Result<(), OrderRefusal> {
        let Some(wanted) = deployment.and_then(|deployment| self.wanted_for(node, deployment))
        else {
            return Ok(());
        };
        let Some(why) = self.images.wrong(&wanted) else {
            return Ok(());
        };
        let name = self.own_name(node);
        let name = name.filter(|name| self.catalogued(name).is_some());
        let is_coming = self.images.is_coming(&wanted);
        let next = match name {
            _ if is_coming => "It is being fetched again: retry when it is complete".to_owned(),
            Some(_) if wanted.sources.is_empty() => "Upload it, then retry".to_owned(),
            Some(name) => format!(
                "Once that is corrected, fetch it with `trivet image fill {name}`, then retry"
            ),
            None if again => "It is fetched again now: retry when it is complete".to_owned(),
            None => "A request to deploy it fetches it again".to_owned(),
        };
        let sentence = format!("The node was not changed: {why}. {next}.");
        if again && name.is_none() && !is_coming {
            self.fill(now, wanted, false);
        }
        Err(OrderRefusal::new(RefusalKind::Invalid, sentence))
    }

    fn token(&mut self) -> String {
        let (one, two) = (self.entropy.number(), self.entropy.number());
        format!("{one:016x}{two:016x}")
    }

    /// Whether the node's image is served from the cache, not from the box's own image directory.
    pub(crate) fn is_cached(&self, node: &Node) -> bool {
        let (source, base) = (image_source(node), &self.settings.http_url);
        if !self.settings.cache || base.is_empty() {
            return false;
        }
        if let Some(name) = self.own_name(node) {
            let here = self.settings.images.find(name).is_some();
            return !here || ImageFormat::of_file_name(name).is_packed();
        }
        let elsewhere = ["http://", "https://"]
            .iter()
            .any(|scheme| source.starts_with(scheme))
            || OciReference::is_oci(source);
        elsewhere && !source.starts_with(base.as_str())
    }

    /// The image to request from the cache, if it is served from there and its digest is known.
    fn wanted_by(&self, node: &Node) -> Option<ImageSpec> {
        self.wanted_for(node, node.deployment()?)
    }

    /// The same, for a node whose job has not started yet.
    pub(crate) fn wanted_for(
        &self,
        node: &Node,
        deployment: &ImageDeployment,
    ) -> Option<ImageSpec> {
        if matches!(deployment.image, ImageLocation::Url(_)) {
            return None;
        }
        let wanted = ImageSpec {
            name: file_name(image_source(node)).to_owned(),
            digest: deployment.checksum.digest()?,
            sources: vec![image_source(node).to_owned()],
            format: deployment.format?,
        };
        let Some(name) = self.own_name(node) else {
            // A name that is no longer in the catalogue is not a URL.
            return image_source(node).contains("://").then_some(wanted);
        };
        let sources = match self.settings.images.find(name) {
            Some(_) => {
                let file = self.settings.files.images.as_ref()?.join(name);
                vec![format!("file://{}", file.display())]
            }
            None => self.catalogued(name)?.sources,
        };
        Some(ImageSpec { sources, ..wanted })
    }

    /// Fetches the image into the cache while the machine boots.
    pub(crate) fn fetch_early(&mut self, now: Now, id: NodeId) {
        let Some(node) = self.records.node(id).cloned() else {
            return;
        };
        if let Some((url, name)) = self.checksum_file_of(&node) {
            self.find_checksum(now, &url, &name);
        } else if let Some(query) = self.oci_query_of(&node) {
            self.resolve_oci(now, query);
        } else if let Some(wanted) = self.wanted_by(&node) {
            self.offer_pull_secret(now, &node);
            self.fill(now, wanted, true);
        }
    }

    /// The checksum file that must be read first, and the file's name in there.
    fn checksum_file_of(&self, node: &Node) -> Option<(String, String)> {
        let ImageChecksum::File(url) = &node.deployment()?.checksum else {
            return None;
        };
        let own = self.own_name(node);
        let stored = own.and_then(|name| self.records.view.resource(ResourceKind::Image, name));
        let name = stored.and_then(|resource| Some(checksum_file(resource)?.1));
        let name = name
            .unwrap_or_else(|| file_name(image_source(node)))
            .to_owned();
        Some((url.clone(), name))
    }

    pub(crate) fn find_checksum(&mut self, now: Now, url: &str, name: &str) {
        let wanted = (url.to_owned(), name.to_owned());
        if self.pending_writes.checksum_lookups.insert(wanted) {
            let (images, mut context) = self.images_and_context(now);
            images.find_checksum(&mut context, url, name);
        }
    }

    /// The order as it is sent to the agent; none where it has to wait for its image.
    pub(crate) fn with_image(
        &mut self,
        now: Now,
        node: &Node,
        mut order: AgentOrder,
    ) -> Option<AgentOrder> {
        if let AgentOrder::WriteImageAhead { args } = &mut order {
            *args = Self::image_ahead_args(node)?;
        }
        let AgentOrder::Execute { step, .. } = &mut order else {
            return Some(order);
        };
        if step.step != WRITE_IMAGE {
            return Some(order);
        }
        if let Some((url, name)) = self.checksum_file_of(node) {
            self.find_checksum(now, &url, &name);
            self.hold_write(now, node);
            return None;
        }
        if let Some(query) = self.oci_query_of(node) {
            self.hold_write(now, node);
            self.resolve_oci(now, query);
            return None;
        }
        // The step of a custom deploy interface has what the operator gave it.
        let Some(deployment) = node.deployment() else {
            return Some(order);
        };
        if let Some(why) = self.image_too_large(node, deployment) {
            self.image_unusable(now, node.id, ImageProblem::TooLarge, why);
            return None;
        }
        let Some(wanted) = self.wanted_by(node) else {
            step.args = trivet_agent::write_image_args(deployment, node.id);
            return Some(order);
        };
        let raw = self.images.unpacked(&wanted);
        let lacks_disk = wanted.format.is_packed() && raw.is_none();
        // An image that failed is fetched once more; the agent waits until that succeeds.
        if lacks_disk || self.images.failure_of(&wanted).is_some() {
            self.hold_write(now, node);
            self.offer_pull_secret(now, node);
            self.fill(now, wanted, true);
            return None;
        }
        let sent = deployment.clone().unpacked(raw.as_ref());
        step.args = trivet_agent::write_image_args(&sent, node.id);
        Some(order)
    }

    fn hold_write(&mut self, now: Now, node: &Node) {
        let before = self
            .pending_writes
            .by_node
            .insert(node.id, PendingImageWrite::Start);
        if before.is_none() {
            let image = file_name(image_source(node)).to_owned();
            self.note(now, Some(node.id), NoteKind::AwaitingImage { image });
        }
    }

    /// A checksum file was read, or could not be read.
    pub(crate) fn checksum_found(
        &mut self,
        now: Now,
        url: &str,
        name: &str,
        result: Result<Digest, String>,
    ) {
        let wanted = (url.to_owned(), name.to_owned());
        self.pending_writes.checksum_lookups.remove(&wanted);
        self.set_image_checksum(now, (url, name), &result);
        let nodes = self.records.view.nodes.iter();
        let of_file = |node: &Node| self.checksum_file_of(node).as_ref() == Some(&wanted);
        let some = nodes.filter(|(_, view)| of_file(&view.node));
        let some: Vec<NodeId> = some.map(|(id, _)| *id).collect();
        for id in some {
            match &result {
                Ok(digest) => self.set_image_digest(now, id, digest),
                Err(why) => {
                    let why = format!("the digest of the image is not known: {why}");
                    self.fail_held_write(now, id, ImageProblem::Unavailable, &why);
                }
            }
        }
    }

    fn set_image_digest(&mut self, now: Now, id: NodeId, digest: &Digest) {
        let Some(mut node) = self.records.node(id).map(|node| Node::clone(node)) else {
            return;
        };
        if let Some(why) = self.contradiction(&node, Some(*digest)) {
            return self.image_unusable(now, id, ImageProblem::Different, why);
        }
        let Some(deployment) = node.job.as_mut().and_then(|job| job.deployment.as_mut()) else {
            return;
        };
        deployment.set_digest(*digest);
        self.records.put_node(now, node);
        self.fetch_early(now, id);
        self.start_held_write(now, id);
    }

    /// The state of an image changed: writes that waited for it continue or fail.
    pub(crate) fn resume_image_writes(&mut self, now: Now, news: &ImageStatus) {
        let held = self.pending_writes.by_node.keys().copied();
        let failed = news.state.failure().is_some();
        let waits = |id: &NodeId| {
            let Some(node) = self.records.node(*id) else {
                return false;
            };
            is_of_digest(node, news.digest) && (!failed || is_of_format(node, news.format))
        };
        for id in held.filter(waits).collect::<Vec<_>>() {
            match (&news.state, self.pending_writes.by_node.get(&id)) {
                (
                    ImageState::Failed(why) | ImageState::Wrong(why),
                    Some(PendingImageWrite::Start),
                ) => {
                    self.fail_held_write(now, id, problem_of(&news.state), why);
                }
                (_, Some(PendingImageWrite::Start)) if news.raw.is_some() => {
                    self.start_held_write(now, id);
                }
                (ImageState::Complete, Some(PendingImageWrite::Start)) if !self.is_packed(id) => {
                    self.start_held_write(now, id);
                }
                (
                    ImageState::Failed(why) | ImageState::Wrong(why),
                    Some(PendingImageWrite::Retry(message)),
                ) => {
                    let why = with_report(why, message);
                    self.pending_writes.by_node.remove(&id);
                    self.image_unusable(now, id, problem_of(&news.state), why);
                }
                (ImageState::Complete, Some(PendingImageWrite::Retry(_))) => {
                    self.pending_writes.by_node.remove(&id);
                    let why = "the cached image was verified and is correct; the write is retried";
                    let why = why.to_owned();
                    self.events.push_back((id, NodeEvent::StepAgain { why }));
                }
                _ => {}
            }
        }
    }

    /// Sends a step that waited, if the node still waits for it.
    pub(crate) fn start_held_write(&mut self, now: Now, id: NodeId) {
        let Some(PendingImageWrite::Start) = self.pending_writes.by_node.get(&id) else {
            return;
        };
        let awaits = |node: &Arc<Node>| node.job.as_ref().is_some_and(|job| job.awaits_source);
        if self.records.node(id).is_some_and(awaits) {
            return self.stop_replaced_instances(now);
        }
        self.pending_writes.by_node.remove(&id);
        let job = self.records.node(id).and_then(|node| node.job.clone());
        let Some(job) = job.filter(|job| job.phase == JobPhase::StartStep) else {
            return;
        };
        if let Some(step) = job.steps.get(job.at as usize) {
            let order = AgentOrder::Execute {
                kind: job.step_kind.unwrap_or(trivet_model::StepKind::Deploy),
                step: step.clone(),
                at: job.at,
                versions: job.versions,
            };
            self.call_agent(now, id, order);
        }
    }

    pub(crate) fn fail_held_write(
        &mut self,
        now: Now,
        id: NodeId,
        problem: ImageProblem,
        why: &str,
    ) {
        if let Some(PendingImageWrite::Start) = self.pending_writes.by_node.get(&id) {
            self.pending_writes.by_node.remove(&id);
            self.image_unusable(now, id, problem, why.to_owned());
        }
    }

    /// Ends the node's job with the error of its image.
    pub(crate) fn image_unusable(
        &mut self,
        now: Now,
        id: NodeId,
        problem: ImageProblem,
        why: String,
    ) {
        let node = self.records.node(id).filter(|node| is_to_be_written(node));
        if let Some(node) = node {
            let evidence = EvidenceNote::ImageUnusable {
                problem,
                image: file_name(image_source(node)).to_owned(),
                why: why.clone(),
            };
            self.note(now, Some(id), NoteKind::Evidence(evidence));
        }
        self.events
            .push_back((id, NodeEvent::ImageUnusable { why }));
    }

    /// The agent reads the image itself and could not use it: its own words are the cause.
    fn note_image_of_agent(&mut self, now: Now, node: &Node, message: &str) {
        let report = message.to_ascii_lowercase();
        let is_different = report.contains("failed to verify");
        let different = is_different.then_some(ImageProblem::Different);
        let source = redacted(image_source(node).to_owned());
        let evidence = EvidenceNote::ImageUnusable {
            problem: different.unwrap_or(ImageProblem::Unavailable),
            image: file_name(image_source(node)).to_owned(),
            why: redacted(format!("the agent read {source} and reported: {message}")),
        };
        self.note(now, Some(node.id), NoteKind::Evidence(evidence));
    }

    fn is_packed(&self, id: NodeId) -> bool {
        let node = self.records.node(id);
        let wanted = node.and_then(|node| self.wanted_by(node));
        wanted.is_some_and(|wanted| wanted.format.is_packed())
    }

    /// A step of the agent failed. If the bytes of a cached image are the cause, that image is
    /// verified and written again. Returns whether the write may be retried.
    pub(crate) fn write_failed(&mut self, now: Now, id: NodeId, message: &str) -> bool {
        if let Some(PendingImageWrite::Retry(_)) = self.pending_writes.by_node.get(&id) {
            // The agent only repeats its report.
            return true;
        }
        let Some(node) = self.records.node(id).cloned() else {
            return false;
        };
        let job = node.job.as_ref();
        let present = job.and_then(|job| job.steps.get(job.at as usize));
        let writes = present.is_some_and(|step| step.step == WRITE_IMAGE);
        if writes && trivet_agent::is_out_of_space(message) {
            let why = self.out_of_space(&node, message);
            self.image_unusable(now, id, ImageProblem::TooLarge, why);
            return true;
        }
        let again = self.pending_writes.retries.get(&id).copied().unwrap_or(0);
        if !writes || !trivet_agent::is_image_error(message) {
            return false;
        }
        let Some(wanted) = self.wanted_by(&node) else {
            self.note_image_of_agent(now, &node, message);
            return false;
        };
        if again >= WRITE_RETRIES_MAX {
            let Some(why) = self.images.failure_of(&wanted) else {
                return false;
            };
            let problem = match self.images.wrong(&wanted) {
                Some(_) => ImageProblem::Different,
                None => ImageProblem::Unavailable,
            };
            let why = with_report(&why, message);
            self.image_unusable(now, id, problem, why);
            return true;
        }
        self.pending_writes.retries.insert(id, again + 1);
        // Without its file there is nothing to verify: it is fetched, and that has its own notes.
        if self.images.has_file(wanted.digest) {
            let kind = NoteKind::ImageRejected {
                image: wanted.name.clone(),
                message: message.to_owned(),
            };
            self.note(now, Some(id), kind);
        }
        self.pending_writes
            .by_node
            .insert(id, PendingImageWrite::Retry(message.to_owned()));
        let (images, mut context) = self.images_and_context(now);
        images.verify_again(&mut context, &wanted);
        true
    }
}

/// The reason of an image with the agent's own words, where they add something to it.
fn with_report(why: &str, message: &str) -> String {
    if trivet_agent::is_http_refusal(message) {
        return why.to_owned();
    }
    format!("{why} (the agent reported: {message})")
}

/// Whether the job of the node has its image still to write, or writes it now.
fn is_to_be_written(node: &Node) -> bool {
    let Some(job) = &node.job else { return false };
    let mut left = job.steps.iter().skip(job.at as usize);
    left.any(|step| step.step == WRITE_IMAGE)
}

fn problem_of(state: &ImageState) -> ImageProblem {
    match state {
        ImageState::Wrong(_) => ImageProblem::Different,
        _ => ImageProblem::Unavailable,
    }
}

pub(crate) fn image_source(node: &Node) -> &str {
    let source = node.instance_info.get("image_source");
    source.and_then(Value::as_str).unwrap_or_default()
}

/// Whether the node is being deployed with an image of this digest.
pub(crate) fn is_of_digest(node: &Node, digest: Digest) -> bool {
    let checksum = node.deployment().map(|deployment| &deployment.checksum);
    checksum.is_some_and(|checksum| checksum.digest() == Some(digest))
}
