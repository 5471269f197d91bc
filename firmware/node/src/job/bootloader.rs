//! Makes the written image bootable.
//!
//! A disk image boots on a BIOS machine without further work. UEFI firmware needs a boot entry,
//! a partition image has no boot loader yet, and a software RAID needs one on each of its
//! disks: the agent installs these once all steps are done.

use serde_json::Value;
use trivet_drivers::boot_mode;
use trivet_model::node::JsonObject;
use trivet_model::{
    AgentError, AgentEvent, AgentOrder, BootPartitions, JobKind, JobPhase, Node, NoteKind,
};

use crate::{NodeAction, NodeTransition, steps};

/// The step after which a boot loader may be needed.
pub(super) const WRITE_IMAGE: &str = "write_image";

/// The name of this work in the timeline.
const STEP: &str = "install_bootloader";

impl NodeTransition<'_> {
    /// All steps of a deployment are done.
    pub(super) fn disk_written(&mut self) {
        self.enter(if self.wants_loader() {
            JobPhase::Bootloader
        } else {
            JobPhase::Sync
        });
    }

    pub(super) fn wants_loader(&self) -> bool {
        self.node.job.as_ref().is_some_and(|job| {
            job.kind == JobKind::Deploy
                && job.steps.iter().any(|step| step.step == WRITE_IMAGE)
                && needs_loader(&self.node)
        })
    }

    /// The agent that wrote the image is lost. Only that agent knew the written partitions, and
    /// until they are synced it is not certain that they are on the disk: the image is written
    /// again, if all later steps may be repeated too.
    pub(super) fn rewind_to_write_image(&mut self) {
        let Some(job) = &mut self.node.job else {
            return;
        };
        let write = job.steps.iter().position(|step| step.step == WRITE_IMAGE);
        let done = job.at as usize;
        let Some(write) = write.filter(|at| *at < done && job.kind == JobKind::Deploy) else {
            return;
        };
        let mut since = job.steps.iter().take(done).skip(write);
        if since.all(steps::may_repeat) {
            job.at = u32::try_from(write).unwrap_or_default();
        }
    }

    /// A reply of the agent during the installation.
    pub(super) fn bootloader_replied(
        &mut self,
        order: &AgentOrder,
        answer: Result<AgentEvent, AgentError>,
    ) {
        match (order, answer) {
            (AgentOrder::FindPartitions, Ok(AgentEvent::PartitionsFound(parts))) => {
                self.partitions_found(parts);
            }
            // The command that it works on may be the boot loader already.
            (AgentOrder::FindPartitions, Ok(AgentEvent::Busy)) => {
                self.enter_again(JobPhase::AwaitBootloader);
            }
            (AgentOrder::FindPartitions, Err(error @ AgentError::Unreachable { .. })) => {
                self.retry_later(&error.to_string());
            }
            (AgentOrder::InstallBootloader { .. }, answer) => self.bootloader_accepted(answer),
            (AgentOrder::ListCommands, Ok(event)) => self.bootloader_reported(event),
            (AgentOrder::ListCommands, Err(error @ AgentError::Unreachable { .. })) => {
                self.agent_unreachable(&error);
            }
            (AgentOrder::ListCommands, Err(error)) => self.command_list_unreadable(&error),
            (_, Err(error)) => self.loader_failed(&error.to_string()),
            (_, Ok(_)) => {}
        }
    }

    fn partitions_found(&mut self, parts: BootPartitions) {
        if parts.root.is_none() && is_partition(&self.node.instance_info) {
            return self.fail(
                "the agent does not know the root partition that was written, as it did not write \
                 it or found no file system there; with a partition image no step after \
                 write_image may reboot the machine",
            );
        }
        let boot_mode = boot_mode(&self.node).unwrap_or("bios");
        let order = AgentOrder::InstallBootloader {
            partitions: parts,
            boot_mode,
        };
        self.actions.push(NodeAction::Agent(order));
    }

    /// The reply to the order to install the boot loader.
    fn bootloader_accepted(&mut self, answer: Result<AgentEvent, AgentError>) {
        match answer {
            Ok(AgentEvent::Accepted) => {
                let step = STEP.to_owned();
                self.note(NoteKind::StepStarted { step });
                self.enter_again(JobPhase::AwaitBootloader);
            }
            Ok(AgentEvent::Finished) => self.loader_done(),
            // The agent may have received it, or has worked on it since before this box
            // restarted: its next heartbeat shows.
            Ok(AgentEvent::Busy) | Err(AgentError::Unreachable { .. }) => {
                self.enter_again(JobPhase::AwaitBootloader);
            }
            Err(error) => self.loader_failed(&error.to_string()),
            Ok(_) => {}
        }
    }

    /// The state of the agent's commands during the installation.
    fn bootloader_reported(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::BootloaderDone(Ok(())) => self.loader_done(),
            AgentEvent::BootloaderDone(Err(message)) => self.loader_failed(&message),
            AgentEvent::StepRunning => {}
            _ if self.tried() => {
                self.resumed();
                self.enter_again(JobPhase::Bootloader);
            }
            _ => self.fail("the boot loader is not installed: the agent does not accept the order"),
        }
    }

    fn loader_done(&mut self) {
        let step = STEP.to_owned();
        self.note(NoteKind::StepDone { step });
        self.resumed();
        self.enter(JobPhase::Sync);
    }

    fn loader_failed(&mut self, message: &str) {
        self.fail(&format!(
            "the image is written, but no boot loader was installed: {message}; check that the \
             image matches the machine's boot mode"
        ));
    }
}

fn needs_loader(node: &Node) -> bool {
    boot_mode(node) == Some("uefi")
        || is_partition(&node.instance_info)
        || node.attributes.raid_config.is_software()
}

pub(super) fn is_partition(info: &JsonObject) -> bool {
    info.get("image_type").and_then(Value::as_str) == Some("partition")
}
