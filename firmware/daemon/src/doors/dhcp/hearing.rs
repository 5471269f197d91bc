//! The thread that hears frames of all interfaces, and says what is due without a
//! question. An interface that is gone, or has become another one, is opened again as
//! soon as it can be.

use std::io;
use std::time::Duration;

use trivet_board_hal::FramesIn as _;
use trivet_board_linux::{Interest, Poll, Waker, interfaces};
use trivet_model::Tick;

use super::wire::{Hearing, Wire};
use super::{Door, Doors, link};
use crate::clock::Clock;
use crate::engine::Engine;
use crate::say;

/// Between two looks whether the interfaces are still the same. Ours.
const LOOK_MS: u64 = 2_000;

/// No interface has this number.
const STOP_KEY: u64 = u64::MAX;

/// One interface.
struct Place {
    /// Its number among the doors.
    number: usize,
    hearing: Option<Hearing>,
    /// It was said that it is gone.
    told: bool,
}

struct Thread {
    doors: Doors,
    places: Vec<Place>,
    poll: Poll,
    engine: Engine,
    clock: Clock,
}

/// Ends the thread when it is dropped.
struct Running(Waker);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// Hears until it is dropped.
pub(super) async fn run(
    doors: Doors,
    hearings: Vec<(usize, Hearing)>,
    engine: Engine,
    clock: Clock,
) -> io::Result<()> {
    let poll = Poll::new()?;
    let _running = Running(Waker::new(&poll, STOP_KEY)?);
    let places = hearings.into_iter().map(|(number, hearing)| Place {
        number,
        hearing: Some(hearing),
        told: false,
    });
    let thread = Thread {
        places: places.collect(),
        doors,
        poll,
        engine,
        clock,
    };
    for (key, place) in (0..).zip(&thread.places) {
        if let Some(hearing) = &place.hearing {
            thread.poll.add(&hearing.ear, key, Interest::Read)?;
        }
    }
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name("dhcp".to_owned())
        .spawn(move || ended.send(thread.run()))?;
    end.await
        .unwrap_or_else(|_| Err(io::Error::other("the DHCP thread broke")))
}

impl Thread {
    fn run(mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        let mut look = self.clock.now().tick.after_ms(LOOK_MS);
        loop {
            let now = self.clock.now().tick;
            if now >= look {
                self.look()?;
                look = now.after_ms(LOOK_MS);
            }
            let wait = self.speak_due(now).min(look.since_ms(now));
            self.poll
                .wait(Some(Duration::from_millis(wait)), &mut ready)?;
            let now = self.clock.now().tick;
            for &key in &ready {
                if key == STOP_KEY {
                    return Ok(());
                }
                self.receive(key, now);
            }
        }
    }

    fn wire(&self, number: usize) -> Option<&Wire> {
        match self.doors.0.get(number) {
            Some(Door::Wire(wire)) => Some(wire),
            _ => None,
        }
    }

    /// Says what is due; milliseconds until the next is.
    fn speak_due(&self, now: Tick) -> u64 {
        let wires = self
            .places
            .iter()
            .filter_map(|place| self.wire(place.number));
        let next = wires.filter_map(|wire| wire.speak_due(now));
        next.map(|at| at.since_ms(now)).min().unwrap_or(LOOK_MS)
    }

    fn receive(&mut self, key: u64, now: Tick) {
        let place = usize::try_from(key).ok();
        let Some(place) = place.and_then(|key| self.places.get_mut(key)) else {
            return;
        };
        let (Some(Door::Wire(wire)), Some(hearing)) =
            (self.doors.0.get(place.number), &mut place.hearing)
        else {
            return;
        };
        let link = link(place.number);
        let took = hearing.ear.receive(&mut |frame, vouched| {
            wire.heard(now, frame, vouched, link, &self.engine);
        });
        if let Err(error) = took
            && error.kind() != io::ErrorKind::WouldBlock
        {
            // It went down or is gone. The next look opens it again.
            place.hearing = None;
        }
    }

    /// Opens again what is no longer what it was.
    fn look(&mut self) -> io::Result<()> {
        let now = interfaces()?;
        for (key, place) in (0..).zip(&mut self.places) {
            if place
                .hearing
                .as_ref()
                .is_some_and(|one| one.is_current(&now))
            {
                continue;
            }
            place.hearing = None;
            let Some(Door::Wire(wire)) = self.doors.0.get(place.number) else {
                continue;
            };
            match wire.reopen(self.clock) {
                Ok(hearing) => {
                    self.poll.add(&hearing.ear, key, Interest::Read)?;
                    place.hearing = Some(hearing);
                    if std::mem::take(&mut place.told) {
                        let name = wire.name();
                        say::line(&format!("trivet: DHCP: interface {name} is back"));
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut place.told, true) {
                        say::line(&format!("trivet: warning: {error}; waiting for it"));
                    }
                }
            }
        }
        Ok(())
    }
}
