//! Frames over a veth pair.

use super::testing::{ip, wire};
use super::*;
use crate::interface;

/// An ARP message from `right`, with a number in it.
fn arp(number: u16) -> Vec<u8> {
    let right = interface("right").unwrap().unwrap();
    let mut frame = vec![0xff; 6];
    frame.extend(right.mac);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(right.mac);
    frame.extend([10, 0]);
    frame.extend(number.to_be_bytes());
    frame.extend([0; 28]);
    frame
}

fn ends() -> (PacketSocketReceiver, PacketSocketSender) {
    let left = interface("left").unwrap().unwrap();
    let right = interface("right").unwrap().unwrap();
    let receiver = PacketSocketReceiver::open(&left, &[[0x33, 0x33, 0, 0, 0, 2]]).unwrap();
    (receiver, PacketSocketSender::open(&right).unwrap())
}

/// Waits for a frame; false if none arrives within 30 s.
#[expect(unsafe_code, reason = "the system call has no safe wrapper in std")]
fn ready(receiver: &PacketSocketReceiver) -> bool {
    let mut request = libc::pollfd {
        fd: receiver.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the pointer is to one structure, as the count says.
    unsafe { libc::poll(&raw mut request, 1, 30_000) == 1 }
}

/// The next `count` frames, and whether their checksums need no verification.
fn receive_all(receiver: &mut PacketSocketReceiver, count: usize) -> Vec<(Vec<u8>, bool)> {
    let mut taken = Vec::new();
    while taken.len() < count && ready(receiver) {
        receiver
            .receive(&mut |frame, is_verified| taken.push((frame.to_vec(), is_verified)))
            .unwrap();
    }
    taken
}

fn receive_frames(receiver: &mut PacketSocketReceiver, count: usize) -> Vec<Vec<u8>> {
    let taken = receive_all(receiver, count).into_iter();
    taken.map(|(frame, _)| frame).collect()
}

#[test]
fn frames_arrive_whole_and_in_order() {
    wire(|| {
        let (mut receiver, mut sender) = ends();
        assert_eq!(receiver.mac(), interface("left").unwrap().unwrap().mac);
        let frames: Vec<_> = (0..200).map(arp).collect();
        assert_eq!(sender.send(&frames).unwrap(), 200);
        assert_eq!(receive_frames(&mut receiver, 200), frames);
        let nothing = receiver.receive(&mut |_, _| {}).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    });
}

#[test]
fn frames_of_other_protocols_are_not_received() {
    wire(|| {
        let (mut receiver, mut sender) = ends();
        let mut other = arp(1);
        other[12..14].copy_from_slice(&[0x88, 0xcc]);
        sender.send(&[other, arp(2)]).unwrap();
        assert_eq!(receive_frames(&mut receiver, 1), [arp(2)]);
    });
}

#[test]
fn a_frame_with_a_vlan_tag_is_not_received_and_one_with_a_priority_tag_is() {
    wire(|| {
        let (mut receiver, mut sender) = ends();
        let tagged = |number: u16| {
            let mut frame = arp(number);
            let tag = [0x81, 0x00, 0xe0, number as u8];
            frame.splice(12..12, tag);
            frame
        };
        sender.send(&[tagged(5), tagged(0), arp(7)]).unwrap();
        assert_eq!(receive_frames(&mut receiver, 2), [arp(0), arp(7)]);
    });
}

#[test]
fn frames_sent_by_the_same_interface_are_not_received() {
    wire(|| {
        let (mut receiver, mut sender) = ends();
        let left = interface("left").unwrap().unwrap();
        PacketSocketSender::open(&left)
            .unwrap()
            .send(&[arp(1)])
            .unwrap();
        sender.send(&[arp(2)]).unwrap();
        assert_eq!(receive_frames(&mut receiver, 1), [arp(2)]);
    });
}

#[test]
fn a_frame_that_is_too_long_for_the_wire_does_not_stop_the_others() {
    wire(|| {
        let (mut receiver, mut sender) = ends();
        let mut long = arp(1);
        long.resize(4000, 0);
        assert_eq!(sender.send(&[long, arp(2)]).unwrap(), 1);
        assert_eq!(receive_frames(&mut receiver, 1), [arp(2)]);
    });
}

#[test]
fn frames_longer_than_the_buffer_are_dropped() {
    wire(|| {
        for end in ["left", "right"] {
            ip(&format!("link set {end} mtu 9000"));
        }
        let (mut receiver, mut sender) = ends();
        let mut long = arp(1);
        long.resize(FRAME_BYTES_MAX + 1, 0);
        let mut full = arp(2);
        full.resize(FRAME_BYTES_MAX, 0);
        sender.send(&[long, full.clone()]).unwrap();
        assert_eq!(receive_frames(&mut receiver, 1), [full]);
    });
}

/// A rack that is switched on at once must not lose frames while the box is busy.
#[test]
fn thousands_of_frames_are_buffered_while_the_box_is_busy() {
    wire(|| {
        let (mut receiver, mut sender) = ends();
        let frames: Vec<_> = (0..4000).map(arp).collect();
        let mut sent = 0;
        while sent < frames.len() {
            sent += sender.send(&frames[sent..]).unwrap();
        }
        let taken = receive_frames(&mut receiver, frames.len());
        assert_eq!(taken.len(), frames.len());
    });
}

/// Local datagrams that never pass a network card have no checksum yet: the kernel reports
/// that.
#[test]
fn checksum_offload_is_reported() {
    wire(|| {
        let (mut receiver, mut sender) = ends();
        ip("addr add 192.0.2.1/24 dev right");
        ip("neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev right");
        let socket = std::net::UdpSocket::bind("192.0.2.1:0").unwrap();
        socket.send_to(b"request", "192.0.2.9:67").unwrap();
        sender.send(&[arp(1)]).unwrap();
        let taken: Vec<_> = receive_all(&mut receiver, 2)
            .iter()
            .map(|(frame, is_verified)| (frame[12..14].to_vec(), *is_verified))
            .collect();
        assert_eq!(taken, [(vec![8, 0], true), (vec![8, 6], false)]);
    });
}

#[test]
fn an_interface_that_goes_away_is_an_error() {
    wire(|| {
        let (mut receiver, mut sender) = ends();
        let left = interface("left").unwrap().unwrap();
        let last = arp(1);
        ip("link set left down");
        let error = receiver.receive(&mut |_, _| {}).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NetworkDown);
        ip("link del left");
        assert!(sender.send(&[last]).is_err());
        assert!(PacketSocketReceiver::open(&left, &[]).is_err());
    });
}
