//! Readers of an image: one connection each.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Room for what comes.
const BUFFER_BYTES: usize = 512 * 1024;

/// Longest head of an answer.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// When a reader had its first byte, and all of them.
pub(super) struct Read {
    pub(super) first: Instant,
    pub(super) done: Instant,
}

/// So many readers at once; an error where one did not get exactly the image.
pub(super) async fn all_at_once(
    server: SocketAddr,
    path: &str,
    readers: usize,
    want: Option<Arc<Vec<u8>>>,
) -> io::Result<Vec<Read>> {
    let mut tasks = JoinSet::new();
    for _ in 0..readers {
        let request = format!("GET {path} HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n");
        let want = want.clone();
        tasks.spawn(async move { read(server, &request, want.as_deref()).await });
    }
    let mut reads = Vec::new();
    while let Some(read) = tasks.join_next().await {
        reads.push(read.map_err(io::Error::other)??);
    }
    Ok(reads)
}

async fn read(server: SocketAddr, request: &str, want: Option<&Vec<u8>>) -> io::Result<Read> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(request.as_bytes()).await?;
    let (mut body, length) = head(&mut stream).await?;
    let wrong = |at: usize| io::Error::other(format!("another byte than it should be near {at}"));
    let check = |at: usize, part: &[u8]| -> io::Result<()> {
        match want.map(|want| want.get(at..at + part.len())) {
            None => Ok(()),
            Some(Some(same)) if same == part => Ok(()),
            Some(_) => Err(wrong(at)),
        }
    };
    if body.is_empty() && length > 0 {
        body.resize(BUFFER_BYTES, 0);
        let got = stream.read(&mut body).await?;
        body.truncate(got);
    }
    let first = Instant::now();
    check(0, &body)?;
    let mut at = body.len();
    let mut buffer = vec![0; BUFFER_BYTES];
    while at < length {
        let got = stream.read(&mut buffer).await?;
        if got == 0 {
            return Err(io::Error::other(format!("ended at {at} of {length}")));
        }
        check(at, &buffer[..got])?;
        at += got;
    }
    let done = Instant::now();
    Ok(Read { first, done })
}

/// What came after the head with it, and how long the body is.
async fn head(stream: &mut TcpStream) -> io::Result<(Vec<u8>, usize)> {
    let mut all = Vec::new();
    loop {
        if let Some(end) = all.windows(4).position(|four| four == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&all[..end]).to_ascii_lowercase();
            let length = text
                .lines()
                .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            if !text.starts_with("http/1.1 200") {
                return Err(io::Error::other(text));
            }
            let length = length.ok_or_else(|| io::Error::other("no length"))?;
            return Ok((all.split_off(end + 4), length));
        }
        if all.len() > HEAD_BYTES_MAX || stream.read_buf(&mut all).await? == 0 {
            return Err(io::Error::other("no head"));
        }
    }
}
