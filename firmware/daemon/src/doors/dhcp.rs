//! DHCP: where it is heard and how answers leave.
//!
//! A door is an address that relays send to ([`Relayed`]) or an interface whose frames
//! are heard ([`Wire`]). Its place in the list is its [`LinkId`].

mod hearing;
mod line;
mod relayed;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use tokio::task::JoinSet;
use trivet_model::LinkId;
use trivet_rack::Destination;

use crate::clock::Clock;
use crate::engine::Engine;
use crate::say;

pub(crate) use relayed::Relayed;
pub(crate) use wire::{Opened, Wants};

use wire::{Hearing, Wire};

/// One place where DHCP is heard, ready and not yet heard.
pub(crate) enum Place {
    Relayed(Relayed),
    Wire(Box<Opened>),
    /// Relays send to an address where another place hears already.
    Shared(SocketAddrV4),
}

/// For people: where we hear, and as whom we answer.
impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relayed(door) => door.fmt(out),
            Self::Wire(opened) => opened.fmt(out),
            Self::Shared(address) => write!(out, "at {address} for relays, heard already"),
        }
    }
}

enum Door {
    Relayed(Relayed),
    Wire(Wire),
    /// Nothing is heard here, so nothing is answered here.
    Shared,
}

/// All doors, for who sends.
#[derive(Clone)]
pub(crate) struct Doors(Arc<[Door]>);

/// What hears at interfaces, by the numbers of their doors.
pub(crate) struct Ears(Vec<(usize, Hearing)>);

impl Doors {
    /// Takes the places in the order of their numbers.
    pub(crate) fn new(places: Vec<Place>) -> (Self, Ears) {
        let (mut doors, mut ears) = (Vec::new(), Vec::new());
        for (number, place) in places.into_iter().enumerate() {
            doors.push(match place {
                Place::Relayed(door) => Door::Relayed(door),
                Place::Wire(opened) => {
                    let Opened { wire, hearing } = *opened;
                    ears.push((number, hearing));
                    Door::Wire(wire)
                }
                Place::Shared(_) => Door::Shared,
            });
        }
        (Self(doors.into()), Ears(ears))
    }

    /// Hears at all doors until `tasks` is dropped.
    pub(crate) fn hear(&self, ears: Ears, tasks: &mut JoinSet<()>, engine: &Engine, clock: Clock) {
        for (number, door) in self.0.iter().enumerate() {
            if let Door::Relayed(_) = door {
                let (doors, engine) = (self.clone(), engine.clone());
                tasks.spawn(async move {
                    if let Some(Door::Relayed(door)) = doors.0.get(number) {
                        door.hear(link(number), &engine).await;
                    }
                });
            }
        }
        if ears.0.is_empty() {
            return;
        }
        let hearing = hearing::run(self.clone(), ears.0, engine.clone(), clock);
        tasks.spawn(async move {
            if let Err(error) = hearing.await {
                say::line(&format!(
                    "trivet: warning: DHCP has stopped: {error}; restart the box"
                ));
            }
        });
    }

    /// Sends one answer. What does not leave, the client asks for again.
    pub(crate) fn send(&self, link: LinkId, local: Ipv4Addr, to: &Destination, bytes: &[u8]) {
        match self.0.get(usize::from(link.0)) {
            Some(Door::Relayed(door)) => door.send(to, bytes),
            Some(Door::Wire(wire)) => wire.send(local, to, bytes),
            Some(Door::Shared) | None => {}
        }
    }

    /// Asks who has an address. Nobody can be asked through a relay.
    pub(crate) fn probe(&self, link: LinkId, address: Ipv4Addr) {
        if let Some(Door::Wire(wire)) = self.0.get(usize::from(link.0)) {
            wire.probe(address);
        }
    }
}

/// The settings have far fewer doors than there are numbers.
fn link(number: usize) -> LinkId {
    LinkId(u16::try_from(number).unwrap_or(u16::MAX))
}
