//! Tests of TFTP over loopback, with our own receiver.

use super::*;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tftp::{Receiver, TransferFailure, TransferMode, TransferOptions, TransferState};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::testbed::{self, TestbedDirectory};

struct ServedTftp {
    scratch: TestbedDirectory,
    engine: Engine,
    address: SocketAddr,
    taken: Arc<AtomicUsize>,
    listener: tokio::task::JoinHandle<io::Result<()>>,
}

impl Drop for ServedTftp {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl ServedTftp {
    fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Waits until this many permits are in use. The thread releases them a moment
    /// after the last datagram.
    async fn until_taken(&self, count: usize) {
        let wait = async {
            while self.taken() != count {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_mins(1), wait).await.unwrap();
    }
}

fn served_tftp(limit: TftpTransferLimit) -> ServedTftp {
    served_tftp_at("127.0.0.1:0", limit, TftpServerOptions::default())
}

fn served_tftp_at(listen: &str, limit: TftpTransferLimit, ways: TftpServerOptions) -> ServedTftp {
    let scratch = TestbedDirectory::new();
    let (engine, _why) = testbed::engine(testbed::settings(&scratch.0), &scratch.0);
    let socket = std::net::UdpSocket::bind(listen).unwrap();
    let address = socket.local_addr().unwrap();
    let taken = Arc::clone(&limit.taken);
    let serving = run(
        vec![socket],
        engine.clone(),
        DaemonClock::start(),
        limit,
        ways,
    );
    ServedTftp {
        scratch,
        engine,
        address,
        taken,
        listener: tokio::spawn(serving),
    }
}

/// Requests a file and receives it as far as it is sent.
async fn fetch(from: SocketAddr, file: &str, options: TransferOptions) -> (TransferState, Vec<u8>) {
    let clock = DaemonClock::start();
    let now_us = || clock.us();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let limits = tftp::TransferLimits::default();
    let mut receiver = Receiver::new(file, TransferMode::Octet, options, limits, now_us());
    let (mut content, mut out) = (Vec::new(), Vec::new());
    let (mut peer, mut buffer) = (from, vec![0; 66_000]);
    loop {
        while receiver.transmit(&mut out).is_some() {
            socket.send_to(&out, peer).await.unwrap();
        }
        if receiver.state() != TransferState::Running {
            return (receiver.state(), content);
        }
        let wait_us = receiver.deadline().unwrap_or(0).saturating_sub(now_us());
        let received = socket.recv_from(&mut buffer);
        match timeout(Duration::from_micros(wait_us), received).await {
            Ok(Ok((length, sender))) => {
                peer = sender;
                receiver.datagram(now_us(), &buffer[..length], &mut content);
            }
            _ => receiver.tick(now_us()),
        }
    }
}

fn content(length: u32) -> Vec<u8> {
    (0..length).map(|n| (n % 251) as u8).collect()
}

fn requested_options(block_bytes: u16, window_blocks: u16) -> TransferOptions {
    TransferOptions {
        block_bytes: Some(block_bytes),
        window_blocks: Some(window_blocks),
        ..TransferOptions::default()
    }
}

#[tokio::test]
async fn a_loader_is_received_with_and_without_options_and_offload() {
    for offload in [true, false] {
        let ways = TftpServerOptions {
            offload,
            ..TftpServerOptions::default()
        };
        let one = served_tftp_at("127.0.0.1:0", TftpTransferLimit::new(64), ways);
        let content = content(300_001);
        one.scratch.file("loaders/snponly.efi", &content);
        for requested in [
            TransferOptions::default(),
            requested_options(1468, 8),
            requested_options(512, 64),
            requested_options(1468, 64),
            requested_options(60_000, 2),
        ] {
            let (state, found) = fetch(one.address, "snponly.efi", requested).await;
            assert_eq!(
                state,
                TransferState::Done { bytes: 300_001 },
                "{requested:?}"
            );
            assert!(found == content);
        }
        one.until_taken(0).await;
        one.engine.stop().await;
    }
}

#[tokio::test]
async fn many_clients_at_once_each_receive_their_file() {
    let one = served_tftp(TftpTransferLimit::new(1024));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..40_u32 {
        let name = format!("file{number}");
        let content = content(20_000 + number);
        one.scratch.file(&format!("loaders/{name}"), &content);
        let address = one.address;
        tasks.spawn(async move {
            let window = 1 + (number % 4) as u16 * 8;
            let (_, found) = fetch(address, &name, requested_options(1000, window)).await;
            found == content
        });
    }
    assert!(tasks.join_all().await.into_iter().all(|same| same));
    one.until_taken(0).await;
    one.engine.stop().await;
}

/// A box with several addresses replies from the one that received the request:
/// clients, and firewalls between them, accept no other.
#[tokio::test]
async fn the_reply_comes_from_the_address_that_received_the_request() {
    let one = served_tftp_at(
        "0.0.0.0:0",
        TftpTransferLimit::new(16),
        TftpServerOptions::default(),
    );
    one.scratch.file("loaders/x", b"x");
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = one.address.port();
    for (file, requested) in [
        ("x", "127.8.7.6"),
        ("x", "127.0.0.1"),
        ("absent", "127.3.3.3"),
    ] {
        let request = format!("\0\x01{file}\0octet\0");
        let to = format!("{requested}:{port}");
        client.send_to(request.as_bytes(), to).await.unwrap();
        let (_, from) = client.recv_from(&mut [0; 600]).await.unwrap();
        assert_eq!(from.ip().to_string(), requested);
        assert_ne!(from.port(), port, "a port of its own");
    }
    one.engine.stop().await;
}

#[tokio::test]
async fn a_request_that_comes_twice_is_one_transfer() {
    let one = served_tftp(TftpTransferLimit::new(16));
    one.scratch.file("loaders/x", &[7; 5000]);
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let request = b"\0\x01x\0octet\0";
    let mut buffer = [0; 600];
    let mut ports = Vec::new();
    for _ in 0..3 {
        client.send_to(request, one.address).await.unwrap();
        let (length, from) = client.recv_from(&mut buffer).await.unwrap();
        assert_eq!((&buffer[..4], length), (&b"\0\x03\0\x01"[..], 516));
        ports.push(from.port());
    }
    assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");
    assert_eq!(one.taken(), 1);
    one.engine.stop().await;
}

/// UEFI requests the size, refuses our offer, and requests the file from the same port,
/// perhaps before we have read its refusal.
#[tokio::test]
async fn a_client_starts_again_from_the_same_port() {
    let one = served_tftp(TftpTransferLimit::new(16));
    one.scratch.file("loaders/x", &[7; 5000]);
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut buffer = [0; 600];
    let size = b"\0\x01x\0octet\0tsize\x000\0";
    client.send_to(size, one.address).await.unwrap();
    let (length, first) = client.recv_from(&mut buffer).await.unwrap();
    assert_eq!(buffer[..length], *b"\0\x06tsize\x005000\0");
    for request in [&b"\0\x01x\0octet\0blksize\x00500\0"[..], size] {
        client.send_to(request, one.address).await.unwrap();
        let (_, next) = client.recv_from(&mut buffer).await.unwrap();
        assert_eq!(buffer[1], 6);
        assert_ne!(next.port(), first.port());
        assert_eq!(one.taken(), 1);
    }
    client.send_to(b"\0\x05\0\x08no\0", first).await.unwrap();
    one.engine.stop().await;
}

#[tokio::test]
async fn a_file_that_is_not_there_or_outside_is_refused() {
    let one = served_tftp(TftpTransferLimit::new(16));
    one.scratch.file("loaders/x", b"x");
    for file in ["absent", "../store", "/etc/passwd", "x/../x"] {
        let (state, _) = fetch(one.address, file, TransferOptions::default()).await;
        let code = tftp::ErrorCode::NotFound as u16;
        let reason = TransferFailure::Peer { code };
        assert_eq!(state, TransferState::Failed { bytes: 0, reason }, "{file}");
    }
    one.engine.stop().await;
}

#[tokio::test]
async fn a_write_is_refused_and_nonsense_is_not_answered() {
    let one = served_tftp(TftpTransferLimit::new(16));
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for nonsense in [
        &b""[..],
        b"\x00\x09hello",
        b"\x00\x04\x00\x01",
        &[0xff; 1000],
    ] {
        socket.send_to(nonsense, one.address).await.unwrap();
    }
    let mut buffer = [0; 600];
    // The packets that got no reply were sent before these, so the first reply is to
    // these.
    for (request, want, word) in [
        (&b"\x00\x02file\x00octet\x00"[..], 2, "not accept files"),
        (b"\x00\x01", 4, "cut short"),
        (b"\x00\x01file\x00mail\x00", 4, "mode"),
    ] {
        socket.send_to(request, one.address).await.unwrap();
        let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
        let packet = tftp::parse(&buffer[..length]).unwrap();
        let tftp::Packet::Error { code, message } = packet else {
            panic!("{packet:?}");
        };
        assert_eq!(code, want);
        assert!(String::from_utf8_lossy(message).contains(word));
        // An error packet is never answered, least of all by an error.
        socket
            .send_to(&buffer[..length], one.address)
            .await
            .unwrap();
        socket.send_to(&buffer[..length], from).await.unwrap();
    }
    one.engine.stop().await;
}

/// A client that acknowledges just before each timeout would hold its permit for days.
#[tokio::test]
async fn a_transfer_that_takes_too_long_ends() {
    let ways = TftpServerOptions {
        wait_us: 50_000,
        ..TftpServerOptions::default()
    };
    let one = served_tftp_at("127.0.0.1:0", TftpTransferLimit::new(16), ways);
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
    one.until_taken(0).await;
    one.engine.stop().await;
}

#[tokio::test]
async fn one_peer_takes_its_share_of_transfers_and_no_more() {
    let one = served_tftp(TftpTransferLimit::new(8));
    one.scratch.file("loaders/x", &[7; 5000]);
    let request = b"\x00\x01x\x00octet\x00timeout\x00255\x00";
    let mut buffer = [0; 600];
    let mut clients = Vec::new();
    for _ in 0..2 {
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.send_to(request, one.address).await.unwrap();
        let _ = client.recv_from(&mut buffer).await.unwrap();
        clients.push(client);
    }
    assert_eq!(one.taken(), 2);
    let third = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    third.send_to(request, one.address).await.unwrap();
    // Another peer's request arrives after it on the same socket and is answered.
    let other = UdpSocket::bind("127.77.99.2:0").await.unwrap();
    other.send_to(request, one.address).await.unwrap();
    let _ = other.recv_from(&mut buffer).await.unwrap();
    assert_eq!(one.taken(), 3);
    // The client that got no reply repeats its request and takes the released permit.
    clients.pop();
    loop {
        third.send_to(request, one.address).await.unwrap();
        let received = third.recv_from(&mut buffer);
        if timeout(Duration::from_millis(20), received).await.is_ok() {
            break;
        }
    }
    one.engine.stop().await;
}

/// The thread and its sockets end with its task.
#[tokio::test]
async fn the_thread_ends_with_the_listener() {
    let one = served_tftp(TftpTransferLimit::new(8));
    one.scratch.file("loaders/x", b"x");
    let (state, _) = fetch(one.address, "x", TransferOptions::default()).await;
    assert_eq!(state, TransferState::Done { bytes: 1 });
    one.listener.abort();
    let free = async {
        while std::net::UdpSocket::bind(one.address).is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_mins(1), free).await.unwrap();
    one.engine.stop().await;
}

/// Progress and result of a transfer reach the node's timeline.
#[tokio::test]
async fn a_long_transfer_reports_its_progress() {
    let scratch = TestbedDirectory::new();
    let (engine, _why) = testbed::engine(testbed::settings(&scratch.0), &scratch.0);
    let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(server.local_addr().unwrap()).unwrap();
    let to = DatagramDestination {
        address: "127.0.0.1".parse().unwrap(),
        interface: 1,
        unicast: true,
    };
    let peer = TftpClientEndpoint::new(client.local_addr().unwrap(), to);
    let opened = OpenedFile {
        size: 1000,
        content: files::OpenedFileContent::Bytes(vec![1; 1000]),
    };
    let poll = Epoll::new().unwrap();
    let place = TftpTransferLimit::new(1)
        .acquire(peer.peer.ip(), 0)
        .unwrap();
    let request = b"\0\x01x\0octet\0".to_vec();
    let mut transfer = TftpServerTransfer::begin(
        (TRANSFER_KEY_FIRST, peer),
        request,
        TftpContent::new(opened),
        (&poll, true),
        (place, 0),
    )
    .unwrap();
    let mut out = Vec::new();
    assert_eq!(transfer.pump(&poll, &mut out), TftpTransferStatus::Running);
    transfer.sender.datagram(5, b"\0\x04\0\x01");
    assert_eq!(transfer.pump(&poll, &mut out), TftpTransferStatus::Running);
    assert_eq!(transfer.delivered_bytes(), 512);
    // At first a repeated request is a duplicate of the network, and later a client
    // that starts again.
    assert!(transfer.is_repeated_by(b"\0\x01x\0octet\0", 4000));
    assert!(!transfer.is_repeated_by(b"\0\x01y\0octet\0", 4000));
    assert!(!transfer.is_repeated_by(b"\0\x01x\0octet\0", 1_000_000));
    // The client has all bytes and closes its port; only its last acknowledgement is
    // lost.
    drop(client);
    transfer.sender.tick(10_000_000);
    assert_eq!(transfer.pump(&poll, &mut out), TftpTransferStatus::Running);
    assert_eq!(
        transfer.receive(&poll, 10_000_000, &mut out),
        TftpTransferStatus::Ended
    );
    assert_eq!(transfer.delivered_bytes(), 1000);
    assert!(!transfer.is_size_query());
    engine.stop().await;
}
