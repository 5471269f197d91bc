//! The stages of a job.

use core::fmt;

use serde::{Deserialize, Serialize};

/// A stage of a job, in the order in which a machine passes them.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Stage {
    /// The BMC switches the machine.
    Power,
    /// The firmware tests the machine, until its first packet.
    Post,
    /// The firmware gets its address.
    Address,
    /// The loader is transferred.
    Loader,
    /// The loader reads its script.
    Script,
    /// The kernel is transferred.
    Kernel,
    /// The ramdisk is transferred.
    Ramdisk,
    /// The agent starts and calls.
    Agent,
    /// The steps of the job run.
    Steps,
    /// The image is written.
    Image,
    /// The boot loader is installed or the boot device is set.
    BootLoader,
    /// The machine boots from its disk.
    DiskBoot,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Self; 12] = [
        Self::Power,
        Self::Post,
        Self::Address,
        Self::Loader,
        Self::Script,
        Self::Kernel,
        Self::Ramdisk,
        Self::Agent,
        Self::Steps,
        Self::Image,
        Self::BootLoader,
        Self::DiskBoot,
    ];

    /// Its name, as people and programs read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Power => "power",
            Self::Post => "POST",
            Self::Address => "address",
            Self::Loader => "loader",
            Self::Script => "script",
            Self::Kernel => "kernel",
            Self::Ramdisk => "ramdisk",
            Self::Agent => "agent",
            Self::Steps => "steps",
            Self::Image => "image",
            Self::BootLoader => "boot loader",
            Self::DiskBoot => "disk boot",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The state of a stage.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum StageState {
    /// It is complete.
    Done,
    /// It runs.
    Running,
    /// It runs for much longer than usual.
    Late,
    /// It failed.
    Failed,
    /// The job did not need it.
    Skipped,
}
