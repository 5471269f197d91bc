//! Which manifest of an index and which layer of a manifest is the disk image.
//!
//! What decides is what Ironic and Podman use: the annotation `disktype`, the architecture of the
//! platform, the media type, and the file name in `org.opencontainers.image.title`. As Ironic with
//! `image_download_source` `local`, we prefer qcow2, because it is the smaller one to fetch.

use trivet_model::image::{IMAGE_BYTES_MAX, ImageFormat};

use crate::{OciDescriptor, OciManifest};

/// The order of preference of disk types. Ironic's; `applehv` is a raw disk.
const DISK_TYPES: [(&str, ImageFormat); 4] = [
    ("qcow2", ImageFormat::Qcow2),
    ("qemu", ImageFormat::Qcow2),
    ("raw", ImageFormat::Raw),
    ("applehv", ImageFormat::Raw),
];

/// The most layers that are listed in an error. Ours.
const LISTED_MAX: usize = 8;

/// Suffixes of compressed files, and words in media types.
const COMPRESSIONS: [(&str, &str, ImageFormat); 4] = [
    (".zst", "zstd", ImageFormat::Zstd),
    (".zstd", "zstd", ImageFormat::Zstd),
    (".gz", "gzip", ImageFormat::Gzip),
    (".xz", "xz", ImageFormat::Xz),
];

/// How a layer is used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LayerChoice {
    /// It is a disk image of this format.
    Format(ImageFormat),
    /// Its first bytes say whether it is a qcow2, compressed or a raw disk.
    ReadMagic,
}

/// The manifests of an index that may have the image, the preferred one first.
pub fn choose_manifests<'a>(
    index: &'a [OciDescriptor],
    architecture: Option<&str>,
) -> Vec<&'a OciDescriptor> {
    let rank = |entry: &&OciDescriptor| match &entry.disk_type {
        None => DISK_TYPES.len(),
        Some(name) => rank_of(name).unwrap_or(usize::MAX),
    };
    let mut all: Vec<&OciDescriptor> = index
        .iter()
        .filter(|entry| rank(entry) != usize::MAX)
        .filter(|entry| !is_index(&entry.media_type))
        .filter(|entry| is_for(entry.architecture.as_deref(), architecture))
        .collect();
    all.sort_by_key(rank);
    all
}

fn rank_of(disk_type: &str) -> Option<usize> {
    DISK_TYPES.iter().position(|(name, _)| *name == disk_type)
}

fn is_index(media_type: &str) -> bool {
    media_type.contains("image.index") || media_type.contains("manifest.list")
}

/// Whether an image for one architecture fits a machine of another, where both are known.
fn is_for(image: Option<&str>, machine: Option<&str>) -> bool {
    match (
        image.map(plain_architecture),
        machine.map(plain_architecture),
    ) {
        // Signatures and provenance of builds have it.
        (Some("unknown"), _) => false,
        (Some(image), Some(machine)) => image == machine,
        _ => true,
    }
}

/// One name for each architecture: the names of Go and of the Linux kernel are in use.
fn plain_architecture(name: &str) -> &str {
    match name {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    }
}

/// The layer with the disk image. An error lists what the manifest has. `disk_type` is that of
/// the index, and `format` what the operator declared.
pub fn choose_layer<'a>(
    manifest: &'a OciManifest,
    disk_type: Option<&str>,
    format: Option<ImageFormat>,
) -> Result<(&'a OciDescriptor, LayerChoice), String> {
    let disk_type = disk_type.or(manifest.disk_type.as_deref());
    let choices: Vec<Result<LayerChoice, String>> = manifest
        .layers
        .iter()
        .map(|layer| judge(layer, layer.disk_type.as_deref().or(disk_type)))
        .collect();
    let pairs = || manifest.layers.iter().zip(&choices);
    if let ([layer], Some(format)) = (manifest.layers.as_slice(), format) {
        return Ok((layer, LayerChoice::Format(format)));
    }
    let mut usable = pairs().filter_map(|(layer, choice)| Some((layer, choice.as_ref().ok()?)));
    if let (Some((layer, choice)), None) = (usable.next(), usable.next()) {
        let choice = format.map_or_else(|| choice.clone(), LayerChoice::Format);
        return Ok((layer, choice));
    }
    let shown = |(layer, choice): (&OciDescriptor, &Result<LayerChoice, String>)| {
        let name = layer.title.as_deref().unwrap_or("a layer without a title");
        let why = choice
            .as_ref()
            .err()
            .map_or("one of several disk images", String::as_str);
        format!("{name} ({}): {why}", layer.media_type)
    };
    let listed: Vec<String> = pairs().take(LISTED_MAX).map(shown).collect();
    let more = manifest.layers.len().saturating_sub(LISTED_MAX);
    Err(match (listed.is_empty(), more) {
        (true, _) => "a manifest without layers".to_owned(),
        (false, 0) => listed.join("; "),
        (false, more) => format!("{}; and {more} more", listed.join("; ")),
    })
}

/// How a layer can be used, or why it cannot.
fn judge(layer: &OciDescriptor, disk_type: Option<&str>) -> Result<LayerChoice, String> {
    if layer.size == 0 || layer.size > IMAGE_BYTES_MAX {
        return Err(format!("has {} bytes", layer.size));
    }
    let title = layer
        .title
        .as_deref()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let media_type = layer.media_type.to_ascii_lowercase();
    let suffix = COMPRESSIONS.iter().find(|(end, _, _)| title.ends_with(end));
    let stem = suffix.map_or(title.as_str(), |(end, _, _)| {
        &title[..title.len() - end.len()]
    });
    let named = suffix.map(|(_, _, format)| *format);
    let of_type = COMPRESSIONS
        .iter()
        .find(|(_, word, _)| media_type.contains(word));
    let compression = named.or(of_type.map(|(_, _, format)| *format));
    let declared = match disk_type {
        None => None,
        Some(name) => {
            let rank = rank_of(name).ok_or_else(|| format!("has disktype {name}"))?;
            Some(DISK_TYPES[rank].1)
        }
    };
    let content = declared.or_else(|| content_of(stem, &media_type));
    let is_disk = content.is_some() || has_suffix(stem, &[".img"]);
    let is_archive = has_suffix(stem, &[".tar", ".tgz"]);
    let is_rootfs = media_type.contains("tar") && (layer.title.is_none() || compression.is_some());
    if is_archive || is_rootfs && !is_disk {
        return Err("the file system of a container, not a disk image".to_owned());
    }
    if media_type.contains("json") || is_text(stem) {
        return Err("not a disk image".to_owned());
    }
    match (content, compression) {
        (Some(ImageFormat::Qcow2), Some(packed)) => {
            Err(format!("a qcow2 inside {packed}, which is not supported"))
        }
        (_, Some(packed)) => Ok(LayerChoice::Format(packed)),
        (Some(format), None) => Ok(LayerChoice::Format(format)),
        (None, None) => Ok(LayerChoice::ReadMagic),
    }
}

fn content_of(stem: &str, media_type: &str) -> Option<ImageFormat> {
    let has = |ends: &[&str], words: &[&str]| {
        ends.iter().any(|end| stem.ends_with(end))
            || words.iter().any(|word| media_type.contains(word))
    };
    if has(&[".qcow2", ".qcow"], &["qcow", "qemu-disk"]) {
        Some(ImageFormat::Qcow2)
    } else if has(&[".raw", ".iso", ".dd"], &["raw-disk", "raw-image"]) {
        Some(ImageFormat::Raw)
    } else {
        None
    }
}

fn has_suffix(name: &str, ends: &[&str]) -> bool {
    ends.iter().any(|end| name.ends_with(end))
}

/// Files that are stored beside a disk image.
fn is_text(name: &str) -> bool {
    const ENDS: [&str; 9] = [
        ".json", ".txt", ".md", ".yaml", ".yml", ".sig", ".asc", ".sha256", ".pem",
    ];
    has_suffix(name, &ENDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trivet_model::Digest;

    const TAR: &str = "application/vnd.oci.image.layer.v1.tar";
    const OCTETS: &str = "application/octet-stream";

    fn layer(media_type: &str, title: Option<&str>) -> OciDescriptor {
        OciDescriptor {
            media_type: media_type.into(),
            digest: Digest::Sha256([1; 32]),
            size: 512,
            title: title.map(str::to_owned),
            disk_type: None,
            architecture: None,
        }
    }

    fn choose(one: OciDescriptor, disk_type: Option<&str>) -> Result<LayerChoice, String> {
        let manifest = OciManifest {
            disk_type: disk_type.map(str::to_owned),
            layers: vec![one],
        };
        choose_layer(&manifest, None, None).map(|(_, choice)| choice)
    }

    #[test]
    fn the_format_follows_from_annotations_title_and_media_type() {
        use ImageFormat::{Gzip, Qcow2, Raw, Xz, Zstd};
        for (media_type, title, disk_type, format) in [
            // `oras push` gives every file this media type.
            (TAR, Some("debian.qcow2"), None, Qcow2),
            (TAR, Some("debian.raw"), None, Raw),
            (TAR, Some("cirros-disk.img"), Some("qcow2"), Qcow2),
            (OCTETS, Some("debian.RAW.ZST"), None, Zstd),
            (OCTETS, Some("debian.img.xz"), None, Xz),
            (OCTETS, Some("live.iso"), None, Raw),
            (OCTETS, None, Some("qemu"), Qcow2),
            (OCTETS, None, Some("applehv"), Raw),
            (
                "application/zstd",
                Some("machine.raw.zst"),
                Some("applehv"),
                Zstd,
            ),
            ("application/zstd", None, None, Zstd),
            ("application/gzip", None, None, Gzip),
            ("application/x-qemu-disk", None, None, Qcow2),
            // A client compressed the layer when it was pushed.
            (
                "application/vnd.oci.image.layer.v1.tar+gzip",
                Some("a.raw"),
                None,
                Gzip,
            ),
        ] {
            let choice = choose(layer(media_type, title), disk_type);
            let want = Ok(LayerChoice::Format(format));
            assert_eq!(choice, want, "{media_type} {title:?} {disk_type:?}");
        }
    }

    #[test]
    fn without_a_hint_the_first_bytes_decide() {
        for (media_type, title) in [(OCTETS, None), (OCTETS, Some("a.img")), (TAR, Some("disk"))] {
            let choice = choose(layer(media_type, title), None);
            assert_eq!(choice, Ok(LayerChoice::ReadMagic), "{media_type} {title:?}");
        }
    }

    #[test]
    fn what_is_no_disk_image_is_listed_with_its_reason() {
        let rootfs = "application/vnd.docker.image.rootfs.diff.tar.gzip";
        for (media_type, title, disk_type, part) in [
            (rootfs, None, None, "file system of a container"),
            (TAR, None, None, "file system of a container"),
            (
                "application/vnd.oci.image.layer.v1.tar+zstd",
                Some("dir"),
                None,
                "a container",
            ),
            (OCTETS, Some("rootfs.tar.gz"), None, "a container"),
            (OCTETS, Some("README.md"), None, "not a disk image"),
            (
                "application/vnd.in-toto+json",
                None,
                None,
                "not a disk image",
            ),
            (
                "application/zstd",
                Some("m.qcow2.zst"),
                None,
                "a qcow2 inside zstd",
            ),
            (
                "application/zstd",
                None,
                Some("qemu"),
                "a qcow2 inside zstd",
            ),
            (
                OCTETS,
                Some("m.vhdx"),
                Some("hyperv"),
                "has disktype hyperv",
            ),
        ] {
            let why = choose(layer(media_type, title), disk_type).unwrap_err();
            assert!(
                why.contains(part) && why.contains(media_type),
                "{part}: {why}"
            );
        }
        let mut empty = layer(OCTETS, Some("a.raw"));
        empty.size = 0;
        assert!(
            choose(empty.clone(), None)
                .unwrap_err()
                .contains("has 0 bytes")
        );
        empty.size = u64::MAX;
        assert!(choose(empty, None).is_err());
    }

    #[test]
    fn the_disk_type_of_a_layer_precedes_that_of_its_manifest() {
        let mut one = layer(OCTETS, None);
        one.disk_type = Some("raw".to_owned());
        let raw = Ok(LayerChoice::Format(ImageFormat::Raw));
        assert_eq!(choose(one.clone(), Some("qcow2")), raw);
        one.disk_type = None;
        let qcow2 = Ok(LayerChoice::Format(ImageFormat::Qcow2));
        assert_eq!(choose(one.clone(), Some("qcow2")), qcow2);
        let manifest = OciManifest {
            disk_type: Some("qcow2".to_owned()),
            layers: vec![one],
        };
        let of_index = choose_layer(&manifest, Some("raw"), None);
        let of_index = of_index.map(|(_, choice)| choice);
        assert_eq!(of_index, raw, "the index precedes the manifest");
    }

    #[test]
    fn one_disk_image_among_other_files_is_chosen() {
        let mut manifest = OciManifest {
            disk_type: None,
            layers: vec![
                layer(OCTETS, Some("SHA256SUMS.asc")),
                layer(OCTETS, Some("a.qcow2")),
            ],
        };
        let (chosen, choice) = choose_layer(&manifest, None, None).unwrap();
        assert_eq!(chosen.title.as_deref(), Some("a.qcow2"));
        assert_eq!(choice, LayerChoice::Format(ImageFormat::Qcow2));
        manifest.layers.push(layer(OCTETS, Some("b.raw")));
        let why = choose_layer(&manifest, None, None).unwrap_err();
        assert!(
            why.contains("b.raw (application/octet-stream): one of several"),
            "{why}"
        );
        manifest.layers = vec![layer(TAR, None); LISTED_MAX + 2];
        let why = choose_layer(&manifest, None, None).unwrap_err();
        assert!(why.ends_with("; and 2 more"), "{why}");
        manifest.layers.clear();
        let why = choose_layer(&manifest, None, None).unwrap_err();
        assert_eq!(why, "a manifest without layers");
    }

    #[test]
    fn the_format_that_the_operator_declares_decides() {
        let manifest = OciManifest {
            disk_type: None,
            layers: vec![layer(TAR, None)],
        };
        let found = choose_layer(&manifest, Some("hyperv"), Some(ImageFormat::Zstd));
        assert_eq!(found.unwrap().1, LayerChoice::Format(ImageFormat::Zstd));
    }

    #[test]
    fn manifests_are_preferred_as_ironic_does() {
        let entry = |disk_type: Option<&str>, architecture: Option<&str>| {
            let mut entry = layer("application/vnd.oci.image.manifest.v1+json", None);
            entry.disk_type = disk_type.map(str::to_owned);
            entry.architecture = architecture.map(str::to_owned);
            entry
        };
        let mut index = vec![
            entry(None, Some("amd64")),
            entry(Some("hyperv"), Some("x86_64")),
            entry(Some("applehv"), Some("x86_64")),
            entry(Some("raw"), Some("arm64")),
            entry(Some("qemu"), None),
            entry(None, Some("unknown")),
        ];
        index.push(layer("application/vnd.oci.image.index.v1+json", None));
        let chosen = |architecture: Option<&str>| {
            let all = choose_manifests(&index, architecture);
            let place = |one: &&OciDescriptor| {
                index
                    .iter()
                    .position(|entry| core::ptr::eq(entry, *one))
                    .unwrap()
            };
            all.iter().map(place).collect::<Vec<_>>()
        };
        assert_eq!(chosen(Some("x86_64")), [4, 2, 0]);
        assert_eq!(chosen(Some("amd64")), [4, 2, 0]);
        assert_eq!(chosen(Some("aarch64")), [4, 3]);
        assert_eq!(chosen(Some("riscv64")), [4]);
        assert_eq!(chosen(None), [4, 3, 2, 0]);
    }
}
