//! The slow source of a cold image, which counts its bytes.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Bytes sent at a time.
const PIECE_BYTES: usize = 64 * 1024;

pub(super) struct SlowImageSource {
    address: SocketAddr,
    counters: Arc<SourceCounters>,
    _task: JoinSet<()>,
}

struct SourceCounters {
    content: Arc<Vec<u8>>,
    bytes_per_s: usize,
    sent: AtomicU64,
    /// When the first and the last byte were sent.
    times: Mutex<Option<(Instant, Instant)>>,
}

impl SlowImageSource {
    pub(super) async fn start(content: Arc<Vec<u8>>, bytes_per_s: usize) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let account = Arc::new(SourceCounters {
            content,
            bytes_per_s,
            sent: AtomicU64::new(0),
            times: Mutex::new(None),
        });
        let shared = Arc::clone(&account);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let account = Arc::clone(&shared);
                clients.spawn(async move {
                    // A client that disconnects early has a short file, which the reader
                    // reports.
                    let _ = account.answer(stream).await;
                });
            }
        });
        Ok(Self {
            address,
            counters: account,
            _task: task,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn sent(&self) -> u64 {
        self.counters.sent.load(Ordering::SeqCst)
    }

    pub(super) fn first(&self) -> Option<Instant> {
        self.counters.times().map(|(first, _)| first)
    }

    pub(super) fn last(&self) -> Instant {
        self.counters
            .times()
            .map_or_else(Instant::now, |(_, last)| last)
    }
}

impl SourceCounters {
    fn times(&self) -> Option<(Instant, Instant)> {
        *self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let lines = format!(
            "HTTP/1.1 200 OK\r\nETag: \"one\"\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.content.len()
        );
        stream.write_all(lines.as_bytes()).await?;
        let began = Instant::now();
        let mut left = 0;
        for piece in self.content.chunks(PIECE_BYTES) {
            stream.write_all(piece).await?;
            left += piece.len();
            self.sent.fetch_add(piece.len() as u64, Ordering::SeqCst);
            let now = Instant::now();
            {
                let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
                let first = times.map_or(began, |(first, _)| first);
                *times = Some((first, now));
            }
            let due_us = left as u64 * 1_000_000 / self.bytes_per_s as u64;
            let due = Duration::from_micros(due_us);
            sleep_until(began + due).await;
        }
        Ok(())
    }
}
