//! What the rack hears of one transfer.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use trivet_rack::{Door, Input};

use crate::engine::Engine;

/// A file's progress is told after this many bytes.
const TELL_BYTES: u64 = 4 * 1024 * 1024;

/// The engine has too much to do: how long until the end is told again.
const TELL_GAP: Duration = Duration::from_millis(20);

/// One request, or several for parts of one file.
pub(super) struct Transfer {
    engine: Engine,
    peer: IpAddr,
    path: String,
    /// Bytes that were asked for, by all requests so far.
    asked: u64,
    /// Those that were asked for before the present request.
    before: u64,
    /// Where the body of the present request ends, among the bytes of the connection.
    body_end: u64,
    told: u64,
    began: Instant,
}

impl Transfer {
    /// A transfer that begins now.
    pub(super) fn new(engine: Engine, peer: IpAddr, path: String) -> Self {
        Self {
            engine,
            peer,
            path,
            asked: 0,
            before: 0,
            body_end: 0,
            told: 0,
            began: Instant::now(),
        }
    }

    /// So many bytes were asked for, and begin after `body_from` others of the connection.
    pub(super) fn add(&mut self, body_from: u64, bytes: u64) {
        self.before = self.asked;
        self.asked = self.asked.saturating_add(bytes);
        self.body_end = body_from + bytes;
        if self.before - self.told >= TELL_BYTES {
            self.tell(self.before);
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Bytes that the client took, if its side acknowledged so many of the connection's.
    /// Where some are missing, the heads between them count as bytes of bodies.
    pub(super) fn sent(&self, acknowledged: u64) -> u64 {
        let missing = self.body_end.saturating_sub(acknowledged);
        self.asked.saturating_sub(missing)
    }

    pub(super) fn asked(&self) -> u64 {
        self.asked
    }

    /// So much of the present request has left; whether that was worth telling.
    pub(super) fn progress(&mut self, sent: u64) -> bool {
        let sent = self.before + sent;
        let worth = sent - self.told >= TELL_BYTES && sent < self.asked;
        if worth {
            self.tell(sent);
        }
        worth
    }

    /// So much is on its way. Nobody waits for this: a busy engine hears the next one.
    fn tell(&mut self, sent: u64) {
        self.told = sent;
        self.engine.tell(self.input(sent, false));
    }

    /// No more will follow.
    pub(super) async fn end(self, sent: u64) {
        let mut input = self.input(sent, true);
        while let Err(back) = self.engine.offer(input) {
            input = back;
            sleep(TELL_GAP).await;
        }
    }

    fn input(&self, sent: u64, ended: bool) -> Input {
        let took_ms = self.began.elapsed().as_millis();
        Input::FileSent {
            peer: self.peer,
            door: Door::Http,
            path: self.path.clone(),
            sent,
            asked: self.asked,
            took_ms: u64::try_from(took_ms).unwrap_or(u64::MAX),
            ended,
        }
    }
}
