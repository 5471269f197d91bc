//! `trivet bmc ...`: what people ask of a node's BMC beside power, and the requests it
//! becomes. The box asks the BMC while we wait, which may take minutes.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use crate::arguments::{Global, One, Switch};
use crate::fault::Fault;
use crate::plan::{Plan, Then};
use crate::request::{Request, encoded, node_path};
use crate::show::View;
use crate::show::bmc::Table as Shown;
use crate::values::{Reader, file_text};

/// Arguments of `trivet bmc`.
#[derive(Args, Debug)]
pub struct BmcArguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: BmcCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BmcCommand {
    /// Temperatures, voltages, fans and what else it measures
    Sensors(One),
    /// Its event log, oldest first
    Events {
        /// Name or UUID
        node: String,
        /// Empty the log instead
        #[arg(long)]
        clear: bool,
    },
    /// Part and serial numbers its makers wrote into it
    Inventory(One),
    /// Who the BMC is: maker, firmware, UUIDs
    Identity(One),
    /// Where in the network the BMC is
    Network(One),
    /// Who may log in to the BMC
    Users(One),
    /// What the machine is made of, where the BMC knows
    System(One),
    /// Find the server: switch the light that marks it, or see what it does
    Light {
        /// Name or UUID
        node: String,
        /// on, off, or on for so many seconds (1 to 255)
        #[arg(value_name = "on|off|SECONDS", value_parser = light)]
        light: Option<Light>,
    },
    /// Virtual drives: list them, put an image in, take images out
    Media(Media),
    /// How the firmware boots; shown if none is given
    BootMode {
        /// Name or UUID
        node: String,
        /// From the next boot on
        #[arg(value_parser = ["uefi", "bios"])]
        mode: Option<String>,
    },
    /// Whether the firmware starts signed systems only; shown if none is given
    SecureBoot {
        /// Name or UUID
        node: String,
        /// From the next boot on
        #[arg(value_enum)]
        switch: Option<Switch>,
    },
    /// Restart the BMC itself; the machine runs on
    Reset {
        /// Name or UUID
        node: String,
        /// Keeping what it knows, as far as it can
        #[arg(long)]
        warm: bool,
    },
    /// How well BMCs answer: one of them, or all
    Health {
        /// Name or UUID
        node: Option<String>,
    },
}

/// What a light is to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Light {
    On,
    Off,
    For(u8),
}

fn light(word: &str) -> Result<Light, String> {
    match (word, word.parse()) {
        ("on", _) => Ok(Light::On),
        ("off" | "0", _) => Ok(Light::Off),
        (_, Ok(seconds)) => Ok(Light::For(seconds)),
        _ => Err("say on, off, or a number of seconds up to 255".to_owned()),
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum MediaAction {
    Insert,
    Eject,
}

#[derive(Args, Debug)]
pub(crate) struct Media {
    /// Name or UUID
    pub(crate) node: String,
    /// What to do; the drives are listed if nothing is said
    #[arg(value_enum)]
    pub(crate) action: Option<MediaAction>,
    /// Where the BMC fetches the image; @FILE reads an address that holds a password
    #[arg(value_name = "URL", required_if_eq("action", "insert"))]
    pub(crate) image: Option<String>,
    /// Which drive: cdrom, disk or floppy [default: cdrom to insert, all to eject]
    #[arg(long, value_parser = ["cdrom", "disk", "floppy"], requires = "action")]
    pub(crate) device: Option<String>,
}

/// What `trivet bmc ...` asks for.
pub(crate) fn plan(command: &BmcCommand, read: Reader<'_>) -> Result<Plan, Fault> {
    use BmcCommand as C;
    Ok(match command {
        C::Sensors(one) => asked(&one.node, "sensors", Shown::Sensors),
        C::Events { node, clear: false } => asked(node, "events", Shown::Events),
        C::Events { node, clear: true } => {
            let ask = Request::new("DELETE", path(node, "events"));
            said(node, ask, "its event log is empty now")
        }
        C::Inventory(one) => asked(&one.node, "inventory", Shown::Parts),
        C::Identity(one) => asked(&one.node, "identity", Shown::Fields),
        C::Network(one) => asked(&one.node, "network", Shown::Network),
        C::Users(one) => asked(&one.node, "users", Shown::Users),
        C::System(one) => asked(&one.node, "system", Shown::Fields),
        C::Light { node, light: None } => asked(node, "light", Shown::Fields),
        C::Light {
            node,
            light: Some(light),
        } => set_light(node, *light),
        C::Media(one) => media(one, read)?,
        C::BootMode { node, mode: None } => asked(node, "boot_mode", Shown::Fields),
        C::BootMode {
            node,
            mode: Some(mode),
        } => {
            let ask = Request::new("PUT", node_path(node, "/states/boot_mode"));
            let ask = ask.with(json!({ "target": mode }));
            said(node, ask, &format!("boots by {mode} from its next boot on"))
        }
        C::SecureBoot { node, switch: None } => asked(node, "secure_boot", Shown::Fields),
        C::SecureBoot {
            node,
            switch: Some(switch),
        } => {
            let on = *switch == Switch::On;
            let ask = Request::new("PUT", node_path(node, "/states/secure_boot"));
            let word = if on { "on" } else { "off" };
            said(
                node,
                ask.with(json!({ "target": on })),
                &format!("Secure Boot is {word} from its next boot on"),
            )
        }
        C::Reset { node, warm } => {
            let ask = Request::new("POST", node_path(node, "/vendor_passthru/bmc_reset"));
            let ask = ask.with(json!({ "warm": warm }));
            said(node, ask, "its BMC restarts; give it a minute")
        }
        C::Health { node: Some(node) } => Plan {
            requests: vec![Request::get(path(node, ""))],
            ..shown(format!("node {node}"), Shown::Fields)
        },
        C::Health { node: None } => Plan {
            requests: vec![Request::get("/trivet/bmcs")],
            ..shown("BMCs".to_owned(), Shown::Health)
        },
    })
}

/// `/trivet/nodes/<ident>/bmc` and what is below.
fn path(node: &str, word: &str) -> String {
    let path = format!("/trivet/nodes/{}/bmc", encoded(node));
    match word {
        "" => path,
        word => format!("{path}/{word}"),
    }
}

fn shown(subject: String, table: Shown) -> Plan {
    Plan {
        subject,
        requests: Vec::new(),
        then: Then::Show(View::Bmc(table)),
    }
}

fn asked(node: &str, word: &str, table: Shown) -> Plan {
    Plan {
        requests: vec![Request::get(path(node, word)).patient()],
        ..shown(format!("node {node}"), table)
    }
}

fn said(node: &str, ask: Request, what: &str) -> Plan {
    Plan {
        subject: format!("node {node}"),
        requests: vec![ask.patient()],
        then: Then::Say(format!("node {node}: {what}")),
    }
}

fn set_light(node: &str, light: Light) -> Plan {
    let (body, what) = match light {
        Light::On => (json!({"state": "on"}), "its light is on".to_owned()),
        Light::Off => (json!({"state": "off"}), "its light is off".to_owned()),
        Light::For(seconds) => (
            json!({"state": "on", "seconds": seconds}),
            format!("its light is on for {seconds} s"),
        ),
    };
    let ask = Request::new("PUT", path(node, "light")).with(body);
    said(node, ask, &what)
}

fn media(one: &Media, read: Reader<'_>) -> Result<Plan, Fault> {
    let node = &one.node;
    let drives = node_path(node, "/vmedia");
    Ok(match one.action {
        None => asked(node, "media", Shown::Media),
        Some(MediaAction::Insert) => {
            let given = one.image.as_deref().unwrap_or_default();
            let url = match given.strip_prefix('@') {
                Some(file) => file_text("the address of the image", file, read)?,
                None => given.to_owned(),
            };
            let device = one.device.as_deref().unwrap_or("cdrom");
            let body = json!({"device_type": device, "image_url": url.trim()});
            let ask = Request::new("POST", drives).with(body);
            said(node, ask, &format!("the image is in its {device}"))
        }
        Some(MediaAction::Eject) if one.image.is_some() => {
            return Err(Fault::usage(
                "eject takes no address; name a drive by --device",
            ));
        }
        Some(MediaAction::Eject) => {
            let only = one.device.as_deref();
            let only = only.map_or(String::new(), |device| format!("?device_types={device}"));
            let ask = Request::new("DELETE", format!("{drives}{only}"));
            said(node, ask, "its drives are empty")
        }
    })
}

#[cfg(test)]
mod tests;
