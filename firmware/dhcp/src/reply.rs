//! The frames we send: which fields and options stand in which reply (RFC 2131
//! table 3, RFC 4578, and what PXE 2.1 wants in option 43).

use core::net::Ipv4Addr;

use dhcproto::v4::{DhcpOption, Message, MessageType, Opcode, OptionCode, UnknownOption};

use crate::boot::Answer;
use crate::frame::{self, Frame};
use crate::settings::{DNS_MAX, Subnet};

/// What differs from one reply to the next.
pub(crate) struct Content<'a> {
    pub(crate) kind: MessageType,
    pub(crate) subnet: &'a Subnet,
    /// The address given; none in answer to INFORM.
    pub(crate) address: Option<Ipv4Addr>,
    pub(crate) lease_s: u32,
    pub(crate) boot: Answer,
}

/// PXE sub-option 6 (discovery control) with bit 3: load the named file and
/// look for no boot server; 255 ends the list.
const SKIP_DISCOVERY: [u8; 4] = [6, 1, 8, 255];

/// iPXE sub-option 176 (`no-pxedhcp`): do not wait for a second server.
const NO_PROXY: [u8; 3] = [176, 1, 1];

/// An OFFER or ACK. `None` only if the codec refuses its own message.
pub(crate) fn give(frame: &Frame, content: Content<'_>) -> Option<Vec<u8>> {
    let Content {
        kind,
        subnet,
        address,
        lease_s,
        boot,
    } = content;
    let mut message = answer_to(frame, kind, subnet.server);
    if kind == MessageType::Ack {
        message.set_ciaddr(frame.message.ciaddr());
    }
    let options = message.opts_mut();
    options.insert(DhcpOption::SubnetMask(subnet.mask()));
    options.insert(DhcpOption::BroadcastAddr(subnet.broadcast()));
    if let Some(router) = subnet.router {
        options.insert(DhcpOption::Router(vec![router]));
    }
    if !subnet.dns.is_empty() {
        let dns = subnet.dns.iter().copied().take(DNS_MAX);
        options.insert(DhcpOption::DomainNameServer(dns.collect()));
    }
    if let Some(address) = address {
        // RFC 2131 section 4.4.5: half, and seven eighths.
        options.insert(DhcpOption::AddressLeaseTime(lease_s));
        options.insert(DhcpOption::Renewal(lease_s / 2));
        options.insert(DhcpOption::Rebinding(lease_s - lease_s / 8));
        message.set_yiaddr(address);
    }
    add_boot(&mut message, frame, boot);
    frame::encode(&message, frame.relay_info.as_deref())
}

/// A NAK. Through a relay it must be broadcast to the client (RFC 2131 section
/// 4.3.2), because the client's address may be wrong.
pub(crate) fn refuse(frame: &Frame, server: Ipv4Addr, why: &str) -> Option<Vec<u8>> {
    let mut message = answer_to(frame, MessageType::Nak, server);
    if frame.message.giaddr() != Ipv4Addr::UNSPECIFIED {
        message.set_flags(frame.message.flags().set_broadcast());
    }
    message.opts_mut().insert(DhcpOption::Message(why.into()));
    frame::encode(&message, frame.relay_info.as_deref())
}

/// What every reply repeats of its request.
fn answer_to(frame: &Frame, kind: MessageType, server: Ipv4Addr) -> Message {
    let asked = &frame.message;
    let none = Ipv4Addr::UNSPECIFIED;
    let mut message =
        Message::new_with_id(asked.xid(), none, none, none, asked.giaddr(), &frame.mac.0);
    message.set_opcode(Opcode::BootReply);
    message.set_flags(asked.flags());
    let options = message.opts_mut();
    options.insert(DhcpOption::MessageType(kind));
    options.insert(DhcpOption::ServerIdentifier(server));
    if let Some(id) = frame.client_id() {
        // RFC 6842.
        options.insert(DhcpOption::ClientIdentifier(id.to_vec()));
    }
    message
}

fn add_boot(message: &mut Message, frame: &Frame, boot: Answer) {
    match boot {
        Answer::Nothing => {}
        Answer::Tftp { server, file } => {
            name_file(message, &file);
            message.set_siaddr(server);
            let options = message.opts_mut();
            let name = server.to_string().into_bytes();
            options.insert(DhcpOption::TFTPServerName(name));
            options.insert(DhcpOption::ClassIdentifier(b"PXEClient".to_vec()));
            options.insert(DhcpOption::VendorExtensions(SKIP_DISCOVERY.to_vec()));
            if let Some(id) = frame.machine_id() {
                // PXE 2.1 has the server repeat the identifier.
                options.insert(DhcpOption::ClientMachineIdentifier(id.to_vec()));
            }
        }
        Answer::Script { server, url } => {
            name_file(message, &url);
            message.set_siaddr(server);
            let code = OptionCode::Unknown(frame::IPXE);
            let option = UnknownOption::new(code, NO_PROXY.to_vec());
            message.opts_mut().insert(DhcpOption::Unknown(option));
        }
        Answer::Http { url } => {
            name_file(message, &url);
            // OVMF takes no offer for HTTP boot without this.
            let class = DhcpOption::ClassIdentifier(b"HTTPClient".to_vec());
            message.opts_mut().insert(class);
        }
    }
}

/// In option 67 always and, as old firmware wants it, in `file` if it fits with
/// its ending zero.
fn name_file(message: &mut Message, file: &str) {
    const FILE_BYTES: usize = 128;
    if file.len() < FILE_BYTES {
        message.set_fname(file.as_bytes());
    }
    let option = DhcpOption::BootfileName(file.as_bytes().to_vec());
    message.opts_mut().insert(option);
}
