//! The client of simulated machines, with a server that sends anything.

use core::net::Ipv4Addr;

use trivet_dhcp::MESSAGE_BYTES_MAX;
use trivet_dhcp::client::DhcpClient;
use trivet_model::{MacAddr, Tick};

use super::wire::{ACK, FuzzDhcpFrame, NAK, OFFER};
use crate::FuzzTarget;
use crate::input::FuzzInput;

pub(crate) const TARGET: FuzzTarget = FuzzTarget {
    name: "dhcp_client",
    run,
    seeds,
    regressions: &[],
};

const STEPS_MAX: usize = 64;
const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];

const USUAL: [Ipv4Addr; 4] = [
    Ipv4Addr::new(10, 0, 0, 10),
    Ipv4Addr::new(10, 0, 0, 1),
    Ipv4Addr::UNSPECIFIED,
    Ipv4Addr::BROADCAST,
];

fn run(bytes: &[u8]) {
    let mut input = FuzzInput::new(bytes);
    let first = input.byte();
    let arch = [None, Some(0), Some(7), Some(16)][usize::from(first % 4)];
    let uuid = (first & 8 != 0).then_some([9; 16]);
    let relay = (first & 16 != 0).then_some(Ipv4Addr::new(10, 0, 9, 254));
    let mut client = DhcpClient::new(MacAddr(MAC), arch, first & 4 != 0, uuid, relay);
    let mut now = Tick(0);
    let mut received = [0; 4];
    client.start(now);
    for _ in 0..STEPS_MAX {
        let mut sent = 0;
        while let Some(bytes) = client.transmit() {
            sent += 1;
            assert!(bytes.len() <= MESSAGE_BYTES_MAX, "{} bytes", bytes.len());
            let frame = FuzzDhcpFrame::read_strictly(&bytes);
            assert_eq!((frame.operation, frame.mac), (1, MAC));
            received = frame.xid;
        }
        assert!(sent <= 1, "{sent} frames at once");
        if let Some(bound) = client.bound() {
            assert!(!bound.address.is_unspecified(), "bound to nothing");
            assert!(!client.has_given_up());
        }
        if input.is_empty() {
            break;
        }
        step(&mut client, &mut now, received, &mut input);
    }
}

fn step(client: &mut DhcpClient, now: &mut Tick, xid: [u8; 4], input: &mut FuzzInput<'_>) {
    match input.byte() % 8 {
        // Most likely a reply for this client.
        0..=2 => {
            let mut frame = FuzzDhcpFrame::request(MAC, input.choose(&[OFFER, ACK, NAK, ACK, 1]));
            (frame.operation, frame.xid) = (2, xid);
            frame.yiaddr = input.address(&USUAL);
            let server = input.address(&USUAL);
            frame.options.insert(54, server.octets().to_vec());
            frame.options.insert(51, vec![0, 0, 2, input.byte()]);
            client.datagram(*now, &frame.write(input.counted()));
        }
        3 => client.datagram(*now, input.counted_long()),
        4 => *now = now.after_ms(u64::from(input.word())),
        5 => client.renew(*now),
        6 => {
            if let Some(bytes) = client.release() {
                assert_eq!(FuzzDhcpFrame::read_strictly(&bytes).message_type(), Some(7));
            }
        }
        _ => {
            if let Some(deadline) = client.deadline() {
                *now = deadline;
            }
            client.tick(*now);
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let offer = [0, 0, 0, 1, 9, 0];
    let ack = [0, 1, 0, 1, 9, 5, 67, 3, 97, 98, 99];
    let nak = [0, 2, 2, 1, 9, 0];
    vec![
        [&[0][..], &offer, &ack, &[5], &ack, &[6]].concat(),
        [&[2 + 8][..], &offer, &nak, &offer, &[7, 7, 7, 7, 7]].concat(),
        [&[5 + 16][..], &[7; 20]].concat(),
        [&[3][..], &offer, &ack, &[4, 255, 255, 5, 7, 7, 7, 7, 7]].concat(),
    ]
}
