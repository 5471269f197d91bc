//! TFTP: one task and one socket per transfer, bounded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use embedded_tftp as tftp;
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use trivet_rack::{Door, Input};

use super::places::Peers;
use crate::clock::Clock;
use crate::engine::Engine;
use crate::files::{self, Opened};

/// How long one transfer may take, however steadily its client goes on. Ours: a
/// loader takes seconds, and a ramdisk in blocks of 512 bytes some minutes.
const TRANSFER_WAIT: Duration = Duration::from_mins(20);

/// Longest datagram that is read. A request has at most 512 bytes (RFC 2347).
const DATAGRAM_BYTES_MAX: usize = 2048;

/// Pause after the system refuses us a datagram.
const ERROR_PAUSE: Duration = Duration::from_millis(10);

/// Room for transfers, shared by all sockets.
#[derive(Clone)]
pub(crate) struct Room {
    places: Arc<Semaphore>,
    peers: Arc<Peers>,
    wait: Duration,
}

impl Room {
    pub(crate) fn new(transfers_max: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(transfers_max)),
            peers: Peers::sharing(transfers_max),
            wait: TRANSFER_WAIT,
        }
    }
}

/// Serves read requests for ever.
pub(crate) async fn run(socket: UdpSocket, engine: Engine, clock: Clock, room: Room) {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let Ok((length, peer)) = socket.recv_from(&mut buffer).await else {
            tokio::time::sleep(ERROR_PAUSE).await;
            continue;
        };
        // Whatever else comes to this port belongs to no transfer.
        let request = tftp::parse(&buffer[..length]);
        if !matches!(request, Ok(tftp::Packet::Read(_) | tftp::Packet::Write)) {
            continue;
        }
        // Without a free place the client asks again: it repeats its request by itself.
        let Ok(place) = Arc::clone(&room.places).try_acquire_owned() else {
            continue;
        };
        let Some(seat) = room.peers.seat(peer.ip()) else {
            continue;
        };
        let (request, engine) = (buffer[..length].to_vec(), engine.clone());
        let Ok(local) = socket.local_addr() else {
            continue;
        };
        let wait = room.wait;
        tokio::spawn(async move {
            transfer(local, peer, &request, &engine, (clock, wait)).await;
            drop((place, seat));
        });
    }
}

async fn transfer(
    local: SocketAddr,
    peer: SocketAddr,
    packet: &[u8],
    engine: &Engine,
    (clock, wait): (Clock, Duration),
) {
    let Ok(socket) = UdpSocket::bind(SocketAddr::new(local.ip(), 0)).await else {
        return;
    };
    if socket.connect(peer).await.is_err() {
        return;
    }
    let request = match tftp::parse(packet) {
        Ok(tftp::Packet::Read(request)) => request,
        Ok(tftp::Packet::Write) => {
            return refuse(
                &socket,
                tftp::ErrorCode::AccessViolation,
                "this box takes no files",
            )
            .await;
        }
        _ => return,
    };
    let path = request.file.to_owned();
    let grant = engine.file(Door::Tftp, peer.ip(), path.clone()).await;
    let opened = match grant {
        Some(grant) => files::open(grant).await,
        None => None,
    };
    let Some(mut opened) = opened else {
        return refuse(&socket, tftp::ErrorCode::NotFound, "no such file").await;
    };
    let (size, began) = (opened.size, clock.now().tick);
    let mut sender = tftp::Sender::new(&request, size, tftp::Limits::default(), clock.us());
    let sending = send(&socket, &mut sender, &mut opened, clock);
    if timeout(wait, sending).await.is_err() {
        refuse(&socket, tftp::ErrorCode::Other, "this took too long").await;
    }
    let sent = sender.bytes();
    let (peer, door) = (peer.ip(), Door::Tftp);
    engine.tell(Input::FileSent {
        peer,
        door,
        path,
        sent,
        asked: size,
        took_ms: clock.now().tick.0.saturating_sub(began.0),
        ended: true,
    });
}

async fn refuse(socket: &UdpSocket, code: tftp::ErrorCode, message: &str) {
    let mut answer = Vec::new();
    tftp::write_error(code, message, &mut answer);
    let _ = socket.send(&answer).await;
}

impl tftp::Source for Opened {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), tftp::ReadError> {
        match Opened::read(self, offset, out) {
            Ok(length) if length == out.len() => Ok(()),
            _ => Err(tftp::ReadError::Failed),
        }
    }
}

/// Drives one transfer to its end.
async fn send(socket: &UdpSocket, sender: &mut tftp::Sender, opened: &mut Opened, clock: Clock) {
    let now_us = || clock.us();
    let mut out = Vec::new();
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        while let Some(length) = sender.transmit(opened, &mut out) {
            if socket.send(&out[..length]).await.is_err() {
                break;
            }
        }
        if sender.state() != tftp::State::Running {
            return;
        }
        let wait_us = sender.deadline().unwrap_or(0).saturating_sub(now_us());
        match timeout(Duration::from_micros(wait_us), socket.recv(&mut buffer)).await {
            Ok(Ok(length)) => sender.datagram(now_us(), &buffer[..length]),
            // The client closed its port: done with us, whatever it has.
            Ok(Err(_)) => return,
            Err(_) => sender.tick(now_us()),
        }
    }
}

#[cfg(test)]
mod tests;
