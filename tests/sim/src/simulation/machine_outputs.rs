//! Handles the outputs of machines, and incidents.

use std::net::Ipv4Addr;

use trivet_agent_wire::{HEARTBEAT_PATH, LOOKUP_PATH};
use trivet_model::ProvisionState;

use super::RackSimulation;
use crate::faults::Incident;
use crate::machine::{
    InjectedAgentFault, SimHttpRequest, SimMachineDisk, SimMachineOutput, THIRD_REQUEST, WRITE_MS,
};
use crate::network::{AgentCall, SimEvent, SimHttpClient};

impl RackSimulation {
    pub(super) fn deliver_call(
        &mut self,
        url: &str,
        to: AgentCall,
        request: &trivet_rack::AgentHttpRequest,
    ) {
        let host = url.split("://").nth(1).unwrap_or_default();
        let host = host.split(':').next().unwrap_or_default();
        let holder = host.parse().ok().and_then(|address| self.holder(address));
        let Some(machine) = holder else {
            // No machine has that address: the call times out.
            return;
        };
        if self.refuses_calls() {
            let (at, result) = (self.now.after_ms(2), Err("connection refused".to_owned()));
            self.queue.push(at, SimEvent::BoxAgentReply { to, result });
            return;
        }
        let mut out = Vec::new();
        self.machines[machine].handle_call(self.now, to, request, &mut out);
        self.apply_outputs(machine, out);
    }

    /// Executes the outputs of a machine.
    pub(super) fn apply_outputs(&mut self, index: usize, out: Vec<SimMachineOutput>) {
        for effect in out {
            self.apply_output(index, effect);
        }
        let Some(machine) = self.machines.get_mut(index) else {
            return;
        };
        if let Some(at) = machine.deadline()
            && machine.tick_at.is_none_or(|armed| at < armed)
        {
            machine.tick_at = Some(at.max(self.now));
            self.queue
                .push(at.max(self.now), SimEvent::Tick { machine: index });
        }
    }

    pub(super) fn apply_output(&mut self, index: usize, effect: SimMachineOutput) {
        match effect {
            SimMachineOutput::Dhcp(bytes) => {
                if self.loses_dhcp(index, &bytes) {
                    return;
                }
                self.datagram(|bytes| SimEvent::BoxDhcp { from: index, bytes }, bytes);
            }
            SimMachineOutput::Controlled(order) => {
                let broken = self.checks.bmcs.check_power_order(self.now, index, order);
                self.checks.report(broken);
            }
            SimMachineOutput::Bmc(bytes) => {
                self.datagram(|bytes| SimEvent::BoxBmc { from: index, bytes }, bytes);
            }
            SimMachineOutput::Tftp { peer, to, bytes } => {
                let port = to.port();
                if self.loses_tftp_request(port) {
                    return;
                }
                self.datagram(|bytes| SimEvent::BoxTftp { peer, port, bytes }, bytes);
            }
            SimMachineOutput::Http {
                client: who,
                peer,
                api,
                request,
            } => self.send_request(who, peer, api, request),
            SimMachineOutput::Answer { to, result } => self.send_agent_reply(index, &to, &result),
            SimMachineOutput::WorkEnds {
                life,
                command,
                after_ms,
            } => {
                let at = self.now.after_ms(after_ms);
                self.queue.push(
                    at,
                    SimEvent::WorkDone {
                        machine: index,
                        life,
                        command,
                    },
                );
            }
            SimMachineOutput::Writing => self.image_write_started(index),
            SimMachineOutput::AddressBound(address) => {
                self.trace
                    .line(self.now, format_args!("{index} holds {address}"));
                self.check_addresses();
            }
            SimMachineOutput::BootsDisk => self.disk_booted(index),
            SimMachineOutput::Observed(what) => {
                // Only after a restart of the box or with message loss may it send more
                // requests.
                let quiet = what == THIRD_REQUEST && self.faults.are_none();
                let broken = quiet.then(|| format!("machine {index}: {what}"));
                self.checks.report(broken);
                self.count_observation(what, index);
            }
            SimMachineOutput::AgentCalled(served) => {
                match self.checks.agents.check_call(index, &served) {
                    Ok(None) => {}
                    Ok(Some(what)) => self.count_observation(what, index),
                    Err(broken) => self.checks.report(Some(broken)),
                }
            }
            SimMachineOutput::Log(text) => self.trace.line(self.now, format_args!("{text}")),
        }
    }

    /// Sends the reply of an agent.
    fn send_agent_reply(
        &mut self,
        index: usize,
        to: &AgentCall,
        result: &Result<(u16, Vec<u8>), String>,
    ) {
        let copies = 1 + u64::from(self.chance.chance(self.faults.answered_twice));
        for _ in 0..copies {
            if let Some(after_ms) = self.http_delay_ms() {
                let at = self.now.after_ms(after_ms);
                let (to, result) = (to.clone(), result.clone());
                self.queue.push(at, SimEvent::BoxAgentReply { to, result });
            } else if copies == 1 && result.is_ok() {
                self.count_observation("answer lost", index);
            }
        }
    }

    /// The write of an image has started, at which agents may die and power may fail.
    fn image_write_started(&mut self, index: usize) {
        let at = self.now.after_ms(self.chance.below(WRITE_MS));
        if self.chance.chance(self.faults.dies_writing) {
            let incident = Incident::Agent {
                machine: index,
                fault: InjectedAgentFault::Dies,
            };
            self.queue.push(at, SimEvent::Incident(incident));
        } else if self.chance.chance(self.faults.cut_writing) {
            let back = self.chance.chance(500);
            let incident = Incident::PowerLoss {
                machine: index,
                back,
            };
            self.queue.push(at, SimEvent::Incident(incident));
        }
    }

    pub(super) fn disk_booted(&mut self, index: usize) {
        let id = self.operators[index].node;
        let state = self
            .box_under_test
            .durable
            .nodes
            .get(&id)
            .map(|view| view.node.provision_state);
        let disk = self.machines[index].disk;
        self.trace.line(
            self.now,
            format_args!("{index} boots its disk: {disk:?} {state:?}"),
        );
        let active = state == Some(ProvisionState::Active);
        self.checks
            .check_disk_boot(index, active, disk == SimMachineDisk::Image(self.image));
    }

    pub(super) fn apply_incident(&mut self, incident: Incident) {
        let (now, mut out) = (self.now, Vec::new());
        match incident {
            Incident::BoxCut { off_ms } => {
                if self.box_under_test.running.is_some() {
                    self.count_observation_for_all("box cut");
                    self.box_under_test.cut_power();
                    self.queue.push(now.after_ms(off_ms), SimEvent::BoxStart);
                }
            }
            Incident::BoxCutInCommit { operations, off_ms } => {
                self.off_ms = off_ms;
                self.box_under_test.cut_power_in_commit(operations);
            }
            Incident::ClockStep { by_ms } => self.wall_offset_ms += by_ms,
            Incident::BmcHangs { machine, for_ms } => {
                self.machines[machine].bmc_hangs = true;
                if let Some(ms) = for_ms {
                    self.queue
                        .push(now.after_ms(ms), SimEvent::BmcRecovers { machine });
                }
            }
            Incident::BmcMisbehaves {
                machine,
                fault: mismatch,
                for_ms,
            } => {
                self.machines[machine].bmc_fault = Some(mismatch);
                self.queue
                    .push(now.after_ms(for_ms), SimEvent::BmcRecovers { machine });
            }
            Incident::Agent {
                machine,
                fault: blow,
            } => {
                if self.machines[machine].inject_agent_fault(now, blow, &mut out) {
                    self.count_observation(blow.as_str(), machine);
                }
                self.apply_outputs(machine, out);
            }
            Incident::HeartbeatsLost { machine, for_ms } => {
                self.machines[machine].heartbeats_lost_until = Some(now.after_ms(for_ms));
            }
            Incident::Image(fault) => {
                if self.box_under_test.inject_image_fault(fault) {
                    *self.observed.entry(fault.name().to_owned()).or_default() += 1;
                }
            }
            Incident::Impostor { machine } => self.send_forged_requests(machine),
            Incident::PowerLoss { machine, back } => {
                self.machines[machine].lose_power(now, back, &mut out);
                self.apply_outputs(machine, out);
            }
        }
    }

    /// Sends a heartbeat with a guessed token, and a lookup for a token.
    fn send_forged_requests(&mut self, machine: usize) {
        let peer = Ipv4Addr::new(10, 0, 0, 250);
        let node = self.operators[machine].node;
        let body = serde_json::json!({
            "callback_url": "http://10.0.0.250:9999", "agent_token": "guess".repeat(9),
            "agent_version": "13.0.0",
        });
        let mut heartbeat = SimHttpRequest::get(&format!("{HEARTBEAT_PATH}{node}"));
        (heartbeat.method, heartbeat.body) = ("POST", body.to_string().into_bytes());
        self.send_request(SimHttpClient::Impostor, peer, true, heartbeat);
        if self.chance.chance(500) {
            let mac = self.machines[machine].hardware.mac;
            let request = SimHttpRequest::get(&format!("{LOOKUP_PATH}?addresses={mac}"));
            self.send_request(SimHttpClient::Impostor, peer, true, request);
        }
    }
}
