//! Swapped BMCs: the wrong machine starts.
//!
//! A node whose `driver_info` names the BMC of another machine boots that machine. Its own
//! machine is never seen, and a port of the other node requests an address although the box did
//! not switch that node on. Once may be chance, such as a pressed power button; twice, after
//! two requests of the same job, is an error in the records. An agent that answers after its
//! BMC reported the last power-off of a deployment is the other indication; the power-ons show
//! which node has the other BMC.
//!
//! This stays in the rack, apart from `trivet_bmc`: it compares power-ons with what the network
//! and the agents show, and no protocol of BMCs knows these.

use std::collections::BTreeMap;

use trivet_model::{MacAddr, NodeId, Now, Tick};
use trivet_node::NodeEvent;

use crate::Rack;

/// How long after a power-on a machine may be seen for the first time. Ours: self-tests take up
/// to three minutes.
const WINDOW_MS: u64 = 180_000;

/// This many power-ons of a node must each be followed by the same other machine.
const TIMES_MIN: u32 = 2;

/// How many other nodes are kept whose machines started after a power-on.
const STARTED_MAX: usize = 3;

/// The latest power-ons; at most one entry for a node.
#[derive(Default)]
pub(super) struct PowerOns {
    last: BTreeMap<NodeId, PowerOn>,
}

struct PowerOn {
    at: Tick,
    /// It is to boot the agent, and was not seen since.
    awaited: bool,
    /// Which other machine was seen instead, after how many power-ons, and whether after the
    /// last one too.
    other_machine: Option<(NodeId, u32, bool)>,
    /// Other nodes whose machines started within [`WINDOW_MS`] although no request had switched
    /// them on. Kept when the node's own machine is seen: the job of the other node may have
    /// switched that on.
    started: Vec<NodeId>,
}

impl PowerOn {
    fn add_started(&mut self, id: NodeId) {
        if !self.started.contains(&id) && self.started.len() < STARTED_MAX {
            self.started.push(id);
        }
    }
}

impl PowerOns {
    pub(super) fn remove(&mut self, id: NodeId) {
        self.last.remove(&id);
    }
}

impl Rack {
    /// A request to switch on or to restart is sent to the node's BMC.
    pub(crate) fn switched_on(&mut self, now: Now, id: NodeId) {
        let node = self.records.node(id);
        let awaited = node.is_some_and(|node| trivet_node::boots_agent(node));
        let before = self.bmcs.power_ons.last.remove(&id);
        let before = before.filter(|_| awaited);
        let (instead, started) = before
            .map(|it| (it.other_machine, it.started))
            .unwrap_or_default();
        let power_on = PowerOn {
            at: now.tick,
            awaited,
            other_machine: instead.map(|(other, times, _)| (other, times, false)),
            started,
        };
        self.bmcs.power_ons.last.insert(id, power_on);
    }

    /// The node's machine was seen in any way: it is the right machine.
    pub(crate) fn own_machine_seen(&mut self, id: NodeId) {
        if let Some(power_on) = self.bmcs.power_ons.last.get_mut(&id) {
            power_on.awaited = false;
            power_on.other_machine = None;
        }
    }

    /// A machine that starts requests an address.
    pub(crate) fn machine_start_seen(&mut self, now: Now, id: NodeId, mac: MacAddr) {
        let within = |at: Tick, ms: u64| now.tick.since_ms(at) <= ms;
        let boot_ms = self.settings.limits.boot_ms;
        let own = self.bmcs.power_ons.last.get(&id);
        // The box itself switched it on.
        if own.is_some_and(|own| within(own.at, boot_ms)) {
            return;
        }
        let mut swapped = Vec::new();
        for (other, power_on) in &mut self.bmcs.power_ons.last {
            if *other == id || !within(power_on.at, WINDOW_MS) {
                continue;
            }
            power_on.add_started(id);
            if !power_on.awaited {
                continue;
            }
            let times = match power_on.other_machine {
                Some((same, _, true)) if same == id => continue,
                Some((same, times, false)) if same == id => times + 1,
                _ => 1,
            };
            power_on.other_machine = Some((id, times, true));
            if times >= TIMES_MIN {
                swapped.push((*other, times));
            }
        }
        for (other, times) in swapped {
            self.bmcs.power_ons.remove(other);
            self.stop_swapped(other, id, mac, times);
        }
    }

    /// The agent of a node answers although its BMC has switched the machine off or restarted
    /// it. Ends the job, and names the nodes whose machines started after the node's power-on.
    /// A job of such a node that waits for its own machine in vain ends too: its BMC switches
    /// another machine.
    pub(crate) fn agent_contradicts_bmc(&mut self, id: NodeId, why: &str) {
        let power_on = self.bmcs.power_ons.last.get(&id);
        let mut others = power_on.map_or_else(Vec::new, |power_on| power_on.started.clone());
        others.retain(|other| self.records.node(*other).is_some());
        let this = self.label_of(id);
        let labels: Vec<_> = others.iter().map(|other| self.label_of(*other)).collect();
        let why = match labels.join(" or ") {
            labels if labels.is_empty() => why.to_owned(),
            labels => format!(
                "{why}; after a power-on of node {this} the machine of node {labels} started \
                 without a request of its own: the BMCs of {this} and {labels} are probably swapped"
            ),
        };
        self.events.push_back((id, NodeEvent::WrongMachine { why }));
        let [other] = others.as_slice() else { return };
        let waits_in_vain = self
            .bmcs
            .power_ons
            .last
            .get(other)
            .is_some_and(|it| it.awaited);
        if waits_in_vain {
            let that = self.label_of(*other);
            let why = format!(
                "the machine of node {that} was not seen since its power-on, but it started after \
                 a power-on of node {this}, whose agent still runs after its BMC reported a \
                 power-off or restart: the BMCs of {that} and {this} are probably swapped; compare \
                 the BMC addresses in driver_info of {that} and {this} with the machines"
            );
            self.events
                .push_back((*other, NodeEvent::WrongMachine { why }));
        }
    }

    fn label_of(&self, id: NodeId) -> String {
        let node = self.records.node(id);
        node.map_or_else(|| id.to_string(), |node| node.label())
    }

    fn stop_swapped(&mut self, id: NodeId, other: NodeId, mac: MacAddr, times: u32) {
        let (this, that) = (self.label_of(id), self.label_of(other));
        let why = format!(
            "power-on of node {this} was followed {times} times by a DHCP request of {mac}, a port \
             of node {that}, and {this} itself was not seen: their BMCs are probably swapped; \
             compare the BMC addresses in driver_info of {this} and {that} with the machines"
        );
        self.events.push_back((id, NodeEvent::WrongMachine { why }));
    }
}
