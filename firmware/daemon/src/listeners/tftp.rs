//! TFTP: all transfers in one thread, each with a socket of its own.
//!
//! A transfer of one block at a time is as fast as its two ends answer, so the way
//! from an acknowledgement to the next block is short: one wait for all sockets, one
//! read, one send, no task to wake. The thread itself never waits for anything else:
//! what to send is asked of the engine, and a file is opened, and read where it is not
//! in memory, by the runtime, which then wakes the thread.

mod busy_poll;
mod content;
mod transfer;
mod transfer_limit;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use embedded_tftp as tftp;
use tokio::runtime::Handle;
use trivet_board_linux::{self as board, DatagramDestination, Epoll, Interest, PollWaker};
use trivet_rack::{FileServerProtocol, RackInput};

use self::busy_poll::{BUSY_POLL_US_MAX, BusyPollPolicy};
use self::content::{FetchedFileRange, TftpContent};
use self::transfer::{
    DATAGRAM_BYTES_MAX, TftpClientEndpoint, TftpServerTransfer, TftpTransferStatus,
};
use self::transfer_limit::TftpTransferPermit;
pub(crate) use self::transfer_limit::{TftpTransferLimit, transfers_max};
use crate::clock::DaemonClock;
use crate::engine::{Engine, EngineBusy};
use crate::files::{self, OpenedFile};

/// How long one transfer may take, however steadily its client goes on. Ours: a
/// loader takes seconds, and a ramdisk in blocks of 512 bytes some minutes.
const TRANSFER_WAIT_US: u64 = 20 * 60 * 1_000_000;

/// A file's progress is told after this many bytes.
const PROGRESS_REPORT_BYTES: u64 = 4 * 1024 * 1024;

/// Requests taken from one socket before transfers have their turn again.
const REQUESTS_AT_ONCE_MAX: usize = 32;

/// The keys of the poll: who wakes us, listening sockets, and then transfers.
const WAKER_KEY: u64 = 0;
const LISTENER_KEY_FIRST: u64 = 1;
const TRANSFER_KEY_FIRST: u64 = 1 << 32;

/// What others tell the thread. As many as there are transfers, at most.
enum TftpThreadMessage {
    Opened(u64, Option<OpenedFile>),
    Fetched(u64, io::Result<FetchedFileRange>),
    Stop,
}

/// Others' way to the thread.
#[derive(Clone)]
struct TftpThreadHandle {
    messages: Sender<TftpThreadMessage>,
    waker: PollWaker,
}

impl TftpThreadHandle {
    fn send(&self, word: TftpThreadMessage) {
        // A thread that has ended needs no word.
        let _ = self.messages.send(word);
        self.waker.wake();
    }
}

/// Ends the thread when it is dropped.
struct TftpThreadGuard(TftpThreadHandle);

impl Drop for TftpThreadGuard {
    fn drop(&mut self) {
        self.0.send(TftpThreadMessage::Stop);
    }
}

/// How the thread works. Tests turn some of it down.
#[derive(Clone, Copy)]
pub(crate) struct TftpServerOptions {
    wait_us: u64,
    offload: bool,
}

impl Default for TftpServerOptions {
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
    clock: DaemonClock,
    room: TftpTransferLimit,
    ways: TftpServerOptions,
) -> io::Result<()> {
    let poll = Epoll::new()?;
    let (words, inbox) = channel();
    let waker = PollWaker::new(&poll, WAKER_KEY)?;
    for (key, socket) in (LISTENER_KEY_FIRST..).zip(&sockets) {
        socket.set_nonblocking(true)?;
        board::enable_destination_info(socket)?;
        poll.add(socket, key, Interest::Read)?;
    }
    let ear = TftpThreadHandle {
        messages: words,
        waker,
    };
    let thread = TftpServerThread {
        poll,
        sockets,
        inbox,
        handle: ear.clone(),
        runtime: Handle::current(),
        engine,
        clock,
        limit: room,
        options: ways,
        slots: BTreeMap::new(),
        clients: BTreeMap::new(),
        deadlines: BinaryHeap::new(),
        key_next: TRANSFER_KEY_FIRST,
        busy_poll: BusyPollPolicy::default(),
        out: Vec::new(),
    };
    let _running = TftpThreadGuard(ear);
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name("tftp".to_owned())
        .spawn(move || ended.send(thread.run()))?;
    end.await
        .unwrap_or_else(|_| Err(io::Error::other("the TFTP thread broke")))
}

enum TftpSlot {
    /// The engine is asked for the file.
    Pending {
        client: TftpClientEndpoint,
        request: Vec<u8>,
        permit: TftpTransferPermit,
    },
    Sending(Box<TftpServerTransfer>),
}

struct TftpServerThread {
    poll: Epoll,
    sockets: Vec<UdpSocket>,
    inbox: Receiver<TftpThreadMessage>,
    handle: TftpThreadHandle,
    runtime: Handle,
    engine: Engine,
    clock: DaemonClock,
    limit: TftpTransferLimit,
    options: TftpServerOptions,
    slots: BTreeMap<u64, TftpSlot>,
    /// Who has which slot: a client has one transfer from one port.
    clients: BTreeMap<TftpClientEndpoint, u64>,
    /// When to look at which transfer; entries that are no longer its alarm are old.
    deadlines: BinaryHeap<Reverse<(u64, u64)>>,
    key_next: u64,
    busy_poll: BusyPollPolicy,
    out: Vec<u8>,
}

impl TftpServerThread {
    fn run(mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        loop {
            let now_us = self.wait(&mut ready)?;
            // First all that was heard, then all that is to be said: the kernel's ways to
            // read and to send stay in the processor's cache.
            for &key in &ready {
                if key >= TRANSFER_KEY_FIRST {
                    self.receive(key, now_us);
                }
            }
            for &key in &ready {
                if key >= TRANSFER_KEY_FIRST {
                    self.pump(key);
                } else if key == WAKER_KEY {
                    self.handle.waker.clear();
                    while let Ok(word) = self.inbox.try_recv() {
                        match word {
                            TftpThreadMessage::Opened(key, opened) => {
                                self.opened(key, opened, now_us)
                            }
                            TftpThreadMessage::Fetched(key, fetched) => {
                                self.fetched(key, fetched, now_us)
                            }
                            TftpThreadMessage::Stop => return Ok(()),
                        }
                    }
                } else {
                    self.requests(key, now_us);
                }
            }
            self.run_deadlines(now_us);
        }
    }

    /// Waits until something is ready or due, and tells the time then.
    fn wait(&mut self, ready: &mut Vec<u64>) -> io::Result<u64> {
        let began_us = self.clock.us();
        let due_us = self.deadlines.peek().map(|Reverse((at_us, _))| *at_us);
        if !self.slots.is_empty() && self.busy_poll.should_poll() {
            let until_us = due_us.unwrap_or(u64::MAX).min(began_us + BUSY_POLL_US_MAX);
            loop {
                self.poll.wait(Some(Duration::ZERO), ready)?;
                let now_us = self.clock.us();
                if !ready.is_empty() {
                    self.busy_poll.record_poll(true);
                    return Ok(now_us);
                }
                if now_us >= until_us {
                    break;
                }
            }
            self.busy_poll.record_poll(false);
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
            let Some(to @ DatagramDestination { unicast: true, .. }) = came.to else {
                continue;
            };
            let asker = TftpClientEndpoint::new(came.from, to);
            self.request(asker, &buffer[..came.length], now_us);
        }
    }

    fn request(&mut self, asker: TftpClientEndpoint, packet: &[u8], now_us: u64) {
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
        if let Some(&key) = self.clients.get(&asker) {
            match self.slots.get_mut(&key) {
                // It repeats what is being looked for.
                Some(TftpSlot::Pending { request, .. }) if request == packet => return,
                // It did not hear the first answer.
                Some(TftpSlot::Sending(transfer)) if transfer.is_repeated_by(packet, now_us) => {
                    transfer.sender.datagram(now_us, packet);
                    return self.pump(key);
                }
                // It has begun anew from the same port, as UEFI does once it has the
                // size: what was before is over.
                Some(_) => self.end(key),
                None => {}
            }
        }
        let Some(place) = self.limit.acquire(asker.peer.ip(), now_us) else {
            return;
        };
        let key = self.key_next;
        self.key_next += 1;
        let request = packet.to_vec();
        self.slots.insert(
            key,
            TftpSlot::Pending {
                client: asker,
                request,
                permit: place,
            },
        );
        self.clients.insert(asker, key);
        let (engine, ear) = (self.engine.clone(), self.handle.clone());
        self.runtime.spawn(async move {
            let peer = asker.peer.ip();
            let (opened, busy) = match engine
                .file(FileServerProtocol::Tftp, peer, path.clone())
                .await
            {
                Ok(Some(grant)) => (files::open(grant).await, false),
                Ok(None) => (None, false),
                Err(EngineBusy) => (None, true),
            };
            if opened.is_none() && !busy {
                // A full queue loses the note only.
                engine.try_send(RackInput::FileRefused {
                    peer: peer.to_canonical(),
                    protocol: FileServerProtocol::Tftp,
                    path,
                    answer: "error 1 (file not found)",
                    why: "there is no such file on this box".to_owned(),
                });
            }
            ear.send(TftpThreadMessage::Opened(key, opened));
        });
    }

    fn opened(&mut self, key: u64, opened: Option<OpenedFile>, now_us: u64) {
        // It may be over already: then its client has asked for something else.
        let Some(TftpSlot::Pending { .. }) = self.slots.get(&key) else {
            return;
        };
        let Some(TftpSlot::Pending {
            client: asker,
            request,
            permit: place,
        }) = self.slots.remove(&key)
        else {
            return;
        };
        let Some(opened) = opened else {
            self.clients.remove(&asker);
            return asker.refuse(tftp::ErrorCode::NotFound, "no such file");
        };
        let content = TftpContent::new(opened);
        let ways = (&self.poll, self.options.offload);
        match TftpServerTransfer::begin((key, asker), request, content, ways, (place, now_us)) {
            Ok(transfer) => {
                self.slots
                    .insert(key, TftpSlot::Sending(Box::new(transfer)));
                self.pump(key);
            }
            // No socket to be had: the client asks again.
            Err(_) => {
                self.clients.remove(&asker);
            }
        }
    }

    fn fetched(&mut self, key: u64, fetched: io::Result<FetchedFileRange>, _now_us: u64) {
        if let Some(TftpSlot::Sending(transfer)) = self.slots.get_mut(&key) {
            transfer.content.fetched(fetched);
            self.pump(key);
        }
    }

    fn receive(&mut self, key: u64, now_us: u64) {
        if let Some(TftpSlot::Sending(transfer)) = self.slots.get_mut(&key)
            && transfer.receive(&self.poll, now_us, &mut self.out) == TftpTransferStatus::Ended
        {
            self.end(key);
        }
    }

    fn pump(&mut self, key: u64) {
        let Some(TftpSlot::Sending(transfer)) = self.slots.get_mut(&key) else {
            return;
        };
        let step = transfer.pump(&self.poll, &mut self.out);
        self.finish_step(key, &step);
    }

    /// After each step: fetch what is missing, tell how far it is, set its alarm.
    fn finish_step(&mut self, key: u64, step: &TftpTransferStatus) {
        let Some(TftpSlot::Sending(transfer)) = self.slots.get_mut(&key) else {
            return;
        };
        if *step == TftpTransferStatus::Ended {
            return self.end(key);
        }
        if let Some(missing) = transfer.content.missing() {
            let ear = self.handle.clone();
            self.runtime.spawn_blocking(move || {
                ear.send(TftpThreadMessage::Fetched(key, missing.fetch()));
            });
        }
        if transfer.sender.bytes() - transfer.reported_bytes >= PROGRESS_REPORT_BYTES {
            report_progress(&self.engine, self.clock, transfer, false);
        }
        let last_us = transfer.began_us.saturating_add(self.options.wait_us);
        let due_us = transfer.sender.deadline().unwrap_or(last_us).min(last_us);
        // An alarm that is too early is set anew when it rings, so that the common
        // step, which only moves it on, costs nothing.
        if due_us < transfer.deadline_us {
            transfer.deadline_us = due_us;
            self.deadlines.push(Reverse((due_us, key)));
        }
    }

    /// Looks at all whose time has come.
    fn run_deadlines(&mut self, now_us: u64) {
        while let Some(&Reverse((at_us, key))) = self.deadlines.peek() {
            if at_us > now_us {
                return;
            }
            self.deadlines.pop();
            let Some(TftpSlot::Sending(transfer)) = self.slots.get_mut(&key) else {
                continue;
            };
            if transfer.deadline_us != at_us {
                continue;
            }
            transfer.deadline_us = u64::MAX;
            if now_us.saturating_sub(transfer.began_us) >= self.options.wait_us {
                transfer.abort("this took too long");
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
            Some(TftpSlot::Sending(mut transfer)) => {
                self.remove_client(&transfer.client, key);
                if !transfer.is_size_query() {
                    report_progress(&self.engine, self.clock, &mut transfer, true);
                }
            }
            Some(TftpSlot::Pending { client: asker, .. }) => self.remove_client(&asker, key),
            None => {}
        }
    }

    fn remove_client(&mut self, asker: &TftpClientEndpoint, key: u64) {
        if self.clients.get(asker) == Some(&key) {
            self.clients.remove(asker);
        }
    }
}

/// Tells the rack how far a transfer is.
fn report_progress(
    engine: &Engine,
    clock: DaemonClock,
    transfer: &mut TftpServerTransfer,
    ended: bool,
) {
    transfer.reported_bytes = transfer.sender.bytes();
    let took_us = clock.us().saturating_sub(transfer.began_us);
    engine.try_send(RackInput::FileSent {
        peer: transfer.client.peer.ip(),
        protocol: FileServerProtocol::Tftp,
        path: transfer.path.clone(),
        sent: transfer.delivered_bytes(),
        requested: transfer.content.size(),
        took_ms: took_us / 1000,
        ended,
    });
}

#[cfg(test)]
mod tests;
