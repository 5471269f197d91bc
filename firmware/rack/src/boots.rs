//! Machines that boot from the network wait for their turn.
//!
//! `trivet_storm` decides whose turn it is; here is what it is asked and told. Only
//! orders that switch on a machine whose plan is to load something from the network are
//! held back. A job notices nothing: what it waits for is the BMC's answer, which comes
//! after its turn, and its timers begin with that.

use trivet_model::{MacAddr, Node, NodeId, NoteKind, Now, Phase, PowerOrder};
use trivet_storm::{Fetched, Gate, Patience, Turn};

use crate::plan::plan;
use crate::{Rack, Settings};

/// A last file that takes this fraction of the time an agent has is slow: it has as
/// much to do again before it is heard of.
const SLOW_SHARE: u64 = 8;

pub(crate) fn gate(settings: &Settings) -> Gate {
    let limits = &settings.limits;
    let patience = Patience {
        silent_ms: limits.boot_ms,
        slow_ms: limits.agent_wait_ms / SLOW_SHARE,
    };
    Gate::new(settings.boots_at_once, patience)
}

impl Rack {
    /// Gives a power order, or keeps it until it is the machine's turn.
    pub(crate) fn order_power(&mut self, now: Now, id: NodeId, order: PowerOrder) {
        match order {
            PowerOrder::Off | PowerOrder::SoftOff => {
                let place = self.gate.given_up(now.tick, id);
                self.moved_up(id, place);
            }
            PowerOrder::On | PowerOrder::Reset if self.awaits_boot_files(now, id, order) => {
                return;
            }
            PowerOrder::On | PowerOrder::Cycle | PowerOrder::Reset
                if self.loads_from_net(id) && !self.turn(now, id, order) =>
            {
                return;
            }
            _ => {}
        }
        self.start_order(now, id, order);
    }

    fn loads_from_net(&self, id: NodeId) -> bool {
        let (node, urls) = (self.book.node(id), self.settings.urls_for(None));
        node.is_some_and(|node| plan(&self.settings, &urls, node).is_net())
    }

    fn turn(&mut self, now: Now, id: NodeId, order: PowerOrder) -> bool {
        match self.gate.ask(now.tick, id, order) {
            Turn::Now => true,
            Turn::Waits => false,
            Turn::Queued { ahead, number } => {
                self.book
                    .change_view(id, |view| view.live.queued = Some(number));
                self.note(now, Some(id), NoteKind::BootQueued { ahead });
                false
            }
        }
    }

    /// Gives the orders whose turn has come; whether there were any.
    pub(crate) fn let_boot(&mut self, now: Now) -> bool {
        let mut any = false;
        while let Some((id, order)) = self.gate.next(now.tick) {
            self.book.change_view(id, |view| view.live.queued = None);
            self.start_order(now, id, order);
            any = true;
        }
        self.book.view.boots = self.gate.tally();
        any
    }

    /// The node has left its place in the queue: those behind it have new numbers.
    fn moved_up(&mut self, id: NodeId, place: Option<usize>) {
        let Some(place) = place else { return };
        self.book.change_view(id, |view| view.live.queued = None);
        for (node, number) in self.gate.behind(place) {
            self.book
                .change_view(node, |view| view.live.queued = Some(number));
        }
    }

    /// Out of the queue and the count, whatever the reason.
    pub(crate) fn boots_no_more(&mut self, id: NodeId) {
        let place = self.gate.left(id);
        self.moved_up(id, place);
    }

    /// The record changed: a job that ended or was aborted boots nothing any more.
    pub(crate) fn check_boot(&mut self, id: NodeId) {
        if self.gate.knows(id) && !self.loads_from_net(id) {
            self.boots_no_more(id);
        }
    }

    /// After a restart: a machine that was booting may still load.
    pub(crate) fn resume_boot(&mut self, now: Now, node: &Node) {
        let boots = |job: &trivet_model::Job| job.phase == Phase::AwaitAgent;
        if node.agent.is_none() && node.job.as_ref().is_some_and(boots) {
            self.gate.resume(now.tick, node.id);
        }
    }

    /// A file leaves, or has left, for a machine that boots.
    pub(crate) fn boot_loads(
        &mut self,
        now: Now,
        id: NodeId,
        path: &str,
        file: Fetched,
        ended: bool,
    ) {
        if !self.gate.knows(id) {
            return;
        }
        self.gate.heard(now.tick, id);
        // A machine that is given up before its last file came says nothing about the link:
        // this box may have refused it the file.
        if file.asked == 0 || self.last_file(id).as_deref() != Some(path) {
            return;
        }
        self.gate.loads(now.tick, id);
        if ended {
            self.gate.fetched(now.tick, id, file);
        }
    }

    /// The path of the last file of a node's boot, where this box serves it whole.
    fn last_file(&self, id: NodeId) -> Option<String> {
        let urls = self.settings.urls_for(None);
        let plan = self.boot_plan(self.book.node(id)?, &urls);
        let path = plan.last_file()?.strip_prefix(&self.settings.http_url)?;
        path.starts_with('/').then(|| path.to_owned())
    }

    /// A script went out. What it loads from elsewhere, or bit by bit, is not seen here:
    /// such a boot is counted no further.
    pub(crate) fn script_given(&mut self, mac: MacAddr) {
        if let Some(id) = self.book.node_of_mac(mac)
            && self.gate.knows(id)
            && self.loads_from_net(id)
            && self.last_file(id).is_none()
        {
            self.gate.arrived(id);
        }
    }
}
