//! The command line arguments.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};
use trivet_model::ProvisionState;

pub use crate::bmc::BmcArguments;
use crate::events::EventsArguments;

/// Default of `--timeout`, in seconds.
const TIMEOUT_S: u32 = 3600;

/// Commands that use the API of a box.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Show and control nodes
    Node(Box<NodeArguments>),
    /// Network ports of nodes
    Port(PortArguments),
    /// Images the box can write
    Image(ImageArguments),
    /// The box's networks, faults there, and unknown machines
    Lan(LanArguments),
    /// Sensors, event log, indicator light and other BMC functions except power
    Bmc(BmcArguments),
    /// Events of the box: states of nodes, faults, images and others
    Events(EventsArguments),
    /// How many nodes are in which condition, and what needs attention: exit code 1 if anything
    Status(StatusArguments),
}

/// Arguments of `trivet status`.
#[derive(Args, Debug)]
pub struct StatusArguments {
    #[command(flatten)]
    pub(crate) global: ConnectionArguments,
}

/// Arguments of `trivet node`.
#[derive(Args, Debug)]
pub struct NodeArguments {
    #[command(flatten)]
    pub(crate) global: ConnectionArguments,
    #[command(subcommand)]
    pub(crate) command: NodeCommand,
}

/// Arguments of `trivet port`.
#[derive(Args, Debug)]
pub struct PortArguments {
    #[command(flatten)]
    pub(crate) global: ConnectionArguments,
    #[command(subcommand)]
    pub(crate) command: PortCommand,
}

/// Arguments of `trivet image`.
#[derive(Args, Debug)]
pub struct ImageArguments {
    #[command(flatten)]
    pub(crate) global: ConnectionArguments,
    #[command(subcommand)]
    pub(crate) command: ImageCommand,
}

/// Arguments of `trivet lan`.
#[derive(Args, Debug)]
pub struct LanArguments {
    #[command(flatten)]
    pub(crate) global: ConnectionArguments,
    #[command(subcommand)]
    pub(crate) command: LanCommand,
}

/// Which list to show.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum LanCommand {
    /// What the box does on each network, and which other DHCP servers were detected
    Networks,
    /// Current faults, and what to do about them
    Faults,
    /// Machines that request an address and match no port of a node
    #[command(alias = "strangers")]
    Unknown,
}

/// Arguments of `trivet completion`.
#[derive(Args, Debug)]
pub struct CompletionArguments {
    /// The shell for which to print the script
    #[arg(value_enum)]
    shell: CompletionShell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}

/// Writes the completion script of the whole program.
pub fn completion(arguments: &CompletionArguments, program: &mut clap::Command) -> String {
    let shell = match arguments.shell {
        CompletionShell::Bash => clap_complete::Shell::Bash,
        CompletionShell::Zsh => clap_complete::Shell::Zsh,
        CompletionShell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    let name = program.get_name().to_owned();
    clap_complete::generate(shell, program, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The box, the credentials, and the form of the output.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection and output")]
pub(crate) struct ConnectionArguments {
    /// The box's API; or TRIVET_URL [default: http://127.0.0.1:6385]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Log in with this user name; or TRIVET_USER
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        conflicts_with = "token_file"
    )]
    pub(crate) user: Option<String>,
    /// The user's password, `-` for standard input; or TRIVET_PASSWORD holds it
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        conflicts_with = "token_file"
    )]
    pub(crate) password_file: Option<String>,
    /// A bearer token, `-` for standard input; or TRIVET_TOKEN holds it
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<String>,
    /// Trust the CA certificates in this PEM file, for https
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) ca: Option<String>,
    /// Do not verify the certificate, for https: the connection can be intercepted
    #[arg(long, global = true)]
    pub(crate) insecure: bool,
    /// Print the JSON of the API instead of tables
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Whether and how long to wait.
#[derive(Args, Clone, Debug)]
pub(crate) struct WaitArguments {
    /// Wait until the node has reached the state (the default)
    #[arg(long, overrides_with = "no_wait")]
    pub(crate) wait: bool,
    /// Return as soon as the box has accepted it
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Longest wait in seconds; then exit code 7, and the box continues
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT_S)]
    pub(crate) timeout: u32,
}

/// Arguments of a verb without options of its own.
#[derive(Args, Debug)]
pub(crate) struct NodeVerbArguments {
    /// Name or UUID
    pub(crate) node: String,
    #[command(flatten)]
    pub(crate) waiting: WaitArguments,
}

/// One node.
#[derive(Args, Debug)]
pub(crate) struct NodeIdentArguments {
    /// Name or UUID
    pub(crate) node: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// List nodes
    List(NodeListArguments),
    /// Show one node with all its fields
    Show(NodeIdentArguments),
    /// Enrol a node
    Create(NodeCreateArguments),
    /// Delete a node
    Delete(NodeIdentArguments),
    /// Change fields of a node
    Set(NodeSetArguments),
    /// Follow the changes of one node, some or all, until stopped
    Watch(NodeWatchArguments),
    /// Verify that the node can be managed, or take it back from `available`
    Manage(NodeVerbArguments),
    /// Boot the agent and inspect the hardware
    Inspect(NodeVerbArguments),
    /// Clean the node and make it available for deployment
    Provide(NodeVerbArguments),
    /// Run cleaning steps manually
    Clean(NodeCleanArguments),
    /// Write an image and boot it
    Deploy(NodeDeployArguments),
    /// Remove the instance, clean, and make the node available again
    Undeploy(NodeVerbArguments),
    /// Write the image again on an active node
    Rebuild(NodeDeployArguments),
    /// Boot the rescue ramdisk
    Rescue(NodeRescueArguments),
    /// Return from rescue to the instance
    Unrescue(NodeVerbArguments),
    /// Take over a machine that already runs an instance
    Adopt(NodeVerbArguments),
    /// Abort the current clean, deploy, inspect or rescue
    Abort(NodeVerbArguments),
    /// Switch on or off, reboot, or show the power state
    Power(NodePowerArguments),
    /// Show or set the boot device of the node
    BootDevice(NodeBootDeviceArguments),
    /// Set or clear maintenance mode
    Maintenance(NodeMaintenanceArguments),
    /// List what a deployment lacks: exit code 1 if anything
    Validate(NodeIdentArguments),
    /// List the errors of a node
    History(NodeIdentArguments),
    /// Show what happened to a node: the stages of its job, what is wrong, the notes
    Story(NodeStoryArguments),
    /// Say what is wrong with a node, and what to do: exit code 1 if anything
    Why(NodeIdentArguments),
    /// Show the hardware that inspection found
    Inventory(NodeIdentArguments),
    /// List the steps that the node's agents offered, for clean, deploy, service and runbooks
    Steps(NodeIdentArguments),
    /// List the stored logs of its agents, or collect them now
    Logs(NodeLogsArguments),
}

/// Arguments of `trivet node story`.
#[derive(Args, Debug)]
pub(crate) struct NodeStoryArguments {
    /// Name or UUID
    pub(crate) node: String,
    /// Show the last job that ended well, to compare
    #[arg(long)]
    pub(crate) last_good: bool,
}

/// Arguments of `trivet node logs`.
#[derive(Args, Debug)]
pub(crate) struct NodeLogsArguments {
    /// Name or UUID
    pub(crate) node: String,
    /// Collect the logs from the agent now
    #[arg(long)]
    pub(crate) collect: bool,
}

#[derive(Args, Debug)]
pub(crate) struct NodeListArguments {
    /// Only nodes in this provision state
    #[arg(long, value_name = "STATE", value_parser = states())]
    pub(crate) state: Option<String>,
    /// Only nodes in maintenance
    #[arg(long)]
    pub(crate) maintenance: bool,
    /// Only nodes of this resource class
    #[arg(long, value_name = "CLASS")]
    pub(crate) resource_class: Option<String>,
    /// Only nodes of this hardware type
    #[arg(long, value_name = "TYPE")]
    pub(crate) driver: Option<String>,
}

/// Fields that can be given at creation and changed later.
#[derive(Args, Debug, Default)]
pub(crate) struct NodeFieldArguments {
    /// Its name
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// How to reach its BMC; secrets as KEY=@FILE
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) driver_info: Vec<String>,
    /// Its hardware properties
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) property: Vec<String>,
    /// What to deploy; secrets as KEY=@FILE
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) instance_info: Vec<String>,
    /// Your own data
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) extra: Vec<String>,
    /// One of its interfaces, such as inspect=agent
    #[arg(long, value_name = "KIND=NAME")]
    pub(crate) interface: Vec<String>,
    /// Its resource class, for schedulers that choose by it
    #[arg(long, value_name = "CLASS")]
    pub(crate) resource_class: Option<String>,
    /// A description
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Whether it is cleaned between two instances
    #[arg(long, value_name = "BOOL")]
    pub(crate) automated_clean: Option<bool>,
}

#[derive(Args, Debug)]
pub(crate) struct NodeCreateArguments {
    /// Its hardware type, such as ipmi or redfish
    #[arg(long, value_name = "TYPE")]
    pub(crate) driver: String,
    /// Its UUID; the box chooses one if none is given
    #[arg(long)]
    pub(crate) uuid: Option<String>,
    #[command(flatten)]
    pub(crate) fields: NodeFieldArguments,
}

#[derive(Args, Debug)]
pub(crate) struct NodeSetArguments {
    /// Name or UUID
    pub(crate) node: String,
    /// Its hardware type; interfaces that are not given get the defaults of this type
    #[arg(long, value_name = "TYPE")]
    pub(crate) driver: Option<String>,
    #[command(flatten)]
    pub(crate) fields: NodeFieldArguments,
    /// The rack that it is mounted in
    #[arg(long, value_name = "RACK")]
    pub(crate) location_rack: Option<String>,
    /// The lowest rack unit that it occupies, 1 to 100
    #[arg(long, value_name = "UNIT",
        value_parser = rack_unit)]
    pub(crate) location_unit: Option<u32>,
    /// A field to remove, such as extra.rack or instance_info.image_source
    #[arg(long, value_name = "FIELD")]
    pub(crate) unset: Vec<String>,
}

impl NodeSetArguments {
    /// The fields that Ironic does not have, as `/trivet/nodes/<ident>` takes them.
    pub(crate) fn own_fields(&self) -> Map<String, Value> {
        let mut own = Map::new();
        // A part that is not given keeps its value.
        let rack = self
            .location_rack
            .as_ref()
            .map(|rack| ("rack".to_owned(), json!(rack)));
        let unit = self
            .location_unit
            .map(|unit| ("unit".to_owned(), json!(unit)));
        let location: Map<String, Value> = rack.into_iter().chain(unit).collect();
        if !location.is_empty() {
            own.insert("location".to_owned(), Value::Object(location));
        }
        if self.unset.iter().any(|field| field == "location") {
            own.insert("location".to_owned(), Value::Null);
        }
        own
    }
}

#[derive(Args, Debug)]
pub(crate) struct NodeWatchArguments {
    /// Names or UUIDs; all nodes if none is given
    pub(crate) nodes: Vec<String>,
    /// End when every node is in this state; exit code 1 when one has failed instead
    #[arg(long, value_name = "STATE", value_parser = states())]
    pub(crate) until: Option<String>,
    /// Longest watch; then exit code 7
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u32>,
}

#[derive(Args, Debug)]
pub(crate) struct NodeCleanArguments {
    /// Name or UUID
    pub(crate) node: String,
    /// A step without arguments, such as deploy.erase_devices_metadata; run in this
    /// order
    #[arg(long, value_name = "INTERFACE.STEP", required_unless_present = "steps")]
    pub(crate) step: Vec<String>,
    /// A JSON list of steps with their arguments, `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "step")]
    pub(crate) steps: Option<String>,
    #[command(flatten)]
    pub(crate) waiting: WaitArguments,
}

#[derive(Args, Debug)]
pub(crate) struct NodeDeployArguments {
    /// Name or UUID
    pub(crate) node: String,
    /// An image of the box (`trivet image list`) or a URL; else the one in
    /// instance_info
    #[arg(long, value_name = "NAME|URL")]
    pub(crate) image: Option<String>,
    /// The image's checksum, for a URL: sha256 as hexadecimal digits
    #[arg(long, value_name = "DIGEST", requires = "image")]
    pub(crate) sha256: Option<String>,
    /// Config drive: a file with a JSON object or base64, `-` for standard input, or a URL
    #[arg(long, value_name = "FILE|URL")]
    pub(crate) config_drive: Option<String>,
    /// A JSON list of deploy steps, `-` for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) steps: Option<String>,
    #[command(flatten)]
    pub(crate) waiting: WaitArguments,
}

#[derive(Args, Debug)]
pub(crate) struct NodeRescueArguments {
    /// Name or UUID
    pub(crate) node: String,
    /// The password for the rescue ramdisk, `-` for standard input
    #[arg(long = "rescue-password-file", value_name = "FILE")]
    pub(crate) ramdisk_password_file: String,
    #[command(flatten)]
    pub(crate) waiting: WaitArguments,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum PowerAction {
    On,
    Off,
    Reboot,
    Status,
}

#[derive(Args, Debug)]
pub(crate) struct NodePowerArguments {
    /// What to do
    #[arg(value_enum)]
    pub(crate) action: PowerAction,
    /// Name or UUID
    pub(crate) node: String,
    /// Shut down through the operating system instead of cutting power (off, reboot)
    #[arg(long)]
    pub(crate) soft: bool,
    #[command(flatten)]
    pub(crate) waiting: WaitArguments,
}

#[derive(Args, Debug)]
pub(crate) struct NodeBootDeviceArguments {
    /// Name or UUID
    pub(crate) node: String,
    /// pxe, disk, cdrom, bios ...; without it the current one is shown
    pub(crate) device: Option<String>,
    /// Permanently, not only for the next boot
    #[arg(long, requires = "device")]
    pub(crate) persistent: bool,
    /// List the devices that the node can boot from
    #[arg(long, conflicts_with = "device")]
    pub(crate) supported: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum MaintenanceSwitch {
    On,
    Off,
}

#[derive(Args, Debug)]
pub(crate) struct NodeMaintenanceArguments {
    /// On: no automatic actions on the node
    #[arg(value_enum)]
    pub(crate) switch: MaintenanceSwitch,
    /// Name or UUID
    pub(crate) node: String,
    /// The reason, for other operators
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PortCommand {
    /// List ports
    List {
        /// Only those of this node (name or UUID)
        #[arg(long)]
        node: Option<String>,
    },
    /// Register a port of a node
    Create {
        /// The node, by name or UUID
        #[arg(long)]
        node: String,
        /// The port's MAC address
        #[arg(long, value_name = "MAC")]
        address: String,
        /// Whether the node boots from the network through this port
        #[arg(long, value_name = "BOOL")]
        pxe_enabled: Option<bool>,
    },
    /// Delete a port
    Delete {
        /// UUID or MAC address
        port: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// List images with their sizes and digests
    List,
    /// Show one image
    Show {
        /// Its name
        image: String,
    },
    /// Add an image from another server to the catalogue; it is fetched when a node
    /// needs it
    Add {
        /// The name of the image
        image: String,
        /// Its sources: http, https, oci or file URLs, the preferred first
        #[arg(long = "source", value_name = "URL", required = true)]
        sources: Vec<String>,
        /// Its SHA-256 or SHA-512, in hexadecimal, or the URL of a checksum file; not
        /// needed if the first source is in a registry (oci)
        #[arg(long, value_name = "DIGEST")]
        checksum: Option<String>,
        /// Its format: raw, zstd, gzip, xz, qcow2, iso, kernel or ramdisk; else by the
        /// suffix of its name, or as its registry says. Of a packed image nodes get the
        /// disk in it
        #[arg(long)]
        format: Option<String>,
        /// The boot mode it supports, if not both
        #[arg(long, value_name = "MODE", value_parser = ["bios", "uefi"])]
        boot_mode: Option<String>,
        /// Never evict this image
        #[arg(long)]
        pin: bool,
    },
    /// Fetch an image into the cache now
    Fill {
        /// Its name
        image: String,
        #[command(flatten)]
        waiting: WaitArguments,
    },
    /// Upload a file to the box as an image; continues an interrupted upload
    Upload {
        /// The name of the image; it is added to the catalogue if it is not in it
        image: String,
        /// The file
        file: PathBuf,
        /// Its format, as for `add`; else by the suffix of its name
        #[arg(long)]
        format: Option<String>,
        /// The boot mode it supports, if not both
        #[arg(long, value_name = "MODE", value_parser = ["bios", "uefi"])]
        boot_mode: Option<String>,
        /// Never evict this image
        #[arg(long)]
        pin: bool,
    },
    /// Never evict an image
    Pin {
        /// Its name
        image: String,
    },
    /// Allow an image to be evicted
    Unpin {
        /// Its name
        image: String,
    },
    /// Remove an image from the catalogue and the cache
    Remove {
        /// Its name
        image: String,
    },
}

/// A rack unit, as the API takes it.
fn rack_unit(text: &str) -> Result<u32, String> {
    let unit = text.parse().ok().filter(|unit| (1..=100).contains(unit));
    unit.ok_or_else(|| "write a number from 1 to 100".to_owned())
}

fn states() -> PossibleValuesParser {
    PossibleValuesParser::new(ProvisionState::ALL.iter().map(|state| state.as_str()))
}

#[cfg(test)]
pub(crate) mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "trivet")]
    struct Program {
        #[command(subcommand)]
        command: ClientCommand,
    }

    /// Parses a line of words; the command, or clap's error.
    pub(crate) fn parsed(line: &str) -> Result<ClientCommand, clap::Error> {
        let words = std::iter::once("trivet").chain(line.split_whitespace());
        Program::try_parse_from(words).map(|program| program.command)
    }

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Program::command().debug_assert();
    }

    #[test]
    fn global_options_are_accepted_on_either_side() {
        for line in [
            "node --url http://b list --json",
            "node list --json --url http://b",
        ] {
            let ClientCommand::Node(node) = parsed(line).unwrap() else {
                panic!("{line} is about nodes");
            };
            assert_eq!(node.global.url.as_deref(), Some("http://b"));
            assert!(node.global.json);
        }
    }

    #[test]
    fn a_wrong_rack_unit_is_refused_with_the_range() {
        for unit in ["abc", "0", "101", "-1"] {
            let error = parsed(&format!("node set n1 --location-unit={unit}")).unwrap_err();
            let message = error.to_string();
            assert!(message.contains("a number from 1 to 100"), "{message}");
        }
        assert!(parsed("node set n1 --location-unit=100").is_ok());
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for line in [
            "node",
            "node show",
            "node list --state dancing",
            "node power up n1",
            "node clean n1",
            "node clean n1 --step a.b --steps f",
            "node rescue n1",
            "node list --user a --token-file b",
            "node list --ca a --insecure",
            "node boot-device n1 --persistent",
            "node deploy n1 --sha256 00",
            "node deploy n1 --timeout soon",
            "node list --password hunter2",
            "image show",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn there_is_a_script_for_every_shell() {
        for (shell, mark) in [
            (CompletionShell::Bash, "complete -F"),
            (CompletionShell::Zsh, "#compdef trivet"),
            (CompletionShell::Fish, "complete -c trivet"),
        ] {
            let script = completion(&CompletionArguments { shell }, &mut Program::command());
            assert!(script.contains(mark), "{shell:?}");
            assert!(script.contains("undeploy"), "{shell:?}");
        }
    }
}
