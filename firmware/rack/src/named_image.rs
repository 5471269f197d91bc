//! What this box knows of the image that a node names, and whether its record contradicts that.

use trivet_images::{ImageFormat, digest_of};
use trivet_model::node::JsonObject;
use trivet_model::{Digest, Node, ResourceKind};

use crate::Rack;
use crate::image_deployment::image_source;
use crate::oci_images::oci_query;

impl Rack {
    /// The name of an image of this box, if the node's image is one.
    pub(crate) fn own_name<'a>(&self, node: &'a Node) -> Option<&'a str> {
        let source = image_source(node);
        let base = self.settings.http_url.as_str();
        let path = Some(base)
            .filter(|base| !base.is_empty())
            .and_then(|base| source.strip_prefix(base)?.strip_prefix("/images/"));
        Some(path.unwrap_or(source)).filter(|name| self.is_image(name))
    }

    /// Whether the box has an image of this name, or has a source for it.
    pub(crate) fn is_image(&self, name: &str) -> bool {
        let here = self.settings.images.find(name).is_some();
        here || self
            .records
            .view
            .resource(ResourceKind::Image, name)
            .is_some()
    }

    /// An image of this box needs no URL, no digest and no format from the operator.
    pub(crate) fn use_catalogue(&self, node: &mut Node) {
        let Some(name) = self.own_name(node).map(str::to_owned) else {
            return;
        };
        let own = self.settings.images.find(&name);
        let remaining = self.records.view.resource(ResourceKind::Image, &name);
        let remaining = remaining.filter(|_| own.is_none());
        let remaining = |field: &str| Some(remaining?.text(field)?.to_owned());
        let sum = own.map(|image| image.digest.to_string());
        // As long as the digest is unknown, the reference stands for it.
        let sum = sum.or_else(|| remaining("checksum")).or_else(|| {
            let resource = self.records.view.resource(ResourceKind::Image, &name)?;
            Some(oci_query(resource)?.reference.to_string())
        });
        let is_lookup = sum.as_deref().is_some_and(|sum| sum.contains("://"));
        let info = &mut node.instance_info;
        let url = format!("{}/images/{name}", self.settings.http_url);
        info.insert("image_source".to_owned(), url.into());
        if is_lookup {
            // The digest that is looked up is compared with this one when it is known.
            info.remove("image_os_hash_algo");
            info.remove("image_os_hash_value");
        }
        let has_digest = info.contains_key("image_os_hash_value")
            || (!is_lookup && info.contains_key("image_checksum"));
        if let (false, Some(sum)) = (has_digest, sum) {
            info.insert("image_checksum".to_owned(), sum.into());
        }
        if let Some(format) = remaining("format") {
            let format = || format.into();
            info.entry("image_disk_format").or_insert_with(format);
        }
    }

    /// Why the node's record cannot mean the image that it names: its digest or its format is
    /// that of another image, as after a change of `image_source` alone. The cache finds bytes by
    /// their digest, so it would serve the other image. `found` is the digest in the checksum
    /// file of the record, once that was read.
    pub(crate) fn contradiction(&self, node: &Node, found: Option<Digest>) -> Option<String> {
        let name = self.own_name(node)?;
        let own = self.settings.images.find(name);
        let remaining = self.records.view.resource(ResourceKind::Image, name);
        let remaining = remaining.filter(|_| own.is_none());
        let (field, known, text) = self
            .other_digest(node, own.map(|image| image.digest), found)
            .or_else(|| {
                let known = ImageFormat::parse(remaining?.text("format")?)?;
                let field = "image_disk_format";
                let text = ImageFormat::parse(node.instance_info.get(field)?.as_str()?)?;
                let is_other = known != text && (known.is_packed() || text.is_packed());
                is_other.then(|| (field, format!("format {known}"), text.to_string()))
            })?;
        let place = if own.is_some() {
            "in this box's image directory"
        } else {
            "in the catalogue of this box"
        };
        Some(format!(
            "image {name} has {known} {place}, but {field} in the node's instance_info is {text}, \
             which belongs to another image. Remove {field} from instance_info: an image of this \
             box needs none. `trivet node deploy NODE --image {name}` and `trivet node rebuild \
             NODE --image {name}` remove it"
        ))
    }

    /// The field with a digest that is not that of the image, the image's digest, and the other.
    fn other_digest(
        &self,
        node: &Node,
        own: Option<Digest>,
        found: Option<Digest>,
    ) -> Option<(&'static str, String, String)> {
        let stored = || {
            let name = self.own_name(node)?;
            digest_of(self.records.view.resource(ResourceKind::Image, name)?)
        };
        let known = own.or_else(stored)?;
        let (field, message) =
            given_digest(&node.instance_info).or(found.map(|digest| (CHECKSUM, digest)))?;
        // With another algorithm an agent can compare, but the cache finds other bytes.
        let is_comparable = known.algorithm() == message.algorithm();
        let is_other = known != message && (is_comparable || self.is_cached(node));
        let shown = |digest: Digest| format!("{} {digest}", digest.algorithm());
        is_other.then(|| (field, shown(known), shown(message)))
    }
}

const CHECKSUM: &str = "image_checksum";

/// The digest in `instance_info`, with its field; the first that is set decides, as in Ironic.
pub(crate) fn given_digest(info: &JsonObject) -> Option<(&'static str, Digest)> {
    let fields = ["image_os_hash_value", CHECKSUM];
    let field = fields.into_iter().find(|field| info.contains_key(*field))?;
    Some((field, info.get(field)?.as_str()?.parse().ok()?))
}
