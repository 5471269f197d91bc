use super::*;
use crate::client::DhcpClient;
use crate::lease_table::{GRACE_MS, OFFER_HOLD_MS};
use crate::settings::tests::settings;
use core::net::SocketAddrV4;
use dhcproto::v4::{DhcpOption, Message, MessageType, OptionCode};
use dhcproto::{Decodable, Decoder, Encodable};

const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

fn arrival() -> DhcpArrival {
    DhcpArrival::datagram(LOCAL, SocketAddrV4::new(ANY, 68))
}

fn mac(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, number])
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

/// A message of machine 1 with these options.
fn message(kind: MessageType, options: impl IntoIterator<Item = DhcpOption>) -> Message {
    let mut message = Message::new_with_id(7, ANY, ANY, ANY, ANY, &mac(1).0);
    message.opts_mut().insert(DhcpOption::MessageType(kind));
    for option in options {
        message.opts_mut().insert(option);
    }
    message
}

fn request(options: impl IntoIterator<Item = DhcpOption>) -> Message {
    message(MessageType::Request, options)
}

fn wanted(last: u8) -> DhcpOption {
    DhcpOption::RequestedIpAddress(address(last))
}

fn chosen(server: Ipv4Addr) -> DhcpOption {
    DhcpOption::ServerIdentifier(server)
}

struct DhcpServerBench {
    server: DhcpServer,
    now: Tick,
}

impl DhcpServerBench {
    fn new() -> Self {
        Self {
            server: DhcpServer::new(settings()),
            now: Tick(0),
        }
    }

    fn handle(&mut self, message: &Message) -> DhcpOutcome {
        let bytes = message.to_vec().unwrap();
        self.server.handle(self.now, &bytes, arrival(), |_| false)
    }

    /// Machine 1 gets 10.0.0.100.
    fn leased() -> Self {
        let mut bench = Self::new();
        bench.handle(&message(MessageType::Discover, [wanted(100)]));
        let outcome = bench.handle(&request([wanted(100), chosen(LOCAL)]));
        assert_eq!(kind(&outcome), MessageType::Ack);
        bench
    }
}

fn decoded(outcome: &DhcpOutcome) -> Message {
    let reply = outcome.reply.as_ref().expect("there is a reply");
    Message::decode(&mut Decoder::new(&reply.bytes)).unwrap()
}

#[track_caller]
fn kind(outcome: &DhcpOutcome) -> MessageType {
    decoded(outcome).opts().msg_type().unwrap()
}

fn option(message: &Message, code: u8) -> Option<&DhcpOption> {
    message.opts().get(OptionCode::from(code))
}

/// DISCOVER of a machine with this firmware, and the reply to it.
fn offer_to(arch: Option<u16>, ipxe: bool, giaddr: Option<Ipv4Addr>) -> DhcpOutcome {
    let mut settings = settings();
    settings.subnets[0].boot.loaders_url = Some("http://10.0.0.1".into());
    let mut client = DhcpClient::new(mac(9), arch, ipxe, Some([7; 16]), giaddr);
    client.start(Tick(0));
    let frame = client.transmit().unwrap();
    DhcpServer::new(settings).handle(Tick(0), &frame, arrival(), |_| false)
}

#[test]
fn an_offer_is_held_in_memory_and_a_lease_only_after_the_request() {
    let mut bench = DhcpServerBench::new();
    let outcome = bench.handle(&message(MessageType::Discover, []));
    assert_eq!(kind(&outcome), MessageType::Offer);
    assert_eq!(outcome.changes, []);
    assert_eq!(bench.server.leases().count(), 0);
    let outcome = bench.handle(&request([wanted(100), chosen(LOCAL)]));
    assert_eq!(kind(&outcome), MessageType::Ack);
    let lease = Lease {
        mac: mac(1),
        address: address(100),
    };
    assert_eq!(outcome.changes, [LeaseChange::Granted(lease)]);
    assert_eq!(outcome.seen.unwrap().address, Some(address(100)));
}

#[test]
fn a_reply_has_the_network_and_the_times() {
    let mut bench = DhcpServerBench::leased();
    let message = decoded(&bench.handle(&request([wanted(100), chosen(LOCAL)])));
    assert_eq!(message.yiaddr(), address(100));
    assert_eq!(message.xid(), 7);
    assert_eq!(message.chaddr(), &mac(1).0);
    for want in [
        DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 255, 0)),
        DhcpOption::BroadcastAddr(address(255)),
        DhcpOption::Router(vec![LOCAL]),
        DhcpOption::DomainNameServer(vec![LOCAL]),
        DhcpOption::AddressLeaseTime(600),
        DhcpOption::Renewal(300),
        DhcpOption::Rebinding(525),
        DhcpOption::ServerIdentifier(LOCAL),
    ] {
        let code = OptionCode::from(&want);
        assert_eq!(message.opts().get(code), Some(&want));
    }
}

#[test]
fn a_repeated_request_repeats_the_answer_without_a_change() {
    let mut bench = DhcpServerBench::new();
    let sent_request = request([wanted(100), chosen(LOCAL)]);
    let first = bench.handle(&sent_request);
    let second = bench.handle(&sent_request);
    assert_eq!(first.reply, second.reply);
    assert_eq!(second.changes, []);
}

#[test]
fn several_discovers_of_one_boot_get_one_address() {
    let mut bench = DhcpServerBench::new();
    for second in 0..5 {
        bench.now = Tick(second * 1000);
        let outcome = bench.handle(&message(MessageType::Discover, []));
        assert_eq!(decoded(&outcome).yiaddr(), address(100));
    }
}

#[test]
fn a_request_for_an_address_of_another_machine_is_refused() {
    let mut bench = DhcpServerBench::leased();
    let mut other = request([wanted(100), chosen(LOCAL)]);
    other.set_chaddr(&mac(2).0);
    let outcome = bench.handle(&other);
    assert_eq!(kind(&outcome), MessageType::Nak);
    let to = DhcpDestination::Client {
        mac: mac(2),
        address: Ipv4Addr::BROADCAST,
        broadcast: true,
    };
    assert_eq!(outcome.reply.unwrap().to, to);
    assert_eq!(outcome.changes, []);
}

#[test]
fn a_client_that_chose_another_server_frees_our_offer() {
    let mut bench = DhcpServerBench::new();
    bench.handle(&message(MessageType::Discover, []));
    let outcome = bench.handle(&request([wanted(100), chosen(address(2))]));
    assert_eq!(outcome.dropped, Some(Reason::OtherServer));
    let mut other = message(MessageType::Discover, [wanted(100)]);
    other.set_chaddr(&mac(2).0);
    assert_eq!(decoded(&bench.handle(&other)).yiaddr(), address(100));
}

#[test]
fn a_restarted_client_is_confirmed_refused_or_ignored() {
    let mut bench = DhcpServerBench::leased();
    assert_eq!(
        kind(&bench.handle(&request([wanted(100)]))),
        MessageType::Ack
    );
    assert_eq!(
        kind(&bench.handle(&request([wanted(101)]))),
        MessageType::Nak
    );
    let elsewhere = DhcpOption::RequestedIpAddress(Ipv4Addr::new(192, 168, 0, 9));
    assert_eq!(kind(&bench.handle(&request([elsewhere]))), MessageType::Nak);
    let mut unknown = request([wanted(105)]);
    unknown.set_chaddr(&mac(2).0);
    assert_eq!(bench.handle(&unknown).dropped, Some(Reason::NoRecord));
}

#[test]
fn a_renewal_goes_to_the_client_itself_and_writes_nothing() {
    let mut bench = DhcpServerBench::leased();
    bench.now = Tick(300_000);
    let mut renew = request([]);
    renew.set_ciaddr(address(100));
    let outcome = bench.handle(&renew);
    assert_eq!(outcome.changes, []);
    assert_eq!(decoded(&outcome).ciaddr(), address(100));
    assert_eq!(
        outcome.reply.unwrap().to,
        DhcpDestination::Renewing(address(100))
    );
    let end = Tick(300_000 + 600_000 + GRACE_MS);
    assert_eq!(bench.server.deadline(), Some(end));
}

#[test]
fn a_renewal_we_have_no_record_of_is_granted_if_the_address_is_free() {
    let mut bench = DhcpServerBench::new();
    let mut renew = request([]);
    renew.set_ciaddr(address(105));
    let outcome = bench.handle(&renew);
    assert_eq!(kind(&outcome), MessageType::Ack);
    assert_eq!(outcome.changes.len(), 1);
    let mut thief = request([]);
    thief.set_ciaddr(address(105)).set_chaddr(&mac(2).0);
    assert_eq!(kind(&bench.handle(&thief)), MessageType::Nak);
    let mut foreign = request([]);
    foreign.set_ciaddr(address(50)).set_chaddr(&mac(3).0);
    assert_eq!(bench.handle(&foreign).dropped, Some(Reason::NoRecord));
}

#[test]
fn a_release_ends_the_lease_of_its_holder_only() {
    let mut bench = DhcpServerBench::leased();
    let mut release = message(MessageType::Release, [chosen(LOCAL)]);
    release.set_ciaddr(address(101));
    assert_eq!(bench.handle(&release).dropped, Some(Reason::NoRecord));
    release.set_ciaddr(address(100));
    let outcome = bench.handle(&release);
    assert!(matches!(outcome.changes[..], [LeaseChange::Released(_)]));
    assert_eq!(outcome.reply, None);
    assert_eq!(bench.server.lease_of(mac(1)), None);
}

#[test]
fn a_declined_address_is_not_given_again_soon() {
    let mut bench = DhcpServerBench::leased();
    let decline = message(MessageType::Decline, [wanted(100), chosen(LOCAL)]);
    let outcome = bench.handle(&decline);
    assert!(matches!(outcome.changes[..], [LeaseChange::Released(_)]));
    let outcome = bench.handle(&message(MessageType::Discover, [wanted(100)]));
    assert_eq!(decoded(&outcome).yiaddr(), address(101));
}

#[test]
fn inform_is_answered_without_a_lease() {
    let mut bench = DhcpServerBench::new();
    let mut inform = message(MessageType::Inform, []);
    assert_eq!(bench.handle(&inform).dropped, Some(Reason::NoAddress));
    inform.set_ciaddr(address(7));
    let outcome = bench.handle(&inform);
    let answer = decoded(&outcome);
    assert_eq!(kind(&outcome), MessageType::Ack);
    assert_eq!(answer.yiaddr(), ANY);
    assert_eq!(option(&answer, 51), None);
    assert_eq!(
        outcome.reply.unwrap().to,
        DhcpDestination::Renewing(address(7))
    );
    assert_eq!(outcome.changes, []);
}

#[test]
fn a_relay_chooses_the_subnet_and_gets_the_answer() {
    let relay = Ipv4Addr::new(10, 0, 1, 254);
    let mut bench = DhcpServerBench::new();
    let mut discover = message(MessageType::Discover, []);
    discover.set_giaddr(relay);
    let outcome = bench.handle(&discover);
    let answer = decoded(&outcome);
    assert_eq!(answer.yiaddr(), Ipv4Addr::new(10, 0, 1, 100));
    assert_eq!(answer.giaddr(), relay);
    let to = DhcpDestination::Relay(SocketAddrV4::new(relay, 67));
    assert_eq!(outcome.reply.unwrap().to, to);
    discover.set_giaddr(Ipv4Addr::new(10, 9, 9, 9));
    assert_eq!(bench.handle(&discover).dropped, Some(Reason::NoSubnet));
}

#[test]
fn a_relay_may_request_its_own_port_and_gets_its_information_back() {
    let relay = Ipv4Addr::new(10, 0, 0, 254);
    let outcome = offer_to(Some(0), false, Some(relay));
    let reply = outcome.reply.unwrap();
    let to = DhcpDestination::Relay(SocketAddrV4::new(relay, 68));
    assert_eq!(reply.to, to);
    let info = [82, 7, 1, 3, b's', b'i', b'm', 19, 0, 255];
    let end = reply.bytes.iter().rposition(|&byte| byte == 255).unwrap();
    assert!(reply.bytes[..=end].ends_with(&info));
}

#[test]
fn a_nak_through_a_relay_has_the_broadcast_flag() {
    let mut bench = DhcpServerBench::leased();
    let mut other = request([wanted(100), chosen(LOCAL)]);
    other.set_chaddr(&mac(2).0).set_giaddr(address(254));
    let outcome = bench.handle(&other);
    assert!(decoded(&outcome).flags().broadcast());
    assert!(matches!(
        outcome.reply.unwrap().to,
        DhcpDestination::Relay(_)
    ));
}

#[test]
fn the_broadcast_flag_is_obeyed() {
    let broadcast = |outcome: DhcpOutcome| match outcome.reply.unwrap().to {
        DhcpDestination::Client { broadcast, .. } => broadcast,
        other => panic!("{other:?}"),
    };
    assert!(broadcast(offer_to(Some(7), false, None)));
    assert!(!broadcast(offer_to(Some(7), true, None)));
}

#[test]
fn a_bios_gets_its_loader_and_skips_discovery() {
    let outcome = offer_to(Some(0), false, None);
    let answer = decoded(&outcome);
    assert_eq!(answer.siaddr(), LOCAL);
    assert_eq!(answer.fname(), Some(b"undionly.kpxe\0".as_slice()));
    for want in [
        DhcpOption::BootfileName(b"undionly.kpxe".to_vec()),
        DhcpOption::TFTPServerName(b"10.0.0.1".to_vec()),
        DhcpOption::ClassIdentifier(b"PXEClient".to_vec()),
        DhcpOption::VendorExtensions(vec![6, 1, 8, 255]),
        DhcpOption::ClientMachineIdentifier([[0].as_slice(), &[7; 16]].concat()),
    ] {
        let code = OptionCode::from(&want);
        assert_eq!(answer.opts().get(code), Some(&want));
    }
    let seen = outcome.seen.unwrap();
    assert_eq!((seen.arch, seen.uuid), (Some(0), Some([7; 16])));
    let class = seen.vendor_class.unwrap();
    assert_eq!(class, "PXEClient:Arch:00000:UNDI:002001");
}

#[test]
fn ipxe_gets_its_script_and_waits_for_no_proxy() {
    let outcome = offer_to(Some(7), true, None);
    let answer = decoded(&outcome);
    let url = "http://10.0.0.1/boot/02:00:00:00:00:09/script.ipxe";
    let want = DhcpOption::BootfileName(url.as_bytes().to_vec());
    assert_eq!(option(&answer, 67), Some(&want));
    assert_eq!(option(&answer, 60), None);
    let Some(DhcpOption::Unknown(own)) = option(&answer, 175) else {
        panic!()
    };
    assert_eq!(own.data(), [176, 1, 1]);
    assert!(outcome.seen.unwrap().ipxe);
}

#[test]
fn uefi_by_http_gets_its_class_and_a_url() {
    let answer = decoded(&offer_to(Some(16), false, None));
    let class = DhcpOption::ClassIdentifier(b"HTTPClient".to_vec());
    assert_eq!(option(&answer, 60), Some(&class));
    let url = DhcpOption::BootfileName(b"http://10.0.0.1/snponly.efi".to_vec());
    assert_eq!(option(&answer, 67), Some(&url));
}

#[test]
fn a_running_system_gets_an_address_and_its_identifier_back() {
    let answer = decoded(&offer_to(None, false, None));
    assert_eq!(option(&answer, 67), None);
    assert_eq!(option(&answer, 43), None);
    let id = DhcpOption::ClientIdentifier([[1].as_slice(), &mac(9).0].concat());
    assert_eq!(option(&answer, 61), Some(&id));
}

#[test]
fn a_subnet_of_known_machines_reports_unknown_machines_and_does_not_reply() {
    let mut settings = settings();
    settings.subnets[0].known_only = true;
    let mut server = DhcpServer::new(settings);
    let bytes = message(MessageType::Discover, []).to_vec().unwrap();
    let outcome = server.handle(Tick(0), &bytes, arrival(), |_| false);
    assert_eq!(outcome.dropped, Some(Reason::UnknownClient));
    assert_eq!(outcome.seen.unwrap().mac, mac(1));
    let outcome = server.handle(Tick(0), &bytes, arrival(), |requested| requested == mac(1));
    assert!(outcome.reply.is_some());
}

#[test]
fn addresses_left_for_known_machines_give_a_reason_and_no_reply() {
    let mut bench = DhcpServerBench::new();
    let mut discover = message(MessageType::Discover, []);
    for number in 1..=7 {
        discover.set_chaddr(&mac(number).0);
        assert!(bench.handle(&discover).reply.is_some());
    }
    discover.set_chaddr(&mac(11).0);
    assert_eq!(bench.handle(&discover).dropped, Some(Reason::OnlyForKnown));
    bench.now = Tick(OFFER_HOLD_MS);
    assert!(bench.handle(&discover).reply.is_some());
}

#[test]
fn replies_of_servers_and_unknown_message_types_are_ignored() {
    let mut bench = DhcpServerBench::new();
    for kind in [
        MessageType::Offer,
        MessageType::Ack,
        MessageType::LeaseQuery,
        MessageType::Unknown(99),
    ] {
        let outcome = bench.handle(&message(kind, []));
        let dropped = outcome.dropped;
        assert_eq!(dropped, Some(Reason::UnknownMessageType), "{kind:?}");
    }
}

#[test]
fn a_request_that_names_no_address_is_dropped() {
    let outcome = DhcpServerBench::new().handle(&request([chosen(LOCAL)]));
    assert_eq!(outcome.dropped, Some(Reason::NoAddress));
}

#[test]
fn the_operator_can_end_a_lease() {
    let mut bench = DhcpServerBench::leased();
    assert!(bench.server.forget(mac(1)).is_some());
    assert_eq!(bench.server.leases().count(), 0);
}

#[test]
fn subnets_past_the_bound_are_left_out() {
    let mut settings = settings();
    settings.subnets = (0..=SUBNETS_MAX as u8)
        .map(crate::settings::tests::subnet)
        .collect();
    let server = DhcpServer::new(settings);
    assert_eq!(server.settings.subnets.len(), SUBNETS_MAX);
}
