//! Readers over TLS 1.3: their trusted authorities, and one that counts records.

use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConnection, ProtocolVersion, SupportedCipherSuite};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use trivet_certs_authority::Authority;
use trivet_net_tls::bundled_client_config;

use super::reader::{BUFFER_BYTES, ImageReadTimes, body};

/// The head of a record (RFC 8446, section 5.1).
const HEAD_BYTES: usize = 5;

/// What TLS 1.3 adds within a record: the content type and a tag (RFC 8446, section 5.2).
const ADDED_BYTES: usize = 17;

/// An alert (RFC 8446, section 6).
const ALERT_BYTES: usize = 2;

/// Trusts some authorities, and uses one cipher suite with all servers.
#[derive(Clone)]
pub(super) struct BenchTlsClient(TlsConnector);

impl BenchTlsClient {
    pub(super) fn new(authorities: &[String]) -> io::Result<Self> {
        let mut config = bundled_client_config(authorities).map_err(io::Error::other)?;
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    pub(super) async fn connect(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("127.0.0.1").map_err(io::Error::other)?;
        let stream = self.0.connect(name, stream).await?;
        match stream.get_ref().1.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => Ok(stream),
            other => Err(io::Error::other(format!("{other:?} and not TLS 1.3"))),
        }
    }

    /// The suite that a server and these readers use.
    pub(super) async fn suite(&self, server: std::net::SocketAddr) -> io::Result<String> {
        let stream = self.connect(TcpStream::connect(server).await?).await?;
        let suite = stream.get_ref().1.negotiated_cipher_suite();
        Ok(format!(
            "{:?}",
            suite.map(|one: SupportedCipherSuite| one.suite())
        ))
    }
}

/// A certificate for a peer: the authority's PEM, and the files of the chain and the key.
pub(super) fn peer_certificate(directory: &Path) -> io::Result<(String, [std::path::PathBuf; 2])> {
    let now_s = std::fs::metadata(directory)?
        .modified()?
        .duration_since(std::time::UNIX_EPOCH)
        .map_err(io::Error::other)?
        .as_secs();
    let authority = Authority::create(now_s, "peer").map_err(io::Error::other)?;
    let ours = [std::net::Ipv4Addr::LOCALHOST.into()];
    let (chain, key) = authority
        .server_certificate(&[], &ours, now_s)
        .map_err(io::Error::other)?;
    let files = [directory.join("chain.pem"), directory.join("key.pem")];
    std::fs::write(&files[0], chain)?;
    std::fs::write(&files[1], key)?;
    Ok((authority.certificate_pem().to_owned(), files))
}

/// Reads an image without decrypting it: records contain their length.
pub(super) async fn read_undecrypted(
    stream: TcpStream,
    request: &str,
    trust: &BenchTlsClient,
) -> io::Result<ImageReadTimes> {
    let mut stream = trust.connect(stream).await?;
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let (mut stream, mut tls) = stream.into_inner();
    let (mut line, mut answer) = (Vec::new(), Vec::new());
    let (from, length) = loop {
        if stream.read_buf(&mut line).await? == 0 {
            return Err(io::Error::other("no head"));
        }
        let mut found = None;
        while let (None, Some(end)) = (found, record_end(&line)) {
            decrypt(&mut tls, &line[..end], &mut answer)?;
            line.drain(..end);
            found = body(&answer)?;
        }
        if let Some(found) = found {
            break found;
        }
    };
    let first = Instant::now();
    let mut records = TlsRecordCounter::default();
    records.add(&line);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut have = answer.len() - from;
    while have + records.bytes < length {
        let got = stream.read(&mut buffer).await?;
        if got == 0 {
            let have = have + records.bytes;
            return Err(io::Error::other(format!("ended at {have} of {length}")));
        }
        records.add(&buffer[..got]);
    }
    have += records.bytes;
    // The close alert may have come with the last bytes, as a record of its own.
    if have != length && have != length + ALERT_BYTES {
        return Err(io::Error::other(format!("{have} bytes and not {length}")));
    }
    let done = Instant::now();
    Ok(ImageReadTimes { first, done })
}

fn record_end(line: &[u8]) -> Option<usize> {
    let head = line.get(..HEAD_BYTES)?;
    let end = HEAD_BYTES + usize::from(u16::from_be_bytes([head[3], head[4]]));
    (line.len() >= end).then_some(end)
}

fn decrypt(tls: &mut ClientConnection, mut record: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
    while !record.is_empty() {
        tls.read_tls(&mut record)?;
        tls.process_new_packets().map_err(io::Error::other)?;
    }
    match tls.reader().read_to_end(into) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

/// Bytes of application data in the received records.
#[derive(Default)]
struct TlsRecordCounter {
    head: Vec<u8>,
    /// Remaining bytes of the present record.
    remaining: usize,
    bytes: usize,
}

impl TlsRecordCounter {
    fn add(&mut self, mut line: &[u8]) {
        while !line.is_empty() {
            if self.remaining == 0 {
                let more = (HEAD_BYTES - self.head.len()).min(line.len());
                self.head.extend_from_slice(&line[..more]);
                line = &line[more..];
                if let &[_, _, _, high, low] = self.head.as_slice() {
                    self.remaining = usize::from(u16::from_be_bytes([high, low]));
                    self.bytes += self.remaining.saturating_sub(ADDED_BYTES);
                    self.head.clear();
                }
            } else {
                let passed = self.remaining.min(line.len());
                self.remaining -= passed;
                line = &line[passed..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_however_they_are_split() {
        let mut line = Vec::new();
        for bytes in [1_usize, 100, 16_384, 3] {
            let length = u16::try_from(bytes + ADDED_BYTES).unwrap();
            line.extend_from_slice(&[0x17, 3, 3]);
            line.extend_from_slice(&length.to_be_bytes());
            line.resize(line.len() + usize::from(length), 0xff);
        }
        for cut in [1, 2, 7, 4096, line.len()] {
            let mut records = TlsRecordCounter::default();
            line.chunks(cut).for_each(|part| records.add(part));
            assert_eq!((records.bytes, records.remaining), (16_488, 0), "{cut}");
        }
        assert_eq!(record_end(&line), Some(23));
        assert_eq!(record_end(&line[..22]), None);
    }
}
