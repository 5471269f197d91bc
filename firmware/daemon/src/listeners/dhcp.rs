//! DHCP listeners: they receive requests and send replies.
//!
//! A listener is an address that relays send to ([`DhcpRelaySocket`]) or an interface
//! whose frames are received ([`DhcpInterface`]). Its index in the list is its
//! [`LinkId`].

mod frame_handler;
mod frame_thread;
mod interface;
mod relay;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use tokio::task::JoinSet;
use tracing::error;
use trivet_model::LinkId;
use trivet_rack::DhcpDestination;

use crate::clock::DaemonClock;
use crate::engine::Engine;

pub(crate) use interface::{DhcpInterfaceConfig, OpenedDhcpInterface};
pub(crate) use relay::DhcpRelaySocket;

use interface::{DhcpInterface, DhcpInterfaceReceiver};

/// One DHCP listener, opened but not receiving yet.
pub(crate) enum OpenedDhcpListener {
    Relayed(DhcpRelaySocket),
    Interface(Box<OpenedDhcpInterface>),
    /// Relays send to an address on which another listener already receives.
    Shared(SocketAddrV4),
}

/// For the log: where we receive, and which address we reply from.
impl fmt::Display for OpenedDhcpListener {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relayed(listener) => listener.fmt(out),
            Self::Interface(opened) => opened.fmt(out),
            Self::Shared(address) => write!(out, "at {address} for relays, already open"),
        }
    }
}

enum DhcpListener {
    Relayed(DhcpRelaySocket),
    Interface(DhcpInterface),
    /// No socket: another listener receives here and replies.
    Shared,
}

/// All listeners, for sending.
#[derive(Clone)]
pub(crate) struct DhcpListeners(Arc<[DhcpListener]>);

/// The receivers of interfaces, with the indices of their listeners.
pub(crate) struct DhcpReceivers(Vec<(usize, DhcpInterfaceReceiver)>);

impl DhcpListeners {
    /// Builds the listeners in the order of their link numbers.
    pub(crate) fn new(places: Vec<OpenedDhcpListener>) -> (Self, DhcpReceivers) {
        let (mut listeners, mut receivers) = (Vec::new(), Vec::new());
        for (number, place) in places.into_iter().enumerate() {
            listeners.push(match place {
                OpenedDhcpListener::Relayed(listener) => DhcpListener::Relayed(listener),
                OpenedDhcpListener::Interface(opened) => {
                    let OpenedDhcpInterface {
                        interface: wire,
                        receiver,
                    } = *opened;
                    receivers.push((number, receiver));
                    DhcpListener::Interface(wire)
                }
                OpenedDhcpListener::Shared(_) => DhcpListener::Shared,
            });
        }
        (Self(listeners.into()), DhcpReceivers(receivers))
    }

    /// Receives on all listeners until `tasks` is dropped.
    pub(crate) fn receive(
        &self,
        receivers: DhcpReceivers,
        tasks: &mut JoinSet<()>,
        engine: &Engine,
        clock: DaemonClock,
    ) {
        for (number, listener) in self.0.iter().enumerate() {
            if let DhcpListener::Relayed(_) = listener {
                let (listeners, engine) = (self.clone(), engine.clone());
                tasks.spawn(async move {
                    if let Some(DhcpListener::Relayed(listener)) = listeners.0.get(number) {
                        listener.receive(link(number), &engine).await;
                    }
                });
            }
        }
        if receivers.0.is_empty() {
            return;
        }
        let receiver = frame_thread::run(self.clone(), receivers.0, engine.clone(), clock);
        tasks.spawn(async move {
            if let Err(error) = receiver.await {
                error!(
                    service = "dhcp",
                    "DHCP has stopped: {error}; restart the box"
                );
            }
        });
    }

    /// Sends one reply. If it is lost, the client repeats its request.
    pub(crate) fn send(&self, link: LinkId, local: Ipv4Addr, to: &DhcpDestination, bytes: &[u8]) {
        match self.0.get(usize::from(link.0)) {
            Some(DhcpListener::Relayed(listener)) => listener.send(to, bytes),
            Some(DhcpListener::Interface(wire)) => wire.send(local, to, bytes),
            Some(DhcpListener::Shared) | None => {}
        }
    }

    /// Sends an ARP request for an address. Not possible through a relay.
    pub(crate) fn probe(&self, link: LinkId, address: Ipv4Addr) {
        if let Some(DhcpListener::Interface(wire)) = self.0.get(usize::from(link.0)) {
            wire.probe(address);
        }
    }
}

/// The settings have far fewer listeners than a [`LinkId`] can count.
fn link(number: usize) -> LinkId {
    LinkId(u16::try_from(number).unwrap_or(u16::MAX))
}
