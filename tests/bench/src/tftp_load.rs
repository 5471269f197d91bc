//! TFTP clients: many concurrent transfers in one thread, each compared with the expected
//! bytes.
//!
//! Every server gets the same client. It does little, so that it is not what is measured: one
//! wait for all sockets, one read per block, one acknowledgement per window.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use embedded_tftp as tftp;
use trivet_board_linux::{Epoll, Interest};

/// Interval of the timeout checks.
const TIMEOUT_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Longest datagram: a block with its header, as on Ethernet.
const DATAGRAM_BYTES_MAX: usize = 2048;

/// The parameters of the transfers.
#[derive(Clone, Copy, Debug)]
pub struct TftpLoad {
    /// Bytes of a block.
    pub block_bytes: u16,
    /// Blocks of a window; one is without the option.
    pub window_blocks: u16,
    /// Total transfers.
    pub transfers: usize,
    /// Concurrent transfers.
    pub at_once: usize,
}

/// Compares the received bytes with the expected ones.
struct ComparingSink<'a>(&'a [u8]);

impl tftp::FileSink for ComparingSink<'_> {
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), tftp::WriteFailed> {
        let wrong = |_| tftp::WriteFailed;
        let start = usize::try_from(offset).map_err(wrong)?;
        let want = self.0.get(start..).and_then(|rest| rest.get(..data.len()));
        (want == Some(data)).then_some(()).ok_or(tftp::WriteFailed)
    }
}

struct TftpLoadTransfer {
    socket: UdpSocket,
    receiver: tftp::Receiver,
    /// The server replies from a port of its own; until then the socket is not connected.
    connected: bool,
}

/// Fetches one file from a server repeatedly, and returns the total duration.
///
/// # Errors
///
/// When a transfer fails or has other bytes than `want`.
pub fn fetch(server: SocketAddr, file: &str, want: &[u8], shape: TftpLoad) -> io::Result<Duration> {
    let clock = BenchClock::start();
    let mut fetching = TftpLoadClient {
        clock,
        poll: Epoll::new()?,
        server,
        file,
        want,
        shape,
        slots: Vec::new(),
        started: 0,
        out: Vec::new(),
    };
    for place in 0..shape.at_once.min(shape.transfers) {
        let transfer = fetching.begin(place)?;
        fetching.slots.push(Some(transfer));
    }
    fetching.run()?;
    Ok(clock.since())
}

struct TftpLoadClient<'a> {
    clock: BenchClock,
    poll: Epoll,
    server: SocketAddr,
    file: &'a str,
    want: &'a [u8],
    shape: TftpLoad,
    slots: Vec<Option<TftpLoadTransfer>>,
    started: usize,
    out: Vec<u8>,
}

impl TftpLoadClient<'_> {
    fn begin(&mut self, place: usize) -> io::Result<TftpLoadTransfer> {
        self.started += 1;
        let options = tftp::TransferOptions {
            block_bytes: Some(self.shape.block_bytes),
            window_blocks: (self.shape.window_blocks > 1).then_some(self.shape.window_blocks),
            ..tftp::TransferOptions::default()
        };
        let limits = tftp::TransferLimits {
            file_bytes_max: u64::MAX,
            ..tftp::TransferLimits::default()
        };
        let mode = tftp::TransferMode::Octet;
        let mut transfer = TftpLoadTransfer {
            socket: UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?,
            receiver: tftp::Receiver::new(self.file, mode, options, limits, self.clock.us()),
            connected: false,
        };
        transfer.socket.set_nonblocking(true)?;
        self.poll
            .add(&transfer.socket, place as u64, Interest::Read)?;
        transfer.send_pending(self.server, &mut self.out)?;
        Ok(transfer)
    }

    fn run(&mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        let mut looked_us = 0;
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        while self.slots.iter().any(Option::is_some) {
            self.poll.wait(Some(TIMEOUT_CHECK_INTERVAL), &mut ready)?;
            let now_us = self.clock.us();
            for key in &ready {
                let place = usize::try_from(*key).unwrap_or(usize::MAX);
                self.ready(place, now_us, &mut buffer)?;
            }
            if now_us - looked_us >= TIMEOUT_CHECK_INTERVAL.as_micros() as u64 {
                looked_us = now_us;
                for transfer in self.slots.iter_mut().flatten() {
                    transfer.receiver.tick(now_us);
                    transfer.send_pending(self.server, &mut self.out)?;
                }
            }
        }
        Ok(())
    }

    /// Reads up to the end of a window, or until there is nothing more.
    fn ready(&mut self, place: usize, now_us: u64, buffer: &mut [u8]) -> io::Result<()> {
        let Some(Some(transfer)) = self.slots.get_mut(place) else {
            return Ok(());
        };
        loop {
            let length = match transfer.receive(buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let mut sink = ComparingSink(self.want);
            transfer
                .receiver
                .datagram(now_us, &buffer[..length], &mut sink);
            if transfer.send_pending(self.server, &mut self.out)? {
                break;
            }
        }
        match transfer.receiver.state() {
            tftp::TransferState::Running => return Ok(()),
            tftp::TransferState::Done { bytes } if bytes == self.want.len() as u64 => {}
            other => return Err(io::Error::other(format!("{}: {other:?}", self.server))),
        }
        let more = self.started < self.shape.transfers;
        let next = more.then(|| self.begin(place)).transpose()?;
        self.slots[place] = next;
        Ok(())
    }
}

impl TftpLoadTransfer {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.connected {
            return self.socket.recv(buffer);
        }
        let (length, peer) = self.socket.recv_from(buffer)?;
        self.socket.connect(peer)?;
        self.connected = true;
        Ok(length)
    }

    /// Sends pending packets; true if there were any.
    fn send_pending(&mut self, server: SocketAddr, out: &mut Vec<u8>) -> io::Result<bool> {
        let mut message = false;
        while self.receiver.transmit(out).is_some() {
            message = true;
            if self.connected {
                self.socket.send(out)?;
            } else {
                self.socket.send_to(out, server)?;
            }
        }
        Ok(message)
    }
}

/// Time since the start of a run.
#[derive(Clone, Copy)]
struct BenchClock(Instant);

impl BenchClock {
    #[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
    fn start() -> Self {
        Self(Instant::now())
    }

    fn since(self) -> Duration {
        self.0.elapsed()
    }

    fn us(self) -> u64 {
        u64::try_from(self.since().as_micros()).unwrap_or(u64::MAX)
    }
}
