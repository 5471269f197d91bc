//! Images from other servers: the catalogue, and their state in the cache.

use std::path::{Component, Path};
use std::sync::Arc;

use serde_json::Value;
use trivet_images::{
    IMAGES_MAX, ImageNews, ImageSpec, SOURCES_MAX, digest_of, file_name, sources_of,
};
use trivet_model::image::{ImageFormat, ImageState, ImageStatus};
use trivet_model::{
    BoxFault, Digest, ImageProblem, Node, NodeId, NoteKind, Now, OrderRefusal, RefusalKind,
    Resource, ResourceId, ResourceKind,
};

use crate::image_deployment::{image_source, is_of_digest};
use crate::named_image::given_digest;
use crate::oci_images::oci_query;
use crate::{FileGrant, Rack};

impl Rack {
    /// The catalogue entry of the image of this name.
    pub(crate) fn catalogued(&self, name: &str) -> Option<ImageSpec> {
        let resource = self.records.view.resource(ResourceKind::Image, name)?;
        ImageSpec::of_record(resource)
    }

    /// Checks that a name means one image, and that each image can be fetched.
    pub(crate) fn check_image(&self, resource: &Resource) -> Result<(), OrderRefusal> {
        let name = resource.name.as_deref().unwrap_or_default();
        if self.settings.images.find(name).is_some() {
            let sentence = format!("An image with name {name} is in the box's own directory.");
            return Err(OrderRefusal::new(RefusalKind::Conflict, sentence));
        }
        let of_kind = self.records.view.resources_of(ResourceKind::Image);
        if of_kind.count() >= IMAGES_MAX {
            let sentence = format!("The catalogue has {IMAGES_MAX} images; remove some.");
            return Err(OrderRefusal::new(RefusalKind::Unavailable, sentence));
        }
        let is_known = ImageSpec::of_record(resource).is_some()
            || checksum_file(resource).is_some()
            || oci_query(resource).is_some();
        if !is_known {
            return Err(OrderRefusal::new(
                RefusalKind::Invalid,
                "An image needs a digest of SHA-256 or SHA-512, a checksum file, or a reference \
                 to a registry (oci://) as its first source.",
            ));
        }
        sources_of(resource).try_for_each(|url| self.check_file(url))
    }

    /// A new image whose digest is in a checksum file or a registry: it is looked up at once.
    pub(crate) fn image_created(&mut self, now: Now, resource: &Resource) {
        self.pin_images();
        if let Some((url, name)) = checksum_file(resource) {
            self.find_checksum(now, url, name);
        } else if let Some(query) = oci_query(resource) {
            self.resolve_oci(now, query);
        }
    }

    /// An image source on the box itself must be a file that all clients may read anyway.
    fn check_file(&self, url: &str) -> Result<(), OrderRefusal> {
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
        let sentence = format!("{url} is not below boot.files, the directory of public files.");
        Err(OrderRefusal::new(RefusalKind::Invalid, sentence))
    }

    pub(crate) fn fill_image(&mut self, now: Now, id: ResourceId) -> Result<(), OrderRefusal> {
        let resource = self.records.view.resources.get(&(ResourceKind::Image, id));
        let Some(resource) = resource.cloned() else {
            let sentence = ResourceKind::Image.missing(&id.to_string());
            return Err(OrderRefusal::new(RefusalKind::NotFound, sentence));
        };
        match (ImageSpec::of_record(&resource), checksum_file(&resource)) {
            (Some(wanted), _) => {
                let is_here =
                    self.images.is_complete(&wanted) || self.images.has_file(wanted.digest);
                if wanted.sources.is_empty() && !is_here {
                    let sentence = format!("Image {} has no source; upload it.", wanted.name);
                    return Err(OrderRefusal::new(RefusalKind::Conflict, sentence));
                }
                self.fill(now, wanted, false);
            }
            // It is fetched when its digest is known.
            (None, Some((url, name))) => {
                self.pending_writes.fetch_after_checksum.insert(id);
                self.find_checksum(now, url, name);
            }
            (None, None) => {
                if let Some(query) = oci_query(&resource) {
                    self.pending_writes.fetch_after_checksum.insert(id);
                    self.resolve_oci(now, query);
                }
            }
        }
        Ok(())
    }

    /// Fetches an image into the cache; news follow in any case.
    pub(crate) fn fill(&mut self, now: Now, wanted: ImageSpec, urgent: bool) {
        let wanted = self.with_all_sources(wanted);
        let (images, mut context) = self.images_and_context(now);
        images.want(&mut context, &wanted, urgent);
    }

    /// Permission to read an image.
    pub(crate) fn image_grant(&mut self, now: Now, wanted: ImageSpec) -> FileGrant {
        let (images, mut context) = self.images_and_context(now);
        images.grant(&mut context, wanted)
    }

    /// Handles what the library has to report; false if there is nothing.
    pub(crate) fn handle_image_news(&mut self, now: Now) -> bool {
        let (images, mut context) = self.images_and_context(now);
        let (news, urls) = (images.take_news(&mut context), images.take_url_answers());
        let (checksums, resolutions) = (images.take_checksums(), images.take_resolutions());
        let is_empty = news.is_empty() && urls.is_empty();
        let reported = !(is_empty && checksums.is_empty() && resolutions.is_empty());
        for one in news {
            self.image_news(now, &one);
        }
        for answer in urls {
            self.boot_file_fetched(now, &answer.url, answer.result);
        }
        for found in checksums {
            let result = found.result.map_err(crate::agents::callers::redacted);
            self.checksum_found(now, &found.url, &found.name, result);
        }
        for found in resolutions {
            self.oci_resolved(now, &found);
        }
        reported
    }

    /// Stores the digest in the records whose digest was in this checksum file.
    pub(crate) fn set_image_checksum(
        &mut self,
        now: Now,
        (url, name): (&str, &str),
        result: &Result<Digest, String>,
    ) {
        let of_file = |resource: &&Arc<Resource>| checksum_file(resource) == Some((url, name));
        let all = self.records.view.resources_of(ResourceKind::Image);
        let some: Vec<Arc<Resource>> = all.filter(of_file).cloned().collect();
        for resource in some {
            let mut resource = Resource::clone(&resource);
            let image = resource.name.clone().unwrap_or_default();
            match result {
                Ok(digest) => {
                    let fields = &mut resource.fields;
                    fields.insert("checksum_url".to_owned(), url.into());
                    fields.insert("checksum".to_owned(), digest.to_string().into());
                    self.image_digest_known(now, resource);
                }
                Err(why) => {
                    self.pending_writes
                        .fetch_after_checksum
                        .remove(&resource.id);
                    let why = format!("image {image} has no digest: {why}");
                    self.image_fault(now, (&image, None), Some(&why));
                    self.note(now, None, NoteKind::ImageFailed { why });
                }
            }
        }
    }

    /// The digest of an image of the catalogue became known: the image is fetched if somebody
    /// waits for that.
    pub(crate) fn image_digest_known(&mut self, now: Now, resource: Resource) {
        let waiting = &mut self.pending_writes.fetch_after_checksum;
        let fill = waiting.remove(&resource.id);
        let image = resource.name.clone().unwrap_or_default();
        let wanted = ImageSpec::of_record(&resource);
        self.records.put_resource(now, resource);
        self.pin_images();
        self.image_fault(now, (&image, None), None);
        if let (true, Some(wanted)) = (fill, wanted) {
            self.fill(now, wanted, false);
        }
    }

    /// Sets in the library which images it must not evict.
    pub(crate) fn pin_images(&mut self) {
        let pinned = |resource: &Resource| resource.fields.get("pinned") == Some(&true.into());
        let all = self.records.view.resources_of(ResourceKind::Image);
        let pinned_images = all.filter(|resource| pinned(resource));
        let digests = pinned_images.filter_map(|resource| digest_of(resource));
        let digests: Vec<Digest> = digests.collect();
        self.images.pin(&digests);
    }

    /// The record was deleted; its bytes are deleted too, unless another record refers to them.
    pub(crate) fn drop_image(&mut self, now: Now, resource: &Resource) {
        // Its faults do not matter any more.
        let name = resource.name.clone().unwrap_or_default();
        self.image_fault(now, (&name, digest_of(resource)), None);
        self.pending_writes
            .fetch_after_checksum
            .remove(&resource.id);
        let Some(digest) = digest_of(resource) else {
            return;
        };
        let format = format_of(resource);
        let is_other = |record: &&Arc<Resource>| format_of(record) != format;
        let (is_last, is_last_of_format) = (
            self.records_of(digest).next().is_none(),
            self.records_of(digest).all(|record| is_other(&record)),
        );
        let (images, mut context) = self.images_and_context(now);
        if is_last {
            images.remove(&mut context, digest);
        } else if is_last_of_format {
            let spec = ImageSpec {
                name,
                digest,
                sources: Vec::new(),
                format,
            };
            images.forget(&mut context, &spec);
        }
    }

    /// Removes an image from the cache that is in no record, such as that of a URL in
    /// `instance_info`.
    pub(crate) fn drop_passing_image(
        &mut self,
        now: Now,
        digest: Digest,
    ) -> Result<(), OrderRefusal> {
        let conflict = |sentence: String| Err(OrderRefusal::new(RefusalKind::Conflict, sentence));
        if let Some(record) = self.records_of(digest).next() {
            let name = record.name.clone().unwrap_or_default();
            return conflict(format!("These bytes belong to image {name}; remove that."));
        }
        let boots = self.nodes_booting_digest(digest);
        if let Some(id) = self.users_of(digest).into_iter().chain(boots).next() {
            let node = self
                .records
                .node(id)
                .map_or(String::new(), |node| node.label());
            return conflict(format!(
                "This image is used by the job of node {node}; wait until that is done, or abort \
                 it."
            ));
        }
        let text = digest.to_string();
        let faults = self.records.view.faults.keys();
        let of_it = |fault: &&BoxFault| match fault {
            BoxFault::ImageFailed { digest, .. } => digest.as_ref() == Some(&text),
            _ => false,
        };
        for fault in faults.filter(of_it).cloned().collect::<Vec<_>>() {
            self.fault_gone(now, &fault);
        }
        let (images, mut context) = self.images_and_context(now);
        images.remove(&mut context, digest);
        images.forget_failures(&mut context, digest);
        Ok(())
    }

    /// Refuses to delete an image that is being written to a node.
    pub(crate) fn check_unwritten(&self, resource: &Resource) -> Result<(), OrderRefusal> {
        let name = resource.name.as_deref().unwrap_or_default();
        let nodes = self.records.view.nodes.values();
        let writes = |node: &Node| node.deployment().is_some() && self.own_name(node) == Some(name);
        let Some(view) = nodes.into_iter().find(|view| writes(&view.node)) else {
            return Ok(());
        };
        let sentence = format!(
            "Image {name} is being written to node {}; wait until that is done, or abort it.",
            view.node.label()
        );
        Err(OrderRefusal::new(RefusalKind::Conflict, sentence))
    }

    /// The records that refer to these bytes.
    fn records_of(&self, digest: Digest) -> impl Iterator<Item = &Arc<Resource>> {
        let all = self.records.view.resources_of(ResourceKind::Image);
        all.filter(move |record| digest_of(record) == Some(digest))
    }

    /// Adds the sources of other entries with the same bytes.
    fn with_all_sources(&self, mut wanted: ImageSpec) -> ImageSpec {
        let same = self.records_of(wanted.digest);
        let more: Vec<String> = same
            .flat_map(|other| sources_of(other).map(str::to_owned))
            .collect();
        for url in more {
            if wanted.sources.len() < SOURCES_MAX && !wanted.sources.contains(&url) {
                wanted.sources.push(url);
            }
        }
        wanted
    }

    /// The state of an image changed, or a request for it is answered.
    fn image_news(&mut self, now: Now, reported: &ImageNews) {
        let (news, changed) = (&reported.status, reported.is_new_state);
        let image = news.name.clone();
        let kind = match &news.state {
            ImageState::Fetching => NoteKind::ImageFetching { image },
            ImageState::Unpacking => NoteKind::ImageUnpacking { image },
            ImageState::Corrupt(chunks) => NoteKind::ImageCorrupt {
                image,
                chunks: *chunks,
            },
            ImageState::Complete => NoteKind::ImageComplete {
                image,
                bytes: news.present_bytes,
            },
            ImageState::Evicted => NoteKind::ImageEvicted { image },
            ImageState::Failed(why) | ImageState::Wrong(why) => {
                NoteKind::ImageFailed { why: why.clone() }
            }
        };
        let of = (news.name.as_str(), Some(news.digest));
        match &news.state {
            ImageState::Failed(why) | ImageState::Wrong(why) => {
                self.image_fault(now, of, Some(why));
            }
            ImageState::Complete | ImageState::Evicted => {
                self.image_fault(now, of, None);
                if changed {
                    self.clear_faults_of_bytes(now, news);
                }
            }
            ImageState::Fetching | ImageState::Unpacking | ImageState::Corrupt(_) => {}
        }
        let boots = self.nodes_booting(news, changed);
        if changed {
            for id in self.users_of(news.digest).into_iter().chain(boots.clone()) {
                self.note(now, Some(id), kind.clone());
            }
            self.note(now, None, kind);
        }
        self.boot_file_state_changed(news, boots);
        if let ImageState::Wrong(why) = &news.state {
            // No action of a machine or its agent can help: jobs end now, and not after a boot
            // and a failed write.
            for id in self.users_of(news.digest) {
                let node = self.records.node(id);
                if !node.is_some_and(|node| is_of_format(node, news.format)) {
                    continue;
                }
                self.image_unusable(now, id, ImageProblem::Different, why.clone());
            }
        }
        self.resume_image_writes(now, news);
        self.stop_replaced_instances(now);
        if changed && matches!(news.state, ImageState::Complete | ImageState::Wrong(_)) {
            self.verify_other_entries(now, news);
        }
        if news.state == ImageState::Complete {
            self.release_pending_power_ons(now);
        }
    }

    /// The file is here, verified for one format, as after a restart: other entries with the same
    /// bytes are verified in theirs. Packed ones are unpacked when they are requested.
    fn verify_other_entries(&mut self, now: Now, news: &ImageStatus) {
        if !self.images.has_file(news.digest) {
            return;
        }
        let same = self.records_of(news.digest);
        let same = same.filter_map(|record| ImageSpec::of_record(record));
        let unknown = |spec: &ImageSpec| {
            let is_plain = spec.format != news.format && !spec.format.is_packed();
            is_plain && self.images.status(spec).is_none()
        };
        let unknown: Vec<ImageSpec> = same.filter(unknown).collect();
        for spec in unknown {
            self.fill(now, spec, false);
        }
    }

    /// The bytes are in the cache: faults of other entries for the same bytes in the same
    /// format are cleared. An entry that claims another format keeps its fault.
    fn clear_faults_of_bytes(&mut self, now: Now, news: &ImageStatus) {
        let same = self.records_of(news.digest);
        let same = same.filter(|record| format_of(record) == news.format);
        let names: Vec<String> = same.filter_map(|record| record.name.clone()).collect();
        for name in names {
            self.image_fault(now, (&name, Some(news.digest)), None);
        }
    }

    /// Raises or clears the fault of one image. The fault is identified by name and digest:
    /// another file of the same name, or another entry with the same bytes, has its own.
    pub(crate) fn image_fault(
        &mut self,
        now: Now,
        (image, digest): (&str, Option<Digest>),
        why: Option<&str>,
    ) {
        let digest = digest.map(|digest| digest.to_string());
        let failed = why.map(|why| BoxFault::ImageFailed {
            image: image.to_owned(),
            digest: digest.clone(),
            why: why.to_owned(),
        });
        let faults = self.records.view.faults.keys();
        let of_it = |fault: &&BoxFault| {
            matches!(fault, BoxFault::ImageFailed { image: one, digest: with, .. }
                if *one == image && *with == digest)
        };
        let old: Vec<BoxFault> = faults.filter(of_it).cloned().collect();
        for fault in old.iter().filter(|fault| Some(*fault) != failed.as_ref()) {
            self.fault_gone(now, fault);
        }
        if let Some(fault) = failed {
            self.fault(now, fault);
        }
    }

    /// Clears the faults of images that are not in the catalogue and that no node names any more,
    /// as after a deployment of another image. No command names such an image.
    pub(crate) fn clear_unused_image_faults(&mut self, now: Now) {
        let faults = self.records.view.faults.keys();
        let unused = faults.filter_map(|fault| {
            let BoxFault::ImageFailed { image, digest, .. } = fault else {
                return None;
            };
            let digest: Digest = digest.as_deref()?.parse().ok()?;
            let is_used = self.is_image(image) || self.is_named_by_a_node(image, digest);
            (!is_used).then(|| (fault.clone(), digest))
        });
        for (fault, digest) in unused.collect::<Vec<_>>() {
            self.fault_gone(now, &fault);
            let (images, mut context) = self.images_and_context(now);
            images.forget_failures(&mut context, digest);
        }
    }

    /// Whether a node is deployed from this image, or boots it.
    fn is_named_by_a_node(&self, image: &str, digest: Digest) -> bool {
        let names = |value: &Value| value.as_str().is_some_and(|url| file_name(url) == image);
        let mut nodes = self.records.view.nodes.values();
        self.boot_files.has_of_name(image)
            || nodes.any(|view| {
                let node = &view.node;
                let given = given_digest(&node.instance_info);
                let is_other = given.is_some_and(|(_, given)| given != digest);
                let is_source = !is_other && file_name(image_source(node)) == image;
                is_source || node.driver_info.values().any(names)
            })
    }

    /// The nodes that are being written with the image of this digest.
    fn users_of(&self, digest: Digest) -> Vec<NodeId> {
        let uses = |node: &Node| is_of_digest(node, digest);
        let nodes = self.records.view.nodes.iter();
        nodes
            .filter(|(_, view)| uses(&view.node))
            .map(|(id, _)| *id)
            .collect()
    }
}

/// Whether the node's image is expected in this format: bytes that are wrong for one format may
/// be right for another.
pub(crate) fn is_of_format(node: &Node, format: ImageFormat) -> bool {
    let deployment = node.deployment();
    deployment.is_some_and(|deployment| deployment.format == Some(format))
}

/// The format of a catalogue entry.
fn format_of(resource: &Resource) -> ImageFormat {
    let format = resource.text("format").and_then(ImageFormat::parse);
    format.unwrap_or_default()
}

/// The checksum file that has the digest of an image, and the image's name in there.
pub(crate) fn checksum_file(resource: &Resource) -> Option<(&str, &str)> {
    let url = resource.text("checksum")?;
    let elsewhere = ["http://", "https://"]
        .iter()
        .any(|scheme| url.starts_with(scheme));
    let name = file_name(sources_of(resource).next()?);
    elsewhere.then_some((url, name))
}
