//! Decides what the frames of one interface cause: an input for the rack, a reply
//! frame, or nothing. It uses neither sockets nor a clock.

use std::net::Ipv4Addr;

use trivet_link::{ArpClaims, ChecksumStatus, ReceivedPacket, RouterAdvertiser, parse_frame};
use trivet_model::{LinkId, MacAddr, Tick};
use trivet_rack::RackInput;
use trivet_rack::dhcp::DhcpArrival;

/// What to do with a received frame.
#[derive(Debug)]
pub(super) enum DhcpFrameAction {
    /// The rack decides.
    Input(RackInput),
    /// Reply with this frame at once.
    Answer(Vec<u8>),
    /// Ignore it.
    Nothing,
    /// Count it: it may have been for this box and cannot be read, for the reason of this name.
    Dropped(&'static str),
}

/// The state of one interface.
#[derive(Debug)]
pub(super) struct DhcpFrameHandler {
    pub(super) own: MacAddr,
    /// Our address there.
    local: Ipv4Addr,
    claims: ArpClaims,
    advertiser: Option<RouterAdvertiser>,
}

impl DhcpFrameHandler {
    /// `range` is the address pool there. `advertises` is when router advertisements
    /// start, if there are any.
    pub(super) fn new(
        own: MacAddr,
        local: Ipv4Addr,
        range: Option<(Ipv4Addr, Ipv4Addr)>,
        advertises: Option<Tick>,
    ) -> Self {
        Self {
            own,
            local,
            claims: ArpClaims::new(range),
            advertiser: advertises.map(|now| RouterAdvertiser::new(now, own)),
        }
    }

    pub(super) fn handle_frame(
        &mut self,
        now: Tick,
        link: LinkId,
        frame: &[u8],
        is_verified: bool,
    ) -> DhcpFrameAction {
        let sums = if is_verified {
            ChecksumStatus::Offloaded
        } else {
            ChecksumStatus::Unverified
        };
        match parse_frame(frame, self.own, sums) {
            Ok(ReceivedPacket::Dhcp {
                from,
                source,
                destination,
                payload,
            }) => {
                let arrival = DhcpArrival {
                    link,
                    local: self.local,
                    source,
                    port: destination.port(),
                    from: Some(from),
                };
                let bytes = payload.to_vec();
                DhcpFrameAction::Input(RackInput::Dhcp { arrival, bytes })
            }
            Ok(ReceivedPacket::ArpClaim { address, mac })
                if self.claims.record_claim(now, address, mac) =>
            {
                DhcpFrameAction::Input(RackInput::ArpClaimed { link, address, mac })
            }
            Ok(ReceivedPacket::RouterSolicitation { from, source }) => {
                let advertiser = self.advertiser.as_mut();
                let answer = advertiser.and_then(|one| one.solicited(now, from, source));
                answer.map_or(DhcpFrameAction::Nothing, DhcpFrameAction::Answer)
            }
            Err(error) if error.is_loss() => DhcpFrameAction::Dropped(error.name()),
            Ok(ReceivedPacket::ArpClaim { .. }) | Err(_) => DhcpFrameAction::Nothing,
        }
    }

    /// An ARP request was sent for this address, so a claim for it goes to the rack.
    pub(super) fn expect_claim(&mut self, address: Ipv4Addr) {
        self.claims.record_probe(address);
    }

    /// When [`DhcpFrameHandler::due`] has a frame to send.
    pub(super) fn deadline(&self) -> Option<Tick> {
        self.advertiser.as_ref().map(RouterAdvertiser::deadline)
    }

    /// The next frame that is sent without a request.
    pub(super) fn due(&mut self, now: Tick) -> Option<Vec<u8>> {
        self.advertiser.as_mut()?.due(now)
    }
}
