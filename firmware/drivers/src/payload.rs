//! What a node boots, from its record: the operator's own kernel and ramdisk or image
//! (`deploy_interface` `ramdisk`), an agent other than the box's, and kernel arguments.
//!
//! All of these are written into an iPXE script, where a line end begins a command, `||` and `&&`
//! join commands, `#` hides the rest of a line and `${...}` is replaced. Values that contain one of
//! these are refused with an error.

use serde_json::Value;
use trivet_model::node::JsonObject;
use trivet_model::{Digest, Node};

/// Longest URL, file name or list of kernel arguments that is accepted, in bytes. Ours: the limits
/// of iPXE and of kernels are not much higher.
pub const BOOT_TEXT_BYTES_MAX: usize = 1024;

/// Placeholder for the box's own kernel arguments in `kernel_append_params`. Ironic's name.
const DEFAULT: &str = "%default%";

/// Where a file to boot is stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BootFileSource {
    /// At this HTTP address.
    Url(String),
    /// In the operator's directory, under this name.
    File(String),
}

/// What a node with an instance boots from the network, at each boot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NetbootPayload {
    /// A kernel with its ramdisk, such as an installer.
    Kernel {
        /// The kernel.
        kernel: BootFileSource,
        /// The ramdisk.
        ramdisk: BootFileSource,
        /// Kernel arguments.
        args: String,
    },
    /// An image of a disk or a CD.
    Iso(BootFileSource),
}

/// Whether `deploy_interface` `autodetect` selects `ramdisk`, by Ironic's rule: the instance says
/// so (`ironic_ramdisk_deploy`) and has what is booted. The files alone do not, because a
/// partition image has a kernel and a ramdisk too.
pub(crate) fn is_ramdisk_deploy(info: &JsonObject) -> bool {
    let has = |key: &str| info.get(key).is_some_and(|value| !value.is_null());
    let says = match info.get("ironic_ramdisk_deploy") {
        Some(Value::Bool(says)) => *says,
        Some(Value::String(word)) => {
            ["true", "yes", "on", "1"].contains(&word.trim().to_ascii_lowercase().as_str())
        }
        _ => false,
    };
    says && (has("boot_iso") || (has("kernel") && has("ramdisk")))
}

/// What a node whose `deploy_interface` is `ramdisk` boots, or which field its record lacks.
pub fn payload(node: &Node) -> Result<NetbootPayload, String> {
    let info = &node.instance_info;
    for key in ["boot_iso", "kernel", "ramdisk"] {
        boot_file_digest(info, "instance_info", key)?;
    }
    let iso = source(info, "boot_iso")?;
    let kernel = source(info, "kernel")?;
    let ramdisk = source(info, "ramdisk")?;
    match (iso, kernel, ramdisk) {
        (Some(iso), None, None) => Ok(NetbootPayload::Iso(iso)),
        (Some(_), _, _) => Err(
            "instance_info has both boot_iso and a kernel or ramdisk: say which one to boot".into(),
        ),
        (None, Some(kernel), Some(ramdisk)) => Ok(NetbootPayload::Kernel {
            kernel,
            ramdisk,
            args: payload_args(node)?,
        }),
        (None, Some(_), None) => {
            Err("instance_info has a kernel but no ramdisk: give both, or boot_iso".into())
        }
        (None, None, Some(_)) => {
            Err("instance_info has a ramdisk but no kernel: give both, or boot_iso".into())
        }
        (None, None, None) => {
            Err("instance_info lacks what to boot: give kernel and ramdisk, or boot_iso".into())
        }
    }
}

/// Kernel and ramdisk of the node's own agent, if the record has URLs that a machine can load. A
/// rescue has its own pair; without it, the pair for deployments is used.
pub fn agent_files(node: &Node, rescue: bool) -> Result<Option<(String, String)>, String> {
    let pair = |kernel: &str, ramdisk: &str| {
        let found = (address(node, kernel)?, address(node, ramdisk)?);
        boot_file_digest(&node.driver_info, "driver_info", kernel)?;
        boot_file_digest(&node.driver_info, "driver_info", ramdisk)?;
        match found {
            (Some(kernel), Some(ramdisk)) => Ok(Some((kernel, ramdisk))),
            (None, None) => Ok(None),
            // A kernel without its modules cannot boot, so both files must be given.
            _ => Err(format!(
                "driver_info has only one of {kernel} and {ramdisk} as an http address: give \
                 both, or none to boot the box's own agent"
            )),
        }
    };
    let rescues = if rescue {
        pair("rescue_kernel", "rescue_ramdisk")?
    } else {
        None
    };
    match rescues {
        Some(files) => Ok(Some(files)),
        None => pair("deploy_kernel", "deploy_ramdisk"),
    }
}

/// The error for URLs of the node's own agent that contain credentials. The box then does not boot
/// its own agent instead, because the operator chose another one.
pub fn agent_credentials(node: &Node, rescue: bool) -> Result<(), String> {
    let own = ["deploy_kernel", "deploy_ramdisk"];
    let rescues = ["rescue_kernel", "rescue_ramdisk"];
    for key in own
        .into_iter()
        .chain(rescues.into_iter().filter(|_| rescue))
    {
        let value = node.driver_info.get(key).and_then(Value::as_str);
        if value.is_some_and(|text| is_http(text.trim()) && has_user(text)) {
            return Err(credentials("driver_info", key));
        }
    }
    Ok(())
}

/// The digest in the record for the file that `key` names, in the key `KEY_checksum`.
pub fn boot_file_digest(
    info: &JsonObject,
    place: &str,
    key: &str,
) -> Result<Option<Digest>, String> {
    let key = format!("{key}_checksum");
    let Some(text) = text(info, place, &key)? else {
        return Ok(None);
    };
    text.parse().map(Some).map_err(|_| {
        format!(
            "{place}.{key} must be the SHA-256 or SHA-512 digest of the file: 64 or 128 \
             hexadecimal digits"
        )
    })
}

/// Arguments for the agent's kernel: from the instance, else from the node, else the box's.
pub fn agent_args(node: &Node, default: &str) -> Result<String, String> {
    Ok(appended(node)?.map_or_else(|| default.to_owned(), |args| args.replace(DEFAULT, default)))
}

/// Arguments for the operator's own kernel. The box's arguments are for the agent and are left out.
fn payload_args(node: &Node) -> Result<String, String> {
    let own = args(
        &node.instance_info,
        "instance_info",
        "ramdisk_kernel_arguments",
    )?;
    let more = appended(node)?.map(|args| args.replace(DEFAULT, ""));
    let words: Vec<_> = [own, more].into_iter().flatten().collect();
    Ok(words
        .join(" ")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" "))
}

fn appended(node: &Node) -> Result<Option<String>, String> {
    let key = "kernel_append_params";
    match args(&node.instance_info, "instance_info", key)? {
        Some(args) => Ok(Some(args)),
        None => args(&node.driver_info, "driver_info", key),
    }
}

/// The text of a key, trimmed; null and the empty text count as absent.
fn text<'a>(info: &'a JsonObject, place: &str, key: &str) -> Result<Option<&'a str>, String> {
    match info.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.len() > BOOT_TEXT_BYTES_MAX => Err(format!(
            "{place}.{key} is longer than {BOOT_TEXT_BYTES_MAX} bytes"
        )),
        Some(Value::String(text)) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
        Some(_) => Err(format!("{place}.{key} must be a text")),
    }
}

fn args(info: &JsonObject, place: &str, key: &str) -> Result<Option<String>, String> {
    let Some(text) = text(info, place, key)? else {
        return Ok(None);
    };
    if !text
        .bytes()
        .all(|byte| byte == b' ' || byte.is_ascii_graphic())
    {
        return Err(format!(
            "{place}.{key} must be one line of printable ASCII characters"
        ));
    }
    let mut words = text.split(' ');
    let joins = words.any(|word| matches!(word, "||" | "&&") || word.starts_with('#'));
    if joins || text.contains("${") {
        return Err(format!(
            "{place}.{key} has a word that means something to the boot loader (||, &&, # or \
             ${{...}}): leave it out"
        ));
    }
    Ok(Some(text.to_owned()))
}

fn source(info: &JsonObject, key: &str) -> Result<Option<BootFileSource>, String> {
    let Some(text) = text(info, "instance_info", key)? else {
        return Ok(None);
    };
    if is_http(text) {
        return url(text, "instance_info", key).map(|url| Some(BootFileSource::Url(url)));
    }
    if text.contains("://") {
        return Err(format!(
            "instance_info.{key} is not an address that a machine can load: give an http or https \
             URL, or the name of a file in the operator's directory"
        ));
    }
    let name = text.trim_start_matches('/');
    let plain = |part: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._+~@=-".contains(&byte);
        !matches!(part, "" | "." | "..") && part.bytes().all(is_allowed)
    };
    if !name.split('/').all(plain) {
        return Err(format!(
            "instance_info.{key} is not a plain file name: use letters, digits and ._+~@=- below \
             the operator's directory"
        ));
    }
    Ok(Some(BootFileSource::File(name.to_owned())))
}

/// A URL in `driver_info` that a machine can load. Other values count as absent: clients store
/// names there that only a conductor could read, and the box has its own agent.
fn address(node: &Node, key: &str) -> Result<Option<String>, String> {
    match text(&node.driver_info, "driver_info", key)? {
        Some(text) if is_http(text) => url(text, "driver_info", key).map(Some),
        _ => Ok(None),
    }
}

fn is_http(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
    })
}

/// Whether a URL contains user information (RFC 3986, section 3.2.1).
fn has_user(url: &str) -> bool {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next();
    authority.is_some_and(|authority| authority.contains('@'))
}

fn credentials(place: &str, key: &str) -> String {
    format!(
        "{place}.{key} is a URL with a user and a password: the box does not fetch such a URL, and \
         the boot script would show it to every machine on the network; give a source without \
         credentials, a presigned URL, or a file in boot.files on this box"
    )
}

fn url(text: &str, place: &str, key: &str) -> Result<String, String> {
    if has_user(text) {
        return Err(credentials(place, key));
    }
    if text.contains(' ') {
        return Err(format!(
            "{place}.{key} has a space in it: write %20 instead"
        ));
    }
    let host = text.split_once("://").map_or("", |(_, rest)| rest);
    let bad = !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains("${");
    if bad || host.is_empty() || host.starts_with('/') {
        return Err(format!(
            "{place}.{key} is not a URL that a boot loader can read: use printable ASCII \
             characters, and no ${{...}}"
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests;
