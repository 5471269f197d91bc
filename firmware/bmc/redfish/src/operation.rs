//! Operations: BMC requests other than power. Each is a script that ends in a [`RedfishReply`];
//! each can be restarted from the beginning when its progress is unknown.

mod inventory;
mod media;
mod sensors;
mod subscription;

use serde_json::{Value, json};
use trivet_model::PowerError;
use trivet_model::bmc_request::{
    BmcIdentity, BmcSubscription, EventSubscription, MediaDevice, VirtualMediaDrive,
};
use trivet_model::secret::SecretText;

use crate::fault;
use crate::order::{await_change, set_boot};
use crate::script::{RedfishResource, RedfishScriptContext, RedfishScriptResult};

pub use inventory::RedfishInventory;
pub use sensors::{RedfishSensorReading, SENSORS_MAX};

/// Longest image URL that is sent to a BMC, in bytes. Ours.
pub const URL_BYTES_MAX: usize = 1024;

/// The boot mode of a machine's firmware.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RedfishBootMode {
    /// UEFI.
    Uefi,
    /// Legacy BIOS.
    Legacy,
}

impl RedfishBootMode {
    const fn word(self) -> &'static str {
        match self {
            Self::Uefi => "UEFI",
            Self::Legacy => "Legacy",
        }
    }
}

/// The state of Secure Boot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RedfishSecureBoot {
    /// The setting for the next boot.
    pub enabled: bool,
    /// The state of the present boot, if the BMC reports it.
    pub current: Option<bool>,
}

/// A request to a BMC other than power.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RedfishOperation {
    /// Boot from this URL by UEFI HTTP boot.
    BootHttp {
        /// URL of the boot loader or image.
        url: String,
        /// For every boot, not only the next.
        persistent: bool,
    },
    /// Insert this image into a virtual drive; an inserted one is ejected first.
    InsertMedia {
        /// Kind of the drive.
        device: MediaDevice,
        /// URL of the image; it can contain credentials.
        url: SecretText,
    },
    /// Eject images from virtual drives.
    EjectMedia {
        /// Kinds of the drives; empty means all.
        devices: Vec<MediaDevice>,
    },
    /// List virtual drives and their images.
    Media,
    /// Read the boot mode.
    BootMode,
    /// Set the boot mode.
    SetBootMode(RedfishBootMode),
    /// Read the state of Secure Boot.
    SecureBoot,
    /// Switch Secure Boot.
    SetSecureBoot(bool),
    /// Read all sensors, at most [`SENSORS_MAX`].
    Sensors,
    /// Read the system inventory.
    Inventory,
    /// Read the BMC's model and version.
    Identity,
    /// Read the identify LED.
    Indicator,
    /// Switch the identify LED.
    SetIndicator(bool),
    /// Create an event subscription.
    Subscribe(Box<EventSubscription>),
    /// Delete an event subscription.
    Unsubscribe {
        /// Its `Id`.
        id: String,
    },
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum RedfishReply {
    /// Done, and verified by reading back.
    Done,
    /// The virtual drives.
    Media(Vec<VirtualMediaDrive>),
    /// The boot mode.
    BootMode(RedfishBootMode),
    /// The state of Secure Boot.
    SecureBoot(RedfishSecureBoot),
    /// The sensors, in the BMC's order.
    Sensors(Vec<RedfishSensorReading>),
    /// The system inventory.
    Inventory(Box<RedfishInventory>),
    /// The BMC's model and version.
    Identity(Box<BmcIdentity>),
    /// Whether the identify LED is on.
    Indicator(bool),
    /// The subscription that was created.
    Subscription(Box<BmcSubscription>),
}

/// Refuses operations whose arguments are invalid for every BMC.
pub(crate) fn check(operation: &RedfishOperation) -> Result<(), PowerError> {
    let url = match operation {
        RedfishOperation::BootHttp { url, .. } => url,
        RedfishOperation::InsertMedia { url, .. } => url.reveal(),
        RedfishOperation::Unsubscribe { id } => return subscription::check_id(id),
        _ => return Ok(()),
    };
    let known = url.starts_with("http://") || url.starts_with("https://");
    let plain = url.bytes().all(|byte| byte.is_ascii_graphic());
    if !known || !plain || url.len() > URL_BYTES_MAX {
        return Err(fault::unsupported(
            "the image's address must be an http or https URL of at most 1024 ASCII characters",
        ));
    }
    Ok(())
}

/// Executes an operation.
pub(crate) fn run(
    operation: &RedfishOperation,
    context: &mut RedfishScriptContext<'_>,
) -> RedfishScriptResult<RedfishReply> {
    match operation {
        RedfishOperation::BootHttp { url, persistent } => {
            set_boot(context, &["UefiHttp"], *persistent, true, Some(url))?;
            Ok(RedfishReply::Done)
        }
        RedfishOperation::InsertMedia { device, url } => {
            media::insert(context, *device, url.reveal())
        }
        RedfishOperation::EjectMedia { devices } => media::eject(context, devices),
        RedfishOperation::Media => media::read(context),
        RedfishOperation::BootMode => match boot_mode(context.system()?) {
            Some(mode) => Ok(RedfishReply::BootMode(mode)),
            None => Err(fault::unsupported("the BMC does not report the boot mode").into()),
        },
        RedfishOperation::SetBootMode(mode) => set_boot_mode(context, *mode),
        RedfishOperation::SecureBoot => {
            let path = secure_boot_path(context)?;
            Ok(RedfishReply::SecureBoot(secure_boot(context.get(&path)?)?))
        }
        RedfishOperation::SetSecureBoot(enabled) => set_secure_boot(context, *enabled),
        RedfishOperation::Sensors => sensors::read(context).map(RedfishReply::Sensors),
        RedfishOperation::Inventory => {
            let inventory = inventory::read(context)?;
            Ok(RedfishReply::Inventory(Box::new(inventory)))
        }
        RedfishOperation::Identity => {
            let identity = inventory::identity(context)?;
            Ok(RedfishReply::Identity(Box::new(identity)))
        }
        RedfishOperation::Indicator => {
            let (_, seen) = indicator_resource(context)?;
            indicator_is_on(seen).map(RedfishReply::Indicator)
        }
        RedfishOperation::SetIndicator(on) => set_indicator(context, *on),
        RedfishOperation::Subscribe(wanted) => {
            let created = subscription::create(context, wanted)?;
            Ok(RedfishReply::Subscription(Box::new(created)))
        }
        RedfishOperation::Unsubscribe { id } => subscription::delete(context, id),
    }
}

fn boot_mode(system: RedfishResource<'_>) -> Option<RedfishBootMode> {
    match system.text(&["Boot", "BootSourceOverrideMode"])? {
        "UEFI" => Some(RedfishBootMode::Uefi),
        "Legacy" => Some(RedfishBootMode::Legacy),
        _ => None,
    }
}

fn set_boot_mode(
    context: &mut RedfishScriptContext<'_>,
    mode: RedfishBootMode,
) -> RedfishScriptResult<RedfishReply> {
    let path = context.system_path()?;
    let system = context.get(&path)?;
    let lacks = || fault::unsupported("the BMC cannot switch between UEFI and BIOS");
    let is = boot_mode(system).ok_or_else(lacks)?;
    if is == mode {
        return Ok(RedfishReply::Done);
    }
    let body = json!({"Boot": {"BootSourceOverrideMode": mode.word()}});
    let written = context.patch(&path, system, body)?;
    let mismatch = "its boot mode reads back unchanged";
    await_change(context, &path, written, mismatch, |now| {
        boot_mode(now) == Some(mode)
    })?;
    Ok(RedfishReply::Done)
}

fn secure_boot_path(context: &mut RedfishScriptContext<'_>) -> RedfishScriptResult<String> {
    let link = context.system()?.at(&["SecureBoot"]);
    let lacks = || fault::unsupported("the BMC cannot read or switch Secure Boot").into();
    context.linked(link)?.ok_or_else(lacks)
}

fn secure_boot(seen: RedfishResource<'_>) -> Result<RedfishSecureBoot, PowerError> {
    let enabled = seen.at(&["SecureBootEnable"]).and_then(Value::as_bool);
    let current = seen.text(&["SecureBootCurrentBoot"]);
    Ok(RedfishSecureBoot {
        enabled: enabled.ok_or_else(|| fault::invalid_response("Secure Boot without a state"))?,
        current: current.map(|word| word == "Enabled"),
    })
}

fn set_secure_boot(
    context: &mut RedfishScriptContext<'_>,
    enabled: bool,
) -> RedfishScriptResult<RedfishReply> {
    let path = secure_boot_path(context)?;
    let seen = context.get(&path)?;
    if secure_boot(seen)?.enabled == enabled {
        return Ok(RedfishReply::Done);
    }
    let written = context.patch(&path, seen, json!({"SecureBootEnable": enabled}))?;
    let mismatch = "Secure Boot reads back unchanged";
    await_change(context, &path, written, mismatch, |now| {
        secure_boot(now).is_ok_and(|is| is.enabled == enabled)
    })?;
    Ok(RedfishReply::Done)
}

/// The resource with the identify LED: the system, else its chassis.
fn indicator_resource<'a>(
    context: &mut RedfishScriptContext<'a>,
) -> RedfishScriptResult<(String, RedfishResource<'a>)> {
    let path = context.system_path()?;
    let system = context.get(&path)?;
    if indicator_is_on(system).is_ok() {
        return Ok((path, system));
    }
    let chassis = system
        .at(&["Links", "Chassis"])
        .and_then(|list| list.get(0));
    match context.linked(chassis)? {
        Some(path) => {
            let seen = context.get(&path)?;
            Ok((path, seen))
        }
        None => Ok((path, system)),
    }
}

/// `IndicatorLED` is the older of the two properties (DSP2046).
fn indicator_is_on(seen: RedfishResource<'_>) -> RedfishScriptResult<bool> {
    let active = seen
        .at(&["LocationIndicatorActive"])
        .and_then(Value::as_bool);
    let led = seen.text(&["IndicatorLED"]).map(|word| word != "Off");
    let lacks = || fault::unsupported("the BMC has no identify LED").into();
    active.or(led).ok_or_else(lacks)
}

fn set_indicator(
    context: &mut RedfishScriptContext<'_>,
    on: bool,
) -> RedfishScriptResult<RedfishReply> {
    let (path, seen) = indicator_resource(context)?;
    if indicator_is_on(seen)? == on {
        return Ok(RedfishReply::Done);
    }
    let body = if seen
        .at(&["LocationIndicatorActive"])
        .is_some_and(Value::is_boolean)
    {
        json!({"LocationIndicatorActive": on})
    } else {
        json!({"IndicatorLED": if on { "Lit" } else { "Off" }})
    };
    let written = context.patch(&path, seen, body)?;
    let mismatch = "its identify LED reads back unchanged";
    await_change(
        context,
        &path,
        written,
        mismatch,
        |now| matches!(indicator_is_on(now), Ok(is) if is == on),
    )?;
    Ok(RedfishReply::Done)
}
