//! Images that are written ahead of a deployment, by the agent of an idle node with fast track.
//!
//! The rack chooses node and image. The record of the session says what may be on the disk, and
//! is stored before the agent gets the order. It counts as written only when the agent has
//! confirmed it, and is dropped with the session or when a job starts. The node stays available:
//! a failure is a note, and any verb goes first, because the agent stops the write for it.

use trivet_drivers::deploy_method;
use trivet_model::interface::DeployInterface;
use trivet_model::{
    AgentError, AgentEvent, AgentOrder, ImageAhead, ImageAheadPhase, ImageAheadReport, Node,
    NoteKind, ProvisionState,
};

use super::bootloader::is_partition;
use super::fast_track::is_ready;
use crate::{NodeAction, NodeLimits, NodeTransition};

/// Whether an image may be written to the disk of this node now: it is available, its agent runs
/// and has cleaned it, and nothing else is intended for it. An image of a file system is none for
/// a whole disk, so a node that gets one is left alone.
pub fn may_write_ahead(node: &Node, limits: &NodeLimits) -> bool {
    node.provision_state == ProvisionState::Available
        && node.job.is_none()
        && !node.maintenance
        && node.instance_uuid.is_none()
        && node.target_power_state.is_none()
        && !node.attributes.retired
        && !node.attributes.protected
        && deploy_method(node) == Some(DeployInterface::Direct)
        && !is_partition(&node.instance_info)
        && is_ready(node, limits)
        && node.agent.as_ref().is_some_and(|agent| agent.is_clean)
}

impl NodeTransition<'_> {
    /// Orders the image, if nothing happened to the node since it was chosen.
    pub(super) fn write_image_ahead(&mut self, ahead: &ImageAhead) {
        if !may_write_ahead(&self.node, self.limits) {
            return;
        }
        if let Some(agent) = &mut self.node.agent {
            agent.ahead = Some(ahead.clone());
            let image = ahead.name.clone();
            self.note(NoteKind::ImageAheadStarted { image });
            let args = serde_json::Value::Null;
            self.actions
                .push(NodeAction::Agent(AgentOrder::WriteImageAhead { args }));
        }
    }

    /// A heartbeat: the agent is asked how far the image is.
    pub(super) fn read_image_ahead(&mut self) {
        if self.writing_ahead().is_some() {
            self.actions
                .push(NodeAction::Agent(AgentOrder::ReadImageAhead));
        }
    }

    fn writing_ahead(&mut self) -> Option<&mut ImageAhead> {
        let ahead = self.node.agent.as_mut()?.ahead.as_mut()?;
        (ahead.phase == ImageAheadPhase::Writing).then_some(ahead)
    }

    /// The agent of a node without a job has replied.
    pub(super) fn idle_agent_replied(
        &mut self,
        order: &AgentOrder,
        answer: &Result<AgentEvent, AgentError>,
    ) {
        let ordered = matches!(order, AgentOrder::WriteImageAhead { .. });
        if !ordered && *order != AgentOrder::ReadImageAhead {
            return;
        }
        match answer {
            Ok(AgentEvent::ImageAhead(report)) => self.image_ahead_reported(report),
            Ok(AgentEvent::Busy) if ordered => {
                self.image_ahead_failed("the agent works on another command");
            }
            // Whether it received the order is read at its next heartbeat.
            Err(AgentError::Unreachable { .. }) | Ok(_) => {}
            Err(error) => self.image_ahead_failed(&error.to_string()),
        }
    }

    fn image_ahead_reported(&mut self, report: &ImageAheadReport) {
        let now = self.now.wall;
        match report {
            ImageAheadReport::Running => {}
            ImageAheadReport::Unknown => {
                self.image_ahead_failed("the agent did not receive the order");
            }
            ImageAheadReport::Failed { message } => self.image_ahead_failed(message),
            ImageAheadReport::Written { digest, bytes } => {
                let Some(ahead) = self.writing_ahead() else {
                    return;
                };
                if ahead.digest != *digest {
                    // It is from an earlier order.
                    return self.image_ahead_failed("the agent did not receive the order");
                }
                ahead.phase = ImageAheadPhase::Written;
                let image = ahead.name.clone();
                let took_ms = now.0.saturating_sub(ahead.started_at.0);
                let bytes = *bytes;
                self.note(NoteKind::ImageAheadWritten {
                    image,
                    bytes,
                    took_ms,
                });
            }
        }
    }

    fn image_ahead_failed(&mut self, why: &str) {
        if let Some(ahead) = self.writing_ahead() {
            ahead.phase = ImageAheadPhase::Failed;
            let (image, why) = (ahead.name.clone(), why.to_owned());
            self.note(NoteKind::ImageAheadFailed { image, why });
        }
    }
}
