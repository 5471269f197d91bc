//! What leaves the box or a client, and what the wires make of it.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use trivet_rack::{Call, Destination};

use super::World;
use crate::boxed::Sent;
use crate::clerk::Clerk;
use crate::machine::Asks;
use crate::wires::{AgentCall, Answer, Event, Exchange, Who, of_bmc, of_relay};

impl World {
    pub(super) fn carry_all(&mut self, out: Vec<Sent>) {
        for sent in out {
            self.carry(sent);
        }
    }

    /// A datagram leaves for a machine's BMC.
    fn bmc_sees(&mut self, machine: usize, bytes: &[u8]) {
        let (now, life) = (self.now, self.boxed.life);
        let node = self.desks.get(machine).map(|desk| desk.node);
        let view = node.and_then(|node| self.boxed.durable.nodes.get(&node));
        let bmcs = &mut self.checks.bmcs;
        bmcs.wanted(now, machine, view.map(|view| &*view.node));
        let broken = bmcs.sent(now, life, machine, bytes);
        self.checks.say(broken);
    }

    pub(super) fn carry(&mut self, sent: Sent) {
        match sent {
            Sent::Dhcp { to, bytes } => {
                let to = match to {
                    Destination::Relay(address) | Destination::Asker(address) => {
                        of_relay(*address.ip())
                    }
                    Destination::Renewing(address) => self.holder(address),
                    Destination::Client { mac, .. } => {
                        self.machines.iter().position(|one| one.hardware.mac == mac)
                    }
                };
                if let Some(to) = to {
                    self.datagram(|bytes| Event::Dhcp { to, bytes }, bytes);
                }
            }
            Sent::Bmc {
                to: SocketAddr::V4(to),
                bytes,
            } => {
                let known = of_bmc(*to.ip()).filter(|index| *index < self.machines.len());
                if let Some(to) = known {
                    self.bmc_sees(to, &bytes);
                    self.datagram(|bytes| Event::Bmc { to, bytes }, bytes);
                }
            }
            Sent::Bmc { .. } => {}
            Sent::Tftp { to, from, bytes } => {
                self.datagram(
                    |bytes| Event::Tftp {
                        peer: to,
                        from,
                        bytes,
                    },
                    bytes,
                );
            }
            Sent::Http {
                exchange,
                status,
                body,
            } => self.answers(&exchange, status, body),
            Sent::Call {
                node,
                call,
                url,
                verify_ca,
                request,
            } => {
                let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
                let to = AgentCall {
                    life: self.boxed.life,
                    node,
                    call,
                    port: port.unwrap_or(0),
                    verify_ca,
                };
                self.calls(url, to, request);
            }
            Sent::Note { node, kind, label } => {
                let text = format!("{label} {kind}");
                self.checks.words("a note", &text);
                self.noted(node, &kind);
                self.trace.line(self.now, format_args!("note {text}"));
            }
        }
    }

    /// The box calls an agent.
    fn calls(&mut self, url: String, to: AgentCall, request: Call) {
        self.ordered(to.node, to.call, &request);
        // The daemon gives a call up after its time-out.
        let result = Err(format!("no answer within {} ms", request.timeout_ms));
        let late = self.now.after_ms(request.timeout_ms);
        self.queue.push(
            late,
            Event::BoxAnswered {
                to: to.clone(),
                result,
            },
        );
        if let Some(after_ms) = self.http_way() {
            let at = self.now.after_ms(after_ms);
            self.queue.push(at, Event::Called { url, to, request });
        }
    }

    pub(super) fn answers(&mut self, exchange: &Rc<Exchange>, status: u16, mut body: Vec<u8>) {
        self.checks
            .answered(exchange, status, &body, &self.boxed.durable);
        if matches!(exchange.who, Who::Image { .. })
            && self.chance.chance(self.faults.corrupt)
            && let Some(byte) = body.last_mut()
        {
            *byte ^= 1;
        }
        if let Some(after_ms) = self.http_way() {
            let at = self.now.after_ms(after_ms);
            let answer = Some((status, body));
            self.queue.push(
                at,
                Event::Http {
                    exchange: exchange.number,
                    answer,
                },
            );
        }
    }

    // The wires.

    pub(super) fn datagram(&mut self, event: impl Fn(Vec<u8>) -> Event, bytes: Vec<u8>) {
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

    /// How long an HTTP message takes; none if it is lost.
    pub(super) fn http_way(&mut self) -> Option<u64> {
        if self.chance.chance(self.faults.http_lost) {
            return None;
        }
        let late = self.chance.chance(self.faults.http_late);
        Some(2 + self.chance.below(8) + if late { self.chance.below(6000) } else { 0 })
    }

    pub(super) fn asks(&mut self, who: Who, peer: Ipv4Addr, api: bool, asks: Asks) {
        self.exchange_number += 1;
        let number = self.exchange_number;
        let exchange = Rc::new(Exchange {
            number,
            who,
            peer,
            api,
            method: asks.method,
            path: asks.path,
            query: asks.query,
            version: asks.version,
            body: asks.body,
        });
        self.checks.asked(&exchange);
        self.exchanges.insert(number, Rc::clone(&exchange));
        let late = self.now.after_ms(asks.timeout_ms);
        self.queue.push(
            late,
            Event::Http {
                exchange: number,
                answer: None,
            },
        );
        if self.is_muted(&exchange.who) {
            return;
        }
        if let Some(after_ms) = self.http_way() {
            self.queue
                .push(self.now.after_ms(after_ms), Event::BoxHttp(exchange));
        }
    }

    pub(super) fn hears(&mut self, exchange: u64, answer: Answer) {
        // Only the first of answer and time-out counts.
        let Some(exchange) = self.exchanges.remove(&exchange) else {
            return;
        };
        let mut out = Vec::new();
        let machine = match exchange.who.clone() {
            Who::Operator { desk } => {
                if let Some(after_ms) = self.desks[desk].hears(answer) {
                    self.queue
                        .push(self.now.after_ms(after_ms), Event::Desk { desk });
                }
                // Where nothing goes wrong, a node in rescue has a ramdisk that lets in.
                if self.faults.are_none()
                    && self.desks[desk].saw_rescue()
                    && !self.machines[desk].rescued
                {
                    let sentence = format!("machine {desk} is in rescue without a password");
                    self.checks.broken.push(sentence);
                }
                return;
            }
            Who::Clerk => {
                if let Some(clerk) = &mut self.clerk {
                    clerk.hears(&answer);
                }
                return self.clerk_pauses();
            }
            Who::Impostor => return,
            Who::Firmware { machine, .. }
            | Who::Agent { machine, .. }
            | Who::Stock { machine, .. }
            | Who::Image { machine, .. } => machine,
        };
        self.machines[machine].http(self.now, exchange.who.clone(), answer, &mut out);
        self.follow(machine, out);
    }

    pub(super) fn clerk_pauses(&mut self) {
        if let Some(after_ms) = self.clerk.as_mut().and_then(Clerk::pauses) {
            self.queue.push(self.now.after_ms(after_ms), Event::Clerk);
        }
    }

    pub(super) fn clerk_asks(&mut self) {
        if let Some(asks) = self.clerk.as_mut().map(Clerk::asks) {
            self.asks(Who::Clerk, Ipv4Addr::new(10, 2, 0, 2), true, asks);
        }
    }

    pub(super) fn desk_asks(&mut self, desk: usize) {
        let asks = self.desks[desk].asks();
        self.asks(
            Who::Operator { desk },
            Ipv4Addr::new(10, 2, 0, 1),
            true,
            asks,
        );
    }
}
