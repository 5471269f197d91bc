//! Errands: what is asked of a BMC besides power. Each is a script that ends in a
//! [`Report`]; each may be begun again from the start when nobody knows how far it came.

mod inventory;
mod media;
mod sensors;

use serde_json::{Value, json};
use trivet_model::PowerError;
use trivet_model::errand::{Drive, Identity, MediaDevice};
use trivet_model::secret::Hidden;

use crate::fault;
use crate::order::{await_change, set_boot};
use crate::script::{Book, Seen, Step};

pub use inventory::Inventory;
pub use sensors::{SENSORS_MAX, SensorReading};

/// Longest address of an image that a BMC is told. Ours.
pub const URL_BYTES_MAX: usize = 1024;

/// How a machine's firmware starts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BootMode {
    /// As UEFI.
    Uefi,
    /// As a BIOS.
    Legacy,
}

impl BootMode {
    const fn word(self) -> &'static str {
        match self {
            Self::Uefi => "UEFI",
            Self::Legacy => "Legacy",
        }
    }
}

/// Whether the firmware starts signed loaders only.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SecureBoot {
    /// As it is set, for the next start.
    pub enabled: bool,
    /// As the machine was started, where the BMC knows.
    pub current: Option<bool>,
}

/// Something to ask of a BMC.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Errand {
    /// Boot from this address by UEFI's HTTP boot.
    BootHttp {
        /// Where the loader or image is.
        url: String,
        /// For every boot, not only the next.
        persistent: bool,
    },
    /// Put this image into a virtual drive; another one is taken out.
    InsertMedia {
        /// Which kind of drive.
        device: MediaDevice,
        /// Where the image is; a login may be part of it.
        url: Hidden,
    },
    /// Take images out of virtual drives.
    EjectMedia {
        /// Of these kinds; empty means all.
        devices: Vec<MediaDevice>,
    },
    /// List virtual drives and what is in them.
    Media,
    /// Read how the firmware starts.
    BootMode,
    /// Choose how the firmware starts.
    SetBootMode(BootMode),
    /// Read whether signed loaders only are started.
    SecureBoot,
    /// Choose whether signed loaders only are started.
    SetSecureBoot(bool),
    /// Read all sensors, at most [`SENSORS_MAX`].
    Sensors,
    /// Read what the machine is.
    Inventory,
    /// Read who the BMC is.
    Identity,
    /// Read whether the light that marks the machine is on.
    Light,
    /// Switch the light that marks the machine.
    SetLight(bool),
}

/// What an errand brought back.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// It is done, and was read back.
    Done,
    /// The virtual drives.
    Media(Vec<Drive>),
    /// How the firmware starts.
    BootMode(BootMode),
    /// Whether signed loaders only are started.
    SecureBoot(SecureBoot),
    /// The sensors, in the BMC's order.
    Sensors(Vec<SensorReading>),
    /// What the machine is.
    Inventory(Box<Inventory>),
    /// Who the BMC is.
    Identity(Box<Identity>),
    /// Whether the light is on.
    Light(bool),
}

/// Refuses what no BMC could be asked.
pub(crate) fn check(errand: &Errand) -> Result<(), PowerError> {
    let url = match errand {
        Errand::BootHttp { url, .. } => url,
        Errand::InsertMedia { url, .. } => url.reveal(),
        _ => return Ok(()),
    };
    let known = url.starts_with("http://") || url.starts_with("https://");
    let plain = url.bytes().all(|byte| byte.is_ascii_graphic());
    if !known || !plain || url.len() > URL_BYTES_MAX {
        return Err(fault::cannot(
            "the image's address must be an http or https URL of printable letters, not too long",
        ));
    }
    Ok(())
}

/// Carries an errand out.
pub(crate) fn run(errand: &Errand, book: &mut Book<'_>) -> Step<Report> {
    match errand {
        Errand::BootHttp { url, persistent } => {
            set_boot(book, &["UefiHttp"], *persistent, true, Some(url))?;
            Ok(Report::Done)
        }
        Errand::InsertMedia { device, url } => media::insert(book, *device, url.reveal()),
        Errand::EjectMedia { devices } => media::eject(book, devices),
        Errand::Media => media::read(book),
        Errand::BootMode => match boot_mode(book.system()?) {
            Some(mode) => Ok(Report::BootMode(mode)),
            None => Err(fault::cannot("the BMC does not say how the firmware starts").into()),
        },
        Errand::SetBootMode(mode) => set_boot_mode(book, *mode),
        Errand::SecureBoot => {
            let path = secure_boot_path(book)?;
            Ok(Report::SecureBoot(secure_boot(book.get(&path)?)?))
        }
        Errand::SetSecureBoot(enabled) => set_secure_boot(book, *enabled),
        Errand::Sensors => sensors::read(book).map(Report::Sensors),
        Errand::Inventory => {
            let inventory = inventory::read(book)?;
            Ok(Report::Inventory(Box::new(inventory)))
        }
        Errand::Identity => {
            let identity = inventory::identity(book)?;
            Ok(Report::Identity(Box::new(identity)))
        }
        Errand::Light => {
            let (_, seen) = lamp(book)?;
            light(seen).map(Report::Light)
        }
        Errand::SetLight(on) => set_light(book, *on),
    }
}

fn boot_mode(system: Seen<'_>) -> Option<BootMode> {
    match system.text(&["Boot", "BootSourceOverrideMode"])? {
        "UEFI" => Some(BootMode::Uefi),
        "Legacy" => Some(BootMode::Legacy),
        _ => None,
    }
}

fn set_boot_mode(book: &mut Book<'_>, mode: BootMode) -> Step<Report> {
    let path = book.system_path()?;
    let system = book.get(&path)?;
    let lacks = || fault::cannot("the BMC cannot switch between UEFI and BIOS");
    let is = boot_mode(system).ok_or_else(lacks)?;
    if is == mode {
        return Ok(Report::Done);
    }
    let body = json!({"Boot": {"BootSourceOverrideMode": mode.word()}});
    let written = book.patch(&path, system, body)?;
    let lie = "its boot mode reads back as the other one";
    await_change(book, &path, written, lie, |now| {
        boot_mode(now) == Some(mode)
    })?;
    Ok(Report::Done)
}

fn secure_boot_path(book: &mut Book<'_>) -> Step<String> {
    let link = book.system()?.at(&["SecureBoot"]);
    let lacks = || fault::cannot("the BMC cannot tell or switch Secure Boot").into();
    book.linked(link)?.ok_or_else(lacks)
}

fn secure_boot(seen: Seen<'_>) -> Result<SecureBoot, PowerError> {
    let enabled = seen.at(&["SecureBootEnable"]).and_then(Value::as_bool);
    let current = seen.text(&["SecureBootCurrentBoot"]);
    Ok(SecureBoot {
        enabled: enabled.ok_or_else(|| fault::nonsense("Secure Boot without a state"))?,
        current: current.map(|word| word == "Enabled"),
    })
}

fn set_secure_boot(book: &mut Book<'_>, enabled: bool) -> Step<Report> {
    let path = secure_boot_path(book)?;
    let seen = book.get(&path)?;
    if secure_boot(seen)?.enabled == enabled {
        return Ok(Report::Done);
    }
    let written = book.patch(&path, seen, json!({"SecureBootEnable": enabled}))?;
    let lie = "Secure Boot reads back as before";
    await_change(book, &path, written, lie, |now| {
        secure_boot(now).is_ok_and(|is| is.enabled == enabled)
    })?;
    Ok(Report::Done)
}

/// The resource with the light: the system, else its chassis.
fn lamp<'a>(book: &mut Book<'a>) -> Step<(String, Seen<'a>)> {
    let path = book.system_path()?;
    let system = book.get(&path)?;
    if light(system).is_ok() {
        return Ok((path, system));
    }
    let chassis = system
        .at(&["Links", "Chassis"])
        .and_then(|list| list.get(0));
    match book.linked(chassis)? {
        Some(path) => {
            let seen = book.get(&path)?;
            Ok((path, seen))
        }
        None => Ok((path, system)),
    }
}

/// `IndicatorLED` is the older of the two (DSP2046).
fn light(seen: Seen<'_>) -> Step<bool> {
    let active = seen
        .at(&["LocationIndicatorActive"])
        .and_then(Value::as_bool);
    let led = seen.text(&["IndicatorLED"]).map(|word| word != "Off");
    let lacks = || fault::cannot("the BMC has no light to mark the machine with").into();
    active.or(led).ok_or_else(lacks)
}

fn set_light(book: &mut Book<'_>, on: bool) -> Step<Report> {
    let (path, seen) = lamp(book)?;
    if light(seen)? == on {
        return Ok(Report::Done);
    }
    let body = if seen
        .at(&["LocationIndicatorActive"])
        .is_some_and(Value::is_boolean)
    {
        json!({"LocationIndicatorActive": on})
    } else {
        json!({"IndicatorLED": if on { "Lit" } else { "Off" }})
    };
    let written = book.patch(&path, seen, body)?;
    let lie = "its light reads back as before";
    await_change(
        book,
        &path,
        written,
        lie,
        |now| matches!(light(now), Ok(is) if is == on),
    )?;
    Ok(Report::Done)
}
