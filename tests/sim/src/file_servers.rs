//! The box's file servers, as the daemon has them: HTTP files and TFTP transfers.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddrV4};
use std::path::Path;
use std::rc::Rc;

use embedded_tftp as tftp;
use trivet_model::{Entropy as _, SeededRandom, Tick};
use trivet_rack::{FileServerProtocol, RackInput};

use crate::box_under_test::SimBoxOutput;
use crate::diagnosed_faults::transfer_ms;
use crate::network::{BOX, SimHttpClient, SimHttpExchange};

/// Most TFTP transfers at a time; further requests are dropped.
const TRANSFERS_MAX: usize = 8;

/// The first port of transfers.
const PORT_FIRST: u16 = 40_000;

enum SimFileRequest {
    Http(Rc<SimHttpExchange>),
    Tftp { peer: SocketAddrV4, packet: Vec<u8> },
}

struct SimTftpTransfer {
    sender: tftp::Sender,
    peer: SocketAddrV4,
    path: String,
    bytes: Vec<u8>,
    began: Tick,
}

/// Pending file requests, and transfers in progress.
#[derive(Default)]
pub(crate) struct SimFileServers {
    tickets: u64,
    pending: BTreeMap<u64, SimFileRequest>,
    transfers: BTreeMap<u16, SimTftpTransfer>,
    ports: u16,
    measures_links: bool,
}

impl SimFileServers {
    /// `measures_links`: transfers take the time of the machine's link.
    pub(crate) fn new(measures_links: bool) -> Self {
        Self {
            measures_links,
            ..Self::default()
        }
    }

    fn took_ms(&self, client: &SimHttpClient, bytes: u64) -> u64 {
        match client {
            SimHttpClient::Image { machine, .. } if self.measures_links => {
                transfer_ms(*machine == 0, bytes)
            }
            _ => 0,
        }
    }

    pub(crate) fn deadline(&self) -> Option<Tick> {
        let deadlines = self
            .transfers
            .values()
            .filter_map(|one| one.sender.deadline());
        // Transfers use microseconds.
        deadlines.min().map(|at_us| Tick(at_us.div_ceil(1000)))
    }

    pub(crate) fn http_request(&mut self, exchange: Rc<SimHttpExchange>) -> RackInput {
        let (peer, path) = (IpAddr::V4(exchange.peer), exchange.path.clone());
        let certificate = exchange.certificate;
        self.tickets += 1;
        self.pending
            .insert(self.tickets, SimFileRequest::Http(exchange));
        RackInput::FileRequested {
            ticket: self.tickets,
            protocol: FileServerProtocol::Http,
            peer,
            certificate,
            path,
        }
    }

    /// A datagram to the TFTP port or to the port of a transfer.
    pub(crate) fn tftp(
        &mut self,
        now: Tick,
        peer: SocketAddrV4,
        port: u16,
        packet: &[u8],
        inbox: &mut dyn FnMut(RackInput),
        out: &mut Vec<SimBoxOutput>,
    ) {
        if port != crate::network::TFTP_PORT {
            if let Some(transfer) = self.transfers.get_mut(&port)
                && transfer.peer == peer
            {
                transfer.sender.datagram(now.0 * 1000, packet);
                self.work(now, inbox, out);
            }
            return;
        }
        if let Ok(tftp::Packet::Read(request)) = tftp::parse(packet)
            && self.transfers.len() < TRANSFERS_MAX
        {
            self.tickets += 1;
            let packet = packet.to_vec();
            let path = request.file.to_owned();
            self.pending
                .insert(self.tickets, SimFileRequest::Tftp { peer, packet });
            let peer = IpAddr::V4(*peer.ip());
            inbox(RackInput::FileRequested {
                certificate: None,
                ticket: self.tickets,
                protocol: FileServerProtocol::Tftp,
                peer,
                path,
            });
        }
    }

    pub(crate) fn tick(
        &mut self,
        now: Tick,
        inbox: &mut dyn FnMut(RackInput),
        out: &mut Vec<SimBoxOutput>,
    ) {
        for transfer in self.transfers.values_mut() {
            transfer.sender.tick(now.0 * 1000);
        }
        self.work(now, inbox, out);
    }

    /// The rack has granted a file.
    pub(crate) fn granted(
        &mut self,
        now: Tick,
        ticket: u64,
        body: Option<Vec<u8>>,
        inbox: &mut Vec<RackInput>,
        out: &mut Vec<SimBoxOutput>,
    ) {
        match self.pending.remove(&ticket) {
            None => {}
            Some(SimFileRequest::Http(exchange)) => {
                let Some(body) = body else {
                    inbox.push(RackInput::FileRefused {
                        peer: IpAddr::V4(exchange.peer),
                        protocol: FileServerProtocol::Http,
                        path: exchange.path.clone(),
                        answer: "404 Not Found",
                        why: "there is no such file on this box".to_owned(),
                    });
                    return out.push(SimBoxOutput::Http {
                        exchange,
                        status: 404,
                        body: Vec::new(),
                    });
                };
                let size = body.len() as u64;
                let took_ms = self.took_ms(&exchange.client, size);
                inbox.push(RackInput::FileSent {
                    peer: IpAddr::V4(exchange.peer),
                    protocol: FileServerProtocol::Http,
                    path: exchange.path.clone(),
                    sent: size,
                    requested: size,
                    took_ms,
                    ended: true,
                });
                out.push(SimBoxOutput::Http {
                    exchange,
                    status: 200,
                    body,
                });
            }
            Some(SimFileRequest::Tftp { peer, packet }) => {
                self.begin(now, peer, &packet, body, out);
                self.work(now, &mut |input| inbox.push(input), out);
            }
        }
    }

    fn begin(
        &mut self,
        now: Tick,
        peer: SocketAddrV4,
        packet: &[u8],
        body: Option<Vec<u8>>,
        out: &mut Vec<SimBoxOutput>,
    ) {
        self.ports = (self.ports + 1) % 20_000;
        let port = PORT_FIRST + self.ports;
        let Ok(tftp::Packet::Read(request)) = tftp::parse(packet) else {
            return;
        };
        let Some(bytes) = body else {
            let mut answer = Vec::new();
            tftp::write_error(tftp::ErrorCode::NotFound, "no such file", &mut answer);
            let from = SocketAddrV4::new(BOX, port);
            return out.push(SimBoxOutput::Tftp {
                to: peer,
                from,
                bytes: answer,
            });
        };
        let limits = tftp::TransferLimits::default();
        let sender = tftp::Sender::new(&request, bytes.len() as u64, limits, now.0 * 1000);
        let path = request.file.to_owned();
        self.transfers.insert(
            port,
            SimTftpTransfer {
                sender,
                peer,
                path,
                bytes,
                began: now,
            },
        );
    }

    /// Sends the datagrams of transfers, and ends finished ones.
    fn work(&mut self, now: Tick, inbox: &mut dyn FnMut(RackInput), out: &mut Vec<SimBoxOutput>) {
        let mut over = Vec::new();
        for (port, transfer) in &mut self.transfers {
            let mut packet = Vec::new();
            let mut source = transfer.bytes.as_slice();
            while let Some(length) = transfer.sender.transmit(&mut source, &mut packet) {
                out.push(SimBoxOutput::Tftp {
                    to: transfer.peer,
                    from: SocketAddrV4::new(BOX, *port),
                    bytes: packet[..length].to_vec(),
                });
            }
            if transfer.sender.state() != tftp::TransferState::Running {
                over.push(*port);
            }
        }
        for transfer in over.iter().filter_map(|port| self.transfers.remove(port)) {
            inbox(RackInput::FileSent {
                peer: IpAddr::V4(*transfer.peer.ip()),
                protocol: FileServerProtocol::Tftp,
                path: transfer.path,
                sent: transfer.sender.bytes(),
                requested: transfer.bytes.len() as u64,
                took_ms: if self.measures_links {
                    now.since_ms(transfer.began)
                } else {
                    0
                },
                ended: true,
            });
        }
    }
}

/// The content of a file. Sizes are small, so that seeds are fast.
pub(crate) fn file_content(path: &Path) -> Option<Vec<u8>> {
    let size = match path.to_str()? {
        "/boot/kernel" => 600,
        "/boot/ramdisk" => 900,
        "/loaders/snponly.efi" => 4000,
        "/images/disk.raw" => 3000,
        _ => return None,
    };
    let mut bytes = vec![0; size];
    SeededRandom::new(size as u64).fill(&mut bytes);
    Some(bytes)
}
