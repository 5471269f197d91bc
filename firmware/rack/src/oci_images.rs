//! Images in OCI registries: which lookups are needed, and what follows from their results.
//!
//! A reference is looked up when its deployment begins, and when it is added to the catalogue. The
//! digest of the layer that is found becomes the digest of the image; from then on the image is
//! like any other. The digest of the manifest is kept for people and clients, under Ironic's names.

use trivet_images::{ImageFormat, OciResolution, sources_of};
use trivet_model::deployment::ImageChecksum;
use trivet_model::oci::oci_digest;
use trivet_model::{
    ImageProblem, Node, NodeId, NoteKind, Now, OciReference, Resource, ResourceKind,
};
use trivet_oci::{OciError, OciImage, OciQuery, RegistryCredentials};

use crate::Rack;
use crate::agents::callers::redacted;
use crate::image_deployment::image_source;

/// The most lookups at the same time. Ours: nodes with the same question share one.
const OCI_LOOKUPS_MAX: usize = 1024;

/// Ironic's name of the secret, in `instance_info` and in `driver_info`.
const PULL_SECRET: &str = "image_pull_secret";

/// Ironic's names of what was found, in `instance_info`.
const MANIFEST_DIGEST: &str = "image_container_manifest_digest";
const MANIFEST_URL: &str = "oci_image_manifest_url";
const MEDIA_TYPE: &str = "image_media_type";

impl Rack {
    /// What must be looked up before the image of the node's deployment is known.
    pub(crate) fn oci_query_of(&self, node: &Node) -> Option<OciQuery> {
        let deployment = node.deployment()?;
        let ImageChecksum::Registry(reference) = &deployment.checksum else {
            return None;
        };
        let architecture = node.properties.get("cpu_arch");
        let architecture = architecture.and_then(|value| value.as_str());
        // An image of the catalogue is fetched for everybody: not with the secret of one node.
        let is_own = self.own_name(node).is_some();
        Some(OciQuery {
            reference: reference.clone(),
            architecture: architecture.map(str::to_owned),
            format: deployment.format,
            credentials: pull_secret(node).filter(|_| !is_own),
        })
    }

    /// Looks up a reference, unless the same lookup is under way.
    pub(crate) fn resolve_oci(&mut self, now: Now, query: OciQuery) {
        let lookups = &self.pending_writes.oci_lookups;
        if lookups.contains(&query) {
            return;
        }
        if lookups.len() >= OCI_LOOKUPS_MAX {
            let why = format!("is not asked: {OCI_LOOKUPS_MAX} lookups are under way");
            let registry = query.reference.registry().to_owned();
            let result = Err(OciError::Unreachable { registry, why });
            return self.oci_resolved(now, &OciResolution { query, result });
        }
        self.pending_writes.oci_lookups.push(query.clone());
        let (images, mut context) = self.images_and_context(now);
        images.resolve_oci(&mut context, query);
    }

    /// Gives the shell the secret of the node, which it forgets at a restart.
    pub(crate) fn offer_pull_secret(&mut self, now: Now, node: &Node) {
        if self.own_name(node).is_some() {
            return;
        }
        let reference = image_source(node).parse::<OciReference>();
        if let (Ok(reference), Some(credentials)) = (reference, pull_secret(node)) {
            let (images, mut context) = self.images_and_context(now);
            images.use_pull_secret(&mut context, reference, credentials);
        }
    }

    /// The shell continues interrupted fills when it has started: with the secrets of their nodes.
    pub(crate) fn offer_pull_secrets(&mut self, now: Now) {
        let nodes = self.records.view.nodes.values();
        let nodes = nodes.filter(|view| view.node.deployment().is_some());
        let nodes: Vec<_> = nodes.map(|view| view.node.clone()).collect();
        for node in nodes {
            self.offer_pull_secret(now, &node);
        }
    }

    /// A registry has answered.
    pub(crate) fn oci_resolved(&mut self, now: Now, found: &OciResolution) {
        let lookups = &mut self.pending_writes.oci_lookups;
        lookups.retain(|query| *query != found.query);
        self.set_catalogue_image(now, found);
        let nodes = self.records.view.nodes.iter();
        let nodes = nodes.filter(|(_, view)| {
            let query = self.oci_query_of(&view.node);
            query.as_ref() == Some(&found.query)
        });
        let nodes: Vec<NodeId> = nodes.map(|(id, _)| *id).collect();
        for id in nodes {
            match &found.result {
                Ok(image) => self.set_node_image(now, id, &found.query.reference, image),
                // No action of the machine or its agent can help.
                Err(why) if why.is_final() => {
                    let why = redacted(why.to_string());
                    self.image_unusable(now, id, ImageProblem::Unavailable, why);
                }
                Err(why) => {
                    let why = redacted(why.to_string());
                    self.fail_held_write(now, id, ImageProblem::Unavailable, &why);
                }
            }
        }
    }

    fn set_node_image(&mut self, now: Now, id: NodeId, reference: &OciReference, image: &OciImage) {
        let Some(mut node) = self.records.node(id).map(|node| Node::clone(node)) else {
            return;
        };
        if let Some(why) = self.contradiction(&node, Some(image.layer)) {
            return self.image_unusable(now, id, ImageProblem::Different, why);
        }
        let Some(deployment) = node.job.as_mut().and_then(|job| job.deployment.as_mut()) else {
            return;
        };
        deployment.set_digest(image.layer);
        deployment.format = Some(written_format(image));
        let manifest_url = reference.with_digest(image.manifest).to_string();
        let shown = [
            (MANIFEST_DIGEST, oci_digest(&image.manifest)),
            (MANIFEST_URL, manifest_url),
            (MEDIA_TYPE, image.media_type.clone()),
        ];
        for (key, value) in shown {
            node.instance_info.insert(key.to_owned(), value.into());
        }
        self.records.put_node(now, node);
        self.fetch_early(now, id);
        self.start_held_write(now, id);
    }

    /// Stores what was found in the records that are waiting for it.
    fn set_catalogue_image(&mut self, now: Now, found: &OciResolution) {
        let of_query = |resource: &Resource| oci_query(resource).as_ref() == Some(&found.query);
        let all = self.records.view.resources_of(ResourceKind::Image);
        let some: Vec<Resource> = all
            .filter(|resource| of_query(resource))
            .map(|resource| Resource::clone(resource))
            .collect();
        for resource in some {
            match &found.result {
                Ok(image) => self.set_resource_image(now, resource, image),
                Err(why) => self.resource_image_failed(now, &resource, why),
            }
        }
    }

    fn set_resource_image(&mut self, now: Now, mut resource: Resource, image: &OciImage) {
        let fields = &mut resource.fields;
        fields.insert("checksum".to_owned(), image.layer.to_string().into());
        fields.insert("manifest".to_owned(), oci_digest(&image.manifest).into());
        let format = || image.format.name().into();
        fields.entry("format".to_owned()).or_insert_with(format);
        self.image_digest_known(now, resource);
    }

    fn resource_image_failed(&mut self, now: Now, resource: &Resource, why: &OciError) {
        let image = resource.name.clone().unwrap_or_default();
        let why = format!("image {image} is not known: {}", redacted(why.to_string()));
        self.pending_writes
            .fetch_after_checksum
            .remove(&resource.id);
        self.image_fault(now, (&image, None), Some(&why));
        self.note(now, None, NoteKind::ImageFailed { why });
    }
}

/// An ISO image is written to a disk unchanged.
fn written_format(image: &OciImage) -> ImageFormat {
    match image.format {
        ImageFormat::Iso => ImageFormat::Raw,
        other => other,
    }
}

/// The secret of the node for registries. As in Ironic, that of the instance takes precedence.
fn pull_secret(node: &Node) -> Option<RegistryCredentials> {
    let mut all = [&node.instance_info, &node.driver_info].into_iter();
    all.find_map(|info| RegistryCredentials::of_pull_secret(info.get(PULL_SECRET)?.as_str()?))
}

/// What must be looked up before the image of the catalogue is known.
pub(crate) fn oci_query(resource: &Resource) -> Option<OciQuery> {
    if resource.text("checksum").is_some() {
        return None;
    }
    Some(OciQuery {
        reference: sources_of(resource).next()?.parse().ok()?,
        architecture: None,
        format: resource.text("format").and_then(ImageFormat::parse),
        credentials: None,
    })
}
