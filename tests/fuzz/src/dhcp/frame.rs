//! One frame to a server without subnets: it only decodes it, and the result is compared with a
//! second decoder.

use core::net::{Ipv4Addr, SocketAddrV4};

use trivet_dhcp::{DhcpArrival, DhcpServer, DhcpServerSettings, MESSAGE_BYTES_MAX};
use trivet_model::Tick;

use super::wire::{DISCOVER, FuzzDhcpFrame, INFORM, REQUEST};
use crate::FuzzTarget;

pub(crate) const TARGET: FuzzTarget = FuzzTarget {
    name: "dhcp_frame",
    run,
    seeds,
    regressions: &[concat!(
        "01010600010102030000000000650000000000000000000000000000525400000001000000000000",
        "000000000000000000000000000000000000000000000000000000000000000000000000000d0e0f",
        "10340103000000000000000000000000000000000000000000000000000000000000000000000000",
        "00000000000000000000000000000000000000000000000000000000000000000000000000000000",
        "00000000000000000000000000000000000000000000000000000000000000000000000000000000",
        "00000000000000000000000000000000000000000000000000000000000000000000000063825363",
        "35010837070103062b3c4243390205c03c3a2148545450436c69656e743a41729d943a3030303136",
        "3a554e44493a3030333030000000000000000000000000440100000000000008090a0b0c0d0e0f10",
        "00000100000000000000000000000000000000000000000000000000000000000000000000000000",
        "00000000000000000000000000000000000d0e13000000000000000f1034afafafaf28afafafafaf",
        "afafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafaf",
        "afafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafafaf",
        "afafafafafafafafafafafafafaf0103000000000000000000000000000000000000505845436c65",
        "6e7469000000000000000000000000000d0e0f10340103000000000000000000000000000000af03",
        "eb0101ff",
    )],
};

fn run(bytes: &[u8]) {
    let mut server = DhcpServer::new(DhcpServerSettings::default());
    let source = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68);
    let arrived = DhcpArrival::datagram(Ipv4Addr::new(10, 0, 0, 1), source);
    let outcome = server.handle(Tick(0), bytes, arrived, |_| true);
    assert!(outcome.reply.is_none(), "replied without a subnet");
    assert!(outcome.changes.is_empty(), "leased without a subnet");
    assert!(outcome.dropped.is_some(), "no reason given");
    let Some(seen) = outcome.seen else { return };
    let frame = FuzzDhcpFrame::read(bytes).expect("seen, so it is DHCP");
    assert!(bytes.len() <= MESSAGE_BYTES_MAX && frame.message_type().is_some());
    assert_eq!(seen.mac.0, frame.mac);
    assert!(seen.mac.0[0] & 1 == 0, "a group address is not a machine");
    assert_eq!(seen.uuid, uuid(&frame));
    if let Some([high, low]) = frame.options.get(&93).map(|value| &value[..]) {
        assert_eq!(seen.arch, Some(u16::from_be_bytes([*high, *low])));
    }
    if frame
        .options
        .get(&175)
        .is_some_and(|value| !value.is_empty())
    {
        assert!(seen.ipxe);
    }
    if let Some(class) = seen.vendor_class {
        assert!(frame.options[&60].starts_with(class.as_bytes()));
    }
}

/// Option 97: type 0, then three fields in the other byte order.
fn uuid(frame: &FuzzDhcpFrame) -> Option<[u8; 16]> {
    let value = frame.options.get(&97)?;
    let (kind, value) = value.split_first()?;
    let mut uuid: [u8; 16] = value.try_into().ok()?;
    for field in [0..4, 4..6, 6..8] {
        uuid[field].reverse();
    }
    (*kind == 0).then_some(uuid)
}

fn seeds() -> Vec<Vec<u8>> {
    let firmware = |kind, class: &str, arch: u8| {
        let mut frame = FuzzDhcpFrame::request([0x52, 0x54, 0, 0, 0, 1], kind);
        let machine: Vec<u8> = (0..17).collect();
        frame.options.insert(60, class.as_bytes().to_vec());
        frame.options.insert(93, vec![0, arch]);
        frame.options.insert(94, vec![1, 2, 1]);
        frame.options.insert(97, machine);
        frame.options.insert(57, vec![5, 0xc0]);
        frame.options.insert(55, vec![1, 3, 6, 43, 60, 66, 67]);
        frame
    };
    let mut seeds = vec![
        firmware(DISCOVER, "PXEClient:Arch:00000:UNDI:002001", 0).write(&[77, 4, 105, 80, 88, 69]),
        firmware(REQUEST, "PXEClient:Arch:00007:UNDI:003000", 7).write(&[50, 4, 10, 0, 0, 9]),
        firmware(INFORM, "HTTPClient:Arch:00016:UNDI:003000", 16).write(&[175, 3, 0xeb, 1, 1]),
        firmware(DISCOVER, "PXEClient:Arch:00011", 11).write(&[82, 4, 1, 0, 19, 0]),
    ];
    // Options in all three areas.
    let mut overloaded = firmware(DISCOVER, "udhcp", 0).write(&[52, 1, 3]);
    overloaded[108..114].copy_from_slice(&[61, 3, 1, 2, 3, 255]);
    overloaded[44..49].copy_from_slice(&[12, 2, 104, 105, 255]);
    seeds.push(overloaded);
    seeds
}
