//! The step that writes an image, from the node's `instance_info`.
//!
//! Only images with a digest are written: what cannot be verified is not written to a disk.
//! Missing or invalid fields are reported before the machine is changed.

use serde_json::{Value, json};
use trivet_agent_wire::image::{PARTITION, WHOLE_DISK, WRITE_IMAGE, is_file_name};
use trivet_model::deployment::{DriveLocation, ImageChecksum, ImageLocation, PartitionSizes};
use trivet_model::image::ImageFormat;
use trivet_model::node::JsonObject;
use trivet_model::secret::without_url_credentials;
use trivet_model::{Digest, ImageDeployment, JobStep, Node, OciReference, OciReferenceError};

/// The priority of the step among the deploy steps. Ironic's number.
pub const WRITE_IMAGE_PRIORITY: i64 = 80;

/// Bound for sizes of disks in GiB and of partitions in MiB. Ours.
const SIZE_MAX: u64 = 1 << 40;

/// The first bytes of every gzip file (RFC 1952), in base64.
const GZIP_AS_BASE64: &str = "H4sI";

/// Longest file name of an image that is taken from its URL, in characters. Ours.
const IMAGE_ID_CHARS_MAX: usize = 255;

/// Why no image can be written, and what the operator can do about it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WriteImageProblem {
    /// A required field is missing.
    #[error("instance_info lacks {field}; set it with: baremetal node set --instance-info {hint}")]
    Missing {
        /// The name of the field.
        field: &'static str,
        /// The argument to type.
        hint: &'static str,
    },
    /// A field has a value that is not supported.
    #[error("instance_info has an invalid {field}: {why}")]
    Invalid {
        /// The name of the field.
        field: &'static str,
        /// The reason, and which values are valid.
        why: &'static str,
    },
    /// The image is in a registry, but its reference is not valid.
    #[error("instance_info has an invalid image_source: {source_url} {why}")]
    Reference {
        /// The reference.
        source_url: String,
        /// The reason.
        why: OciReferenceError,
    },
    /// A property of the machine has a value that is not supported.
    #[error("properties has an invalid {field}: {why}")]
    InvalidProperty {
        /// The name of the property.
        field: &'static str,
        /// The reason, and which values are valid.
        why: &'static str,
    },
}

/// Where the agent can fetch what it writes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeploymentSources {
    /// The image: an image of the cache, which finds its digest and unpacks it, or a URL.
    pub image: ImageLocation,
    /// The config drive, if this box can serve it.
    pub drive: Option<DriveLocation>,
}

/// The deploy step that writes an image. What it writes is in the deployment of its job.
pub fn write_image_step() -> JobStep {
    JobStep {
        step: WRITE_IMAGE.to_owned(),
        interface: "deploy".to_owned(),
        priority: WRITE_IMAGE_PRIORITY,
        args: json!({}),
        reboot_requested: false,
        abortable: false,
    }
}

/// The image that a deployment of the node writes.
pub fn image_deployment(
    node: &Node,
    sources: DeploymentSources,
) -> Result<ImageDeployment, WriteImageProblem> {
    let info = &node.instance_info;
    let source = text(info, "image_source")?.ok_or(WriteImageProblem::Missing {
        field: "image_source",
        hint: "image_source=<URL of a whole-disk image>",
    })?;
    let cached = matches!(sources.image, ImageLocation::Cache { .. });
    check_reference(source, cached)?;
    check_http_url(&sources.image.url(node.id))?;
    // Those of the instance take precedence, and then the agent reads no others.
    let field = ROOT_DEVICE;
    if !root_device(info).map_err(|why| WriteImageProblem::Invalid { field, why })? {
        root_device(&node.properties)
            .map_err(|why| WriteImageProblem::InvalidProperty { field, why })?;
    }
    let checksum = image_checksum(info, source)?;
    let format = disk_format(info, source)?;
    let partitions = partitions(info)?;
    let is_registry = matches!(checksum, ImageChecksum::Registry(_));
    // Without a declared format, what the registry has decides.
    let is_declared = !is_registry || text(info, "image_disk_format")?.is_some();
    check_supported(&checksum, format, cached, partitions.is_some())?;
    // A config drive that is not served is added when the step is sent: a record holds it once.
    let drive = configdrive(info)?.filter(|drive| !drive.contains("://"));
    Ok(ImageDeployment {
        file_name: image_id(source, node),
        image: sources.image,
        checksum,
        format: is_declared.then_some(format),
        is_streamed: cached || format == ImageFormat::Raw,
        partitions,
        drive: sources.drive.filter(|_| drive.is_some()),
    })
}

/// What only the cache can do, and what is not supported for an image of a registry.
fn check_supported(
    sum: &ImageChecksum,
    format: ImageFormat,
    cached: bool,
    is_partition: bool,
) -> Result<(), WriteImageProblem> {
    let unfit = |field, why| Err(WriteImageProblem::Invalid { field, why });
    match (cached, sum, format) {
        (_, ImageChecksum::Registry(_), _) if is_partition => {
            let why = "an image of a registry must be a whole-disk image";
            unfit("image_type", why)
        }
        (false, ImageChecksum::File(_) | ImageChecksum::Registry(_), _) => {
            let why = "a checksum file is read only where the image passes through \
                       the box's cache; give the SHA-256 or SHA-512 itself";
            unfit("image_checksum", why)
        }
        (false, _, ImageFormat::Zstd | ImageFormat::Gzip | ImageFormat::Xz) => {
            let why = "a compressed image must pass through the box's cache: give a http(s) URL, \
                       or the name of an image of the box";
            unfit("image_disk_format", why)
        }
        _ => Ok(()),
    }
}

/// An image of a registry is looked up and fetched by the cache.
fn check_reference(source: &str, cached: bool) -> Result<(), WriteImageProblem> {
    if !OciReference::is_oci(source) {
        return Ok(());
    }
    registry(source)?;
    let field = "image_source";
    let why = "an image of a registry must pass through the box's cache, which is off";
    cached
        .then_some(())
        .ok_or(WriteImageProblem::Invalid { field, why })
}

/// Agents fetch images by HTTP only, and must not be made to read a local file.
fn check_http_url(url: &str) -> Result<(), WriteImageProblem> {
    let http = ["http://", "https://"]
        .iter()
        .any(|scheme| url.starts_with(scheme));
    let why = "it must be a http(s) URL, or the name of an image of this box (trivet image list)";
    let field = "image_source";
    http.then_some(())
        .ok_or(WriteImageProblem::Invalid { field, why })
}

/// The field as a string; null and the empty string count as missing.
fn text<'info>(
    info: &'info JsonObject,
    field: &'static str,
) -> Result<Option<&'info str>, WriteImageProblem> {
    match info.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.trim())),
        Some(_) => Err(WriteImageProblem::Invalid {
            field,
            why: "it must be a string",
        }),
    }
}

/// Whether the error of an agent that failed to write means that the image's bytes were the
/// cause: they were not received, or were wrong. The texts are those of the stock agent's
/// `ImageDownloadError` and `ImageChecksumError`, and of our agent.
pub fn is_image_error(message: &str) -> bool {
    if is_out_of_space(message) {
        return false;
    }
    let message = message.to_ascii_lowercase();
    let words = ["failed to verify", "checksum", "download", "fetch"];
    words.iter().any(|word| message.contains(word))
}

/// Whether the error of an agent that failed to write means that there was no space for the
/// image. The texts are those of ENOSPC and of the stock agent's
/// `ImageDownloadOutofSpaceError`.
pub fn is_out_of_space(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let words = ["no space left", "errno 28", "out of space", "outofspace"];
    words.iter().any(|word| message.contains(word))
}

/// Whether the error of an agent that could not fetch its image only repeats the HTTP status that
/// this box answered: the reason is known here, and better.
pub fn is_http_refusal(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let words = [
        "503 service unavailable",
        "404 not found",
        "status code 503",
        "status code 404",
    ];
    words.iter().any(|word| message.contains(word))
}

/// Whether the error of an agent means that no disk fits the hints of the record. The texts are
/// those of the stock agent's `DeviceNotFound`.
pub fn is_disk_not_found(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let words = [
        "no suitable device was found",
        "error finding the disk or partition device",
    ];
    words.iter().any(|word| message.contains(word))
}

/// The digest of an image in a registry is in its manifest; as in Ironic, others are ignored.
fn image_checksum(info: &JsonObject, source: &str) -> Result<ImageChecksum, WriteImageProblem> {
    if OciReference::is_oci(source) {
        return registry(source);
    }
    let field = "image_os_hash_value";
    if let Some(value) = text(info, field)? {
        let digest = parse_digest(field, value)?;
        let named = text(info, "image_os_hash_algo")?;
        if named.is_some_and(|name| !name.eq_ignore_ascii_case(digest.algorithm())) {
            return Err(WriteImageProblem::Invalid {
                field: "image_os_hash_algo",
                why: "it must be sha256 with 64 digits or sha512 with 128 digits",
            });
        }
        return Ok(ImageChecksum::Digest(digest));
    }
    let field = "image_checksum";
    let value = text(info, field)?.ok_or(WriteImageProblem::Missing {
        field,
        hint: "image_checksum=<SHA-256 or SHA-512 of the image, or the URL of a checksum file>",
    })?;
    if value.starts_with("http://") || value.starts_with("https://") {
        return Ok(ImageChecksum::File(value.to_owned()));
    }
    // An image of the catalogue whose digest is not known yet.
    if OciReference::is_oci(value) {
        return registry(value);
    }
    parse_digest(field, value).map(ImageChecksum::Digest)
}

fn registry(source: &str) -> Result<ImageChecksum, WriteImageProblem> {
    let reference = source.parse::<OciReference>();
    reference.map(ImageChecksum::Registry).map_err(|why| {
        let masked = without_url_credentials(source);
        let source_url = masked.unwrap_or_else(|| source.to_owned());
        WriteImageProblem::Reference { source_url, why }
    })
}

fn parse_digest(field: &'static str, value: &str) -> Result<Digest, WriteImageProblem> {
    let why = if value.contains("://") {
        "a checksum file is read from a http or https URL in image_checksum, and nowhere else"
    } else if value.len() == 32 {
        "MD5 is not accepted; give the SHA-256 (64 digits) or SHA-512 (128 digits)"
    } else {
        "it must be 64 (SHA-256) or 128 (SHA-512) hexadecimal digits"
    };
    value
        .parse()
        .map_err(|_| WriteImageProblem::Invalid { field, why })
}

/// The format in the record, else the one of the file name. Ironic calls a raw image with a
/// partition table `gpt`.
fn disk_format(info: &JsonObject, source: &str) -> Result<ImageFormat, WriteImageProblem> {
    let field = "image_disk_format";
    let format = match text(info, field)? {
        None => {
            return Ok(written_format(ImageFormat::of_file_name(source)));
        }
        Some("gpt") => Some(ImageFormat::Raw),
        Some(name) => ImageFormat::parse(name),
    };
    match format.map(written_format) {
        Some(format) if format == ImageFormat::Raw || format.is_packed() => Ok(format),
        _ => Err(WriteImageProblem::Invalid {
            field,
            why: "it must be raw, gpt, iso, qcow2, zstd, gzip or xz",
        }),
    }
}

/// An ISO image is written to a disk unchanged.
fn written_format(format: ImageFormat) -> ImageFormat {
    match format {
        ImageFormat::Iso => ImageFormat::Raw,
        other => other,
    }
}

/// The sizes for a partition image; none for a whole-disk image.
fn partitions(info: &JsonObject) -> Result<Option<PartitionSizes>, WriteImageProblem> {
    let field = "image_type";
    match text(info, field)? {
        None | Some(WHOLE_DISK) if text(info, "kernel")?.is_none() => return Ok(None),
        None | Some(WHOLE_DISK) => {
            let why = "a kernel goes with a partition image; unset kernel and ramdisk, or set \
                       image_type=partition";
            return Err(WriteImageProblem::Invalid { field, why });
        }
        Some(PARTITION) => {}
        Some(_) => {
            let why = "it must be whole-disk or partition";
            return Err(WriteImageProblem::Invalid { field, why });
        }
    }
    let root_gb = number(info, "root_gb")?.filter(|gb| *gb > 0);
    let root_gb = root_gb.ok_or(WriteImageProblem::Missing {
        field: "root_gb",
        hint: "root_gb=<size of the root partition in GiB>",
    })?;
    let keeps = info.get("preserve_ephemeral");
    Ok(Some(PartitionSizes {
        root_mb: root_gb * 1024,
        swap_mb: number(info, "swap_mb")?.unwrap_or(0),
        ephemeral_mb: number(info, "ephemeral_gb")?.unwrap_or(0) * 1024,
        ephemeral_format: text(info, "ephemeral_format")?.map(str::to_owned),
        preserve_ephemeral: keeps.is_some_and(|keeps| *keeps == json!(true) || *keeps == "true"),
    }))
}

/// A number, or a string with a number, as command line clients send it.
fn number(info: &JsonObject, field: &'static str) -> Result<Option<u64>, WriteImageProblem> {
    let number = match info.get(field) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(value) => value.as_u64(),
    };
    let number = number.filter(|number| *number <= SIZE_MAX);
    let why = "it must be a whole number";
    number
        .map(Some)
        .ok_or(WriteImageProblem::Invalid { field, why })
}

fn configdrive(info: &JsonObject) -> Result<Option<&str>, WriteImageProblem> {
    let unfit = |why| {
        let field = "configdrive";
        Err(WriteImageProblem::Invalid { field, why })
    };
    if let Some(Value::Object(_)) = info.get("configdrive") {
        return unfit("give a URL or base64 of a gzipped image; an object must be built first");
    }
    let drive = text(info, "configdrive")?;
    match drive {
        Some(drive) if !drive.contains("://") && !drive.starts_with(GZIP_AS_BASE64) => {
            unfit("it is neither a URL nor base64 of a gzipped image")
        }
        _ => Ok(drive),
    }
}

const ROOT_DEVICE: &str = "root_device";

/// Keys that identify a disk. Ironic's names.
const HINTS: [&str; 12] = [
    "model",
    "vendor",
    "serial",
    "size",
    "wwn",
    "wwn_with_extension",
    "wwn_vendor_extension",
    "name",
    "by_path",
    "rotational",
    "hctl",
    "tran",
];

/// Whether there are hints for the root disk. Hints that the agent would refuse at the end of
/// the job are refused here.
fn root_device(info: &JsonObject) -> Result<bool, &'static str> {
    let hints = match info.get(ROOT_DEVICE) {
        None | Some(Value::Null) => return Ok(false),
        Some(Value::Object(hints)) => hints,
        Some(_) => {
            return Err("it must be an object of hints, such as {\"serial\": \"...\"}");
        }
    };
    if hints.keys().any(|key| !HINTS.contains(&key.as_str())) {
        return Err(
            "its hints may be model, vendor, serial, size, wwn, wwn_with_extension, \
                    wwn_vendor_extension, name, by_path, rotational, hctl and tran",
        );
    }
    let sized = |size: &Value| match size {
        Value::String(text) => {
            let number = text.trim_start_matches(|character: char| "<>=! ".contains(character));
            // Operators that are words, such as <or> and s==, are left to the agent.
            let word = text.contains("> ") || text.trim_start().starts_with('s');
            word || number.trim().parse::<u64>().is_ok()
        }
        other => other.is_u64(),
    };
    if hints.get("size").is_some_and(|size| !sized(size)) {
        return Err("its size must be a whole number of GiB, perhaps after an operator such as >=");
    }
    Ok(!hints.is_empty())
}

/// The last part of the image's path, made safe as a file name; the node's UUID where nothing
/// is left.
fn image_id(source: &str, node: &Node) -> String {
    let path = source.split(['?', '#']).next().unwrap_or_default();
    let last = path.rsplit('/').next().unwrap_or_default();
    let safe: String = last
        .chars()
        .map(|character| {
            if character.is_ascii_alphanumeric() || "._-+".contains(character) {
                character
            } else {
                '_'
            }
        })
        .take(IMAGE_ID_CHARS_MAX)
        .collect();
    let id = safe.trim_start_matches('.').to_owned();
    if is_file_name(&id) {
        id
    } else {
        node.id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trivet_agent_wire::image::write_image_args;
    use trivet_model::image::UnpackedImage;
    use trivet_model::{NodeId, SeededRandom, UnixMs};

    const URL: &str = "http://192.0.2.1:8080/images/disk.raw";

    fn elsewhere() -> DeploymentSources {
        DeploymentSources {
            image: ImageLocation::Url(URL.to_owned()),
            drive: None,
        }
    }

    fn cached() -> DeploymentSources {
        DeploymentSources {
            image: ImageLocation::Cache {
                base: "http://192.0.2.1:8080".to_owned(),
                token: "t1".to_owned(),
                name: "disk.raw".to_owned(),
            },
            drive: None,
        }
    }

    /// The arguments of the step, as the agent gets them.
    fn args(node: &Node, sources: DeploymentSources) -> Result<Value, WriteImageProblem> {
        let deployment = image_deployment(node, sources)?;
        Ok(write_image_args(&deployment, node.id))
    }

    fn node(info: Value) -> Node {
        let id = NodeId::random(&mut SeededRandom::new(1));
        let mut node = Node::new(id, "ipmi", UnixMs(0));
        let Value::Object(info) = info else {
            panic!("an object")
        };
        node.instance_info = info;
        node
    }

    #[track_caller]
    fn problem(info: Value) -> String {
        image_deployment(&node(info), elsewhere())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn sends_the_agent_all_it_needs() {
        let digest = "0f".repeat(32);
        let node = node(json!({
            "image_source": "https://images.example/debian 12.raw?x=1",
            "image_os_hash_algo": "sha256", "image_os_hash_value": digest,
            "configdrive": "H4sI",
        }));
        let step = write_image_step();
        assert_eq!(
            (step.step.as_str(), step.interface.as_str()),
            ("write_image", "deploy")
        );
        assert_eq!(step.priority, 80);
        assert_eq!(
            args(&node, elsewhere()).unwrap(),
            json!({
                "image_info": {
                    "id": "debian_12.raw", "urls": [URL], "os_hash_algo": "sha256",
                    "os_hash_value": digest, "disk_format": "raw", "stream_raw_images": true,
                    "image_type": "whole-disk", "node_uuid": node.id.to_string(),
                },
            })
        );
    }

    #[test]
    fn takes_the_older_checksum_by_its_length() {
        let node = node(json!({"image_source": "a.raw", "image_checksum": "AB".repeat(64)}));
        let step = args(&node, elsewhere()).unwrap();
        assert_eq!(step["image_info"]["os_hash_algo"], "sha512");
        assert_eq!(step["image_info"]["os_hash_value"], "ab".repeat(64));
        assert_eq!(step.get("configdrive"), None);
    }

    #[test]
    fn does_not_stream_what_must_be_converted() {
        let node = node(
            json!({"image_source": "a.qcow2", "image_disk_format": "qcow2",
                               "image_checksum": "ab".repeat(32)}),
        );
        let step = args(&node, elsewhere()).unwrap();
        assert_eq!(step["image_info"]["stream_raw_images"], false);
    }

    #[test]
    fn what_passes_through_the_cache_reaches_the_agent_as_a_plain_disk() {
        let raw = UnpackedImage {
            digest: Digest::Sha256([7; 32]),
            size: 1,
        };
        let digest = "ab".repeat(32);
        for (source, message, format) in [
            ("http://h/a.qcow2?x=1", None, "qcow2"),
            ("http://h/a", Some("zstd"), "zstd"),
            ("http://h/a.img.gz", None, "gzip"),
            ("http://h/a.qcow2", Some("raw"), "raw"),
            ("http://h/live.iso", None, "raw"),
            ("http://h/a.raw", Some("gpt"), "raw"),
        ] {
            let info = json!({"image_source": source, "image_checksum": digest,
                              "image_disk_format": message});
            let node = node(info);
            let deployment = image_deployment(&node, cached()).unwrap();
            let info = &write_image_args(&deployment, node.id)["image_info"];
            assert_eq!(info["disk_format"], format, "{source}");
            assert_eq!(info["stream_raw_images"], true);
            let sent = deployment.unpacked((format != "raw").then_some(&raw));
            let info = &write_image_args(&sent, node.id)["image_info"];
            assert_eq!(info["disk_format"], "raw");
            let want = if format == "raw" {
                digest.clone()
            } else {
                raw.digest.to_string()
            };
            assert_eq!(info["os_hash_value"], want);
        }
    }

    #[test]
    fn a_checksum_file_is_followed_where_the_cache_can() {
        let sums = "https://h/SHA256SUMS";
        let node = node(json!({"image_source": "http://h/a.raw", "image_checksum": sums}));
        let step = args(&node, cached()).unwrap();
        let info = &step["image_info"];
        assert_eq!(info["checksum"], sums);
        assert_eq!(info.get("os_hash_value"), None);
        let message = problem(json!({"image_source": "a.gz", "image_checksum": "ab".repeat(32)}));
        assert!(message.contains("cache"), "{message}");
    }

    #[test]
    fn an_image_of_a_registry_needs_neither_digest_nor_format() {
        let source = "oci://h:5000/team/debian:12";
        // As in Ironic, a digest beside the reference is ignored.
        let info = json!({"image_source": source, "image_checksum": "ab".repeat(16)});
        let step = args(&node(info.clone()), cached()).unwrap();
        let image = &step["image_info"];
        assert_eq!(image["checksum"], source);
        assert_eq!(image.get("os_hash_value"), None);
        assert_eq!(image["disk_format"], Value::Null);
        assert_eq!(image["stream_raw_images"], true);
        let message_of = |changes: Value, sources: DeploymentSources| {
            let mut info = info.clone();
            for (key, value) in changes.as_object().unwrap() {
                info[key] = value.clone();
            }
            args(&node(info), sources).map(|args| args["image_info"].clone())
        };
        let declared = message_of(json!({"image_disk_format": "qcow2"}), cached()).unwrap();
        assert_eq!(declared["disk_format"], "qcow2");
        let why = message_of(json!({"image_source": "oci://h/A"}), cached()).unwrap_err();
        assert!(
            why.to_string()
                .contains("oci://h/A has no valid repository"),
            "{why}"
        );
        let user = json!({"image_source": "oci://ann:hunter2@h/a"});
        let why = message_of(user, cached()).unwrap_err().to_string();
        assert!(why.contains("oci://******@h/a has a user in it"), "{why}");
        let why = message_of(json!({}), elsewhere()).unwrap_err();
        assert!(
            why.to_string().contains("the box's cache, which is off"),
            "{why}"
        );
        let partition = json!({"image_type": "partition", "root_gb": 4});
        let why = message_of(partition, cached()).unwrap_err();
        assert!(why.to_string().contains("whole-disk image"), "{why}");
        let known = json!({"image_os_hash_algo": "sha256", "image_os_hash_value": "ab".repeat(32)});
        let ignored = message_of(known, cached()).unwrap();
        assert_eq!(ignored["checksum"], source);
        assert_eq!(ignored.get("os_hash_value"), None);
        let capitals = json!({"image_source": "OCI://h:5000/team/debian"});
        let image = message_of(capitals, cached()).unwrap();
        assert_eq!(image["checksum"], "oci://h:5000/team/debian");
        // An image of the catalogue whose digest is not known yet.
        let own = json!({"image_source": "http://box/images/a", "image_checksum": source});
        let step = args(&node(own), cached()).unwrap();
        assert_eq!(step["image_info"]["checksum"], source);
    }

    #[test]
    fn a_config_drive_is_fetched_where_there_is_a_place_for_it() {
        let drive = DriveLocation {
            base: "http://192.0.2.1".to_owned(),
            token: "t2".to_owned(),
        };
        let url = drive.url(node(json!({})).id);
        let sources = DeploymentSources {
            drive: Some(drive),
            ..cached()
        };
        let step = |drive: Value| {
            let info = json!({"image_source": "http://h/a", "image_checksum": "ab".repeat(32),
                              "configdrive": drive});
            args(&node(info), sources.clone()).unwrap()
        };
        assert_eq!(step(json!("H4sI"))["configdrive"], url);
        assert_eq!(step(json!("http://h/drive")).get("configdrive"), None);
        assert_eq!(step(Value::Null).get("configdrive"), None);
    }

    #[test]
    fn image_errors_are_distinguished_from_others() {
        for message in [
            "Error performing deploy_step write_image: Image failed to verify against checksum. \
             location: /dev/vda; image ID: x; image checksum: a; verification checksum: b",
            "Error downloading image: Download of image x failed: URL: http://h/x",
            "Could not download image: it ended early",
        ] {
            assert!(is_image_error(message), "{message}");
        }
        assert!(!is_image_error(
            "Could not write image: the disk is too small"
        ));
        assert!(!is_image_error("No suitable device was found"));
    }

    #[test]
    fn a_status_that_this_box_answered_is_recognised() {
        for message in [
            "Error downloading image: 503 Service Unavailable",
            "Download of image x failed: URL: http://h/x; Received status code 404 from http://h/x",
        ] {
            assert!(is_http_refusal(message), "{message}");
        }
        assert!(!is_http_refusal("Image failed to verify against checksum"));
    }

    #[test]
    fn says_what_is_missing_and_how_to_set_it() {
        let message = problem(json!({}));
        assert!(
            message.starts_with("instance_info lacks image_source; set it with"),
            "{message}"
        );
        assert_eq!(problem(json!({"image_source": null})), message);
        let message = problem(json!({"image_source": "http://h/a.raw"}));
        assert!(message.contains("lacks image_checksum"), "{message}");
    }

    #[test]
    fn refuses_digests_that_prove_too_little() {
        let message_of =
            |value: &str| problem(json!({"image_source": "a", "image_checksum": value}));
        assert!(message_of(&"ab".repeat(16)).contains("MD5"));
        assert!(message_of("https://h/SHA256SUMS").contains("checksum file"));
        assert!(message_of("xyz").contains("64 (SHA-256)"));
        let mixed = problem(json!({"image_source": "a", "image_os_hash_algo": "sha512",
                                   "image_os_hash_value": "ab".repeat(32)}));
        assert!(mixed.contains("image_os_hash_algo"), "{mixed}");
    }

    #[test]
    fn refuses_what_it_cannot_write() {
        let with = |field: &str, value: Value| {
            let mut info = json!({"image_source": "a", "image_checksum": "ab".repeat(32)});
            info[field] = value;
            problem(info)
        };
        assert!(with("image_type", json!("tape")).contains("whole-disk or partition"));
        assert!(with("image_type", json!("partition")).contains("root_gb=<size"));
        assert!(with("kernel", json!("http://h/vmlinuz")).contains("image_type=partition"));
        assert!(with("image_disk_format", json!("vmdk")).contains("image_disk_format"));
        assert!(with("configdrive", json!({"meta_data": {}})).contains("configdrive"));
        assert!(with("image_source", json!(7)).contains("must be a string"));
    }

    #[test]
    fn a_partition_image_has_sizes_of_partitions() {
        let mut info = json!({
            "image_source": "a", "image_checksum": "ab".repeat(32), "image_type": "partition",
            "root_gb": "4", "swap_mb": 64, "preserve_ephemeral": "true",
        });
        let step = args(&node(info.clone()), elsewhere()).unwrap();
        let reported = &step["image_info"];
        assert_eq!(reported["image_type"], "partition");
        assert_eq!(
            (
                &reported["root_mb"],
                &reported["swap_mb"],
                &reported["ephemeral_mb"]
            ),
            (&json!(4096), &json!(64), &json!(0))
        );
        assert_eq!(
            reported["ephemeral_format"],
            Value::Null,
            "the agent wants to see it"
        );
        assert_eq!(reported["preserve_ephemeral"], true);
        for size in [json!("much"), json!(-1), json!(0), json!(u64::MAX)] {
            info["root_gb"] = size;
            assert!(problem(info.clone()).contains("root_gb"));
        }
    }

    #[test]
    fn the_image_id_is_always_a_safe_file_name() {
        let node = node(json!({}));
        for source in [
            "",
            "http://h/",
            "..",
            "a/../..",
            "caf\u{e9}",
            &"x".repeat(999),
        ] {
            let id = image_id(source, &node);
            assert!(is_file_name(&id), "{source:?} gave {id:?}");
        }
        assert_eq!(image_id("http://h/.hidden.raw", &node), "hidden.raw");
    }

    #[test]
    fn hints_and_drives_that_no_agent_would_take_are_refused_before() {
        let digest = "0a".repeat(32);
        let unfit = |key: &str, value: Value| {
            let mut info = json!({"image_source": URL, "image_checksum": digest});
            info[key] = value;
            image_deployment(&node(info), elsewhere()).err()
        };
        for hints in [
            json!({"serial": "x", "size": 10, "rotational": false}),
            json!({"size": ">= 100"}),
            json!({"size": "<or> 10 <or> 20"}),
            json!({"tran": "nvme", "size": "s== 100"}),
            json!(null),
        ] {
            assert_eq!(unfit("root_device", hints), None);
        }
        for hints in [
            json!("/dev/sda"),
            json!({"foo": "bar"}),
            json!({"size": ">= abc"}),
        ] {
            let text = unfit("root_device", hints).unwrap().to_string();
            assert!(text.contains("root_device"), "{text}");
        }
        for drive in ["zzz!", "aGVsbG8gd29ybGQ="] {
            let text = unfit("configdrive", json!(drive)).unwrap().to_string();
            assert!(text.contains("neither a URL nor base64"), "{text}");
        }
        assert_eq!(unfit("configdrive", json!("H4sIAAAAAAAA")), None);
        let mut machine = node(json!({"image_source": URL, "image_checksum": digest}));
        machine
            .properties
            .insert("root_device".into(), json!({"foo": 1}));
        let text = image_deployment(&machine, elsewhere())
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("properties has an invalid root_device"),
            "{text}"
        );
        let hints = json!({"serial": "x"});
        machine.instance_info.insert("root_device".into(), hints);
        assert!(
            image_deployment(&machine, elsewhere()).is_ok(),
            "these are not read"
        );
    }
}
