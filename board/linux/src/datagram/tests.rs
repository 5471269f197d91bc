use super::*;

fn pair() -> (UdpSocket, UdpSocket) {
    let (one, other) = (
        UdpSocket::bind("127.0.0.1:0").unwrap(),
        UdpSocket::bind("127.0.0.1:0").unwrap(),
    );
    one.connect(other.local_addr().unwrap()).unwrap();
    other.connect(one.local_addr().unwrap()).unwrap();
    (one, other)
}

/// All received datagrams.
fn drain(socket: &UdpSocket) -> Vec<Vec<u8>> {
    socket.set_nonblocking(true).unwrap();
    let mut buffer = [0; 2000];
    let mut all = Vec::new();
    while let Ok(length) = socket.recv(&mut buffer) {
        all.push(buffer[..length].to_vec());
    }
    all
}

fn content(length: usize) -> Vec<u8> {
    (0..=250).cycle().take(length).collect()
}

#[test]
fn the_destination_address_of_a_datagram_is_reported() {
    for (listen, destination) in [
        ("0.0.0.0:0", "127.3.2.1"),
        ("127.9.9.9:0", "127.9.9.9"),
        ("[::]:0", "::1"),
        ("[::]:0", "127.1.1.1"),
    ] {
        let Ok(server) = UdpSocket::bind(listen) else {
            assert!(
                listen.starts_with('['),
                "{listen}: only IPv6 may be missing"
            );
            continue;
        };
        enable_destination_info(&server).unwrap();
        let port = server.local_addr().unwrap().port();
        let any = if destination == "::1" {
            "[::1]:0"
        } else {
            "127.0.0.1:0"
        };
        let client = UdpSocket::bind(any).unwrap();
        let destination: IpAddr = destination.parse().unwrap();
        client.send_to(b"hello", (destination, port)).unwrap();
        let mut buffer = [0; 3];
        let datagram = receive(&server, &mut buffer).unwrap();
        assert_eq!((datagram.length, &buffer), (3, b"hel"));
        assert_eq!(datagram.from.port(), client.local_addr().unwrap().port());
        let to = datagram.to.unwrap();
        assert_eq!(to.address.to_canonical(), destination);
        assert!(to.unicast && to.interface > 0, "{to:?}");
    }
}

#[test]
fn without_the_option_no_destination_is_reported() {
    let (one, other) = pair();
    one.send(b"x").unwrap();
    let datagram = receive(&other, &mut [0; 10]).unwrap();
    assert_eq!(datagram.to, None);
    assert_eq!(datagram.from, one.local_addr().unwrap());
    other.set_nonblocking(true).unwrap();
    let error = receive(&other, &mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn many_datagrams_arrive_as_they_were_with_offload_and_without() {
    for offload in [true, false] {
        let (one, other) = pair();
        let mut segments = SegmentSender::new(offload);
        for (length, each) in [
            (64 * 100, 100),
            (1000, 516),
            (1472, 1472),
            (4, 516),
            (40, 12),
        ] {
            let bytes = content(length);
            assert_eq!(segments.send(&one, &bytes, each).unwrap(), length);
            let want: Vec<_> = bytes.chunks(each).map(<[u8]>::to_vec).collect();
            assert!(drain(&other) == want, "{offload} {length} by {each}");
        }
        // Longer than the datagrams before it, and still one.
        assert_eq!(segments.send(&one, &content(60), 60).unwrap(), 60);
        assert_eq!(drain(&other), [content(60)]);
        assert_eq!(segments.is_offloaded(), offload);
    }
}

/// The kernel refuses to split into segments that do not fit the path. The sender must remember
/// that, and the datagrams must arrive.
#[test]
fn what_the_kernel_refuses_to_split_is_sent_one_by_one() {
    let (one, other) = pair();
    let mut segments = SegmentSender::new(true);
    // More segments than the kernel allows; it reports the same error as for a missing feature.
    let bytes = content(200 * 10);
    let sent = segments.send(&one, &bytes, 10).unwrap();
    assert!(!segments.is_offloaded());
    assert_eq!(sent, SEGMENTS_MAX * 10, "as many as one call takes");
    assert_eq!(drain(&other).concat(), bytes[..sent]);
    assert_eq!(segments.send(&one, &bytes[..100], 10).unwrap(), 100);
    assert_eq!(drain(&other).len(), 10);
}

#[test]
fn a_closed_port_of_the_peer_is_an_error() {
    let (one, other) = pair();
    drop(other);
    let mut segments = SegmentSender::new(true);
    let _ = segments.send(&one, &content(100), 100);
    let error = one.recv(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert!(segments.is_offloaded(), "offload still works");
}

#[test]
fn the_path_has_an_mtu_and_the_receive_buffer_a_limit() {
    let (one, other) = pair();
    assert!(path_mtu(&one).unwrap() >= 1280);
    set_receive_buffer(&other, 4096).unwrap();
    for _ in 0..100 {
        one.send(&content(1000)).unwrap();
    }
    assert!(drain(&other).len() < 20);
}
