//! Boot files: maps paths to files for TFTP and HTTP, and writes scripts.
//!
//! Decides paths, iPXE scripts and HTTP headers: it opens no file and knows no node. A received
//! path becomes a [`BootRoute`], which cannot lead outside its directory, or nothing.

mod path;
mod range;
mod request;
mod response;
mod script;

pub use path::{PATH_BYTES_MAX, RelativePath};
pub use request::{
    BODY_BYTES_MAX, BootHttpMethod, BootHttpRequest, BootRequestBody, HEAD_BYTES_MAX,
    RequestParseError, parse,
};
pub use response::{
    BootFileMetadata, BootHttpResponse, FORBIDDEN, NO_FILE, NOT_FOUND, TEXT, UNAVAILABLE,
    forbidden, media_type, parse_error_response, respond, unavailable, wrong_image,
};
pub use script::{agent_arguments, misread_character, script};

use trivet_model::secret::MASK;
use trivet_model::{MacAddr, NodeId};

/// What a path refers to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BootRoute {
    /// The iPXE script of the machine with this hardware address.
    Script(MacAddr),
    /// The agent's kernel.
    Kernel,
    /// The agent's ramdisk.
    Ramdisk,
    /// An image of the catalogue.
    Image(String),
    /// The image that this node is being deployed with. The caller verifies the token in the
    /// path.
    NodeImage(NodeId),
    /// The file that this key of this node's record names, such as `deploy_kernel`.
    NodeBootFile(NodeId, String),
    /// The config drive that this node is being deployed with; the caller verifies the token.
    NodeDrive(NodeId),
    /// A loader.
    Loader(RelativePath),
    /// A file in the operator's directory; over TFTP also a loader.
    File(RelativePath),
}

/// Path of the loaders for UEFI HTTP boot, below the URL of the boot server.
pub const LOADERS_PATH: &str = "/boot/loaders";

/// Resolves a path requested over HTTP; `None` if it does not exist.
pub fn http_route(path: &str) -> Option<BootRoute> {
    let relative = RelativePath::from_http(path)?;
    let segments: Vec<_> = relative.segments().collect();
    match segments[..] {
        ["boot", mac, "script"] => mac.parse().ok().map(BootRoute::Script),
        ["boot", "kernel"] => Some(BootRoute::Kernel),
        ["boot", "ramdisk"] => Some(BootRoute::Ramdisk),
        ["boot", "loaders", _, ..] => Some(BootRoute::Loader(relative.below(2))),
        ["nodes", node, "boot", key] => {
            let node = node.parse().ok()?;
            Some(BootRoute::NodeBootFile(node, key.to_owned()))
        }
        ["nodes", node, _, _] => node.parse().ok().map(BootRoute::NodeImage),
        ["drives", node, _] => node.parse().ok().map(BootRoute::NodeDrive),
        ["images", name] => Some(BootRoute::Image(name.to_owned())),
        ["files", _, ..] => Some(BootRoute::File(relative.below(1))),
        _ => None,
    }
}

/// Resolves a path requested over TFTP: only loaders and the operator's files.
pub fn tftp_route(path: &str) -> Option<BootRoute> {
    RelativePath::from_tftp(path).map(BootRoute::File)
}

/// The path of a machine's script, below the URL of the boot server.
pub fn script_path(mac: MacAddr) -> String {
    format!("/boot/{mac}/script")
}

/// The path of the agent's kernel.
pub const KERNEL_PATH: &str = "/boot/kernel";

/// The path of the agent's ramdisk.
pub const RAMDISK_PATH: &str = "/boot/ramdisk";

/// The path of a file that a key of a node's record names. No token equals `boot`.
pub fn node_boot_path(node: NodeId, key: &str) -> String {
    format!("/nodes/{node}/boot/{key}")
}

/// Suffix of an image path for the path of its chunk list.
pub const CHUNK_LIST_END: &str = ".chunks";

/// A path for notes, logs and the page: the token in the path of a deployment's image or config
/// drive is masked, because the token alone gives access to them. It is also masked in forms
/// that the router rejects, with doubled slashes or encoded characters.
pub fn redacted(path: &str) -> String {
    let mut parts = path::lenient_parts(path);
    let mut masked = false;
    for at in 0..parts.len() {
        let holds_token = match &parts[at..] {
            [first, node, token, ..] => {
                let ours = at == 0 || node.parse::<NodeId>().is_ok();
                // Boot files of a record have no token.
                matches!(first.as_str(), "nodes" | "drives") && ours && token != "boot"
            }
            _ => false,
        };
        if holds_token {
            MASK.clone_into(&mut parts[at + 2]);
            masked = true;
        }
    }
    if !masked {
        return path.to_owned();
    }
    let shown = parts.iter().map(|part| part.escape_debug().to_string());
    let shown: Vec<String> = shown.collect();
    format!("/{}", shown.join("/"))
}

/// The path of a file in the operator's directory.
pub fn file_path(name: &str) -> String {
    format!("/files/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use trivet_model::deployment::{node_drive_path, node_image_path};

    #[track_caller]
    fn check(path: &str, want: Option<BootRoute>) {
        assert_eq!(http_route(path), want, "{path}");
    }

    #[test]
    fn the_token_of_a_deployment_is_masked_in_notes_and_logs() {
        let id = NodeId::random(&mut trivet_model::SeededRandom::new(1));
        let image = node_image_path(id, "geheim", "disk.raw");
        let drive = node_drive_path(id, "geheim");
        for path in [
            &image,
            &drive,
            &format!("{drive}/"),
            &format!("{drive}/more"),
        ] {
            let shown = redacted(path);
            assert!(!shown.contains("geheim"), "{shown}");
            assert!(shown.contains(&id.to_string()), "{shown}");
        }
        for path in [
            "/boot/kernel",
            "/images/disk.raw",
            "",
            "/nodes",
            "undionly.kpxe",
        ] {
            assert_eq!(redacted(path), path);
        }
    }

    #[test]
    fn the_token_is_masked_however_the_path_is_written() {
        let id = NodeId::random(&mut trivet_model::SeededRandom::new(1));
        for path in [
            format!("//nodes/{id}/geheim/disk.raw"),
            format!("/nodes//{id}/geheim/disk.raw"),
            format!("/nodes/{id}//geheim/disk.raw"),
            format!("///drives///{id}///geheim"),
            format!("/./drives/{id}/./geheim"),
            format!("/%6eodes/{id}/geheim/disk.raw"),
            format!("/drives/{id}/%67eheim"),
            format!("/drives%2f{id}%2Fgeheim"),
            format!("\\drives\\{id}\\geheim"),
            format!("/drives/x/../{id}/geheim"),
            format!("/files/../drives/{id}/geheim"),
            format!("/more/drives/{id}/geheim"),
            format!("drives/{id}/geheim"),
            format!("http://box//drives/{id}/geheim"),
            format!("/drives/{id}/geheim%00%0a"),
        ] {
            let shown = redacted(&path);
            assert!(!shown.contains("eheim"), "{path}: {shown}");
            assert!(shown.contains(&id.to_string()), "{path}: {shown}");
        }
        for path in [
            "/files/nodes/a/b",
            "//boot//kernel",
            "/files/50%25",
            "/%",
            "/a%2",
        ] {
            assert_eq!(redacted(path), path);
        }
        let boot = node_boot_path(id, "deploy_kernel");
        assert_eq!(redacted(&boot), boot);
    }

    fn file(text: &str) -> Option<BootRoute> {
        RelativePath::from_tftp(text).map(BootRoute::File)
    }

    fn loader(text: &str) -> Option<BootRoute> {
        RelativePath::from_tftp(text).map(BootRoute::Loader)
    }

    #[test]
    fn finds_every_kind_of_path() {
        let mac = "52:54:00:00:00:01".parse().unwrap();
        check(
            "/boot/52:54:00:00:00:01/script",
            Some(BootRoute::Script(mac)),
        );
        check(
            "/boot/52%3a54:00:00:00:01/script",
            Some(BootRoute::Script(mac)),
        );
        check(KERNEL_PATH, Some(BootRoute::Kernel));
        check(RAMDISK_PATH, Some(BootRoute::Ramdisk));
        check(
            "/images/debian.raw",
            Some(BootRoute::Image("debian.raw".into())),
        );
        let node = NodeId::random(&mut trivet_model::SeededRandom::new(1));
        let path = node_image_path(node, "t0ken", "debian.raw");
        check(&path, Some(BootRoute::NodeImage(node)));
        let path = node_boot_path(node, "deploy_kernel");
        let key = "deploy_kernel".to_owned();
        check(&path, Some(BootRoute::NodeBootFile(node, key)));
        check(&file_path("a/b"), file("a/b"));
        check(
            &format!("{LOADERS_PATH}/snponly.efi"),
            loader("snponly.efi"),
        );
        check("/boot/loaders/arm64/ipxe.efi", loader("arm64/ipxe.efi"));
        assert_eq!(http_route(&script_path(mac)), Some(BootRoute::Script(mac)));
    }

    #[test]
    fn resolves_no_other_path() {
        for path in [
            "/",
            "/files",
            "/files/",
            "/images/",
            "/images/a/b",
            "/nodes/x/token/name",
            "/nodes/x/boot/deploy_kernel",
            "/boot/xx/script",
            "/boot/loaders",
            "/boot/loaders/",
            "/etc",
        ] {
            check(path, None);
        }
    }

    #[test]
    fn no_path_leads_outside() {
        for path in [
            "/files/../etc/passwd",
            "/files/%2e%2e/etc/passwd",
            "/files/a%2f..%2f..%2fb",
            "/files/..%5cb",
            "/boot/loaders/../kernel",
            "/boot/loaders/%2e%2e/store",
            "/images/..",
            "/files//etc",
            "/files/a%00b",
        ] {
            check(path, None);
        }
        for path in ["../x", "a/../../x", "a\\..\\x", "/../x", ""] {
            assert_eq!(tftp_route(path), None, "{path}");
        }
    }

    #[test]
    fn tftp_accepts_names_with_and_without_a_leading_slash() {
        assert_eq!(tftp_route("/snponly.efi"), file("snponly.efi"));
        assert_eq!(tftp_route("snponly.efi"), file("snponly.efi"));
    }
}
