//! TFTP: all transfers in one thread, each with a separate socket.
//!
//! A transfer of one block at a time is as fast as its two ends reply, so the path from
//! an acknowledgement to the next block is short: one wait for all sockets, one read,
//! one send, no task to wake. The thread never waits for anything else: the runtime
//! requests the content from the engine, opens files, and reads what is not in memory;
//! then it wakes the thread.

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

/// How long one transfer may take, even if its client makes progress. Ours: a loader
/// takes seconds, and a ramdisk in blocks of 512 bytes some minutes.
const TRANSFER_WAIT_US: u64 = 20 * 60 * 1_000_000;

/// Progress of a file is reported each time this many bytes were sent.
const PROGRESS_REPORT_BYTES: u64 = 4 * 1024 * 1024;

/// Requests that are read from one socket before transfers are served again.
const REQUESTS_AT_ONCE_MAX: usize = 32;

/// The keys of the poll: the waker, the listening sockets, and then the transfers.
const WAKER_KEY: u64 = 0;
const LISTENER_KEY_FIRST: u64 = 1;
const TRANSFER_KEY_FIRST: u64 = 1 << 32;

/// Messages to the thread. At most one per transfer is queued.
enum TftpThreadMessage {
    Opened(u64, Option<OpenedFile>),
    Fetched(u64, io::Result<FetchedFileRange>),
    Stop,
}

/// Sends messages to the thread.
#[derive(Clone)]
struct TftpThreadHandle {
    messages: Sender<TftpThreadMessage>,
    waker: PollWaker,
}

impl TftpThreadHandle {
    fn send(&self, word: TftpThreadMessage) {
        // If the thread has ended, the message is not needed.
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

/// Options of the thread. Tests lower some of them.
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
    limit: TftpTransferLimit,
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
    let handle = TftpThreadHandle {
        messages: words,
        waker,
    };
    let thread = TftpServerThread {
        poll,
        sockets,
        inbox,
        handle: handle.clone(),
        runtime: Handle::current(),
        engine,
        clock,
        limit,
        options: ways,
        slots: BTreeMap::new(),
        clients: BTreeMap::new(),
        deadlines: BinaryHeap::new(),
        key_next: TRANSFER_KEY_FIRST,
        busy_poll: BusyPollPolicy::default(),
        out: Vec::new(),
    };
    let _running = TftpThreadGuard(handle);
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name("tftp".to_owned())
        .spawn(move || ended.send(thread.run()))?;
    end.await
        .unwrap_or_else(|_| Err(io::Error::other("the TFTP thread panicked")))
}

enum TftpSlot {
    /// The engine looks up the file.
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
    /// The slot of each client: a client has one transfer from one port.
    clients: BTreeMap<TftpClientEndpoint, u64>,
    /// Deadlines of transfers; entries that differ from the transfer's deadline are
    /// outdated.
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
            // First receive everything, then send everything: the kernel's code for
            // reading and for sending stays in the processor's cache.
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
                                self.opened(key, opened, now_us);
                            }
                            TftpThreadMessage::Fetched(key, fetched) => {
                                self.fetched(key, fetched, now_us);
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

    /// Waits until a socket is ready or a deadline is due; returns the time then.
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

    /// Reads the requests from a listening socket.
    fn requests(&mut self, key: u64, now_us: u64) {
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        for _ in 0..REQUESTS_AT_ONCE_MAX {
            let index = usize::try_from(key - LISTENER_KEY_FIRST).unwrap_or(usize::MAX);
            let Some(socket) = self.sockets.get(index) else {
                return;
            };
            let Ok(datagram) = board::receive(socket, &mut buffer) else {
                return;
            };
            // Broadcast requests are not answered (RFC 1123, section 4.2.3.5).
            let Some(to @ DatagramDestination { unicast: true, .. }) = datagram.to else {
                continue;
            };
            let client = TftpClientEndpoint::new(datagram.from, to);
            self.request(client, &buffer[..datagram.length], now_us);
        }
    }

    fn request(&mut self, client: TftpClientEndpoint, packet: &[u8], now_us: u64) {
        let path = match tftp::parse(packet) {
            Ok(tftp::Packet::Read(request)) => request.file.to_owned(),
            Ok(tftp::Packet::Write) => {
                let code = tftp::ErrorCode::AccessViolation;
                return client.refuse(code, "this box does not accept files");
            }
            Err(error) if tftp::is_request(packet) => {
                let code = tftp::ErrorCode::IllegalOperation;
                return client.refuse(code, &error.to_string());
            }
            // Other packets to this port belong to no transfer.
            _ => return,
        };
        if let Some(&key) = self.clients.get(&client) {
            match self.slots.get_mut(&key) {
                // A retransmission of a request that is still being looked up.
                Some(TftpSlot::Pending { request, .. }) if request == packet => return,
                // The client did not receive the first reply.
                Some(TftpSlot::Sending(transfer)) if transfer.is_repeated_by(packet, now_us) => {
                    transfer.sender.datagram(now_us, packet);
                    return self.pump(key);
                }
                // The client has started again from the same port, as UEFI does once it
                // has the size: the earlier transfer is over.
                Some(_) => self.end(key),
                None => {}
            }
        }
        let Some(place) = self.limit.acquire(client.peer.ip(), now_us) else {
            return;
        };
        let key = self.key_next;
        self.key_next += 1;
        let request = packet.to_vec();
        self.slots.insert(
            key,
            TftpSlot::Pending {
                client,
                request,
                permit: place,
            },
        );
        self.clients.insert(client, key);
        let (engine, receiver) = (self.engine.clone(), self.handle.clone());
        self.runtime.spawn(async move {
            let peer = client.peer.ip();
            let (opened, busy) = match engine
                .file(FileServerProtocol::Tftp, (peer, None), path.clone())
                .await
            {
                Ok(Some(grant)) => (files::open(grant).await, false),
                Ok(None) => (None, false),
                Err(EngineBusy) => (None, true),
            };
            if opened.is_none() && !busy {
                // If the queue is full, only this note is lost.
                engine.try_send(RackInput::FileRefused {
                    peer: peer.to_canonical(),
                    protocol: FileServerProtocol::Tftp,
                    path,
                    answer: "error 1 (file not found)",
                    why: "there is no such file on this box".to_owned(),
                });
            }
            receiver.send(TftpThreadMessage::Opened(key, opened));
        });
    }

    fn opened(&mut self, key: u64, opened: Option<OpenedFile>, now_us: u64) {
        // It may have ended already, because its client has sent another request.
        let Some(TftpSlot::Pending { .. }) = self.slots.get(&key) else {
            return;
        };
        let Some(TftpSlot::Pending {
            client,
            request,
            permit: place,
        }) = self.slots.remove(&key)
        else {
            return;
        };
        let Some(opened) = opened else {
            self.clients.remove(&client);
            return client.refuse(tftp::ErrorCode::NotFound, "no such file");
        };
        let content = TftpContent::new(opened);
        let ways = (&self.poll, self.options.offload);
        match TftpServerTransfer::begin((key, client), request, content, ways, (place, now_us)) {
            Ok(transfer) => {
                self.slots
                    .insert(key, TftpSlot::Sending(Box::new(transfer)));
                self.pump(key);
            }
            // No socket is available: the client will repeat its request.
            Err(_) => {
                self.clients.remove(&client);
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

    /// After each step: fetch missing bytes, report progress, set the deadline.
    fn finish_step(&mut self, key: u64, step: &TftpTransferStatus) {
        let Some(TftpSlot::Sending(transfer)) = self.slots.get_mut(&key) else {
            return;
        };
        if *step == TftpTransferStatus::Ended {
            return self.end(key);
        }
        if let Some(missing) = transfer.content.missing() {
            let receiver = self.handle.clone();
            self.runtime.spawn_blocking(move || {
                receiver.send(TftpThreadMessage::Fetched(key, missing.fetch()));
            });
        }
        if transfer.sender.bytes() - transfer.reported_bytes >= PROGRESS_REPORT_BYTES {
            report_progress(&self.engine, self.clock, transfer, false);
        }
        let last_us = transfer.began_us.saturating_add(self.options.wait_us);
        let due_us = transfer.sender.deadline().unwrap_or(last_us).min(last_us);
        // A deadline that is too early is moved when it is due, so that the common
        // step, which only postpones it, costs nothing.
        if due_us < transfer.deadline_us {
            transfer.deadline_us = due_us;
            self.deadlines.push(Reverse((due_us, key)));
        }
    }

    /// Handles all transfers whose deadline is due.
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

    /// Ends a transfer, or a request that is still being looked up.
    fn end(&mut self, key: u64) {
        match self.slots.remove(&key) {
            Some(TftpSlot::Sending(mut transfer)) => {
                self.remove_client(&transfer.client, key);
                if !transfer.is_size_query() {
                    report_progress(&self.engine, self.clock, &mut transfer, true);
                }
            }
            Some(TftpSlot::Pending { client, .. }) => self.remove_client(&client, key),
            None => {}
        }
    }

    fn remove_client(&mut self, client: &TftpClientEndpoint, key: u64) {
        if self.clients.get(client) == Some(&key) {
            self.clients.remove(client);
        }
    }
}

/// Reports the progress of a transfer to the rack.
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
