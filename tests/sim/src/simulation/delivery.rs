//! Delivers messages of the box and of clients, with the faults of the network.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;

use trivet_rack::{AgentHttpRequest, DhcpDestination};

use super::RackSimulation;
use crate::allocator::ResourceAllocator;
use crate::box_under_test::SimBoxOutput;
use crate::machine::SimHttpRequest;
use crate::network::{
    AgentCall, SimEvent, SimHttpClient, SimHttpExchange, SimHttpResult, bmc_index, relay_index,
};

impl RackSimulation {
    pub(super) fn deliver_all(&mut self, out: Vec<SimBoxOutput>) {
        for sent in out {
            self.deliver(sent);
        }
    }

    /// A datagram to a machine's BMC.
    fn check_bmc_datagram(&mut self, machine: usize, bytes: &[u8]) {
        let (now, life) = (self.now, self.box_under_test.life);
        let node = self.operators.get(machine).map(|operator| operator.node);
        let view = node.and_then(|node| self.box_under_test.durable.nodes.get(&node));
        let bmcs = &mut self.checks.bmcs;
        bmcs.power_change_wanted(now, machine, view.map(|view| &*view.node));
        let broken = bmcs.sent(now, life, machine, bytes);
        self.checks.report(broken);
    }

    fn deliver_bmc(&mut self, to: SocketAddrV4, bytes: Vec<u8>) {
        let known = bmc_index(*to.ip()).filter(|index| *index < self.machines.len());
        let Some(index) = known else { return };
        self.bmc_datagrams += 1;
        self.check_bmc_datagram(index, &bytes);
        if !self.loses_bmc_request(to, &bytes) {
            self.datagram(|bytes| SimEvent::Bmc { to: index, bytes }, bytes);
        }
    }

    fn deliver_tftp(&mut self, peer: SocketAddrV4, from: SocketAddrV4, bytes: Vec<u8>) {
        if let Some(after_ms) = self.slow_tftp_ms(peer, &bytes) {
            let at = self.now.after_ms(after_ms);
            self.queue.push(at, SimEvent::Tftp { peer, from, bytes });
            return;
        }
        self.datagram(|bytes| SimEvent::Tftp { peer, from, bytes }, bytes);
    }

    pub(super) fn deliver(&mut self, sent: SimBoxOutput) {
        match sent {
            SimBoxOutput::Dhcp { to, bytes } => {
                let to = match to {
                    DhcpDestination::Relay(address)
                    | DhcpDestination::BootServiceClient(address) => relay_index(*address.ip()),
                    DhcpDestination::Renewing(address) => self.holder(address),
                    DhcpDestination::Client { mac, .. } => {
                        self.machines.iter().position(|one| one.hardware.mac == mac)
                    }
                };
                if let Some(to) = to {
                    self.datagram(|bytes| SimEvent::Dhcp { to, bytes }, bytes);
                }
            }
            SimBoxOutput::Bmc {
                to: SocketAddr::V4(to),
                bytes,
            } => self.deliver_bmc(to, bytes),
            SimBoxOutput::Bmc { .. } => {}
            SimBoxOutput::Tftp { .. } if self.loses_tftp_data() => {}
            SimBoxOutput::Tftp { to, from, bytes } => self.deliver_tftp(to, from, bytes),
            SimBoxOutput::Http {
                exchange,
                status,
                body,
            } => self.send_response(&exchange, status, body),
            SimBoxOutput::Call {
                node,
                call,
                url,
                verify_ca,
                request,
            } => {
                let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
                let to = AgentCall {
                    life: self.box_under_test.life,
                    node,
                    call,
                    port: port.unwrap_or(0),
                    verify_ca,
                };
                self.call_agent(url, to, request);
            }
            SimBoxOutput::Note { node, kind, label } => {
                let text = format!("{label} {kind}");
                self.checks.check_no_token("a note", &text);
                self.note_written(node, &kind);
                self.trace.line(self.now, format_args!("note {text}"));
            }
        }
    }

    /// The box calls an agent.
    fn call_agent(&mut self, url: String, to: AgentCall, request: AgentHttpRequest) {
        self.agent_called(to.node, to.call, &request);
        // The daemon ends a call after its timeout.
        let result = Err(format!("no answer within {} ms", request.timeout_ms));
        let late = self.now.after_ms(request.timeout_ms);
        self.queue.push(
            late,
            SimEvent::BoxAgentReply {
                to: to.clone(),
                result,
            },
        );
        if let Some(after_ms) = self.http_delay_ms() {
            let at = self.now.after_ms(after_ms);
            self.queue
                .push(at, SimEvent::AgentCalled { url, to, request });
        }
    }

    pub(super) fn send_response(
        &mut self,
        exchange: &Rc<SimHttpExchange>,
        status: u16,
        mut body: Vec<u8>,
    ) {
        self.checks
            .response_sent(exchange, status, &body, &self.box_under_test.durable);
        if matches!(exchange.client, SimHttpClient::Image { .. })
            && self.chance.chance(self.faults.corrupt)
            && let Some(byte) = body.last_mut()
        {
            *byte ^= 1;
        }
        if let Some(after_ms) = self.http_delay_ms() {
            let link_ms = self.link_ms(&exchange.client, body.len());
            let at = self.now.after_ms(after_ms + link_ms);
            let answer = Some((status, body));
            self.queue.push(
                at,
                SimEvent::Http {
                    exchange: exchange.number,
                    answer,
                },
            );
        }
    }

    // The network.

    pub(super) fn datagram(&mut self, event: impl Fn(Vec<u8>) -> SimEvent, bytes: Vec<u8>) {
        let mut copies = u64::from(!self.chance.chance(self.faults.lost));
        copies += copies * u64::from(self.chance.chance(self.faults.doubled));
        for _ in 0..copies {
            let mut after_ms = 1;
            if self.chance.chance(self.faults.late) {
                after_ms += self.chance.below(3000);
            }
            self.queue
                .push(self.now.after_ms(after_ms), event(bytes.clone()));
        }
    }

    /// The delay of an HTTP message; `None` if it is lost.
    pub(super) fn http_delay_ms(&mut self) -> Option<u64> {
        if self.chance.chance(self.faults.http_lost) {
            return None;
        }
        let late = self.chance.chance(self.faults.http_late);
        Some(2 + self.chance.below(8) + if late { self.chance.below(6000) } else { 0 })
    }

    pub(super) fn send_request(
        &mut self,
        who: SimHttpClient,
        peer: Ipv4Addr,
        api: bool,
        request: SimHttpRequest,
    ) {
        self.exchange_number += 1;
        let number = self.exchange_number;
        let exchange = Rc::new(SimHttpExchange {
            number,
            client: who,
            peer,
            api,
            method: request.method,
            path: request.path,
            query: request.query,
            version: request.version,
            body: request.body,
            certificate: request.certificate,
        });
        self.checks.request_sent(&exchange);
        self.exchanges.insert(number, Rc::clone(&exchange));
        let late = self.now.after_ms(request.timeout_ms);
        self.queue.push(
            late,
            SimEvent::Http {
                exchange: number,
                answer: None,
            },
        );
        if self.loses_heartbeat(&exchange.client) || api && self.loses_api_request(&exchange.client)
        {
            return;
        }
        if let Some(after_ms) = self.http_delay_ms() {
            self.queue
                .push(self.now.after_ms(after_ms), SimEvent::BoxHttp(exchange));
        }
    }

    pub(super) fn deliver_response(&mut self, exchange: u64, answer: SimHttpResult) {
        // Only the first of response and timeout counts.
        let Some(exchange) = self.exchanges.remove(&exchange) else {
            return;
        };
        let mut out = Vec::new();
        let machine = match exchange.client.clone() {
            SimHttpClient::Operator { index: operator } => {
                if let Some(after_ms) = self.operators[operator].handle_response(answer) {
                    self.queue.push(
                        self.now.after_ms(after_ms),
                        SimEvent::OperatorDue { index: operator },
                    );
                }
                // Without faults, a node in rescue has a ramdisk with the password.
                if self.faults.are_none()
                    && self.operators[operator].saw_rescue()
                    && !self.machines[operator].rescued
                {
                    let sentence = format!("machine {operator} is in rescue without a password");
                    self.checks.violations.push(sentence);
                }
                return;
            }
            SimHttpClient::Allocator => {
                if let Some(allocator) = &mut self.allocator {
                    allocator.handle_response(&answer);
                }
                return self.schedule_allocator();
            }
            SimHttpClient::Impostor => return,
            SimHttpClient::Firmware { machine, .. }
            | SimHttpClient::Agent { machine, .. }
            | SimHttpClient::Stock { machine, .. }
            | SimHttpClient::Image { machine, .. } => machine,
        };
        self.machines[machine].http(self.now, exchange.client.clone(), answer, &mut out);
        self.apply_outputs(machine, out);
    }

    pub(super) fn schedule_allocator(&mut self) {
        if let Some(after_ms) = self
            .allocator
            .as_mut()
            .and_then(ResourceAllocator::next_delay_ms)
        {
            self.queue
                .push(self.now.after_ms(after_ms), SimEvent::AllocatorDue);
        }
    }

    pub(super) fn run_allocator(&mut self) {
        if let Some(request) = self.allocator.as_mut().map(ResourceAllocator::next_request) {
            self.send_request(
                SimHttpClient::Allocator,
                Ipv4Addr::new(10, 2, 0, 2),
                true,
                request,
            );
        }
    }

    pub(super) fn run_operator(&mut self, operator: usize) {
        let request = self.operators[operator].next_request();
        self.send_request(
            SimHttpClient::Operator { index: operator },
            Ipv4Addr::new(10, 2, 0, 1),
            true,
            request,
        );
    }
}
