//! The box's file doors, as the daemon has them: HTTP files and TFTP transfers.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddrV4};
use std::path::Path;
use std::rc::Rc;

use embedded_tftp as tftp;
use trivet_model::{Entropy as _, Seeded, Tick};
use trivet_rack::{Door, Input};

use crate::boxed::Sent;
use crate::wires::{BOX, Exchange};

/// Most TFTP transfers at a time; a request beyond is dropped.
const TRANSFERS_MAX: usize = 8;

/// Where the ports of transfers begin.
const PORT_FIRST: u16 = 40_000;

enum Asked {
    Http(Rc<Exchange>),
    Tftp { peer: SocketAddrV4, packet: Vec<u8> },
}

struct Transfer {
    sender: tftp::Sender,
    peer: SocketAddrV4,
    path: String,
    bytes: Vec<u8>,
}

/// Who asked for which file, and transfers under way.
#[derive(Default)]
pub(crate) struct Doors {
    tickets: u64,
    asked: BTreeMap<u64, Asked>,
    transfers: BTreeMap<u16, Transfer>,
    ports: u16,
}

impl Doors {
    pub(crate) fn deadline(&self) -> Option<Tick> {
        let deadlines = self
            .transfers
            .values()
            .filter_map(|one| one.sender.deadline());
        // The transfers count microseconds.
        deadlines.min().map(|at_us| Tick(at_us.div_ceil(1000)))
    }

    pub(crate) fn asked_by_http(&mut self, exchange: Rc<Exchange>) -> Input {
        let (peer, path) = (IpAddr::V4(exchange.peer), exchange.path.clone());
        self.tickets += 1;
        self.asked.insert(self.tickets, Asked::Http(exchange));
        Input::FileAsked {
            ticket: self.tickets,
            door: Door::Http,
            peer,
            path,
        }
    }

    /// A datagram to the TFTP port or to a transfer's own.
    pub(crate) fn tftp(
        &mut self,
        now: Tick,
        peer: SocketAddrV4,
        port: u16,
        packet: &[u8],
        inbox: &mut dyn FnMut(Input),
        out: &mut Vec<Sent>,
    ) {
        if port != crate::wires::TFTP_PORT {
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
            self.asked
                .insert(self.tickets, Asked::Tftp { peer, packet });
            let peer = IpAddr::V4(*peer.ip());
            inbox(Input::FileAsked {
                ticket: self.tickets,
                door: Door::Tftp,
                peer,
                path,
            });
        }
    }

    pub(crate) fn tick(&mut self, now: Tick, inbox: &mut dyn FnMut(Input), out: &mut Vec<Sent>) {
        for transfer in self.transfers.values_mut() {
            transfer.sender.tick(now.0 * 1000);
        }
        self.work(now, inbox, out);
    }

    /// The rack said what to send.
    pub(crate) fn granted(
        &mut self,
        now: Tick,
        ticket: u64,
        body: Option<Vec<u8>>,
        inbox: &mut Vec<Input>,
        out: &mut Vec<Sent>,
    ) {
        match self.asked.remove(&ticket) {
            None => {}
            Some(Asked::Http(exchange)) => {
                let status = if body.is_some() { 200 } else { 404 };
                let body = body.unwrap_or_default();
                let size = body.len() as u64;
                inbox.push(Input::FileSent {
                    peer: IpAddr::V4(exchange.peer),
                    door: Door::Http,
                    path: exchange.path.clone(),
                    sent: size,
                    asked: size,
                    took_ms: 0,
                    ended: true,
                });
                out.push(Sent::Http {
                    exchange,
                    status,
                    body,
                });
            }
            Some(Asked::Tftp { peer, packet }) => {
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
        out: &mut Vec<Sent>,
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
            return out.push(Sent::Tftp {
                to: peer,
                from,
                bytes: answer,
            });
        };
        let limits = tftp::Limits::default();
        let sender = tftp::Sender::new(&request, bytes.len() as u64, limits, now.0 * 1000);
        let path = request.file.to_owned();
        self.transfers.insert(
            port,
            Transfer {
                sender,
                peer,
                path,
                bytes,
            },
        );
    }

    /// Lets out what transfers have to send, and ends those that are over.
    fn work(&mut self, _now: Tick, inbox: &mut dyn FnMut(Input), out: &mut Vec<Sent>) {
        let mut over = Vec::new();
        for (port, transfer) in &mut self.transfers {
            let mut packet = Vec::new();
            let mut source = transfer.bytes.as_slice();
            while let Some(length) = transfer.sender.transmit(&mut source, &mut packet) {
                out.push(Sent::Tftp {
                    to: transfer.peer,
                    from: SocketAddrV4::new(BOX, *port),
                    bytes: packet[..length].to_vec(),
                });
            }
            if transfer.sender.state() != tftp::State::Running {
                over.push(*port);
            }
        }
        for transfer in over.iter().filter_map(|port| self.transfers.remove(port)) {
            inbox(Input::FileSent {
                peer: IpAddr::V4(*transfer.peer.ip()),
                door: Door::Tftp,
                path: transfer.path,
                sent: transfer.sender.bytes(),
                asked: transfer.bytes.len() as u64,
                took_ms: 0,
                ended: true,
            });
        }
    }
}

/// What stands in a file. Sizes are small, so that seeds are quick.
pub(crate) fn content(path: &Path) -> Option<Vec<u8>> {
    let size = match path.to_str()? {
        "/boot/kernel" => 600,
        "/boot/ramdisk" => 900,
        "/loaders/snponly.efi" => 4000,
        "/images/disk.raw" => 3000,
        _ => return None,
    };
    let mut bytes = vec![0; size];
    Seeded::new(size as u64).fill(&mut bytes);
    Some(bytes)
}
