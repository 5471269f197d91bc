//! The thread that receives frames of all interfaces, and sends router advertisements
//! when they are due. An interface that disappears or is replaced is opened again as
//! soon as possible.

use std::io;
use std::time::Duration;

use tracing::{info, warn};
use trivet_board_hal::FrameReceiver as _;
use trivet_board_linux::{Epoll, Interest, PollWaker, interfaces};
use trivet_model::Tick;

use super::interface::{DhcpInterface, DhcpInterfaceReceiver};
use super::{DhcpListener, DhcpListeners, link};
use crate::clock::DaemonClock;
use crate::engine::Engine;

/// The interval of checks whether the interfaces are still the same. Ours.
const INTERFACE_CHECK_MS: u64 = 2_000;

/// Poll key of the stop signal: no interface has this number.
const STOP_KEY: u64 = u64::MAX;

/// One interface.
struct DhcpInterfaceSlot {
    /// The index of its listener.
    number: usize,
    receiver: Option<DhcpInterfaceReceiver>,
    /// The log already says that it disappeared.
    gone_logged: bool,
}

struct DhcpFrameThread {
    listeners: DhcpListeners,
    slots: Vec<DhcpInterfaceSlot>,
    poll: Epoll,
    engine: Engine,
    clock: DaemonClock,
}

/// Ends the thread when it is dropped.
struct DhcpFrameThreadGuard(PollWaker);

impl Drop for DhcpFrameThreadGuard {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// Receives until it is dropped.
pub(super) async fn run(
    listeners: DhcpListeners,
    hearings: Vec<(usize, DhcpInterfaceReceiver)>,
    engine: Engine,
    clock: DaemonClock,
) -> io::Result<()> {
    let poll = Epoll::new()?;
    let _running = DhcpFrameThreadGuard(PollWaker::new(&poll, STOP_KEY)?);
    let places = hearings
        .into_iter()
        .map(|(number, receiver)| DhcpInterfaceSlot {
            number,
            receiver: Some(receiver),
            gone_logged: false,
        });
    let thread = DhcpFrameThread {
        slots: places.collect(),
        listeners,
        poll,
        engine,
        clock,
    };
    for (key, place) in (0..).zip(&thread.slots) {
        if let Some(receiver) = &place.receiver {
            thread.poll.add(&receiver.frames, key, Interest::Read)?;
        }
    }
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name("dhcp".to_owned())
        .spawn(move || ended.send(thread.run()))?;
    end.await
        .unwrap_or_else(|_| Err(io::Error::other("the DHCP thread panicked")))
}

impl DhcpFrameThread {
    fn run(mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        let mut look = self.clock.now().tick.after_ms(INTERFACE_CHECK_MS);
        loop {
            let now = self.clock.now().tick;
            if now >= look {
                self.reopen_changed()?;
                look = now.after_ms(INTERFACE_CHECK_MS);
            }
            let wait = self.send_due(now).min(look.since_ms(now));
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

    fn interface(&self, number: usize) -> Option<&DhcpInterface> {
        match self.listeners.0.get(number) {
            Some(DhcpListener::Interface(wire)) => Some(wire),
            _ => None,
        }
    }

    /// Sends what is due; returns the milliseconds until the next deadline.
    fn send_due(&self, now: Tick) -> u64 {
        let wires = self
            .slots
            .iter()
            .filter_map(|place| self.interface(place.number));
        let next = wires.filter_map(|wire| wire.send_due(now));
        next.map(|at| at.since_ms(now))
            .min()
            .unwrap_or(INTERFACE_CHECK_MS)
    }

    fn receive(&mut self, key: u64, now: Tick) {
        let place = usize::try_from(key).ok();
        let Some(place) = place.and_then(|key| self.slots.get_mut(key)) else {
            return;
        };
        let (Some(DhcpListener::Interface(wire)), Some(receiver)) =
            (self.listeners.0.get(place.number), &mut place.receiver)
        else {
            return;
        };
        let link = link(place.number);
        let took = receiver.frames.receive(&mut |frame, is_verified| {
            wire.handle_frame(now, frame, is_verified, link, &self.engine);
        });
        if let Err(error) = took
            && error.kind() != io::ErrorKind::WouldBlock
        {
            // The interface went down or was removed. The next check opens it again.
            place.receiver = None;
        }
    }

    /// Opens interfaces again that have changed.
    fn reopen_changed(&mut self) -> io::Result<()> {
        let now = interfaces()?;
        for (key, place) in (0..).zip(&mut self.slots) {
            if place
                .receiver
                .as_ref()
                .is_some_and(|one| one.is_current(&now))
            {
                continue;
            }
            place.receiver = None;
            let Some(DhcpListener::Interface(wire)) = self.listeners.0.get(place.number) else {
                continue;
            };
            match wire.reopen(self.clock) {
                Ok(receiver) => {
                    self.poll.add(&receiver.frames, key, Interest::Read)?;
                    place.receiver = Some(receiver);
                    if std::mem::take(&mut place.gone_logged) {
                        let name = wire.name();
                        info!(interface = %name, "DHCP: interface {name} is back");
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut place.gone_logged, true) {
                        warn!("{error}; waiting for it");
                    }
                }
            }
        }
        Ok(())
    }
}
