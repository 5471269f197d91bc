//! HTTP clients: many persistent connections, one request at a time on each.
//!
//! HTTP is implemented by hand here, because the load must cost far less than the server:
//! requests are prepared in advance, and of a response only the status and the length are
//! parsed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The newest version of the API, so that responses have their largest size.
const VERSION: &str = "latest";

/// Bytes per read; the response to a list of 500 nodes has some 150 KiB.
const READ_BYTES: usize = 64 * 1024;

/// Longest response; a longer one ends the run.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The bytes of a request.
#[must_use]
pub fn request(method: &str, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n\
         X-OpenStack-Ironic-API-Version: {VERSION}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// A response.
#[derive(Clone, Debug)]
pub struct BenchHttpResponse {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// One connection.
#[derive(Debug)]
pub struct BenchHttpClient {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl BenchHttpClient {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let buffer = Vec::with_capacity(READ_BYTES);
        Ok(Self { stream, buffer })
    }

    /// Sends a request and receives the whole response; the second value is the offset of the
    /// body in the buffer.
    async fn exchange(&mut self, request: &[u8]) -> io::Result<(u16, usize)> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            self.buffer.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(broken("the server closed the connection", &self.buffer));
            }
            if let Some(head) = BenchHttpHead::read(&self.buffer)? {
                let whole = head.bytes + head.body_bytes;
                if self.buffer.len() >= whole {
                    return Ok((head.status, head.bytes));
                }
            }
            if self.buffer.len() > ANSWER_BYTES_MAX {
                return Err(broken("an endless answer", &self.buffer));
            }
        }
    }

    /// Sends a request and receives the response.
    pub async fn send(&mut self, request: &[u8]) -> io::Result<BenchHttpResponse> {
        let (status, at) = self.exchange(request).await?;
        let body = self.buffer[at..].to_vec();
        Ok(BenchHttpResponse { status, body })
    }

    /// Sends a request that must get this status.
    pub async fn expect(&mut self, request: &[u8], status: u16) -> io::Result<()> {
        match self.exchange(request).await? {
            (got, _) if got == status => Ok(()),
            _ => Err(broken(&format!("not {status}"), &self.buffer)),
        }
    }
}

struct BenchHttpHead {
    status: u16,
    bytes: usize,
    body_bytes: usize,
}

impl BenchHttpHead {
    /// `None` while it is incomplete.
    fn read(bytes: &[u8]) -> io::Result<Option<Self>> {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&bytes[..end]);
        let status = text.get(9..12).and_then(|digits| digits.parse().ok());
        let length = text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let named = name.eq_ignore_ascii_case("content-length");
            named.then(|| value.trim().parse().ok()).flatten()
        });
        let status = status.ok_or_else(|| broken("no status", bytes))?;
        Ok(Some(Self {
            status,
            bytes: end + 4,
            body_bytes: length.unwrap_or(0),
        }))
    }
}

fn broken(what: &str, answer: &[u8]) -> io::Error {
    let start = String::from_utf8_lossy(&answer[..answer.len().min(1000)]);
    io::Error::other(format!("{what}: {start}"))
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct HttpLoadResult {
    /// Requests with a response.
    pub requests: usize,
    /// Duration.
    pub seconds: f64,
    /// The latency of each response, shortest first.
    waits: Vec<Duration>,
}

impl HttpLoadResult {
    /// The latency at this percentile, in milliseconds.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a share of a count"
    )]
    pub fn wait_ms(&self, share: f64) -> f64 {
        let at = (self.waits.len() as f64 * share) as usize;
        let wait = self.waits.get(at.min(self.waits.len().saturating_sub(1)));
        wait.map_or(f64::NAN, |wait| wait.as_secs_f64() * 1000.0)
    }
}

/// Sends `count` requests over so many connections at full rate, cycling through the given
/// ones. Each must get this status.
pub async fn run_at_full_rate(
    address: SocketAddr,
    connections: usize,
    requests: Arc<Vec<Vec<u8>>>,
    count: usize,
    status: u16,
) -> io::Result<HttpLoadResult> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    let start = now();
    for _ in 0..connections {
        let (next, requests) = (Arc::clone(&next), Arc::clone(&requests));
        clients.spawn(async move {
            let mut client = BenchHttpClient::connect(address).await?;
            let mut waits = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok::<_, io::Error>(waits);
                }
                let sent = now();
                let request = &requests[number % requests.len()];
                client.expect(request, status).await?;
                waits.push(sent.elapsed());
            }
        });
    }
    let mut waits = Vec::with_capacity(count);
    while let Some(ended) = clients.join_next().await {
        waits.append(&mut ended.map_err(io::Error::other)??);
    }
    let seconds = start.elapsed().as_secs_f64();
    waits.sort_unstable();
    Ok(HttpLoadResult {
        requests: count,
        seconds,
        waits,
    })
}

/// Sends so many requests at an interval over one connection, cycling through the given ones,
/// as a monitoring client does.
pub async fn run_at_interval(
    address: SocketAddr,
    requests: Arc<Vec<Vec<u8>>>,
    count: usize,
    gap: Duration,
    status: u16,
) -> io::Result<HttpLoadResult> {
    let mut client = BenchHttpClient::connect(address).await?;
    let mut heartbeat = tokio::time::interval(gap);
    let mut waits = Vec::with_capacity(count);
    let start = now();
    for request in requests.iter().cycle().take(count) {
        heartbeat.tick().await;
        let sent = now();
        client.expect(request, status).await?;
        waits.push(sent.elapsed());
    }
    waits.sort_unstable();
    Ok(HttpLoadResult {
        requests: count,
        seconds: start.elapsed().as_secs_f64(),
        waits,
    })
}

/// Sends each request once, evenly over the time, each on a new connection, as agents do with
/// their heartbeats.
pub async fn run_spread_over(
    address: SocketAddr,
    requests: Arc<Vec<Vec<u8>>>,
    over: Duration,
    status: u16,
) -> io::Result<HttpLoadResult> {
    let gap = over / u32::try_from(requests.len()).unwrap_or(u32::MAX);
    let mut heartbeat = tokio::time::interval(gap);
    let mut clients = JoinSet::new();
    let start = now();
    for at in 0..requests.len() {
        heartbeat.tick().await;
        let requests = Arc::clone(&requests);
        clients.spawn(async move {
            let sent = now();
            let mut client = BenchHttpClient::connect(address).await?;
            client.expect(&requests[at], status).await?;
            Ok::<_, io::Error>(sent.elapsed())
        });
    }
    let mut waits = Vec::with_capacity(requests.len());
    while let Some(ended) = clients.join_next().await {
        waits.push(ended.map_err(io::Error::other)??);
    }
    waits.sort_unstable();
    Ok(HttpLoadResult {
        requests: waits.len(),
        seconds: start.elapsed().as_secs_f64(),
        waits,
    })
}

/// The present time.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_whole() {
        let answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: 7\r\n\r\n{\"a\":1}";
        assert!(BenchHttpHead::read(&answer[..40]).unwrap().is_none());
        let head = BenchHttpHead::read(answer).unwrap().unwrap();
        assert_eq!((head.status, head.bytes, head.body_bytes), (202, 44, 7));
        assert!(BenchHttpHead::read(b"nonsense\r\n\r\n").is_err());
    }

    #[test]
    fn waits_are_reported_by_share() {
        let run = HttpLoadResult {
            waits: (1..=100).map(Duration::from_millis).collect(),
            ..HttpLoadResult::default()
        };
        assert!((run.wait_ms(0.99) - 100.0).abs() < 0.001);
        assert!((run.wait_ms(0.5) - 51.0).abs() < 0.001);
        assert!(HttpLoadResult::default().wait_ms(0.5).is_nan());
    }
}
