//! TFTP: all transfers in one thread, each with a socket of its own.
//!
//! A transfer of one block at a time is as fast as its two ends answer, so the way
//! from an acknowledgement to the next block is short: one wait for all sockets, one
//! read, one send, no task to wake. The thread itself never waits for anything else:
//! what to send is asked of the engine, and a file is opened, and read where it is not
//! in memory, by the runtime, which then wakes the thread.

mod content;
mod pace;
mod room;
mod transfer;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use embedded_tftp as tftp;
use tokio::runtime::Handle;
use trivet_board_linux::{self as board, Interest, Poll, SentTo, Waker};
use trivet_rack::{Door, Input};

use self::content::{Content, Fetched};
use self::pace::{LOOK_US_MAX, Pace};
use self::room::Place;
pub(crate) use self::room::{Room, transfers_max};
use self::transfer::{Asker, DATAGRAM_BYTES_MAX, Step, Transfer};
use crate::clock::Clock;
use crate::engine::{Busy, Engine};
use crate::files::{self, Opened};

/// How long one transfer may take, however steadily its client goes on. Ours: a
/// loader takes seconds, and a ramdisk in blocks of 512 bytes some minutes.
const TRANSFER_WAIT_US: u64 = 20 * 60 * 1_000_000;

/// A file's progress is told after this many bytes.
const TELL_BYTES: u64 = 4 * 1024 * 1024;

/// Requests taken from one socket before transfers have their turn again.
const REQUESTS_AT_ONCE_MAX: usize = 32;

/// The keys of the poll: who wakes us, listening sockets, and then transfers.
const WAKER_KEY: u64 = 0;
const LISTENER_KEY_FIRST: u64 = 1;
const TRANSFER_KEY_FIRST: u64 = 1 << 32;

/// What others tell the thread. As many as there are transfers, at most.
enum Word {
    Opened(u64, Option<Opened>),
    Fetched(u64, io::Result<Fetched>),
    Stop,
}

/// Others' way to the thread.
#[derive(Clone)]
struct Ear {
    words: Sender<Word>,
    waker: Waker,
}

impl Ear {
    fn tell(&self, word: Word) {
        // A thread that has ended needs no word.
        let _ = self.words.send(word);
        self.waker.wake();
    }
}

/// Ends the thread when it is dropped.
struct Running(Ear);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.tell(Word::Stop);
    }
}

/// How the thread works. Tests turn some of it down.
#[derive(Clone, Copy)]
pub(crate) struct Ways {
    wait_us: u64,
    offload: bool,
}

impl Default for Ways {
    fn default() -> Self {
        Self {
            wait_us: TRANSFER_WAIT_US,
            offload: true,
        }
    }
}

/// Serves read requests until it is dropped.
pub(crate) async fn run(
    sockets: Vec<UdpSocket>,
    engine: Engine,
    clock: Clock,
    room: Room,
    ways: Ways,
) -> io::Result<()> {
    let poll = Poll::new()?;
    let (words, inbox) = channel();
    let waker = Waker::new(&poll, WAKER_KEY)?;
    for (key, socket) in (LISTENER_KEY_FIRST..).zip(&sockets) {
        socket.set_nonblocking(true)?;
        board::tell_destinations(socket)?;
        poll.add(socket, key, Interest::Read)?;
    }
    let ear = Ear { words, waker };
    let thread = Thread {
        poll,
        sockets,
        inbox,
        ear: ear.clone(),
        runtime: Handle::current(),
        engine,
        clock,
        room,
        ways,
        slots: BTreeMap::new(),
        askers: BTreeMap::new(),
        alarms: BinaryHeap::new(),
        key_next: TRANSFER_KEY_FIRST,
        pace: Pace::default(),
        out: Vec::new(),
    };
    let _running = Running(ear);
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name("tftp".to_owned())
        .spawn(move || ended.send(thread.run()))?;
    end.await
        .unwrap_or_else(|_| Err(io::Error::other("the TFTP thread broke")))
}

enum Slot {
    /// The engine is asked for the file.
    Asked {
        asker: Asker,
        request: Vec<u8>,
        place: Place,
    },
    Sending(Box<Transfer>),
}

struct Thread {
    poll: Poll,
    sockets: Vec<UdpSocket>,
    inbox: Receiver<Word>,
    ear: Ear,
    runtime: Handle,
    engine: Engine,
    clock: Clock,
    room: Room,
    ways: Ways,
    slots: BTreeMap<u64, Slot>,
    /// Who has which slot: a client has one transfer from one port.
    askers: BTreeMap<Asker, u64>,
    /// When to look at which transfer; entries that are no longer its alarm are old.
    alarms: BinaryHeap<Reverse<(u64, u64)>>,
    key_next: u64,
    pace: Pace,
    out: Vec<u8>,
}

impl Thread {
    fn run(mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        loop {
            let now_us = self.wait(&mut ready)?;
            // First all that was heard, then all that is to be said: the kernel's ways to
            // read and to send stay in the processor's cache.
            for &key in &ready {
                if key >= TRANSFER_KEY_FIRST {
                    self.hear(key, now_us);
                }
            }
            for &key in &ready {
                if key >= TRANSFER_KEY_FIRST {
                    self.pump(key);
                } else if key == WAKER_KEY {
                    self.ear.waker.heard();
                    while let Ok(word) = self.inbox.try_recv() {
                        match word {
                            Word::Opened(key, opened) => self.opened(key, opened, now_us),
                            Word::Fetched(key, fetched) => self.fetched(key, fetched, now_us),
                            Word::Stop => return Ok(()),
                        }
                    }
                } else {
                    self.requests(key, now_us);
                }
            }
            self.ring(now_us);
        }
    }

    /// Waits until something is ready or due, and tells the time then.
    fn wait(&mut self, ready: &mut Vec<u64>) -> io::Result<u64> {
        let began_us = self.clock.us();
        let due_us = self.alarms.peek().map(|Reverse((at_us, _))| *at_us);
        if !self.slots.is_empty() && self.pace.looks() {
            let until_us = due_us.unwrap_or(u64::MAX).min(began_us + LOOK_US_MAX);
            loop {
                self.poll.wait(Some(Duration::ZERO), ready)?;
                let now_us = self.clock.us();
                if !ready.is_empty() {
                    self.pace.looked(true);
                    return Ok(now_us);
                }
                if now_us >= until_us {
                    break;
                }
            }
            self.pace.looked(false);
        }
        let now_us = self.clock.us();
        let wait = due_us.map(|at_us| Duration::from_micros(at_us.saturating_sub(now_us)));
        self.poll.wait(wait, ready)?;
        Ok(self.clock.us())
    }

    /// Takes what has come to a listening socket.
    fn requests(&mut self, key: u64, now_us: u64) {
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        for _ in 0..REQUESTS_AT_ONCE_MAX {
            let index = usize::try_from(key - LISTENER_KEY_FIRST).unwrap_or(usize::MAX);
            let Some(socket) = self.sockets.get(index) else {
                return;
            };
            let Ok(came) = board::receive(socket, &mut buffer) else {
                return;
            };
            // What was asked of everybody is not answered (RFC 1123, section 4.2.3.5).
            let Some(
                to @ SentTo {
                    to_us_alone: true, ..
                },
            ) = came.to
            else {
                continue;
            };
            let asker = Asker::new(came.from, to);
            self.request(asker, &buffer[..came.length], now_us);
        }
    }

    fn request(&mut self, asker: Asker, packet: &[u8], now_us: u64) {
        let path = match tftp::parse(packet) {
            Ok(tftp::Packet::Read(request)) => request.file.to_owned(),
            Ok(tftp::Packet::Write) => {
                let code = tftp::ErrorCode::AccessViolation;
                return asker.refuse(code, "this box takes no files");
            }
            Err(error) if tftp::is_request(packet) => {
                let code = tftp::ErrorCode::IllegalOperation;
                return asker.refuse(code, &error.to_string());
            }
            // Whatever else comes to this port belongs to no transfer.
            _ => return,
        };
        if let Some(&key) = self.askers.get(&asker) {
            match self.slots.get_mut(&key) {
                // It repeats what is being looked for.
                Some(Slot::Asked { request, .. }) if request == packet => return,
                // It did not hear the first answer.
                Some(Slot::Sending(transfer)) if transfer.is_repeated_by(packet, now_us) => {
                    transfer.sender.datagram(now_us, packet);
                    return self.pump(key);
                }
                // It has begun anew from the same port, as UEFI does once it has the
                // size: what was before is over.
                Some(_) => self.end(key),
                None => {}
            }
        }
        let Some(place) = self.room.place(asker.peer.ip(), now_us) else {
            return;
        };
        let key = self.key_next;
        self.key_next += 1;
        let request = packet.to_vec();
        self.slots.insert(
            key,
            Slot::Asked {
                asker,
                request,
                place,
            },
        );
        self.askers.insert(asker, key);
        let (engine, ear) = (self.engine.clone(), self.ear.clone());
        self.runtime.spawn(async move {
            let peer = asker.peer.ip();
            let (opened, busy) = match engine.file(Door::Tftp, peer, path.clone()).await {
                Ok(Some(grant)) => (files::open(grant).await, false),
                Ok(None) => (None, false),
                Err(Busy) => (None, true),
            };
            if opened.is_none() && !busy {
                // A full queue loses the note only.
                engine.tell(Input::FileRefused {
                    peer: peer.to_canonical(),
                    door: Door::Tftp,
                    path,
                    answer: "error 1 (file not found)",
                    why: "there is no such file on this box".to_owned(),
                });
            }
            ear.tell(Word::Opened(key, opened));
        });
    }

    fn opened(&mut self, key: u64, opened: Option<Opened>, now_us: u64) {
        // It may be over already: then its client has asked for something else.
        let Some(Slot::Asked { .. }) = self.slots.get(&key) else {
            return;
        };
        let Some(Slot::Asked {
            asker,
            request,
            place,
        }) = self.slots.remove(&key)
        else {
            return;
        };
        let Some(opened) = opened else {
            self.askers.remove(&asker);
            return asker.refuse(tftp::ErrorCode::NotFound, "no such file");
        };
        let content = Content::new(opened);
        let ways = (&self.poll, self.ways.offload);
        match Transfer::begin((key, asker), request, content, ways, (place, now_us)) {
            Ok(transfer) => {
                self.slots.insert(key, Slot::Sending(Box::new(transfer)));
                self.pump(key);
            }
            // No socket to be had: the client asks again.
            Err(_) => {
                self.askers.remove(&asker);
            }
        }
    }

    fn fetched(&mut self, key: u64, fetched: io::Result<Fetched>, _now_us: u64) {
        if let Some(Slot::Sending(transfer)) = self.slots.get_mut(&key) {
            transfer.content.fetched(fetched);
            self.pump(key);
        }
    }

    fn hear(&mut self, key: u64, now_us: u64) {
        if let Some(Slot::Sending(transfer)) = self.slots.get_mut(&key)
            && transfer.hear(&self.poll, now_us, &mut self.out) == Step::Over
        {
            self.end(key);
        }
    }

    fn pump(&mut self, key: u64) {
        let Some(Slot::Sending(transfer)) = self.slots.get_mut(&key) else {
            return;
        };
        let step = transfer.pump(&self.poll, &mut self.out);
        self.after(key, &step);
    }

    /// After each step: fetch what is missing, tell how far it is, set its alarm.
    fn after(&mut self, key: u64, step: &Step) {
        let Some(Slot::Sending(transfer)) = self.slots.get_mut(&key) else {
            return;
        };
        if *step == Step::Over {
            return self.end(key);
        }
        if let Some(missing) = transfer.content.missing() {
            let ear = self.ear.clone();
            self.runtime.spawn_blocking(move || {
                ear.tell(Word::Fetched(key, missing.fetch()));
            });
        }
        if transfer.sender.bytes() - transfer.told >= TELL_BYTES {
            tell(&self.engine, self.clock, transfer, false);
        }
        let last_us = transfer.began_us.saturating_add(self.ways.wait_us);
        let due_us = transfer.sender.deadline().unwrap_or(last_us).min(last_us);
        // An alarm that is too early is set anew when it rings, so that the common
        // step, which only moves it on, costs nothing.
        if due_us < transfer.alarm_us {
            transfer.alarm_us = due_us;
            self.alarms.push(Reverse((due_us, key)));
        }
    }

    /// Looks at all whose time has come.
    fn ring(&mut self, now_us: u64) {
        while let Some(&Reverse((at_us, key))) = self.alarms.peek() {
            if at_us > now_us {
                return;
            }
            self.alarms.pop();
            let Some(Slot::Sending(transfer)) = self.slots.get_mut(&key) else {
                continue;
            };
            if transfer.alarm_us != at_us {
                continue;
            }
            transfer.alarm_us = u64::MAX;
            if now_us.saturating_sub(transfer.began_us) >= self.ways.wait_us {
                transfer.cut_off("this took too long");
                self.end(key);
            } else {
                transfer.sender.tick(now_us);
                self.pump(key);
            }
        }
    }

    /// Ends a transfer, or what was asked and not begun.
    fn end(&mut self, key: u64) {
        match self.slots.remove(&key) {
            Some(Slot::Sending(mut transfer)) => {
                self.forget(&transfer.asker, key);
                if !transfer.is_question() {
                    tell(&self.engine, self.clock, &mut transfer, true);
                }
            }
            Some(Slot::Asked { asker, .. }) => self.forget(&asker, key),
            None => {}
        }
    }

    fn forget(&mut self, asker: &Asker, key: u64) {
        if self.askers.get(asker) == Some(&key) {
            self.askers.remove(asker);
        }
    }
}

/// Tells the rack how far a transfer is.
fn tell(engine: &Engine, clock: Clock, transfer: &mut Transfer, ended: bool) {
    transfer.told = transfer.sender.bytes();
    let took_us = clock.us().saturating_sub(transfer.began_us);
    engine.tell(Input::FileSent {
        peer: transfer.asker.peer.ip(),
        door: Door::Tftp,
        path: transfer.path.clone(),
        sent: transfer.arrived(),
        asked: transfer.content.size(),
        took_ms: took_us / 1000,
        ended,
    });
}

#[cfg(test)]
mod tests;
