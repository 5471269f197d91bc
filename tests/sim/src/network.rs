//! Messages in flight: datagrams, HTTP exchanges, and the queue of all events.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use trivet_model::{NodeCertificate, NodeId, Tick};
use trivet_rack::AgentHttpRequest;

use crate::faults::Incident;
use crate::ipa::SimIpaRequestKind;

/// The box's address on the machines' network.
pub(crate) const BOX: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// The URLs of the API and the boot files.
pub(crate) const API_URL: &str = "http://10.0.0.1:6385";
pub(crate) const HTTP_URL: &str = "http://10.0.0.1:8080";

/// The TFTP port (RFC 1350).
pub(crate) const TFTP_PORT: u16 = 69;

/// Timeout of our HTTP clients.
pub(crate) const HTTP_TIMEOUT_MS: u64 = 8000;

/// The relay in front of a machine or unknown machine.
pub(crate) fn relay_address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 200 + index as u8)
}

/// The machine behind this relay.
pub(crate) fn relay_index(address: Ipv4Addr) -> Option<usize> {
    address.octets()[3].checked_sub(200).map(usize::from)
}

/// The address of a machine's BMC.
pub(crate) fn bmc_address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 0, 10 + index as u8)
}

/// The machine of this BMC.
pub(crate) fn bmc_index(address: Ipv4Addr) -> Option<usize> {
    address.octets()[3].checked_sub(10).map(usize::from)
}

/// The path of one of our URLs.
pub(crate) fn url_path(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').map_or("/", |at| &rest[at..])
}

/// The client of an HTTP request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum SimHttpClient {
    /// Firmware fetches a file.
    Firmware { machine: usize, life: u64 },
    /// An agent called the API.
    Agent {
        machine: usize,
        life: u64,
        kind: OwnAgentRequestKind,
    },
    /// A stock agent called the API, in this start of its process.
    Stock {
        machine: usize,
        life: u64,
        start: u64,
        kind: SimIpaRequestKind,
    },
    /// An agent fetches an image for this command.
    Image {
        machine: usize,
        life: u64,
        command: String,
    },
    /// A client with forged requests.
    Impostor,
    /// The operator, about the node of this index.
    Operator { index: usize },
    /// The allocator.
    Allocator,
}

/// The kind of an agent's request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum OwnAgentRequestKind {
    Enrolment,
    Inspection,
    Lookup,
    Heartbeat,
}

/// One HTTP request.
#[derive(Clone, Debug)]
pub(crate) struct SimHttpExchange {
    pub(crate) number: u64,
    pub(crate) client: SimHttpClient,
    pub(crate) peer: Ipv4Addr,
    /// The listener of the box: the API, or boot files.
    pub(crate) api: bool,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) version: Option<String>,
    pub(crate) body: Vec<u8>,
    /// The certificate of the connection.
    pub(crate) certificate: Option<NodeCertificate>,
}

/// Status and body, or `None` without a response.
pub(crate) type SimHttpResult = Option<(u16, Vec<u8>)>;

/// A call to an agent, in flight or held by it.
#[derive(Clone, Debug)]
pub(crate) struct AgentCall {
    /// The start of the box that calls.
    pub(crate) life: u64,
    pub(crate) node: NodeId,
    pub(crate) call: u64,
    /// The port that is called, and the only certificate that is trusted there.
    pub(crate) port: u16,
    pub(crate) verify_ca: Option<String>,
}

/// Something that happens at a time.
#[derive(Debug)]
pub(crate) enum SimEvent {
    /// The box's power comes back.
    BoxStart,
    /// The box handles its inputs.
    BoxBatch { life: u64 },
    /// The box has something due.
    BoxTick { life: u64 },
    /// A DHCP frame reaches the box.
    BoxDhcp { from: usize, bytes: Vec<u8> },
    /// A datagram of a BMC reaches the box.
    BoxBmc { from: usize, bytes: Vec<u8> },
    /// A TFTP datagram reaches the box.
    BoxTftp {
        peer: SocketAddrV4,
        port: u16,
        bytes: Vec<u8>,
    },
    /// An HTTP request reaches the box.
    BoxHttp(Rc<SimHttpExchange>),
    /// An agent's reply reaches the box, or the call has failed.
    BoxAgentReply {
        to: AgentCall,
        result: Result<(u16, Vec<u8>), String>,
    },
    /// A DHCP frame reaches a machine or unknown machine.
    Dhcp { to: usize, bytes: Vec<u8> },
    /// A datagram reaches a BMC.
    Bmc { to: usize, bytes: Vec<u8> },
    /// A TFTP datagram reaches a machine.
    Tftp {
        peer: SocketAddrV4,
        from: SocketAddrV4,
        bytes: Vec<u8>,
    },
    /// An HTTP client gets a response or a timeout.
    Http {
        exchange: u64,
        answer: SimHttpResult,
    },
    /// A call reaches an agent.
    AgentCalled {
        url: String,
        to: AgentCall,
        request: AgentHttpRequest,
    },
    /// A machine or unknown machine has something due.
    Tick { machine: usize },
    /// An agent's work is done.
    WorkDone {
        machine: usize,
        life: u64,
        command: String,
    },
    /// The operator checks a node.
    OperatorDue { index: usize },
    /// The allocator acts.
    AllocatorDue,
    /// A fault happens.
    Incident(Incident),
    /// A BMC recovers.
    BmcRecovers { machine: usize },
}

/// All future events, in order of time and then of queueing.
#[derive(Debug, Default)]
pub(crate) struct SimEventQueue {
    events: BTreeMap<(Tick, u64), SimEvent>,
    number: u64,
}

impl SimEventQueue {
    pub(crate) fn push(&mut self, at: Tick, event: SimEvent) {
        self.number += 1;
        self.events.insert((at, self.number), event);
    }

    pub(crate) fn pop(&mut self) -> Option<(Tick, SimEvent)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_time_keep_the_order_of_queueing() {
        let mut queue = SimEventQueue::default();
        queue.push(Tick(5), SimEvent::OperatorDue { index: 1 });
        queue.push(Tick(4), SimEvent::OperatorDue { index: 2 });
        queue.push(Tick(5), SimEvent::OperatorDue { index: 3 });
        let order: Vec<_> = std::iter::from_fn(|| queue.pop())
            .map(|(at, event)| match event {
                SimEvent::OperatorDue { index: operator } => (at.0, operator),
                _ => unreachable!(),
            })
            .collect();
        assert_eq!(order, [(4, 2), (5, 1), (5, 3)]);
    }

    #[test]
    fn addresses_map_back_to_their_machine() {
        for index in [0, 6] {
            assert_eq!(relay_index(relay_address(index)), Some(index));
            assert_eq!(bmc_index(bmc_address(index)), Some(index));
        }
    }
}
