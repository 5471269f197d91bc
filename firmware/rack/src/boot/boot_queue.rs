//! The queue of machines that boot from the network.
//!
//! `trivet_bootqueue` decides which machine may boot; this module connects it to the rack. Only
//! orders that switch on a machine whose plan is to load something from the network are queued.
//! A job is not affected: it waits for the BMC's reply, which comes after admission, and its
//! timers start with that reply.

use trivet_bootqueue::{BootAdmission, BootQueue, BootTimeouts, FetchedBootFile};
use trivet_model::{JobPhase, MacAddr, Node, NodeId, NoteKind, Now, PowerOrder};

use super::BootPart;
use super::plan::plan;
use crate::records::RecordIndex;
use crate::{Rack, Settings};

/// A last file that takes this fraction of the agent's time limit is slow: the machine needs
/// about as much time again before its first heartbeat.
const SLOW_SHARE: u64 = 8;

pub(super) fn new_boot_queue(settings: &Settings) -> BootQueue {
    let limits = &settings.limits;
    let timeouts = BootTimeouts {
        idle_ms: limits.boot_ms,
        slow_file_ms: limits.agent_wait_ms / SLOW_SHARE,
    };
    BootQueue::new(settings.boots_at_once, timeouts)
}

impl BootPart {
    /// The node has left the queue: those behind it get new positions.
    pub(super) fn renumber(&self, records: &mut RecordIndex, id: NodeId, place: Option<usize>) {
        let Some(place) = place else { return };
        records.change_view(id, |view| view.live.queue_number = None);
        for (node, number) in self.queue.queued_from(place) {
            records.change_view(node, |view| view.live.queue_number = Some(number));
        }
    }
}

impl Rack {
    /// Sends a power order, or queues it until the machine is admitted.
    pub(crate) fn order_power(&mut self, now: Now, id: NodeId, order: PowerOrder) {
        match order {
            PowerOrder::Off if self.awaits_source(now, id) => return,
            PowerOrder::Off | PowerOrder::SoftOff => {
                let place = self.boot.queue.boot_failed(now.tick, id);
                self.boot.renumber(&mut self.records, id, place);
            }
            PowerOrder::On | PowerOrder::Reset if self.awaits_boot_files(now, id, order) => {
                return;
            }
            PowerOrder::On | PowerOrder::Cycle | PowerOrder::Reset
                if self.loads_from_net(id) && !self.admit_boot(now, id, order) =>
            {
                return;
            }
            _ => {}
        }
        self.start_order(now, id, order);
    }

    fn loads_from_net(&self, id: NodeId) -> bool {
        let (node, urls) = (self.records.node(id), self.settings.urls_for(None));
        node.is_some_and(|node| plan(&self.settings, &urls, node).is_net())
    }

    fn admit_boot(&mut self, now: Now, id: NodeId, order: PowerOrder) -> bool {
        match self.boot.queue.admit(now.tick, id, order) {
            BootAdmission::Admitted => true,
            BootAdmission::AlreadyQueued => false,
            BootAdmission::Queued { ahead, number } => {
                self.records
                    .change_view(id, |view| view.live.queue_number = Some(number));
                self.note(now, Some(id), NoteKind::BootQueued { ahead });
                false
            }
        }
    }

    /// Sends the orders of admitted machines; returns whether there were any.
    pub(crate) fn start_admitted_boots(&mut self, now: Now) -> bool {
        let mut any = false;
        while let Some((id, order)) = self.boot.queue.next(now.tick) {
            self.records
                .change_view(id, |view| view.live.queue_number = None);
            self.start_order(now, id, order);
            any = true;
        }
        self.records.view.boot_queue = self.boot.queue.counts();
        any
    }

    /// Removes the node from the queue and from the count, for any reason.
    pub(crate) fn leave_boot_queue(&mut self, id: NodeId) {
        let place = self.boot.queue.remove(id);
        self.boot.renumber(&mut self.records, id, place);
    }

    /// The record changed: a job that ended or was aborted no longer boots.
    pub(crate) fn check_boot(&mut self, id: NodeId) {
        if self.boot.queue.contains(id) && !self.loads_from_net(id) {
            self.leave_boot_queue(id);
        }
    }

    /// After a restart of the box: a machine that was booting may still load its files.
    pub(crate) fn resume_boot(&mut self, now: Now, node: &Node) {
        let boots = |job: &trivet_model::Job| job.phase == JobPhase::AwaitAgent;
        if node.agent.is_none() && node.job.as_ref().is_some_and(boots) {
            self.boot.queue.resume(now.tick, node.id);
        }
    }

    /// A file is being sent, or was sent, to a machine that boots.
    pub(crate) fn boot_file_progress(
        &mut self,
        now: Now,
        id: NodeId,
        path: &str,
        file: FetchedBootFile,
        ended: bool,
    ) {
        if !self.boot.queue.contains(id) {
            return;
        }
        self.boot.queue.machine_seen(now.tick, id);
        // A machine that failed before its last file was sent shows nothing about the link:
        // this box may have refused it the file.
        if file.requested == 0 || self.last_file(id).as_deref() != Some(path) {
            return;
        }
        self.boot.queue.file_started(now.tick, id);
        if ended {
            self.boot.queue.file_finished(now.tick, id, file);
        }
    }

    /// The path of the last file of a node's boot, where this box serves all of it.
    fn last_file(&self, id: NodeId) -> Option<String> {
        let urls = self.settings.urls_for(None);
        let plan = self.boot_plan(self.records.node(id)?, &urls);
        let path = plan.last_file()?.strip_prefix(&self.settings.http_url)?;
        path.starts_with('/').then(|| path.to_owned())
    }

    /// A script was sent. What it loads from other servers or in parts is not seen here, so
    /// such a boot is no longer counted.
    pub(crate) fn script_sent(&mut self, mac: MacAddr) {
        if let Some(id) = self.records.node_of_mac(mac)
            && self.boot.queue.contains(id)
            && self.loads_from_net(id)
            && self.last_file(id).is_none()
        {
            self.boot.queue.boot_finished(id);
        }
    }
}
