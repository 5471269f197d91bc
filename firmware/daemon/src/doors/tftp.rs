//! TFTP: one task and one socket per transfer, bounded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use embedded_tftp as tftp;
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use trivet_rack::{Door, Input};

use crate::clock::Clock;
use crate::engine::Engine;
use crate::files::{self, Opened};

/// Serves read requests for ever.
pub(crate) async fn run(socket: UdpSocket, engine: Engine, clock: Clock, transfers_max: usize) {
    let places = Arc::new(Semaphore::new(transfers_max));
    let mut buffer = vec![0; 2048];
    loop {
        let Ok((length, peer)) = socket.recv_from(&mut buffer).await else {
            continue;
        };
        // Without a free place the client asks again: it repeats its request by itself.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            continue;
        };
        let (request, engine) = (buffer[..length].to_vec(), engine.clone());
        let Ok(local) = socket.local_addr() else {
            continue;
        };
        tokio::spawn(async move {
            transfer(local, peer, &request, &engine, clock).await;
            drop(place);
        });
    }
}

async fn transfer(
    local: SocketAddr,
    peer: SocketAddr,
    packet: &[u8],
    engine: &Engine,
    clock: Clock,
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
        // Whatever else comes to the request port belongs to no transfer.
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
    let size = opened.size;
    let sent = send(&socket, &request, &mut opened, clock).await;
    let (peer, door) = (peer.ip(), Door::Tftp);
    engine.tell(Input::FileSent {
        peer,
        door,
        path,
        sent,
        size,
        ended: true,
    });
}

async fn refuse(socket: &UdpSocket, code: tftp::ErrorCode, message: &str) {
    let mut answer = Vec::new();
    tftp::write_error(code, message, &mut answer);
    let _ = socket.send(&answer).await;
}

impl tftp::Source for Opened {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), tftp::ReadFailed> {
        match Opened::read(self, offset, out) {
            Ok(length) if length == out.len() => Ok(()),
            _ => Err(tftp::ReadFailed),
        }
    }
}

/// Drives one transfer to its end; the bytes that the client acknowledged.
async fn send(
    socket: &UdpSocket,
    request: &tftp::ReadRequest<'_>,
    opened: &mut Opened,
    clock: Clock,
) -> u64 {
    let now_ms = || clock.now().tick.0;
    let mut sender = tftp::Sender::new(request, opened.size, tftp::Limits::default(), now_ms());
    let mut out = Vec::new();
    let mut buffer = vec![0; 2048];
    loop {
        while let Some(length) = sender.transmit(opened, &mut out) {
            if socket.send(&out[..length]).await.is_err() {
                break;
            }
        }
        match sender.state() {
            tftp::State::Running => {}
            tftp::State::Done { bytes } | tftp::State::Failed { bytes, .. } => return bytes,
        }
        let wait_ms = sender.deadline().unwrap_or(0).saturating_sub(now_ms());
        match timeout(Duration::from_millis(wait_ms), socket.recv(&mut buffer)).await {
            Ok(Ok(length)) => sender.datagram(now_ms(), &buffer[..length]),
            Ok(Err(_)) => return 0,
            Err(_) => sender.tick(now_ms()),
        }
    }
}
