//! Encodes replies: which fields and options are in which reply (RFC 2131 table 3, RFC 4578,
//! and option 43 of PXE 2.1).
//!
//! Options that a client needs are written first. If the frame is full, options that the client
//! did not request are omitted before those that it requested.

use core::net::Ipv4Addr;

use crate::boot::{ClientArch, ClientFirmware, DhcpBootInfo};
use crate::message::{DhcpMessage, DhcpMessageType, code};
use crate::settings::{DNS_MAX, Subnet};
use crate::writer::DhcpMessageWriter;

/// The fields that differ between replies.
pub(crate) struct DhcpReplyContent<'a> {
    pub(crate) message_type: DhcpMessageType,
    pub(crate) subnet: &'a Subnet,
    /// The address given; none in a reply to INFORM.
    pub(crate) address: Option<Ipv4Addr>,
    pub(crate) boot: &'a DhcpBootInfo<'a>,
}

/// PXE sub-option 6 (discovery control) with bit 3: load the named file without a search for
/// boot servers; 255 ends the list.
const SKIP_DISCOVERY: [u8; 4] = [6, 1, 8, 255];

/// iPXE sub-option 176 (`no-pxedhcp`): do not wait for a second server.
const NO_PROXY: [u8; 3] = [176, 1, 1];

const PXE_CLASS: &[u8] = b"PXEClient";

/// OVMF ignores offers for HTTP boot without this class.
const HTTP_CLASS: &[u8] = b"HTTPClient";

/// An OFFER or ACK. `None` if the relay's option leaves no space for it.
pub(crate) fn offer_or_ack(
    frame: &DhcpMessage<'_>,
    content: &DhcpReplyContent<'_>,
) -> Option<Vec<u8>> {
    let subnet = content.subnet;
    let mut writer = reply_to(frame, content.message_type, subnet.server)?;
    if content.message_type == DhcpMessageType::Ack {
        writer.ciaddr(frame.ciaddr());
    }
    if let Some(address) = content.address {
        writer.yiaddr(address);
        let lease_s = subnet.lease_s.to_be_bytes();
        writer.option(code::LEASE_TIME, &lease_s).then_some(())?;
    }
    writer.address_option(code::SUBNET_MASK, subnet.mask());
    add_boot(&mut writer, frame, content.boot);
    match content.boot {
        DhcpBootInfo::Tftp { .. } => writer.option(code::VENDOR_SPECIFIC, &SKIP_DISCOVERY),
        DhcpBootInfo::Script { .. } => writer.option(code::IPXE, &NO_PROXY),
        DhcpBootInfo::Http { .. } | DhcpBootInfo::Nothing => true,
    };
    // RFC 2131 section 4.4.5: one half and seven eighths.
    let (renewal, rebinding) = (subnet.lease_s / 2, subnet.lease_s - subnet.lease_s / 8);
    for requested in [true, false] {
        let wanted = |code| frame.requests_option(code) == requested;
        if let Some(router) = subnet.router.filter(|_| wanted(code::ROUTER)) {
            writer.address_option(code::ROUTER, router);
        }
        if wanted(code::DNS) && !subnet.dns.is_empty() {
            let servers = subnet.dns.iter().take(DNS_MAX);
            let servers: Vec<u8> = servers.flat_map(Ipv4Addr::octets).collect();
            writer.option(code::DNS, &servers);
        }
        if content.address.is_some() && wanted(code::RENEWAL) {
            writer.option(code::RENEWAL, &renewal.to_be_bytes());
        }
        if content.address.is_some() && wanted(code::REBINDING) {
            writer.option(code::REBINDING, &rebinding.to_be_bytes());
        }
        if wanted(code::BROADCAST) {
            writer.address_option(code::BROADCAST, subnet.broadcast());
        }
        if let DhcpBootInfo::Tftp { server, .. } = content.boot
            && wanted(code::TFTP_SERVER)
        {
            writer.option(code::TFTP_SERVER, server.to_string().as_bytes());
        }
    }
    Some(writer.finish(frame.relay_info()))
}

/// A boot file without an address: an OFFER in addition to that of another server, or the ACK
/// of the boot service.
///
/// OVMF discards every offer without an address that has a discovery control in option 43 (it
/// counts its offers before it keeps the first), and uses the boot service if there is none; a
/// BIOS needs the control to load the file at once. iPXE loads the file of an offer of class
/// `PXEClient`.
pub(crate) fn boot_only(
    frame: &DhcpMessage<'_>,
    kind: DhcpMessageType,
    server: Ipv4Addr,
    boot: &DhcpBootInfo<'_>,
) -> Option<Vec<u8>> {
    let mut writer = reply_to(frame, kind, server)?;
    writer.ciaddr(frame.ciaddr());
    if kind == DhcpMessageType::Offer {
        // The client has no address for a unicast reply.
        writer.broadcast();
    }
    add_boot(&mut writer, frame, boot);
    match boot {
        DhcpBootInfo::Script { .. } => {
            writer.option(code::VENDOR_CLASS, PXE_CLASS);
            echo_client_machine_id(&mut writer, frame);
        }
        DhcpBootInfo::Tftp { server, .. } => {
            if ClientFirmware::of(frame).arch == ClientArch::Bios {
                writer.option(code::VENDOR_SPECIFIC, &SKIP_DISCOVERY);
            }
            writer.option(code::TFTP_SERVER, server.to_string().as_bytes());
        }
        DhcpBootInfo::Http { .. } | DhcpBootInfo::Nothing => {}
    }
    Some(writer.finish(frame.relay_info()))
}

/// A NAK. Through a relay it must be broadcast to the client (RFC 2131 section
/// 4.3.2), because the client's address may be wrong.
pub(crate) fn nak(frame: &DhcpMessage<'_>, server: Ipv4Addr, why: &str) -> Option<Vec<u8>> {
    let mut writer = reply_to(frame, DhcpMessageType::Nak, server)?;
    if frame.is_relayed() {
        writer.broadcast();
    }
    writer.option(code::MESSAGE, why.as_bytes());
    Some(writer.finish(frame.relay_info()))
}

/// The fields that every reply copies from its request.
fn reply_to(
    frame: &DhcpMessage<'_>,
    kind: DhcpMessageType,
    server: Ipv4Addr,
) -> Option<DhcpMessageWriter> {
    let mut writer = DhcpMessageWriter::new(2, frame.xid(), frame.mac);
    writer.limit(frame.size_max(), frame.relay_info());
    writer.flags(frame.flags());
    writer.giaddr(frame.giaddr());
    let mut fits = writer.option(code::MESSAGE_TYPE, &[kind.number()]);
    fits &= writer.address_option(code::SERVER_ID, server);
    if let Some(id) = frame.client_id() {
        // RFC 6842.
        fits &= writer.option(code::CLIENT_ID, id);
    }
    fits.then_some(writer)
}

fn add_boot(writer: &mut DhcpMessageWriter, frame: &DhcpMessage<'_>, boot: &DhcpBootInfo<'_>) {
    let Some(file) = boot.file() else { return };
    writer.file(file);
    writer.option(code::BOOT_FILE, file.as_bytes());
    match boot {
        DhcpBootInfo::Tftp { server, .. } => {
            writer.siaddr(*server);
            writer.option(code::VENDOR_CLASS, PXE_CLASS);
            echo_client_machine_id(writer, frame);
        }
        DhcpBootInfo::Script { server, .. } => writer.siaddr(*server),
        DhcpBootInfo::Http { .. } => {
            writer.option(code::VENDOR_CLASS, HTTP_CLASS);
        }
        DhcpBootInfo::Nothing => {}
    }
}

/// PXE 2.1 requires the server to copy the client machine identifier.
fn echo_client_machine_id(writer: &mut DhcpMessageWriter, frame: &DhcpMessage<'_>) {
    if let Some(id) = frame.machine_id() {
        writer.option(code::MACHINE_ID, id);
    }
}
