//! Readers of an image: one connection each, plain or over TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::tls::{self, BenchTlsClient};

/// Size of the receive buffer.
pub(super) const BUFFER_BYTES: usize = 512 * 1024;

/// Longest head of a response.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// When a reader had its first byte, and all of them.
pub(super) struct ImageReadTimes {
    pub(super) first: Instant,
    pub(super) done: Instant,
}

/// How an image is read.
#[derive(Clone)]
pub(super) enum ImageReadTransport {
    Plain,
    /// Decrypted, and so authenticated.
    Tls(BenchTlsClient),
    /// Over TLS, with only the head decrypted: decrypting the body would load a core as much as
    /// the server, and would be what is measured.
    TlsUndecrypted(BenchTlsClient),
}

/// So many readers at once; an error if one did not get exactly the image.
pub(super) async fn all_at_once(
    server: SocketAddr,
    path: &str,
    way: &ImageReadTransport,
    readers: usize,
    want: Option<Arc<Vec<u8>>>,
) -> io::Result<Vec<ImageReadTimes>> {
    let mut tasks = JoinSet::new();
    for _ in 0..readers {
        let request = format!("GET {path} HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n");
        let (want, way) = (want.clone(), way.clone());
        tasks.spawn(async move {
            let stream = TcpStream::connect(server).await?;
            match way {
                ImageReadTransport::Plain => read(stream, &request, want.as_deref()).await,
                ImageReadTransport::Tls(trust) => {
                    let stream = trust.connect(stream).await?;
                    read(stream, &request, want.as_deref()).await
                }
                ImageReadTransport::TlsUndecrypted(trust) => {
                    tls::read_undecrypted(stream, &request, &trust).await
                }
            }
        });
    }
    let mut reads = Vec::new();
    while let Some(read) = tasks.join_next().await {
        reads.push(read.map_err(io::Error::other)??);
    }
    Ok(reads)
}

async fn read(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
    want: Option<&Vec<u8>>,
) -> io::Result<ImageReadTimes> {
    stream.write_all(request.as_bytes()).await?;
    let (mut body, length) = head(&mut stream).await?;
    let wrong = |at: usize| io::Error::other(format!("wrong byte near {at}"));
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
    Ok(ImageReadTimes { first, done })
}

/// The bytes after the head that came with it, and the length of the body.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(Vec<u8>, usize)> {
    let mut all = Vec::new();
    loop {
        if let Some((end, length)) = body(&all)? {
            return Ok((all.split_off(end), length));
        }
        if stream.read_buf(&mut all).await? == 0 {
            return Err(io::Error::other("no head"));
        }
    }
}

/// The offset and length of the body of a response, once its head is complete.
pub(super) fn body(all: &[u8]) -> io::Result<Option<(usize, usize)>> {
    let Some(end) = all.windows(4).position(|four| four == b"\r\n\r\n") else {
        return if all.len() > HEAD_BYTES_MAX {
            Err(io::Error::other("no head"))
        } else {
            Ok(None)
        };
    };
    let text = String::from_utf8_lossy(&all[..end]).to_ascii_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    if !text.starts_with("http/1.1 200") {
        return Err(io::Error::other(text));
    }
    let length = length.ok_or_else(|| io::Error::other("no length"))?;
    Ok(Some((end + 4, length)))
}
