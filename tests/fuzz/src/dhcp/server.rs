//! The server from a frame to its reply.
//!
//! An input is a list of steps: composed frames, raw frames, time that passes, restarts. The
//! target keeps a record of what the server reported as durable. After every step: no address
//! has two machines, nothing was granted that is not durable, and each reply is well formed and
//! goes to the destination of RFC 2131.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::BTreeMap;
use std::sync::OnceLock;

use trivet_dhcp::{
    BootServer, DhcpArrival, DhcpDestination, DhcpLinkSettings, DhcpOutcome, DhcpServer,
    DhcpServerSettings, LeaseChange, MESSAGE_BYTES_MAX, Subnet,
};
use trivet_model::{Lease, LinkId, LinkMode, MacAddr, Tick};

use super::wire::{ACK, DISCOVER, FuzzDhcpFrame, INFORM, NAK, OFFER, REQUEST};
use crate::FuzzTarget;
use crate::input::FuzzInput;

pub(crate) const TARGET: FuzzTarget = FuzzTarget {
    name: "dhcp_server",
    run,
    seeds,
    regressions: &[concat!(
        "000100008008006100000104000000210409f6000000020000002d000104000000210409f6390100",
        "00000000000000000400003535353535353535353535353535353535353535353535353535353535",
        "35353535353535353535353535353535353535353535353535353535353535353535353535353535",
        "35353535353535353535353535353535353535353535353535353535353535353535353535353535",
        "353535353535353535353535353535990000c0620100010400000011000a00000400c00f02",
    )],
};

/// Steps of one input: far more than needed to fill the ranges.
const STEPS_MAX: usize = 32;

/// Machines below this number are known.
const KNOWN: u8 = 4;

/// Our links by mode.
const LINKS: [LinkMode; 4] = [
    LinkMode::Server,
    LinkMode::Reservations,
    LinkMode::Listen,
    LinkMode::Proxy,
];

/// A subnet of relays only.
const RELAYED: u8 = 9;

/// Addresses in frames: none, ranges and their ends, our own, relays, unknown ones.
const USUAL: [Ipv4Addr; 18] = [
    Ipv4Addr::UNSPECIFIED,
    Ipv4Addr::new(10, 0, 0, 10),
    Ipv4Addr::new(10, 0, 0, 11),
    Ipv4Addr::new(10, 0, 0, 12),
    Ipv4Addr::new(10, 0, 0, 1),
    Ipv4Addr::new(10, 0, 0, 254),
    Ipv4Addr::new(10, 0, 1, 10),
    Ipv4Addr::new(10, 0, 1, 1),
    Ipv4Addr::new(10, 0, 9, 10),
    Ipv4Addr::new(10, 0, 9, 11),
    Ipv4Addr::new(10, 0, 9, 254),
    Ipv4Addr::new(10, 0, 9, 1),
    Ipv4Addr::new(10, 0, 0, 0),
    Ipv4Addr::new(10, 0, 0, 255),
    Ipv4Addr::new(10, 0, 2, 10),
    Ipv4Addr::new(192, 0, 2, 1),
    Ipv4Addr::LOCALHOST,
    Ipv4Addr::BROADCAST,
];

fn subnet(third: u8, mode: LinkMode) -> Subnet {
    let server = Ipv4Addr::new(10, 0, third, 1);
    let mut boot = BootServer::new(server, "http://10.0.0.1/boot/{mac}/script");
    boot.loaders_url = Some("http://10.0.0.1/boot/loaders".to_owned());
    Subnet {
        network: Ipv4Addr::new(10, 0, third, 0),
        prefix: 24,
        first: Ipv4Addr::new(10, 0, third, 10),
        last: Ipv4Addr::new(10, 0, third, 13),
        server,
        router: Some(server),
        dns: vec![server],
        boot,
        known_only: mode == LinkMode::Reservations,
        lease_s: 600,
    }
}

/// The settings, created once.
fn shared_settings() -> &'static DhcpServerSettings {
    static SHARED_SETTINGS: OnceLock<DhcpServerSettings> = OnceLock::new();
    SHARED_SETTINGS.get_or_init(settings)
}

fn settings() -> DhcpServerSettings {
    let links = LINKS.into_iter().enumerate();
    let links = links.map(|(number, mode)| DhcpLinkSettings {
        name: format!("wire{number}"),
        mode,
        discovery: mode == LinkMode::Server,
        server: local(number as u8),
        boot: subnet(number as u8, mode).boot,
        relayed: false,
        network: None,
    });
    DhcpServerSettings {
        links: links.collect(),
        subnets: vec![
            subnet(0, LinkMode::Server),
            subnet(1, LinkMode::Reservations),
            subnet(RELAYED, LinkMode::Server),
        ],
    }
}

fn local(link: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, link, 1)
}

fn mac(number: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, number]
}

fn is_known(mac: MacAddr) -> bool {
    let [.., number] = mac.0;
    mac.0 == self::mac(number) && number < KNOWN
}

struct FuzzedDhcpServer {
    now: Tick,
    server: DhcpServer,
    durable: BTreeMap<MacAddr, Ipv4Addr>,
}

fn run(bytes: &[u8]) {
    let mut input = FuzzInput::new(bytes);
    let mut server = FuzzedDhcpServer {
        now: Tick(1),
        server: DhcpServer::new(shared_settings().clone()),
        durable: BTreeMap::new(),
    };
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        server.step(&mut input);
        server.check();
    }
}

impl FuzzedDhcpServer {
    fn step(&mut self, input: &mut FuzzInput<'_>) {
        match input.byte() % 16 {
            0..=8 => {
                let frame = composed(input);
                self.deliver(input, &frame);
            }
            9..=11 => {
                let frame = input.counted_long();
                self.deliver(input, frame);
            }
            12 => self.now = self.now.after_ms(u64::from(input.word())),
            13 => self.now = self.now.after_ms(u64::from(input.byte()) * 10_000),
            14 => {
                let changes = self.server.expire(self.now);
                self.apply_changes(&changes);
            }
            _ => self.rare_step(input),
        }
    }

    fn rare_step(&mut self, input: &mut FuzzInput<'_>) {
        match input.byte() {
            0..128 => {
                let change = self.server.forget(MacAddr(mac(input.byte() % 8)));
                self.apply_changes(change.as_slice());
            }
            _ => {
                self.server = DhcpServer::new(shared_settings().clone());
                for (&mac, &address) in &self.durable {
                    let lease = Lease { mac, address };
                    let stored = self.server.restore(self.now, lease, is_known);
                    assert!(stored, "{address} is lost");
                }
            }
        }
    }

    fn deliver(&mut self, input: &mut FuzzInput<'_>, bytes: &[u8]) {
        let place = input.byte();
        let link = place % LINKS.len() as u8;
        let source = match place >> 4 {
            0..12 => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68),
            12 | 13 => SocketAddrV4::new(Ipv4Addr::new(10, 0, RELAYED, 254), 67),
            _ => SocketAddrV4::new(input.address(&USUAL), input.word()),
        };
        let port = match place >> 2 & 3 {
            0 | 1 => 67,
            2 => 4011,
            _ => 68,
        };
        let arrived = DhcpArrival {
            link: LinkId(u16::from(link)),
            local: local(link),
            source,
            port,
            from: place
                .count_ones()
                .is_multiple_of(2)
                .then_some(MacAddr(mac(place))),
        };
        let before = self.durable.clone();
        let outcome = self.server.handle(self.now, bytes, arrived, is_known);
        self.apply_changes(&outcome.changes);
        self.check_outcome(bytes, arrived, &outcome, &before);
    }

    /// Applies the changes that must be durable, as the store would.
    fn apply_changes(&mut self, changes: &[LeaseChange]) {
        for change in changes {
            match *change {
                LeaseChange::Granted(lease) => {
                    let twice = self.durable.values().any(|held| *held == lease.address);
                    assert!(!twice, "{} is leased twice", lease.address);
                    let old = self.durable.insert(lease.mac, lease.address);
                    assert_eq!(old, None, "{} has two leases", lease.mac);
                }
                LeaseChange::Released(lease) => {
                    let old = self.durable.remove(&lease.mac);
                    assert_eq!(old, Some(lease.address), "released what was not held");
                }
            }
        }
    }

    fn check_outcome(
        &self,
        bytes: &[u8],
        arrived: DhcpArrival,
        outcome: &DhcpOutcome,
        before: &BTreeMap<MacAddr, Ipv4Addr>,
    ) {
        let mode = LINKS[usize::from(arrived.link.0)];
        if matches!(mode, LinkMode::Listen | LinkMode::Proxy) {
            assert_eq!(
                &self.durable, before,
                "leases change where another server gives them"
            );
        }
        let Some(reply) = &outcome.reply else {
            assert!(outcome.dropped.is_some(), "neither a reply nor a reason");
            return;
        };
        assert!(
            outcome.dropped.is_none(),
            "both a reply and a reason for none"
        );
        assert!(
            reply.bytes.len() <= MESSAGE_BYTES_MAX,
            "a reply of {}",
            reply.bytes.len()
        );
        let requested = FuzzDhcpFrame::read(bytes).expect("answered, so it was DHCP");
        let message = FuzzDhcpFrame::read_strictly(&reply.bytes);
        assert_ne!(mode, LinkMode::Listen, "a reply in listen mode");
        assert_eq!(
            (message.operation, message.xid, message.mac),
            (2, requested.xid, requested.mac)
        );
        assert_eq!(
            message.giaddr, requested.giaddr,
            "the reply has another relay"
        );
        let kind = message.message_type().expect("a reply has a type");
        let fits = match requested.message_type() {
            Some(DISCOVER) => kind == OFFER || kind == ACK,
            Some(REQUEST) => kind == ACK || kind == NAK,
            Some(INFORM) => kind == ACK,
            _ => false,
        };
        assert!(fits, "{:?} gets the reply {kind}", requested.message_type());
        assert!(message.address(54).is_some(), "a reply names its server");
        self.check_address(mode, kind, &requested, &message);
        check_destination(kind, arrived, &requested, &message, reply.to);
    }

    fn check_address(
        &self,
        mode: LinkMode,
        kind: u8,
        requested: &FuzzDhcpFrame,
        reply: &FuzzDhcpFrame,
    ) {
        let mac = MacAddr(reply.mac);
        let given = reply.yiaddr;
        if given.is_unspecified() {
            assert!(
                kind != OFFER || mode == LinkMode::Proxy,
                "an offer of nothing"
            );
            return;
        }
        assert!(kind == OFFER || kind == ACK && requested.message_type() == Some(REQUEST));
        assert_ne!(mode, LinkMode::Proxy, "another server gives the addresses");
        let subnets = &shared_settings().subnets;
        let of = subnets.iter().find(|subnet| subnet.contains(given));
        let of = of.expect("an address of a subnet of ours");
        assert!(
            (of.first..=of.last).contains(&given),
            "{given} is not in the range"
        );
        assert!(
            !of.known_only || is_known(mac),
            "an unknown machine gets {given}"
        );
        let holder = self.durable.iter().find(|(_, held)| **held == given);
        let holder = holder.map(|(holder, _)| *holder);
        if kind == ACK {
            assert_eq!(holder, Some(mac), "{given} is granted and not durable");
            assert!(reply.options.contains_key(&51), "a lease has its time");
        } else {
            assert!(
                holder.is_none_or(|holder| holder == mac),
                "{given} has a holder"
            );
        }
    }

    fn check(&self) {
        let leased = self.server.leases().map(|lease| (lease.mac, lease.address));
        let durable = self.durable.iter().map(|(mac, address)| (*mac, *address));
        assert!(leased.eq(durable), "memory and store differ");
    }
}

/// RFC 2131 section 4.1; 4.3.5 for INFORM; PXE 2.1 for port 4011.
fn check_destination(
    kind: u8,
    arrived: DhcpArrival,
    requested: &FuzzDhcpFrame,
    reply: &FuzzDhcpFrame,
    to: DhcpDestination,
) {
    let inform = requested.message_type() == Some(INFORM);
    match to {
        DhcpDestination::BootServiceClient(peer) => {
            assert_eq!((peer, arrived.port), (arrived.source, 4011));
        }
        DhcpDestination::Relay(relay) => {
            assert_eq!(*relay.ip(), requested.giaddr);
            assert!(!requested.giaddr.is_unspecified());
            assert!(relay.port() == 67 || relay.port() == arrived.source.port());
        }
        DhcpDestination::Renewing(address) => {
            assert_eq!(address, requested.ciaddr);
            assert!(!address.is_unspecified() && kind != NAK);
            assert!(
                inform || requested.giaddr.is_unspecified(),
                "past the relay"
            );
        }
        DhcpDestination::Client {
            mac,
            address,
            broadcast,
        } => {
            assert_eq!(mac.0, requested.mac);
            assert!(requested.giaddr.is_unspecified(), "past the relay");
            if kind == NAK {
                assert!(broadcast, "a NAK must be broadcast");
            } else if !reply.yiaddr.is_unspecified() {
                assert!(requested.ciaddr.is_unspecified(), "it has an address");
                assert_eq!((address, broadcast), (reply.yiaddr, requested.broadcast));
            }
        }
    }
}

/// A composed frame, so that most frames are meaningful.
fn composed(input: &mut FuzzInput<'_>) -> Vec<u8> {
    let who = input.byte();
    let kind = input.choose(&[DISCOVER, REQUEST, REQUEST, INFORM, 4, 7, 2, 13]);
    let mut frame = FuzzDhcpFrame::request(mac(who % 8), kind);
    frame.broadcast = who & 8 != 0;
    frame.ciaddr = input.address(&USUAL);
    frame.giaddr = if who & 16 == 0 {
        Ipv4Addr::UNSPECIFIED
    } else {
        input.address(&USUAL)
    };
    for (bit, code) in [(32, 50), (64, 54)] {
        if who & bit != 0 {
            let address = input.address(&USUAL);
            frame.options.insert(code, address.octets().to_vec());
        }
    }
    if who & 128 != 0 {
        let class = match input.byte() % 4 {
            0 => "PXEClient:Arch:00000:UNDI:002001",
            1 => "PXEClient:Arch:00007:UNDI:003000",
            2 => "HTTPClient:Arch:00016:UNDI:003000",
            _ => "udhcp 1.35.0",
        };
        frame.options.insert(60, class.as_bytes().to_vec());
    }
    frame.write(input.counted())
}

/// Bits for the fields of a composed frame in addition to its type.
const REQUESTED_ADDRESS: u8 = 32;
const SERVER_IDENTIFIER: u8 = 64;
const RELAY: u8 = 16;

fn seeds() -> Vec<Vec<u8>> {
    // Indexes into `USUAL`: 0 none, 1 the first address, 4 our own, 10 a relay.
    let offer_and_ack = |who: u8, link: u8| {
        let discover = [0, who, 0, 0, 0, link];
        let request = [
            0,
            who | REQUESTED_ADDRESS | SERVER_IDENTIFIER,
            1,
            0,
            1,
            4,
            0,
            link,
        ];
        [discover.as_slice(), &request].concat()
    };
    let relayed = [0, RELAY | 5, 0, 0, 10, 0, 0xc0];
    let relayed_ack = [
        0,
        RELAY | REQUESTED_ADDRESS | SERVER_IDENTIFIER | 5,
        1,
        0,
        10,
        8,
        11,
        0,
        0xc0,
    ];
    let renew = [0, 1, 1, 1, 0, 0];
    let release = [0, 1, 5, 1, 0, 0];
    let decline = [0, 1 | REQUESTED_ADDRESS, 4, 0, 1, 0, 0];
    let inform = [0, 2, 3, 2, 0, 0];
    let later = [13, 64, 14];
    let restart = [15, 255];
    let forget = [15, 0, 1];
    let proxied = [0, 128, 0, 0, 1, 0, 2];
    let raw = FuzzDhcpFrame::request(mac(3), DISCOVER).write(&[82, 4, 19, 0, 1, 0]);
    let raw = [&[9, 0, raw.len() as u8][..], &raw, &[0]].concat();
    vec![
        [&offer_and_ack(1, 0)[..], &renew, &release].concat(),
        [&offer_and_ack(1, 0)[..], &decline, &offer_and_ack(2, 0)].concat(),
        [
            &offer_and_ack(1, 0)[..],
            &restart,
            &renew,
            &later,
            &later,
            &offer_and_ack(3, 0),
        ]
        .concat(),
        [&relayed[..], &relayed_ack, &forget, &inform].concat(),
        [
            &offer_and_ack(2, 1)[..],
            &offer_and_ack(6, 1),
            &offer_and_ack(2, 3),
        ]
        .concat(),
        [&proxied[..], &offer_and_ack(0, 2)].concat(),
        raw,
    ]
}
