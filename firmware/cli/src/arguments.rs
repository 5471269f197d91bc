//! The arguments, as people type them.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};
use trivet_model::ProvisionState;

pub use crate::bmc::BmcArguments;

/// Longest wait in seconds where none is given.
const TIMEOUT_S: u32 = 3600;

/// Commands that ask a box over its API.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Look at nodes and tell them what to do
    Node(Box<NodeArguments>),
    /// Network ports of nodes
    Port(PortArguments),
    /// Images the box can write
    Image(ImageArguments),
    /// The box's networks, what is wrong there, and machines nobody has enrolled
    Lan(LanArguments),
    /// Sensors, event log, light and what else a node's BMC has beside power
    Bmc(BmcArguments),
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

/// What to look at.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum LanCommand {
    /// What the box does on each network, and who else serves DHCP there
    Networks,
    /// What is wrong now, and what to do about it
    Faults,
    /// Machines that ask for an address and are no port of any node
    Strangers,
}

/// Arguments of `trivet completion`.
#[derive(Args, Debug)]
pub struct CompletionArguments {
    /// The shell that is to complete
    #[arg(value_enum)]
    shell: CompletionShell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}

/// The completion script of a whole program.
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

/// Which box, who asks, and in which form the answer comes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection and output")]
pub(crate) struct ConnectionArguments {
    /// The box's API; or TRIVET_URL [default: http://127.0.0.1:6385]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Log in by this name; or TRIVET_USER
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
    /// Trust the authorities in this PEM file, for https
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) ca: Option<String>,
    /// Trust any certificate, for https: anybody in between can read along
    #[arg(long, global = true)]
    pub(crate) insecure: bool,
    /// Print JSON as the API gave it instead of tables
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Whether and how long to wait.
#[derive(Args, Clone, Debug)]
pub(crate) struct WaitArguments {
    /// Wait until it is there (the default)
    #[arg(long, overrides_with = "no_wait")]
    pub(crate) wait: bool,
    /// Return as soon as the box has accepted it
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Longest wait; then exit code 7, and the box goes on
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT_S)]
    pub(crate) timeout: u32,
}

/// A verb without anything else.
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
    /// Forget a node
    Delete(NodeIdentArguments),
    /// Change fields of a node
    Set(NodeSetArguments),
    /// Follow one node, some or all as they change, until stopped
    Watch(NodeWatchArguments),
    /// Check that the node can be managed, or take it back from `available`
    Manage(NodeVerbArguments),
    /// Boot the agent and look inside
    Inspect(NodeVerbArguments),
    /// Clean the node and offer it for deployment
    Provide(NodeVerbArguments),
    /// Run cleaning steps by hand
    Clean(NodeCleanArguments),
    /// Write an image and boot it
    Deploy(NodeDeployArguments),
    /// Remove the instance, clean, and offer the node again
    Undeploy(NodeVerbArguments),
    /// Write the image anew on a node that is active
    Rebuild(NodeDeployArguments),
    /// Boot the rescue ramdisk
    Rescue(NodeRescueArguments),
    /// Go back from rescue to the instance
    Unrescue(NodeVerbArguments),
    /// Take over a machine that runs an instance already
    Adopt(NodeVerbArguments),
    /// Stop what waits for the agent
    Abort(NodeVerbArguments),
    /// Switch on or off, reboot, or show the power state
    Power(NodePowerArguments),
    /// Show or choose what the node boots from
    BootDevice(NodeBootDeviceArguments),
    /// Take a node out of the box's hands, or give it back
    Maintenance(NodeMaintenanceArguments),
    /// Say what a deployment would lack: exit code 1 if anything
    Validate(NodeIdentArguments),
    /// List what went wrong on a node
    History(NodeIdentArguments),
    /// Show the hardware that inspection found
    Inventory(NodeIdentArguments),
    /// List the steps that the node's agents offered, for clean, deploy, service and runbooks
    Steps(NodeIdentArguments),
    /// List what is kept of its agents' logs, or collect them now
    Logs(NodeLogsArguments),
}

/// What is asked about logs.
#[derive(Args, Debug)]
pub(crate) struct NodeLogsArguments {
    /// Name or UUID
    pub(crate) node: String,
    /// Have the box ask the agent for them now
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
    /// What it is made of
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) property: Vec<String>,
    /// What to deploy; secrets as KEY=@FILE
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) instance_info: Vec<String>,
    /// Your own notes
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) extra: Vec<String>,
    /// One of its interfaces, such as inspect=agent
    #[arg(long, value_name = "KIND=NAME")]
    pub(crate) interface: Vec<String>,
    /// What kind of machine it is, for those who choose by kind
    #[arg(long, value_name = "CLASS")]
    pub(crate) resource_class: Option<String>,
    /// A sentence about it
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
    /// Its hardware type
    #[arg(long, value_name = "TYPE")]
    pub(crate) driver: Option<String>,
    #[command(flatten)]
    pub(crate) fields: NodeFieldArguments,
    /// The rack that it is mounted in
    #[arg(long, value_name = "RACK")]
    pub(crate) location_rack: Option<String>,
    /// The lowest rack unit that it occupies
    #[arg(long, value_name = "UNIT", requires = "location_rack")]
    pub(crate) location_unit: Option<u32>,
    /// A field to remove, such as extra.rack or instance_info.image_source
    #[arg(long, value_name = "FIELD")]
    pub(crate) unset: Vec<String>,
}

impl NodeSetArguments {
    /// The fields that Ironic does not have, as `/trivet/nodes/<ident>` takes them.
    pub(crate) fn own_fields(&self) -> Map<String, Value> {
        let mut own = Map::new();
        if let Some(rack) = &self.location_rack {
            let location = json!({"rack": rack, "unit": self.location_unit});
            own.insert("location".to_owned(), location);
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
    /// A step without arguments, such as deploy.erase_devices_metadata; in this order
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
    /// An image of the box (`trivet image list`) or a URL; else what instance_info says
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
    /// Ask the operating system instead of pulling the plug (off, reboot)
    #[arg(long)]
    pub(crate) soft: bool,
    #[command(flatten)]
    pub(crate) waiting: WaitArguments,
}

#[derive(Args, Debug)]
pub(crate) struct NodeBootDeviceArguments {
    /// Name or UUID
    pub(crate) node: String,
    /// pxe, disk, cdrom, bios ...; the present one is shown if none is given
    pub(crate) device: Option<String>,
    /// Not only for the next boot
    #[arg(long, requires = "device")]
    pub(crate) persistent: bool,
    /// List what the node can boot from
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
    /// On: the box leaves the node alone
    #[arg(value_enum)]
    pub(crate) switch: MaintenanceSwitch,
    /// Name or UUID
    pub(crate) node: String,
    /// Why, for others to read
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
    /// Tell the box of a node's port
    Create {
        /// The node, by name or UUID
        #[arg(long)]
        node: String,
        /// The port's MAC address
        #[arg(long, value_name = "MAC")]
        address: String,
        /// Whether the node boots from the network by this port
        #[arg(long, value_name = "BOOL")]
        pxe_enabled: Option<bool>,
    },
    /// Forget a port
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
    /// Put an image from elsewhere into the catalogue; it comes when a node wants it
    Add {
        /// What to call it
        image: String,
        /// Where it is: http, https or file URLs, the best first
        #[arg(long = "source", value_name = "URL", required = true)]
        sources: Vec<String>,
        /// Its SHA-256 or SHA-512, in hexadecimal, or the URL of a checksum file
        #[arg(long, value_name = "DIGEST")]
        checksum: String,
        /// What its bytes are: raw, zstd, gzip, xz, qcow2, iso, kernel or ramdisk; else by the
        /// end of its name. Nodes get the disk that is in a packed one
        #[arg(long)]
        format: Option<String>,
        /// What can boot it, if not both
        #[arg(long, value_name = "MODE", value_parser = ["bios", "uefi"])]
        boot_mode: Option<String>,
        /// Never let it go for want of room
        #[arg(long)]
        pin: bool,
    },
    /// Bring an image into the cache now
    Fill {
        /// Its name
        image: String,
        #[command(flatten)]
        waiting: WaitArguments,
    },
    /// Send a file to the box as an image; goes on where an upload broke off
    Upload {
        /// What to call it; it is put into the catalogue if it is not there
        image: String,
        /// The file
        file: PathBuf,
        /// What its bytes are, as for `add`; else by the end of its name
        #[arg(long)]
        format: Option<String>,
        /// What can boot it, if not both
        #[arg(long, value_name = "MODE", value_parser = ["bios", "uefi"])]
        boot_mode: Option<String>,
        /// Never let it go for want of room
        #[arg(long)]
        pin: bool,
    },
    /// Never let an image go for want of room
    Pin {
        /// Its name
        image: String,
    },
    /// Let an image go when there is no room
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

    /// The command in a line of words, or clap's refusal.
    pub(crate) fn parsed(line: &str) -> Result<ClientCommand, clap::Error> {
        let words = std::iter::once("trivet").chain(line.split_whitespace());
        Program::try_parse_from(words).map(|program| program.command)
    }

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Program::command().debug_assert();
    }

    #[test]
    fn global_options_stand_on_either_side() {
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
