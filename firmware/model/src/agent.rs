//! Orders to the agent and its replies, independent of the wire format.

use std::collections::BTreeMap;

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{Digest, words};

words! {
    /// The three kinds of steps an agent offers.
    StepKind {
        /// Cleaning.
        Clean = "clean",
        /// Deployment.
        Deploy = "deploy",
        /// Service of a node with an instance.
        Service = "service",
    }
}

/// One step of a job, as the agent describes it and as it is sent to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobStep {
    /// Name, such as `erase_devices`.
    pub step: String,
    /// Ironic's name of the interface, such as `deploy` or `raid`.
    pub interface: String,
    /// Higher runs earlier; zero runs only on request.
    pub priority: i64,
    /// Keyword arguments, an object.
    pub args: Value,
    /// The agent requests a reboot after it.
    pub reboot_requested: bool,
    /// The operator may abort it.
    pub abortable: bool,
}

/// An order to an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentOrder {
    /// List the steps.
    GetSteps(StepKind),
    /// Run this step.
    Execute {
        /// The kind of the step.
        kind: StepKind,
        /// The step with its arguments.
        step: JobStep,
        /// Its index in the job: the agent returns it, so that a reply about an earlier step of
        /// the same name is not mistaken for one about this.
        at: u32,
        /// Versions of the hardware managers, from the reply to `GetSteps`.
        versions: BTreeMap<String, String>,
    },
    /// List the commands, to read the state of the last one.
    ListCommands,
    /// Set the rescue password whose hash is in `instance_info`, and stop the agent.
    FinishRescue,
    /// Return the partitions that were written.
    FindPartitions,
    /// Install a boot loader for the written image.
    InstallBootloader {
        /// The partitions that the agent reported.
        partitions: BootPartitions,
        /// `uefi` or `bios`.
        boot_mode: &'static str,
    },
    /// Write an image ahead.
    WriteImageAhead {
        /// The arguments of the command: the rack sets them when it sends the order.
        args: Value,
    },
    /// List the commands, to read how far the image is that is written ahead.
    ReadImageAhead,
    /// Write buffers to disk.
    Sync,
    /// Shut the machine down.
    PowerOff,
    /// Stop the API and the heartbeats, and take the network interfaces down, until the machine
    /// restarts.
    Lockdown,
}

impl AgentOrder {
    /// Whether it only reads the list of commands.
    pub fn is_reading(&self) -> bool {
        matches!(self, Self::ListCommands | Self::ReadImageAhead)
    }
}

/// Identifiers of the partitions of a written disk that booting needs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct BootPartitions {
    /// The root file system; the whole disk for a whole-disk image.
    pub root: Option<String>,
    /// The EFI system partition.
    pub efi: Option<String>,
    /// The PReP partition, from which POWER machines boot.
    pub prep: Option<String>,
}

/// How far an agent is with the image that it was ordered last to write ahead.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImageAheadReport {
    /// It knows of no such order.
    Unknown,
    /// It writes.
    Running,
    /// An image is written and verified.
    Written {
        /// Its digest.
        digest: Digest,
        /// Its size.
        bytes: u64,
    },
    /// It failed.
    Failed {
        /// The agent's own text.
        message: String,
    },
}

/// The meaning of an agent's reply.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentEvent {
    /// Its steps, in the order of the agent.
    StepsListed {
        /// All steps, of priority zero too.
        steps: Vec<JobStep>,
        /// Versions of its hardware managers.
        versions: BTreeMap<String, String>,
        /// The same steps for people, by interface and with descriptions of their arguments.
        listed: Value,
    },
    /// It has accepted the command and works on it.
    Accepted,
    /// A synchronous command is done.
    Finished,
    /// Its command list shows no step: it has just booted.
    Idle,
    /// Its last step still runs.
    StepRunning,
    /// Its last step is done.
    StepDone {
        /// Name of the step.
        step: String,
        /// Its interface.
        interface: String,
        /// Its index in the job, if the agent returned it.
        at: Option<u32>,
        /// It requests a reboot.
        reboot_requested: bool,
        /// Its result; null if there is none.
        result: Value,
        /// It wrote an image that was already on the disk: nothing of it was fetched.
        image_was_on_disk: bool,
    },
    /// Its last step failed.
    StepFailed {
        /// Name of the step, if the agent sent it.
        step: Option<String>,
        /// The agent's own text.
        message: String,
    },
    /// The partitions it has written.
    PartitionsFound(BootPartitions),
    /// The boot loader was installed, or the error.
    BootloaderDone(Result<(), String>),
    /// How far the image is that it writes ahead.
    ImageAhead(ImageAheadReport),
    /// Its hardware managers have other versions than when the steps were read.
    VersionMismatch,
    /// It is busy with another command: repeat at the next heartbeat.
    Busy,
}

/// Why a call to an agent failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AgentError {
    /// No connection, or no reply in time.
    #[error("the agent at {url} cannot be reached: {message}")]
    Unreachable {
        /// The URL that was called.
        url: String,
        /// The error of the connection.
        message: String,
    },
    /// The agent does not know our token: it has restarted.
    #[error("the agent refused our token: it has restarted")]
    TokenRefused,
    /// The agent refused the command.
    #[error("the agent refused the command: {message}")]
    Refused {
        /// The agent's own text.
        message: String,
    },
    /// The reply violates the protocol.
    #[error(
        "the agent sent an invalid reply: {message}; check that it is a stock Ironic Python Agent \
         and that no other program listens at its address"
    )]
    Nonsense {
        /// The error in the reply.
        message: String,
    },
}
