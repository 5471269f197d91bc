//! Reports one transfer to the rack.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use trivet_rack::{FileServerProtocol, RackInput};

use crate::engine::Engine;

/// Progress of a file is reported each time this many bytes were sent.
const REPORT_BYTES: u64 = 4 * 1024 * 1024;

/// The delay before the final report is retried when the engine's queue is full.
const REPORT_RETRY_GAP: Duration = Duration::from_millis(20);

/// One request, or several for ranges of one file.
pub(super) struct BootTransfer {
    engine: Engine,
    peer: IpAddr,
    path: String,
    /// Bytes requested by all requests so far.
    requested: u64,
    /// Bytes requested before the current request.
    requested_before: u64,
    /// Where the body of the current request ends, counted in bytes of the connection.
    body_end: u64,
    reported: u64,
    began: Instant,
}

impl BootTransfer {
    /// A transfer that starts now.
    pub(super) fn new(engine: Engine, peer: IpAddr, path: String) -> Self {
        Self {
            engine,
            peer,
            path,
            requested: 0,
            requested_before: 0,
            body_end: 0,
            reported: 0,
            began: Instant::now(),
        }
    }

    /// Adds a request for this many bytes, whose body starts after `body_from` bytes of
    /// the connection.
    pub(super) fn add(&mut self, body_from: u64, bytes: u64) {
        self.requested_before = self.requested;
        self.requested = self.requested.saturating_add(bytes);
        self.body_end = body_from + bytes;
        if self.requested_before - self.reported >= REPORT_BYTES {
            self.report(self.requested_before);
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Bytes that the client received, if it acknowledged this many of the connection.
    /// If some are missing, the heads between them count as bytes of bodies.
    pub(super) fn sent(&self, acknowledged: u64) -> u64 {
        let missing = self.body_end.saturating_sub(acknowledged);
        self.requested.saturating_sub(missing)
    }

    pub(super) fn requested(&self) -> u64 {
        self.requested
    }

    /// Records how much of the current request was sent; true if progress was reported.
    pub(super) fn progress(&mut self, sent: u64) -> bool {
        let sent = self.requested_before + sent;
        let worth = sent - self.reported >= REPORT_BYTES && sent < self.requested;
        if worth {
            self.report(sent);
        }
        worth
    }

    /// Reports progress. If the engine is busy, this report is lost and the next one
    /// replaces it.
    fn report(&mut self, sent: u64) {
        self.reported = sent;
        self.engine.try_send(self.input(sent, false));
    }

    /// Reports the end of the transfer.
    pub(super) async fn end(self, sent: u64) {
        let mut input = self.input(sent, true);
        while let Err(back) = self.engine.offer(input) {
            input = back;
            sleep(REPORT_RETRY_GAP).await;
        }
    }

    fn input(&self, sent: u64, ended: bool) -> RackInput {
        let took_ms = self.began.elapsed().as_millis();
        RackInput::FileSent {
            peer: self.peer,
            protocol: FileServerProtocol::Http,
            path: self.path.clone(),
            sent,
            requested: self.requested,
            took_ms: u64::try_from(took_ms).unwrap_or(u64::MAX),
            ended,
        }
    }
}
