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

pub(super) struct Transfer {
    engine: Engine,
    peer: IpAddr,
    path: String,
    asked: u64,
    told: u64,
    began: Instant,
}

impl Transfer {
    /// A transfer that begins now.
    pub(super) fn new(engine: Engine, peer: IpAddr, path: String, asked: u64) -> Self {
        Self {
            engine,
            peer,
            path,
            asked,
            told: 0,
            began: Instant::now(),
        }
    }

    /// Whether enough has left since the last time.
    pub(super) fn is_worth_telling(&self, sent: u64) -> bool {
        sent - self.told >= TELL_BYTES && sent < self.asked
    }

    /// So much is on its way. Nobody waits for this: a busy engine hears the next one.
    pub(super) fn progress(&mut self, sent: u64) {
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
