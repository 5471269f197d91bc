//! `trivet bmc ...`: the BMC functions except power, and the API requests for them. The
//! box runs them synchronously, which may take minutes.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use trivet_net::percent::encode;

use crate::arguments::{ConnectionArguments, MaintenanceSwitch, NodeIdentArguments};
use crate::fault::CliFault;
use crate::plan::{CommandPlan, FinalAction};
use crate::request::{CliRequest, node_path};
use crate::show::OutputView;
use crate::show::bmc::BmcTable as Shown;
use crate::values::{FileTextReader, file_text};

/// Arguments of `trivet bmc`.
#[derive(Args, Debug)]
pub struct BmcArguments {
    #[command(flatten)]
    pub(crate) global: ConnectionArguments,
    #[command(subcommand)]
    pub(crate) command: BmcCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BmcCommand {
    /// Temperatures, voltages, fans and other sensors
    Sensors(NodeIdentArguments),
    /// Its event log, oldest first
    Events {
        /// Name or UUID
        node: String,
        /// Clear the log instead
        #[arg(long)]
        clear: bool,
    },
    /// Part and serial numbers from the FRU inventory
    Inventory(NodeIdentArguments),
    /// Identity of the BMC: manufacturer, firmware, UUIDs
    Identity(NodeIdentArguments),
    /// Network configuration of the BMC
    Network(NodeIdentArguments),
    /// User accounts of the BMC
    Users(NodeIdentArguments),
    /// Hardware of the machine, where the BMC reports it
    System(NodeIdentArguments),
    /// Locate the server: switch its indicator light, or show the state of the light
    Light {
        /// Name or UUID
        node: String,
        /// on, off, or on for this many seconds (1 to 255)
        #[arg(value_name = "on|off|SECONDS", value_parser = light)]
        light: Option<BmcLightArgument>,
    },
    /// Virtual media: list the drives, insert an image, eject images
    Media(BmcMediaArguments),
    /// Show or set the boot mode of the firmware
    BootMode {
        /// Name or UUID
        node: String,
        /// The boot mode from the next boot on
        #[arg(value_parser = ["uefi", "bios"])]
        mode: Option<String>,
    },
    /// Show or set Secure Boot
    SecureBoot {
        /// Name or UUID
        node: String,
        /// The state from the next boot on
        #[arg(value_enum)]
        switch: Option<MaintenanceSwitch>,
    },
    /// Restart the BMC itself; the machine keeps running
    Reset {
        /// Name or UUID
        node: String,
        /// Warm reset: keep its state as far as possible
        #[arg(long)]
        warm: bool,
    },
    /// Response statistics of one BMC, or of all
    Health {
        /// Name or UUID
        node: Option<String>,
    },
}

/// The wanted state of the indicator light.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BmcLightArgument {
    On,
    Off,
    For(u8),
}

fn light(word: &str) -> Result<BmcLightArgument, String> {
    match (word, word.parse()) {
        ("on", _) => Ok(BmcLightArgument::On),
        ("off" | "0", _) => Ok(BmcLightArgument::Off),
        (_, Ok(seconds)) => Ok(BmcLightArgument::For(seconds)),
        _ => Err("write on, off, or a number of seconds up to 255".to_owned()),
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum MediaAction {
    Insert,
    Eject,
}

#[derive(Args, Debug)]
pub(crate) struct BmcMediaArguments {
    /// Name or UUID
    pub(crate) node: String,
    /// What to do; without it the drives are listed
    #[arg(value_enum)]
    pub(crate) action: Option<MediaAction>,
    /// The URL from which the BMC fetches the image; @FILE reads a URL that contains a
    /// password
    #[arg(value_name = "URL", required_if_eq("action", "insert"))]
    pub(crate) image: Option<String>,
    /// Which drive: cdrom, disk or floppy [default: cdrom to insert, all to eject]
    #[arg(long, value_parser = ["cdrom", "disk", "floppy"], requires = "action")]
    pub(crate) device: Option<String>,
}

/// The requests of `trivet bmc ...`.
pub(crate) fn plan(
    command: &BmcCommand,
    read: FileTextReader<'_>,
) -> Result<CommandPlan, CliFault> {
    use BmcCommand as C;
    Ok(match command {
        C::Sensors(one) => query_plan(&one.node, "sensors", Shown::Sensors),
        C::Events { node, clear: false } => query_plan(node, "events", Shown::Events),
        C::Events { node, clear: true } => {
            let request = CliRequest::new("DELETE", path(node, "events"));
            change_plan(node, request, "its event log is empty now")
        }
        C::Inventory(one) => query_plan(&one.node, "inventory", Shown::Parts),
        C::Identity(one) => query_plan(&one.node, "identity", Shown::Fields),
        C::Network(one) => query_plan(&one.node, "network", Shown::Network),
        C::Users(one) => query_plan(&one.node, "users", Shown::Users),
        C::System(one) => query_plan(&one.node, "system", Shown::Fields),
        C::Light { node, light: None } => query_plan(node, "light", Shown::Fields),
        C::Light {
            node,
            light: Some(light),
        } => set_light(node, *light),
        C::Media(one) => media(one, read)?,
        C::BootMode { node, mode: None } => query_plan(node, "boot_mode", Shown::Fields),
        C::BootMode {
            node,
            mode: Some(mode),
        } => {
            let request = CliRequest::new("PUT", node_path(node, "/states/boot_mode"));
            let request = request.with(json!({ "target": mode }));
            change_plan(
                node,
                request,
                &format!("boots by {mode} from its next boot on"),
            )
        }
        C::SecureBoot { node, switch: None } => query_plan(node, "secure_boot", Shown::Fields),
        C::SecureBoot {
            node,
            switch: Some(switch),
        } => {
            let on = *switch == MaintenanceSwitch::On;
            let request = CliRequest::new("PUT", node_path(node, "/states/secure_boot"));
            let word = if on { "on" } else { "off" };
            change_plan(
                node,
                request.with(json!({ "target": on })),
                &format!("Secure Boot is {word} from its next boot on"),
            )
        }
        C::Reset { node, warm } => {
            let request = CliRequest::new("POST", node_path(node, "/vendor_passthru/bmc_reset"));
            let request = request.with(json!({ "warm": warm }));
            change_plan(node, request, "its BMC restarts; give it a minute")
        }
        C::Health { node: Some(node) } => CommandPlan {
            requests: vec![CliRequest::get(path(node, ""))],
            ..shown(format!("node {node}"), Shown::Fields)
        },
        C::Health { node: None } => CommandPlan {
            requests: vec![CliRequest::get("/trivet/bmcs")],
            ..shown("BMCs".to_owned(), Shown::Health)
        },
    })
}

/// `/trivet/nodes/<ident>/bmc` and its sub-resources.
fn path(node: &str, word: &str) -> String {
    let path = format!("/trivet/nodes/{}/bmc", encode(node));
    match word {
        "" => path,
        word => format!("{path}/{word}"),
    }
}

fn shown(subject: String, table: Shown) -> CommandPlan {
    CommandPlan {
        subject,
        requests: Vec::new(),
        then: FinalAction::Show(OutputView::Bmc(table)),
    }
}

fn query_plan(node: &str, word: &str, table: Shown) -> CommandPlan {
    CommandPlan {
        requests: vec![CliRequest::get(path(node, word)).slow()],
        ..shown(format!("node {node}"), table)
    }
}

fn change_plan(node: &str, request: CliRequest, what: &str) -> CommandPlan {
    CommandPlan {
        subject: format!("node {node}"),
        requests: vec![request.slow()],
        then: FinalAction::Print(format!("node {node}: {what}")),
    }
}

fn set_light(node: &str, light: BmcLightArgument) -> CommandPlan {
    let (body, what) = match light {
        BmcLightArgument::On => (json!({"state": "on"}), "its light is on".to_owned()),
        BmcLightArgument::Off => (json!({"state": "off"}), "its light is off".to_owned()),
        BmcLightArgument::For(seconds) => (
            json!({"state": "on", "seconds": seconds}),
            format!("its light is on for {seconds} s"),
        ),
    };
    let request = CliRequest::new("PUT", path(node, "light")).with(body);
    change_plan(node, request, &what)
}

fn media(one: &BmcMediaArguments, read: FileTextReader<'_>) -> Result<CommandPlan, CliFault> {
    let node = &one.node;
    let drives = node_path(node, "/vmedia");
    Ok(match one.action {
        None => query_plan(node, "media", Shown::Media),
        Some(MediaAction::Insert) => {
            let given = one.image.as_deref().unwrap_or_default();
            let url = match given.strip_prefix('@') {
                Some(file) => file_text("the address of the image", file, read)?,
                None => given.to_owned(),
            };
            let device = one.device.as_deref().unwrap_or("cdrom");
            let body = json!({"device_type": device, "image_url": url.trim()});
            let request = CliRequest::new("POST", drives).with(body);
            change_plan(node, request, &format!("the image is in its {device}"))
        }
        Some(MediaAction::Eject) if one.image.is_some() => {
            return Err(CliFault::usage(
                "eject takes no address; name a drive by --device",
            ));
        }
        Some(MediaAction::Eject) => {
            let only = one.device.as_deref();
            let only = only.map_or(String::new(), |device| format!("?device_types={device}"));
            let request = CliRequest::new("DELETE", format!("{drives}{only}"));
            change_plan(node, request, "its drives are empty")
        }
    })
}

#[cfg(test)]
mod tests;
