//! Whether an image fits on the disk that its agent will write it to.
//!
//! Only the results of an inspection are compared. A node that was never inspected, or whose
//! disks became part of a RAID since, is not refused here: the agent decides.

use serde_json::Value;
use trivet_images::{ImageSpec, file_name};
use trivet_model::{ImageDeployment, Node};

use crate::Rack;
use crate::image_deployment::image_source;

const GIB: u64 = 1 << 30;

/// The most disks in one sentence. Ours.
const DISKS_SHOWN_MAX: usize = 6;

impl Rack {
    /// An error message where the image is known to be larger than the node's disk.
    pub(crate) fn image_too_large(
        &self,
        node: &Node,
        deployment: &ImageDeployment,
    ) -> Option<String> {
        let bytes = self.image_bytes(node, deployment)?;
        let image = file_name(image_source(node));
        if let Some(partitions) = &deployment.partitions {
            let space = partitions.root_mb.saturating_mul(1 << 20);
            return (bytes > space).then(|| {
                format!(
                    "image {image} has {bytes} bytes, more than the root partition of {} GiB; set \
                     instance_info root_gb to at least {}",
                    space / GIB,
                    bytes.div_ceil(GIB)
                )
            });
        }
        let disk = inspected_disk(node)?;
        (bytes > disk.bytes).then(|| {
            format!(
                "image {image} has {bytes} bytes, more than the {} bytes of {}; choose a larger \
                 disk with root_device hints or use a smaller image. If the disks have changed, \
                 inspect the node again",
                disk.bytes, disk.name
            )
        })
    }

    /// The error message for an agent's "no space left on device".
    pub(crate) fn out_of_space(&self, node: &Node, message: &str) -> String {
        let image = file_name(image_source(node));
        let deployment = node.deployment();
        let bytes = deployment.and_then(|deployment| self.image_bytes(node, deployment));
        let size = bytes.map_or(String::new(), |bytes| format!(" of {bytes} bytes"));
        format!(
            "image {image}{size} does not fit where the agent wrote it; choose a larger disk with \
             root_device hints or use a smaller image (the agent reported: {message})"
        )
    }

    /// Number of bytes that will be written, if it is known yet.
    fn image_bytes(&self, node: &Node, deployment: &ImageDeployment) -> Option<u64> {
        let own = self.own_name(node);
        let own = own.and_then(|name| self.settings.images.find(name));
        let format = deployment.format?;
        if let (Some(own), false) = (own, format.is_packed()) {
            return Some(own.size);
        }
        let digest = deployment.checksum.digest()?;
        let wanted = ImageSpec {
            name: String::new(),
            digest,
            sources: Vec::new(),
            format,
        };
        let news = self.images.status(&wanted)?;
        if format.is_packed() {
            news.raw.map(|raw| raw.size)
        } else {
            news.size
        }
    }
}

/// Whether an image of this size may fit on the disk of a node.
pub(crate) fn may_hold(node: &Node, bytes: u64) -> bool {
    inspected_disk(node).is_none_or(|disk| bytes <= disk.bytes)
}

/// The largest disk that the agent may choose.
struct InspectedDisk {
    name: String,
    bytes: u64,
}

fn inspected_disk(node: &Node) -> Option<InspectedDisk> {
    let is_set = |value: Option<&Value>| match value {
        None | Some(Value::Null) => false,
        Some(Value::Object(object)) => !object.is_empty(),
        Some(_) => true,
    };
    let attributes = &node.attributes;
    if !attributes.raid_config.is_empty() || !attributes.target_raid_config.is_empty() {
        return None;
    }
    let found = node.inventory.as_ref()?;
    let hints = [&node.instance_info, &node.properties];
    let hinted = hints.iter().any(|info| is_set(info.get("root_device")));
    let root = &found["plugin_data"]["root_disk"];
    if let (false, Some(disk)) = (hinted, disk_of(root)) {
        return Some(disk);
    }
    // The agent decides which disk the hints select, so only an image that fits on no disk is
    // refused.
    let disks = found["inventory"]["disks"].as_array()?;
    disks
        .iter()
        .filter_map(disk_of)
        .max_by_key(|disk| disk.bytes)
}

fn disk_of(disk: &Value) -> Option<InspectedDisk> {
    Some(InspectedDisk {
        name: disk["name"].as_str().unwrap_or("the disk").to_owned(),
        bytes: disk["size"].as_u64().filter(|bytes| *bytes > 0)?,
    })
}

/// The hints of the record, as JSON; the instance's own come before those of the node.
pub(crate) fn root_device_hints(node: &Node) -> String {
    let infos = [&node.instance_info, &node.properties];
    let mut hints = infos.iter().filter_map(|info| info.get("root_device"));
    hints.find(|hints| !hints.is_null()).map_or_else(
        || "of the agent (none are in the record)".to_owned(),
        Value::to_string,
    )
}

/// The disks that inspection found, with their sizes.
pub(crate) fn inspected_disks(node: &Node) -> String {
    let found = node.inventory.as_ref();
    let disks = found.and_then(|found| found["inventory"]["disks"].as_array());
    let disks = disks.into_iter().flatten().filter_map(disk_of);
    let texts = disks.take(DISKS_SHOWN_MAX).map(|disk| {
        let gigabytes = disk.bytes / 1_000_000_000;
        format!("{} ({gigabytes} GB)", disk.name)
    });
    match texts.collect::<Vec<_>>() {
        texts if texts.is_empty() => "no disks".to_owned(),
        texts => texts.join(", "),
    }
}
