//! Virtual media: the drive that looks like a CD, below the system or its manager.

use serde_json::{Value, json};

use super::Report;
use crate::fault;
use crate::order::{await_change, manager};
use crate::script::{Book, Seen, Step, Written};

/// Drives that are looked at. Ours.
const DRIVES_MAX: usize = 8;

/// The drive for CDs, else the first there is.
fn drive<'a>(book: &mut Book<'a>) -> Step<(String, Seen<'a>)> {
    let link = book.system()?.at(&["VirtualMedia"]);
    let drives = match book.linked(link)? {
        Some(path) => book.members(&path)?,
        None => Vec::new(),
    };
    let drives = if drives.is_empty() {
        let manager = manager(book)?;
        let link = book.get(&manager)?.at(&["VirtualMedia"]);
        match book.linked(link)? {
            Some(path) => book.members(&path)?,
            None => Vec::new(),
        }
    } else {
        drives
    };
    let mut first = None;
    for path in drives.into_iter().take(DRIVES_MAX) {
        let seen = book.get(&path)?;
        let kinds = seen.at(&["MediaTypes"]).and_then(Value::as_array);
        let is_cd = |kind: &Value| matches!(kind.as_str(), Some("CD" | "DVD"));
        if kinds.is_some_and(|kinds| kinds.iter().any(is_cd)) {
            return Ok((path, seen));
        }
        first.get_or_insert((path, seen));
    }
    let lacks = || fault::cannot("the BMC has no virtual media").into();
    first.ok_or_else(lacks)
}

fn image(drive: Seen<'_>) -> Option<String> {
    let inserted = drive.at(&["Inserted"]).and_then(Value::as_bool);
    let image = drive.text(&["Image"]).filter(|image| !image.is_empty())?;
    // Older services have no such property: what is named is in.
    (inserted != Some(false)).then(|| fault::clean(image))
}

pub(super) fn read(book: &mut Book<'_>) -> Step<Report> {
    let (_, drive) = drive(book)?;
    Ok(Report::Media(image(drive)))
}

/// Says it by the drive's action, or by changing the drive where it has none.
fn change<'a>(
    book: &mut Book<'a>,
    (path, drive): (&str, Seen<'a>),
    name: &str,
    (by_action, by_patch): (Value, Value),
) -> Step<Written> {
    match drive
        .at(&["Actions", name, "target"])
        .and_then(Value::as_str)
    {
        Some(target) => {
            let target = book.path(target)?;
            book.post(&target, by_action, false)
        }
        None => book.patch(path, drive, by_patch),
    }
}

fn take_out<'a>(book: &mut Book<'a>, path: &str, drive: Seen<'a>) -> Step<()> {
    let bodies = (json!({}), json!({"Image": null, "Inserted": false}));
    let written = change(book, (path, drive), "#VirtualMedia.EjectMedia", bodies)?;
    let lie = "the image is still in its virtual drive";
    await_change(book, path, written, lie, |now| image(now).is_none())
}

pub(super) fn eject(book: &mut Book<'_>) -> Step<Report> {
    let (path, drive) = drive(book)?;
    if image(drive).is_some() {
        take_out(book, &path, drive)?;
    }
    Ok(Report::Done)
}

pub(super) fn insert(book: &mut Book<'_>, url: &str) -> Step<Report> {
    let (path, mut drive) = drive(book)?;
    match image(drive) {
        Some(there) if there == fault::clean(url) => return Ok(Report::Done),
        Some(_) => {
            take_out(book, &path, drive)?;
            drive = book.get(&path)?;
        }
        None => {}
    }
    let body = json!({"Image": url, "Inserted": true, "WriteProtected": true});
    let bodies = (body.clone(), body);
    let written = change(book, (&path, drive), "#VirtualMedia.InsertMedia", bodies)?;
    let lie = "its virtual drive is empty";
    await_change(book, &path, written, lie, |now| image(now).is_some())?;
    Ok(Report::Done)
}
