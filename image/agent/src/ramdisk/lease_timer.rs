//! When a lease is applied, renewed and given up (RFC 2131, section 4.4.5).
//!
//! Pure: the client and the time are arguments.

use trivet_dhcp::client::{BoundLease, DhcpClient};
use trivet_model::Tick;

/// The shortest time between two renewals. RFC 2131, section 4.4.5.
const RENEWAL_MS_MIN: u64 = 60_000;

/// What is due.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum LeaseStep {
    /// Give the link the address.
    Apply(BoundLease),
    /// Renew the lease.
    Renew,
    /// The lease has ended: request an address as at the start.
    Restart,
}

/// The times of the present lease.
#[derive(Debug, Default)]
pub(super) struct LeaseTimer {
    lease: Option<BoundLease>,
    granted: Option<Tick>,
    renew_at: Option<Tick>,
    expires_at: Option<Tick>,
}

impl LeaseTimer {
    /// What is due now. Each step is returned once.
    pub(super) fn poll(&mut self, now: Tick, client: &DhcpClient) -> Option<LeaseStep> {
        let (lease, granted) = (client.bound()?, client.granted_at()?);
        if self.granted != Some(granted) {
            let lease_ms = u64::from(lease.lease_s) * 1000;
            let is_endless = lease.lease_s == u32::MAX;
            self.granted = Some(granted);
            self.expires_at = (!is_endless).then(|| granted.after_ms(lease_ms));
            self.renew_at = (!is_endless).then(|| granted.after_ms(lease_ms / 2));
            if self.lease.as_ref() != Some(lease) {
                self.lease = Some(lease.clone());
                return Some(LeaseStep::Apply(lease.clone()));
            }
        }
        let expires_at = self.expires_at?;
        if now >= expires_at {
            *self = Self::default();
            return Some(LeaseStep::Restart);
        }
        if now >= self.renew_at? {
            let rest_ms = expires_at.since_ms(now) / 2;
            self.renew_at = Some(now.after_ms(rest_ms.max(RENEWAL_MS_MIN)).min(expires_at));
            return client.deadline().is_none().then_some(LeaseStep::Renew);
        }
        None
    }

    /// When the next step is due.
    pub(super) fn due(&self) -> Option<Tick> {
        self.renew_at
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use trivet_model::MacAddr;

    use super::*;

    /// Bytes of a BOOTP reply: the address is at 16, options begin at 240.
    fn reply(request: &[u8], kind: u8, address: Ipv4Addr, lease_s: u32) -> Vec<u8> {
        let mut bytes = request[..240].to_vec();
        bytes[0] = 2;
        bytes[16..20].copy_from_slice(&address.octets());
        bytes.extend_from_slice(&[53, 1, kind, 54, 4, 10, 0, 0, 1, 51, 4]);
        bytes.extend_from_slice(&lease_s.to_be_bytes());
        bytes.push(255);
        bytes
    }

    const ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 9), 0);

    /// Runs the exchange that is due, with a server that grants this time.
    fn grant(client: &mut DhcpClient, now: Tick, lease_s: u32) {
        while let Some(request) = client.transmit() {
            let kind = if client.bound().is_some() || is_request(&request) {
                5
            } else {
                2
            };
            client.datagram(now, &reply(&request, kind, *ADDRESS.ip(), lease_s));
        }
    }

    fn is_request(bytes: &[u8]) -> bool {
        bytes[240..].windows(3).any(|option| option == [53, 1, 3])
    }

    fn bound(lease_s: u32) -> (DhcpClient, LeaseTimer) {
        let mut client = DhcpClient::for_agent(MacAddr([2, 0, 0, 0, 0, 1]));
        client.start(Tick(0));
        let mut timer = LeaseTimer::default();
        assert_eq!(timer.poll(Tick(0), &client), None);
        grant(&mut client, Tick(0), lease_s);
        let lease = client.bound().unwrap().clone();
        assert_eq!(lease.address, *ADDRESS.ip());
        let step = timer.poll(Tick(0), &client);
        assert_eq!(step, Some(LeaseStep::Apply(lease)));
        (client, timer)
    }

    #[test]
    fn a_lease_is_applied_once_and_renewed_at_half_of_its_time() {
        let (mut client, mut timer) = bound(600);
        assert_eq!(timer.poll(Tick(1), &client), None);
        assert_eq!(timer.due(), Some(Tick(300_000)));
        assert_eq!(timer.poll(Tick(299_999), &client), None);
        assert_eq!(timer.poll(Tick(300_000), &client), Some(LeaseStep::Renew));
        client.renew(Tick(300_000));
        grant(&mut client, Tick(300_100), 600);
        // The same lease is not applied again, and its time starts again.
        assert_eq!(timer.poll(Tick(300_200), &client), None);
        assert_eq!(timer.due(), Some(Tick(600_100)));
    }

    #[test]
    fn without_a_reply_the_client_renews_again_and_then_restarts() {
        let (client, mut timer) = bound(600);
        let mut renewals = Vec::new();
        let mut now = Tick(0);
        loop {
            now = timer.due().unwrap().max(now.after_ms(1));
            match timer.poll(now, &client) {
                Some(LeaseStep::Renew) => renewals.push(now.0 / 1000),
                Some(LeaseStep::Restart) => break,
                other => assert_eq!(other, None),
            }
        }
        assert_eq!(renewals, [300, 450, 525, 585]);
        assert_eq!(now, Tick(600_000));
        assert_eq!(timer.due(), None);
    }

    #[test]
    fn a_lease_without_end_is_not_renewed() {
        let (client, mut timer) = bound(u32::MAX);
        assert_eq!(timer.due(), None);
        assert_eq!(timer.poll(Tick(u64::MAX), &client), None);
    }
}
