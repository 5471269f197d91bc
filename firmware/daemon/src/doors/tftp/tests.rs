//! TFTP over loopback, asked by our own receiver.

use super::*;
use tftp::{Failure, Mode, Options, Receiver, State};

use crate::testbed::{self, Scratch};

struct Served {
    scratch: Scratch,
    engine: Engine,
    address: SocketAddr,
    room: Room,
    door: tokio::task::JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.door.abort();
    }
}

async fn served(room: Room) -> Served {
    let scratch = Scratch::new();
    let (engine, _why) = testbed::engine(testbed::settings(&scratch.0), &scratch.0);
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let door = tokio::spawn(run(socket, engine.clone(), Clock::start(), room.clone()));
    Served {
        scratch,
        engine,
        address,
        room,
        door,
    }
}

/// Asks for a file and takes it as far as it comes.
async fn fetch(from: SocketAddr, file: &str, asked: Options) -> (State, Vec<u8>) {
    let clock = Clock::start();
    let now_us = || clock.us();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let limits = tftp::Limits::default();
    let mut receiver = Receiver::new(file, Mode::Octet, asked, limits, now_us());
    let (mut content, mut out) = (Vec::new(), Vec::new());
    let (mut peer, mut buffer) = (from, [0; DATAGRAM_BYTES_MAX]);
    loop {
        while receiver.transmit(&mut out).is_some() {
            socket.send_to(&out, peer).await.unwrap();
        }
        if receiver.state() != State::Running {
            return (receiver.state(), content);
        }
        let wait_us = receiver.deadline().unwrap_or(0).saturating_sub(now_us());
        let heard = socket.recv_from(&mut buffer);
        match timeout(Duration::from_micros(wait_us), heard).await {
            Ok(Ok((length, sender))) => {
                peer = sender;
                receiver.datagram(now_us(), &buffer[..length], &mut content);
            }
            _ => receiver.tick(now_us()),
        }
    }
}

#[tokio::test]
async fn a_loader_comes_whole_with_and_without_options() {
    let one = served(Room::new(16)).await;
    let content: Vec<u8> = (0..100_001_u32).map(|n| (n % 251) as u8).collect();
    one.scratch.file("loaders/snponly.efi", &content);
    let options = Options {
        block_bytes: Some(1468),
        window_blocks: Some(8),
        ..Options::default()
    };
    for asked in [Options::default(), options] {
        let (state, found) = fetch(one.address, "snponly.efi", asked).await;
        assert_eq!(state, State::Done { bytes: 100_001 });
        assert!(found == content);
    }
    one.engine.stop().await;
}

#[tokio::test]
async fn a_file_that_is_not_there_or_outside_is_refused() {
    let one = served(Room::new(16)).await;
    one.scratch.file("loaders/x", b"x");
    for file in ["absent", "../store", "/etc/passwd", "x/../x"] {
        let (state, _) = fetch(one.address, file, Options::default()).await;
        let code = tftp::ErrorCode::NotFound as u16;
        let reason = Failure::Peer { code };
        assert_eq!(state, State::Failed { bytes: 0, reason }, "{file}");
    }
    one.engine.stop().await;
}

#[tokio::test]
async fn a_write_is_refused_and_nonsense_is_not_answered() {
    let one = served(Room::new(16)).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for nonsense in [
        &b""[..],
        b"\x00\x09hello",
        b"\x00\x04\x00\x01",
        &[0xff; 1000],
    ] {
        socket.send_to(nonsense, one.address).await.unwrap();
    }
    let write = b"\x00\x02file\x00octet\x00";
    socket.send_to(write, one.address).await.unwrap();
    let mut buffer = [0; 600];
    let (length, _) = socket.recv_from(&mut buffer).await.unwrap();
    let packet = tftp::parse(&buffer[..length]).unwrap();
    let tftp::Packet::Error { code, .. } = packet else {
        panic!("{packet:?}");
    };
    assert_eq!(code, tftp::ErrorCode::AccessViolation as u16);
    one.engine.stop().await;
}

/// A client that confirms so slowly that it never gives up would hold its place
/// for days.
#[tokio::test]
async fn a_transfer_that_takes_too_long_ends() {
    let mut room = Room::new(16);
    room.wait = Duration::from_millis(50);
    let one = served(room).await;
    one.scratch.file("loaders/x", &[7; 5000]);
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let request = b"\x00\x01x\x00octet\x00timeout\x00255\x00";
    socket.send_to(request, one.address).await.unwrap();
    let mut buffer = [0; 600];
    let mut codes = Vec::new();
    while codes.is_empty() {
        let (length, _) = socket.recv_from(&mut buffer).await.unwrap();
        if let Ok(tftp::Packet::Error { code, .. }) = tftp::parse(&buffer[..length]) {
            codes.push(code);
        }
    }
    assert_eq!(codes, [tftp::ErrorCode::Other as u16]);
    while one.room.places.available_permits() < 16 {
        tokio::task::yield_now().await;
    }
    one.engine.stop().await;
}

#[tokio::test]
async fn one_peer_takes_its_share_of_transfers_and_no_more() {
    let one = served(Room::new(8)).await;
    one.scratch.file("loaders/x", &[7; 5000]);
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let request = b"\x00\x01x\x00octet\x00timeout\x00255\x00";
    let mut buffer = [0; 600];
    for _ in 0..2 {
        socket.send_to(request, one.address).await.unwrap();
        let _ = socket.recv_from(&mut buffer).await.unwrap();
    }
    assert_eq!(one.room.places.available_permits(), 6);
    socket.send_to(request, one.address).await.unwrap();
    // Another peer's request comes after it on the same socket and is answered.
    let other = UdpSocket::bind("127.77.99.2:0").await.unwrap();
    other.send_to(request, one.address).await.unwrap();
    let _ = other.recv_from(&mut buffer).await.unwrap();
    assert_eq!(one.room.places.available_permits(), 5);
    one.engine.stop().await;
}
