//! What the frames of one interface come to: something for the rack, something to say
//! at once, or nothing. No socket, no clock.

use std::net::Ipv4Addr;

use trivet_lan::{Advertiser, Checksums, Claims, Heard, hear};
use trivet_model::{LinkId, MacAddr, Tick};
use trivet_rack::Input;
use trivet_rack::dhcp::Arrival;

/// What a frame means to us.
#[derive(Debug)]
pub(super) enum Means {
    /// It is for the rack to decide.
    Input(Input),
    /// It is answered with this frame, at once.
    Answer(Vec<u8>),
    /// It is none of our business.
    Nothing,
}

/// One interface.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) own: MacAddr,
    /// Our address there.
    local: Ipv4Addr,
    claims: Claims,
    advertiser: Option<Advertiser>,
}

impl Line {
    /// `range` is what is given there. `advertises` says when router advertisements
    /// begin, if there are any.
    pub(super) fn new(
        own: MacAddr,
        local: Ipv4Addr,
        range: Option<(Ipv4Addr, Ipv4Addr)>,
        advertises: Option<Tick>,
    ) -> Self {
        Self {
            own,
            local,
            claims: Claims::new(range),
            advertiser: advertises.map(|now| Advertiser::new(now, own)),
        }
    }

    pub(super) fn heard(&mut self, now: Tick, link: LinkId, frame: &[u8], vouched: bool) -> Means {
        let sums = if vouched {
            Checksums::Vouched
        } else {
            Checksums::Open
        };
        match hear(frame, self.own, sums) {
            Ok(Heard::Dhcp {
                from,
                source,
                destination,
                payload,
            }) => {
                let arrival = Arrival {
                    link,
                    local: self.local,
                    source,
                    port: destination.port(),
                    from: Some(from),
                };
                let bytes = payload.to_vec();
                Means::Input(Input::Dhcp { arrival, bytes })
            }
            Ok(Heard::Claimed { address, mac }) if self.claims.heard(now, address, mac) => {
                Means::Input(Input::Claimed { link, address, mac })
            }
            Ok(Heard::Solicited { from, source }) => {
                let advertiser = self.advertiser.as_mut();
                let answer = advertiser.and_then(|one| one.solicited(now, from, source));
                answer.map_or(Means::Nothing, Means::Answer)
            }
            Ok(Heard::Claimed { .. }) | Err(_) => Means::Nothing,
        }
    }

    /// Somebody is asked who has an address.
    pub(super) fn probed(&mut self, address: Ipv4Addr) {
        self.claims.probed(address);
    }

    /// When [`Line::due`] has something to say.
    pub(super) fn deadline(&self) -> Option<Tick> {
        self.advertiser.as_ref().map(Advertiser::deadline)
    }

    /// What is to be said now without a question.
    pub(super) fn due(&mut self, now: Tick) -> Option<Vec<u8>> {
        self.advertiser.as_mut()?.due(now)
    }
}
