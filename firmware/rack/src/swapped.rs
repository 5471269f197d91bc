//! BMCs that are swapped: the wrong machine starts.
//!
//! A node whose `driver_info` names the BMC of another machine boots that machine. Its own is
//! never heard, and a port of the other node asks for an address although nobody switched that
//! node on. Once is chance, as people press buttons; twice, after two requests of the same job,
//! is a mistake in the records.

use std::collections::BTreeMap;

use trivet_model::{MacAddr, NodeId, Now, Tick};
use trivet_node::Event;

use crate::Rack;

/// How long after a power-on a machine may be heard for the first time. Ours: self-tests take
/// up to three minutes.
const WINDOW_MS: u64 = 180_000;

/// So many power-ons of a node must each be followed by the same other machine.
const TIMES_MIN: u32 = 2;

/// What is remembered of power-ons; at most one entry for a node.
#[derive(Default)]
pub(crate) struct PowerOns {
    last: BTreeMap<NodeId, PowerOn>,
}

struct PowerOn {
    at: Tick,
    /// It is to boot the agent, and nothing was heard of it since.
    awaited: bool,
    /// Which other machine was heard instead, after how many power-ons, and whether after the
    /// last one too.
    instead: Option<(NodeId, u32, bool)>,
}

impl PowerOns {
    pub(crate) fn forget(&mut self, id: NodeId) {
        self.last.remove(&id);
    }
}

impl Rack {
    /// A request to switch on or to restart leaves for the node's BMC.
    pub(crate) fn switched_on(&mut self, now: Now, id: NodeId) {
        let node = self.book.node(id);
        let awaited = node.is_some_and(|node| trivet_node::boots_agent(node));
        let before = self.power_ons.last.remove(&id);
        let instead = before.filter(|_| awaited).and_then(|it| it.instead);
        let power_on = PowerOn {
            at: now.tick,
            awaited,
            instead: instead.map(|(other, times, _)| (other, times, false)),
        };
        self.power_ons.last.insert(id, power_on);
    }

    /// The node was heard in any way: it is the machine that it should be.
    pub(crate) fn heard_itself(&mut self, id: NodeId) {
        if let Some(power_on) = self.power_ons.last.get_mut(&id) {
            power_on.awaited = false;
            power_on.instead = None;
        }
    }

    /// A machine that starts asks for an address.
    pub(crate) fn heard_starting(&mut self, now: Now, id: NodeId, mac: MacAddr) {
        let within = |at: Tick, ms: u64| now.tick.since_ms(at) <= ms;
        let boot_ms = self.settings.limits.boot_ms;
        let own = self.power_ons.last.get(&id);
        // Somebody switched it on: no wonder.
        if own.is_some_and(|own| within(own.at, boot_ms)) {
            return;
        }
        let mut swapped = Vec::new();
        for (other, power_on) in &mut self.power_ons.last {
            if *other == id || !power_on.awaited || !within(power_on.at, WINDOW_MS) {
                continue;
            }
            let times = match power_on.instead {
                Some((same, _, true)) if same == id => continue,
                Some((same, times, false)) if same == id => times + 1,
                _ => 1,
            };
            power_on.instead = Some((id, times, true));
            if times >= TIMES_MIN {
                swapped.push((*other, times));
            }
        }
        for (other, times) in swapped {
            self.power_ons.forget(other);
            self.stop_swapped(other, id, mac, times);
        }
    }

    fn stop_swapped(&mut self, id: NodeId, other: NodeId, mac: MacAddr, times: u32) {
        let label = |id| {
            let node = self.book.node(id);
            node.map_or_else(|| NodeId::to_string(&id), |node| node.label())
        };
        let (this, that) = (label(id), label(other));
        let why = format!(
            "power-on of node {this} was followed {times} times by a DHCP request of {mac}, a port \
             of node {that}, and {this} itself was not heard: their BMCs are probably swapped; \
             compare the BMC addresses in driver_info of {this} and {that} with the machines"
        );
        self.events.push_back((id, Event::WrongMachine { why }));
    }
}
