//! Serves one directory by TFTP on a free port of the loopback address.
//!
//! `serve DIRECTORY` prints the port and goes on until it is ended. One thread
//! per transfer is enough to try real clients against the sender; the product
//! drives the same sender from its own event loop.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use embedded_tftp::{
    ErrorCode, FileSource, Packet, ReadError, ReadRequest, Sender, TransferLimits, TransferState,
    parse, write_error,
};

/// Transfers at the same time. Ours.
const TRANSFERS_MAX: usize = 32;

struct OpenFile(File);

impl FileSource for OpenFile {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        self.0
            .read_exact_at(out, offset)
            .map_err(|_| ReadError::Failed)
    }
}

/// The file below `root`, or `None` if the name leads out of it.
fn open(root: &Path, name: &str) -> Option<(OpenFile, u64)> {
    let name = Path::new(name.trim_start_matches('/'));
    let inside = name
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    let file = File::open(root.join(name)).ok().filter(|_| inside)?;
    let about = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    Some((OpenFile(file), about.len()))
}

#[expect(
    clippy::disallowed_methods,
    reason = "an example owns its socket and its clock"
)]
fn serve(
    client: SocketAddr,
    request: &ReadRequest<'_>,
    mut file: OpenFile,
    size: u64,
) -> io::Result<TransferState> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(client)?;
    let start = Instant::now();
    let now_us = || start.elapsed().as_micros() as u64;
    let mut sender = Sender::new(request, size, TransferLimits::default(), now_us());
    let mut out = Vec::new();
    let mut packet = [0; 2048];
    loop {
        while sender.transmit(&mut file, &mut out).is_some() {
            socket.send(&out)?;
        }
        let Some(deadline) = sender.deadline() else {
            return Ok(sender.state());
        };
        let wait_us = deadline.saturating_sub(now_us()).max(1);
        socket.set_read_timeout(Some(Duration::from_micros(wait_us)))?;
        match socket.recv(&mut packet) {
            Ok(len) => sender.datagram(now_us(), &packet[..len]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) => {}
            Err(error) => return Err(error),
        }
        sender.tick(now_us());
    }
}

fn answer(
    root: &Path,
    socket: &UdpSocket,
    client: SocketAddr,
    packet: &[u8],
    busy: &Arc<Mutex<BTreeSet<SocketAddr>>>,
) -> io::Result<()> {
    let mut out = Vec::new();
    match parse(packet) {
        Ok(Packet::Read(request)) => match open(root, request.file) {
            Some((file, size)) => {
                let mut clients = busy.lock().expect("no thread panics while it holds this");
                if clients.len() < TRANSFERS_MAX && clients.insert(client) {
                    let (busy, packet) = (Arc::clone(busy), packet.to_vec());
                    std::thread::spawn(move || {
                        if let Ok(Packet::Read(request)) = parse(&packet) {
                            let end = serve(client, &request, file, size);
                            eprintln!("{client} {} {end:?}", request.file);
                        }
                        let mut clients = busy.lock().expect("no thread panics holding this");
                        clients.remove(&client);
                    });
                }
                return Ok(());
            }
            None => write_error(ErrorCode::NotFound, "no such file", &mut out),
        },
        Ok(Packet::Write) => write_error(ErrorCode::AccessViolation, "read only", &mut out),
        Ok(_) => write_error(ErrorCode::UnknownTransfer, "no such transfer", &mut out),
        Err(error) => write_error(ErrorCode::IllegalOperation, &error.to_string(), &mut out),
    }
    socket.send_to(&out, client).map(drop)
}

#[expect(
    clippy::print_stdout,
    reason = "the program that starts it reads the port from there"
)]
fn main() -> io::Result<()> {
    let Some(root) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: serve DIRECTORY");
        std::process::exit(2);
    };
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    println!("{}", socket.local_addr()?.port());
    let busy = Arc::default();
    let mut packet = [0; 2048];
    loop {
        let (len, client) = socket.recv_from(&mut packet)?;
        answer(&root, &socket, client, &packet[..len], &busy)?;
    }
}
