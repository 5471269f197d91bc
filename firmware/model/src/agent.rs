//! Orders to the agent and what comes back, free of its wire format.

use std::collections::BTreeMap;

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::words;

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

/// One step of a job, as the agent describes it and as it is asked to run it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobStep {
    /// Name, such as `erase_devices`.
    pub step: String,
    /// Ironic's interface word, such as `deploy` or `raid`.
    pub interface: String,
    /// Higher runs earlier; zero runs only on request.
    pub priority: i64,
    /// Keyword arguments, an object.
    pub args: Value,
    /// The agent wants a reboot after it.
    pub reboot_requested: bool,
    /// The operator may stop it.
    pub abortable: bool,
}

/// What we want from an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentOrder {
    /// Which steps do you have?
    GetSteps(StepKind),
    /// Run this step.
    Execute {
        /// Of which kind.
        kind: StepKind,
        /// The step with its arguments.
        step: JobStep,
        /// Its place in the job: the agent gives it back, so that an answer about an
        /// earlier step of the same name is not taken for one about this.
        at: u32,
        /// Versions of the hardware managers, as `GetSteps` told them.
        versions: BTreeMap<String, String>,
    },
    /// What became of your last command?
    ListCommands,
    /// Set the rescue password that stands hashed in `instance_info`, and stop serving.
    FinishRescue,
    /// Where does what you wrote begin?
    FindPartitions,
    /// Make what you wrote start when the machine does.
    InstallBootloader {
        /// As the agent found them.
        partitions: BootPartitions,
        /// `uefi` or `bios`.
        boot_mode: &'static str,
    },
    /// Write buffers to disk.
    Sync,
    /// Shut the machine down.
    PowerOff,
    /// Stop serving and heartbeating, and take the network interfaces down, until the machine
    /// restarts.
    Lockdown,
}

/// Identifiers of the parts of a written disk that starting it is about.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct BootPartitions {
    /// Of the root file system; of the whole disk where the image is one.
    pub root: Option<String>,
    /// Of the EFI system partition.
    pub efi: Option<String>,
    /// Of the partition that POWER machines start from.
    pub prep: Option<String>,
}

/// What an agent's answer means.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentEvent {
    /// Its steps, in the order it gave them.
    StepsListed {
        /// All steps, of priority zero too.
        steps: Vec<JobStep>,
        /// Versions of its hardware managers.
        versions: BTreeMap<String, String>,
        /// The same steps for people, by interface and with what their arguments mean.
        listed: Value,
    },
    /// It has taken the command and works on it.
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
        /// Its place in the job, if the agent gave it back.
        at: Option<u32>,
        /// It asked for a reboot.
        reboot_requested: bool,
        /// What it brought; null without.
        result: Value,
    },
    /// Its last step failed.
    StepFailed {
        /// Name of the step, if the agent said.
        step: Option<String>,
        /// The agent's own words.
        message: String,
    },
    /// It has written these.
    PartitionsFound(BootPartitions),
    /// Its last command made the disk start, or could not.
    BootloaderDone(Result<(), String>),
    /// Its hardware managers are not those whose steps we read.
    VersionMismatch,
    /// It is busy with another command: ask again at the next heartbeat.
    Busy,
}

/// Why a call to an agent brought no answer that we can use.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AgentError {
    /// No connection, or no answer in time.
    #[error("the agent at {url} cannot be reached: {said}")]
    Unreachable {
        /// Where we called.
        url: String,
        /// What the connection said.
        said: String,
    },
    /// The agent does not know our token: it has restarted.
    #[error("the agent refused our token: it has restarted")]
    TokenRefused,
    /// The agent refused the command.
    #[error("the agent refused the command: {said}")]
    Refused {
        /// Its own words.
        said: String,
    },
    /// The answer is not what the protocol says.
    #[error(
        "the agent sent nonsense: {said}; is it a stock Ironic Python Agent, and does nothing else \
         listen at its address?"
    )]
    Nonsense {
        /// What was wrong with it.
        said: String,
    },
}
