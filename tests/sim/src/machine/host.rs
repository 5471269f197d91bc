//! A running kernel with its address and, in the ramdisk, its agent.

use trivet_model::Tick;
use trivet_rehearsal::{Hardware, KernelLine};

use super::Effect;
use super::own::{Own, Seat};
use super::stock::Stock;
use crate::ipa::Did;
use crate::lodger::Lodger;

/// A running kernel: the agent's ramdisk or the installed system.
pub(super) struct Host {
    pub(super) lodger: Lodger,
    /// What the agent was started with; none in an installed system or after our own
    /// agent's process has died.
    pub(super) line: Option<KernelLine>,
    pub(super) agent: Option<Agent>,
}

/// Whose agent runs.
pub(super) enum Agent {
    Own(Box<Own>),
    Stock(Box<Stock>),
}

impl Host {
    pub(super) fn deadline(&self) -> Option<Tick> {
        let agent = match &self.agent {
            None => None,
            Some(Agent::Own(own)) => own.brain.wake_at(),
            Some(Agent::Stock(stock)) => stock.deadline(),
        };
        self.lodger.deadline().into_iter().chain(agent).min()
    }

    /// Starts the agent once there is an address, lets out what it wants to say, and
    /// tells what it did.
    pub(super) fn agent_talks(
        &mut self,
        now: Tick,
        hardware: &Hardware,
        stock: Option<u64>,
        (machine, life): (usize, u64),
        out: &mut Vec<Effect>,
    ) -> Vec<Did> {
        let Some(peer) = self.lodger.holds(now) else {
            return Vec::new();
        };
        if self.agent.is_none()
            && let Some(line) = &self.line
            && line.api_url.is_some()
        {
            self.agent = Some(match stock {
                Some(seed) => Agent::Stock(Box::new(Stock::new(now, hardware, line, peer, seed))),
                None => Agent::Own(Box::new(Own::new(hardware, line, peer))),
            });
        }
        let seat = Seat {
            machine,
            life,
            peer,
        };
        match &mut self.agent {
            None => {}
            Some(Agent::Own(own)) => own.talks(now, seat, out),
            Some(Agent::Stock(stock)) => return stock.talks(now, seat, out),
        }
        Vec::new()
    }
}
