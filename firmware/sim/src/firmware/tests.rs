use trivet_dhcp::{BootServer, DhcpArrival, DhcpServer, DhcpServerSettings, Subnet};
use trivet_model::MacAddr;

use super::*;

const BOX: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const RELAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const TFTP_PORT: u16 = 69;
const TRANSFER_PORT: u16 = 40_000;
const LOADER: &[u8] = &[7; 5000];

/// A machine and the services it boots from, on a network without losses.
struct SimFirmwareBench {
    now: Tick,
    firmware: SimFirmware,
    dhcp: DhcpServer,
    transfer: Option<tftp::Sender>,
    /// URLs fetched so far.
    fetched: Vec<String>,
    script: &'static str,
    /// A URL without a server.
    unanswered_url: &'static str,
}

impl SimFirmwareBench {
    fn new(script: &'static str) -> Self {
        let subnet = Subnet {
            network: Ipv4Addr::new(10, 0, 0, 0),
            prefix: 24,
            first: Ipv4Addr::new(10, 0, 0, 50),
            last: Ipv4Addr::new(10, 0, 0, 60),
            server: BOX,
            router: None,
            dns: Vec::new(),
            boot: BootServer::new(BOX, "http://10.0.0.1/boot/{mac}/script".to_owned()),
            known_only: false,
            lease_s: 3600,
        };
        let place = SimBootNetwork {
            relay: RELAY,
            tftp_port: TFTP_PORT,
        };
        Self {
            now: Tick(0),
            firmware: SimFirmware::start(Tick(0), SimHardware::new(1), place),
            dhcp: DhcpServer::new(DhcpServerSettings {
                links: Vec::new(),
                subnets: vec![subnet],
            }),
            transfer: None,
            fetched: Vec::new(),
            script,
            unanswered_url: "",
        }
    }

    /// Executes the actions of the machine until there are no more.
    fn run_until_idle(&mut self) {
        while let Some(wanted) = self.firmware.next_action() {
            match wanted {
                SimFirmwareAction::Dhcp(bytes) => self.answer_dhcp(&bytes),
                SimFirmwareAction::Tftp { to, bytes } => self.answer_tftp(to, &bytes),
                SimFirmwareAction::Fetch { url } => self.answer_fetch(url),
            }
        }
    }

    fn answer_dhcp(&mut self, bytes: &[u8]) {
        let source = SocketAddrV4::new(RELAY, 67);
        let arrival = DhcpArrival::datagram(BOX, source);
        let reply = self
            .dhcp
            .handle(self.now, bytes, arrival, |_: MacAddr| true)
            .reply;
        if let Some(reply) = reply {
            let from = SocketAddrV4::new(BOX, 67).into();
            self.firmware.handle_datagram(self.now, from, &reply.bytes);
        }
    }

    fn answer_tftp(&mut self, to: SocketAddrV4, bytes: &[u8]) {
        if to.port() == TFTP_PORT {
            let Ok(tftp::Packet::Read(request)) = tftp::parse(bytes) else {
                panic!("not a read request")
            };
            assert_eq!(request.file, "snponly.efi");
            let limits = tftp::TransferLimits::default();
            let sender = tftp::Sender::new(&request, LOADER.len() as u64, limits, self.now.0);
            self.transfer = Some(sender);
        } else {
            assert_eq!(to.port(), TRANSFER_PORT);
            let transfer = self.transfer.as_mut().expect("a transfer is under way");
            transfer.datagram(self.now.0, bytes);
        }
        loop {
            let transfer = self.transfer.as_mut().expect("a transfer is under way");
            let mut out = Vec::new();
            if transfer.transmit(&mut &LOADER[..], &mut out).is_none() {
                return;
            }
            let from = SocketAddrV4::new(BOX, TRANSFER_PORT).into();
            self.firmware.handle_datagram(self.now, from, &out);
        }
    }

    fn answer_fetch(&mut self, url: String) {
        let body: &[u8] = if url.ends_with("/script") {
            self.script.as_bytes()
        } else {
            b"bytes"
        };
        let body = Some(body).filter(|_| url != self.unanswered_url);
        self.fetched.push(url);
        self.firmware.handle_fetched(self.now, body);
    }
}

const AGENT: &str =
    "#!ipxe\nkernel http://b/kernel ipa-api-url=http://a\ninitrd http://b/ramdisk\nboot\n";

#[test]
fn boots_the_agent_by_dhcp_tftp_and_http() {
    let mut rig = SimFirmwareBench::new(AGENT);
    rig.run_until_idle();
    let Some(SimFirmwareHandover::Agent(line)) = rig.firmware.handover() else {
        panic!("no agent")
    };
    assert_eq!(line.api_url.as_deref(), Some("http://a"));
    assert_eq!(rig.firmware.address(), Some(Ipv4Addr::new(10, 0, 0, 50)));
    assert_eq!(
        rig.fetched,
        [
            "http://10.0.0.1/boot/52:54:00:77:00:01/script",
            "http://b/kernel",
            "http://b/ramdisk"
        ]
    );
}

#[test]
fn boots_the_disk_when_the_script_exits() {
    let mut rig = SimFirmwareBench::new("#!ipxe\nexit 0\n");
    rig.run_until_idle();
    assert_eq!(rig.firmware.handover(), Some(&SimFirmwareHandover::Disk));
}

#[test]
fn waits_and_retries_while_there_is_no_boot_order() {
    let mut rig =
        SimFirmwareBench::new("#!ipxe\nsleep 10\nchain http://10.0.0.1/boot/again/script\n");
    rig.run_until_idle();
    assert_eq!(rig.firmware.handover(), None);
    rig.script = AGENT;
    rig.now = rig.firmware.deadline().expect("it waits");
    assert_eq!(rig.now, Tick(10_000));
    rig.firmware.tick(rig.now);
    rig.run_until_idle();
    assert!(matches!(
        rig.firmware.handover(),
        Some(SimFirmwareHandover::Agent(_))
    ));
}

#[test]
fn restarts_when_a_file_is_missing() {
    let mut rig = SimFirmwareBench::new("no script at all");
    rig.run_until_idle();
    assert_eq!(rig.firmware.handover(), None);
    assert_eq!(rig.firmware.address(), None);
    rig.script = AGENT;
    rig.now = rig.firmware.deadline().expect("it retries");
    rig.firmware.tick(rig.now);
    rig.run_until_idle();
    assert!(rig.firmware.handover().is_some());
}

#[test]
fn an_unknown_sender_cannot_join_a_transfer() {
    let mut rig = SimFirmwareBench::new(AGENT);
    // Until the request for the loader has been sent.
    while let Some(wanted) = rig.firmware.next_action() {
        match wanted {
            SimFirmwareAction::Dhcp(bytes) => rig.answer_dhcp(&bytes),
            SimFirmwareAction::Tftp { .. } => break,
            SimFirmwareAction::Fetch { .. } => panic!("too early"),
        }
    }
    let first_block = [0, 3, 0, 1, b'x'];
    let unknown = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 66), TRANSFER_PORT);
    rig.firmware
        .handle_datagram(rig.now, unknown.into(), &first_block);
    assert_eq!(rig.firmware.next_action(), None);
}

#[test]
fn retries_without_a_reply() {
    let mut rig = SimFirmwareBench::new(AGENT);
    let Some(SimFirmwareAction::Dhcp(first)) = rig.firmware.next_action() else {
        panic!("no DISCOVER")
    };
    rig.now = rig.firmware.deadline().expect("it waits for an offer");
    rig.firmware.tick(rig.now);
    let Some(SimFirmwareAction::Dhcp(second)) = rig.firmware.next_action() else {
        panic!("no second DISCOVER")
    };
    assert_eq!(first[4..8], second[4..8], "the transaction is the same");
    rig.answer_dhcp(&second);
    rig.run_until_idle();
    assert!(rig.firmware.handover().is_some());
}

#[test]
fn a_missing_kernel_is_requested_again_by_the_script() {
    let mut rig = SimFirmwareBench::new(AGENT);
    rig.script = "#!ipxe\nkernel http://b/k || goto no\ninitrd http://b/r || goto no\n\
                  boot || goto no\n:no\nsleep 5\nchain http://10.0.0.1/boot/again/script\n";
    rig.unanswered_url = "http://b/k";
    rig.run_until_idle();
    assert_eq!(rig.firmware.handover(), None);
    assert!(rig.firmware.address().is_some(), "it stays in its loader");
    rig.script = AGENT;
    rig.now = rig.firmware.deadline().expect("it waits");
    assert_eq!(rig.now, Tick(5000));
    rig.firmware.tick(rig.now);
    rig.run_until_idle();
    assert!(matches!(
        rig.firmware.handover(),
        Some(SimFirmwareHandover::Agent(_))
    ));
}

#[test]
fn another_system_is_distinguished_from_an_agent() {
    for script in [
        "#!ipxe\nkernel http://b/k quiet\ninitrd http://b/r\nboot\n",
        "#!ipxe\nsanboot --no-describe http://b/i\n",
    ] {
        let mut rig = SimFirmwareBench::new(script);
        rig.run_until_idle();
        assert_eq!(
            rig.firmware.handover(),
            Some(&SimFirmwareHandover::Other),
            "{script}"
        );
    }
}
