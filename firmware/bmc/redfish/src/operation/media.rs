//! Virtual media: simulated drives, below the system or its manager.

use serde_json::{Value, json};
use trivet_model::bmc_request::{MediaDevice, VirtualMediaDrive};

use super::RedfishReply;
use crate::fault;
use crate::order::{await_change, manager};
use crate::script::{
    RedfishResource, RedfishScriptContext, RedfishScriptResult, RedfishWriteOutcome,
};

/// Most drives that are read. Ours.
const DRIVES_MAX: usize = 8;

/// All drives, with their paths.
fn drives<'a>(
    context: &mut RedfishScriptContext<'a>,
) -> RedfishScriptResult<Vec<(String, RedfishResource<'a>)>> {
    let link = context.system()?.at(&["VirtualMedia"]);
    let mut paths = members(context, link)?;
    if paths.is_empty() {
        let manager = manager(context)?;
        let link = context.get(&manager)?.at(&["VirtualMedia"]);
        paths = members(context, link)?;
    }
    if paths.is_empty() {
        return Err(fault::unsupported("the BMC has no virtual media").into());
    }
    let paths = paths.into_iter().take(DRIVES_MAX);
    paths
        .map(|path| {
            let seen = context.get(&path)?;
            Ok((path, seen))
        })
        .collect()
}

fn members(
    context: &mut RedfishScriptContext<'_>,
    link: Option<&Value>,
) -> RedfishScriptResult<Vec<String>> {
    match context.linked(link)? {
        Some(path) => context.members(&path),
        None => Ok(Vec::new()),
    }
}

/// The media types of a drive. A drive that reports none accepts CDs.
fn devices(drive: RedfishResource<'_>) -> Vec<MediaDevice> {
    let kinds = drive.at(&["MediaTypes"]).and_then(Value::as_array);
    let Some(kinds) = kinds else {
        return vec![MediaDevice::Cdrom];
    };
    let mut devices: Vec<MediaDevice> = kinds
        .iter()
        .filter_map(|kind| match kind.as_str()? {
            "CD" | "DVD" => Some(MediaDevice::Cdrom),
            "USBStick" => Some(MediaDevice::Disk),
            "Floppy" => Some(MediaDevice::Floppy),
            _ => None,
        })
        .collect();
    devices.dedup();
    devices
}

fn image<'a>(drive: &RedfishResource<'a>) -> Option<&'a str> {
    let inserted = drive.at(&["Inserted"]).and_then(Value::as_bool);
    let image = drive.text(&["Image"]).filter(|image| !image.is_empty())?;
    // Older services do not have this property: then a named image counts as inserted.
    (inserted != Some(false)).then_some(image)
}

/// A URL without its credentials.
fn without_login(url: &str) -> String {
    let url = fault::clean(url);
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let end = rest.find('/').unwrap_or(rest.len());
            let (host, path) = rest.split_at(end);
            let host = host.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
        None => url,
    }
}

pub(super) fn read(context: &mut RedfishScriptContext<'_>) -> RedfishScriptResult<RedfishReply> {
    let drives = drives(context)?;
    let drive = |(path, seen): (String, RedfishResource<'_>)| {
        let id = seen.text(&["Id"]).map(fault::clean);
        VirtualMediaDrive {
            id: id.unwrap_or_else(|| path.rsplit('/').next().unwrap_or_default().to_owned()),
            devices: devices(seen),
            image: image(&seen).map(without_login),
            inserted: image(&seen).is_some(),
        }
    };
    Ok(RedfishReply::Media(drives.into_iter().map(drive).collect()))
}

/// Sends the drive's action, or changes the drive if it has no such action.
fn change<'a>(
    context: &mut RedfishScriptContext<'a>,
    (path, drive): (&str, RedfishResource<'a>),
    name: &str,
    (by_action, by_patch): (Value, Value),
) -> RedfishScriptResult<RedfishWriteOutcome> {
    match drive
        .at(&["Actions", name, "target"])
        .and_then(Value::as_str)
    {
        Some(target) => {
            let target = context.path(target)?;
            // Sent once: the BMC may have begun to fetch the image.
            context.post(&target, by_action, true)
        }
        None => context.patch(path, drive, by_patch),
    }
}

fn eject_image<'a>(
    context: &mut RedfishScriptContext<'a>,
    path: &str,
    drive: RedfishResource<'a>,
) -> RedfishScriptResult<()> {
    let bodies = (json!({}), json!({"Image": null, "Inserted": false}));
    let written = change(context, (path, drive), "#VirtualMedia.EjectMedia", bodies)?;
    let mismatch = "the image is still in its virtual drive";
    await_change(context, path, written, mismatch, |now| {
        image(&now).is_none()
    })
}

pub(super) fn eject(
    context: &mut RedfishScriptContext<'_>,
    wanted: &[MediaDevice],
) -> RedfishScriptResult<RedfishReply> {
    for (path, drive) in drives(context)? {
        let meant = wanted.is_empty() || devices(drive).iter().any(|one| wanted.contains(one));
        if meant && image(&drive).is_some() {
            eject_image(context, &path, drive)?;
        }
    }
    Ok(RedfishReply::Done)
}

pub(super) fn insert(
    context: &mut RedfishScriptContext<'_>,
    device: MediaDevice,
    url: &str,
) -> RedfishScriptResult<RedfishReply> {
    let mut drives = drives(context)?.into_iter();
    let fits = drives.find(|(_, drive)| devices(*drive).contains(&device));
    let lacks = || fault::unsupported("the BMC has no virtual drive of that kind");
    let (path, mut drive) = fits.ok_or_else(lacks)?;
    match image(&drive) {
        Some(there) if there == url => return Ok(RedfishReply::Done),
        Some(_) => {
            eject_image(context, &path, drive)?;
            drive = context.get(&path)?;
        }
        None => {}
    }
    let body = json!({"Image": url, "Inserted": true, "WriteProtected": true});
    let bodies = (body.clone(), body);
    let written = change(context, (&path, drive), "#VirtualMedia.InsertMedia", bodies)?;
    let mismatch = "its virtual drive is empty";
    await_change(context, &path, written, mismatch, |now| {
        image(&now).is_some()
    })?;
    Ok(RedfishReply::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_addresses_are_left_out() {
        for (url, want) in [
            ("http://a/b@c", "http://a/b@c"),
            ("https://u:p@a/b", "https://a/b"),
            ("https://u:p@x@a:1", "https://a:1"),
            ("//nas/share/x.iso", "//nas/share/x.iso"),
        ] {
            assert_eq!(without_login(url), want);
        }
    }
}
