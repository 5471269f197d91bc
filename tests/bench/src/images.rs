//! Images compared with nginx: a cold one that 48 readers request at once, and a hot one.
//!
//! The source of the cold image is slow and counts its bytes; the peer is nginx with a proxy
//! cache that sends one request to the source and holds the others. The hot image is in memory
//! on both sides, and each server has a core of its own. Readers compare every byte of the cold
//! image with the expected one.

mod parts;
mod peer;
mod reader;
mod source;
mod tls;

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use trivet_chunks::{CHUNK_BYTES, DigestAlgorithm, IncrementalDigest};
use trivet_model::Digest;

use crate::figure::Figure;
use crate::process::{self, BenchProcess};
use crate::server::BenchServer;
use reader::{ImageReadTimes, ImageReadTransport, all_at_once};
use source::SlowImageSource;
use tls::BenchTlsClient;

/// Sizes of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct ImageBenchScale {
    /// Bytes of the cold image.
    pub cold_bytes: usize,
    /// The rate of its source.
    pub source_bytes_per_s: usize,
    /// Its readers.
    pub readers: usize,
    /// Bytes of the hot image.
    pub hot_bytes: usize,
    /// How many clients read it at once, for each measurement.
    pub clients: &'static [usize],
    /// Whole images that each measurement of the hot one reads, at least.
    pub hot_reads: usize,
    /// Requests for small ranges of the hot one, in each measurement.
    pub parts: usize,
    /// How often the hot one is measured, ours and the peer alternately.
    pub runs: usize,
}

/// The limit of a figure.
#[derive(Clone, Copy, Debug)]
pub enum ImageFigureLimit {
    /// The ratio of ours to the peer's is at least this.
    RatioMin(f64),
    /// The ratio of ours to the peer's is at most this.
    RatioMax(f64),
    /// Ours is at most this.
    AtMost(f64),
}

/// A figure and its limit.
#[derive(Debug)]
pub struct ImageFigureTarget {
    /// The figure.
    pub figure: Figure,
    /// The limit.
    pub limit: ImageFigureLimit,
}

impl ImageFigureTarget {
    fn new(name: &str, values: &[(f64, f64)], limit: ImageFigureLimit) -> Self {
        let mut figure = Figure::new(name);
        for (ours, peer) in values {
            figure.add(*ours, *peer);
        }
        Self { figure, limit }
    }

    /// Whether the limit is met.
    pub fn is_met(&self) -> bool {
        match self.limit {
            ImageFigureLimit::RatioMin(least) => self.figure.ratio() >= least,
            ImageFigureLimit::RatioMax(most) => self.figure.ratio() <= most,
            ImageFigureLimit::AtMost(most) => self.figure.ours() <= most,
        }
    }
}

fn mib(bytes: u64) -> f64 {
    let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
    f64::from(kib) / 1024.0
}

/// Bytes that do not compress and do not repeat.
fn content(bytes: usize) -> Arc<Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut all = Vec::with_capacity(bytes + 8);
    while all.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        all.extend_from_slice(&state.to_le_bytes());
    }
    all.truncate(bytes);
    Arc::new(all)
}

/// Measures everything and reports each figure.
pub async fn measure(
    program: &Path,
    directory: &Path,
    scale: ImageBenchScale,
    report: &mut dyn FnMut(ImageFigureTarget),
) -> io::Result<()> {
    digest(scale, report);
    cold(program, directory, scale, report).await?;
    hot(program, directory, scale, report).await
}

/// Our own program, with images.
struct ImageBenchServer {
    server: BenchServer,
    images: SocketAddr,
    /// The same over TLS.
    secure: SocketAddr,
}

impl ImageBenchServer {
    fn start(program: &Path, data: &Path) -> io::Result<Self> {
        let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (images, secure) = (at(free_port()?), at(free_port()?));
        let section = format!("[http]\nlisten = \"{images}\"\ntls_listen = \"{secure}\"\n");
        Ok(Self {
            server: BenchServer::with(program, data, &section)?,
            images,
            secure,
        })
    }

    fn images(&self) -> SocketAddr {
        self.images
    }

    fn process(&self) -> &BenchProcess {
        self.server.process()
    }

    /// Adds an image to its catalogue.
    fn add_image(&self, name: &str, source: &str, content: &[u8]) -> io::Result<()> {
        let sum = ring::digest::digest(&ring::digest::SHA256, content);
        let sum = sum.as_ref().try_into().map_err(io::Error::other)?;
        let sum = Digest::Sha256(sum).to_string();
        let body = serde_json::json!({"name": name, "sources": [source], "checksum": sum});
        let body = body.to_string();
        let mut stream = TcpStream::connect(self.server.address())?;
        let head = format!(
            "POST /trivet/images HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        if answer.starts_with("HTTP/1.1 201") {
            Ok(())
        } else {
            Err(io::Error::other(answer))
        }
    }
}

fn free_port() -> io::Result<u16> {
    let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(held.local_addr()?.port())
}

/// The cost of the digest of a fill, with chunk list, compared with ring's plain one.
fn digest(scale: ImageBenchScale, report: &mut dyn FnMut(ImageFigureTarget)) {
    let image = content(scale.cold_bytes);
    let mut rates = Vec::new();
    for _ in 0..scale.runs {
        let began = Instant::now();
        let mut running = IncrementalDigest::new(DigestAlgorithm::Sha256);
        let mut list = Vec::new();
        for chunk in image.chunks(CHUNK_BYTES as usize) {
            list.extend(running.state());
            running.update(chunk);
        }
        std::hint::black_box((running.finish(), list));
        let ours = began.elapsed();
        let began = Instant::now();
        std::hint::black_box(ring::digest::digest(&ring::digest::SHA256, &image));
        let peer = began.elapsed();
        let rate = |took: Duration| mib(image.len() as u64) / took.as_secs_f64().max(1e-6);
        rates.push((rate(ours), rate(peer)));
    }
    let limit = ImageFigureLimit::RatioMin(1.0 / 1.2);
    report(ImageFigureTarget::new("digest_mib_per_s", &rates, limit));
}

/// The result of one server for a cold image.
struct ColdReadResult {
    /// When the last reader had its first byte, after the source's first.
    first_s: f64,
    /// When the last reader had all, after the source's first.
    done_s: f64,
    /// How long the source itself took.
    source_s: f64,
    /// Bytes sent by the source, relative to the size of the image.
    bytes: f64,
}

async fn cold(
    program: &Path,
    directory: &Path,
    scale: ImageBenchScale,
    report: &mut dyn FnMut(ImageFigureTarget),
) -> io::Result<()> {
    let image = content(scale.cold_bytes);
    let server = ImageBenchServer::start(program, &directory.join("cold"))?;
    let source = SlowImageSource::start(Arc::clone(&image), scale.source_bytes_per_s).await?;
    let url = format!("http://{}/cold.raw", source.address());
    server.add_image("cold.raw", &url, &image)?;
    let ours = one_cold(server.images(), "/images/cold.raw", &source, &image, scale).await?;
    drop(server);
    let source = SlowImageSource::start(Arc::clone(&image), scale.source_bytes_per_s).await?;
    let nginx = peer::Nginx::caching(&directory.join("peer"), source.address())?;
    let peer = one_cold(nginx.address(), "/cold.raw", &source, &image, scale).await?;
    let mut say = |name: &str, ours: f64, peer: f64, limit: ImageFigureLimit| {
        report(ImageFigureTarget::new(name, &[(ours, peer)], limit));
    };
    say(
        "cold_source_bytes",
        ours.bytes,
        peer.bytes,
        ImageFigureLimit::AtMost(1.0),
    );
    say(
        "cold_first_byte_s",
        ours.first_s,
        peer.first_s,
        ImageFigureLimit::AtMost(0.3),
    );
    say(
        "cold_first_byte",
        ours.first_s,
        peer.first_s,
        ImageFigureLimit::RatioMax(0.1),
    );
    let by_source = (ours.done_s / ours.source_s, peer.done_s / peer.source_s);
    say(
        "cold_done_by_source",
        by_source.0,
        by_source.1,
        ImageFigureLimit::AtMost(1.1),
    );
    say(
        "cold_done_s",
        ours.done_s,
        peer.done_s,
        ImageFigureLimit::RatioMax(1.0 / 1.3),
    );
    Ok(())
}

async fn one_cold(
    server: SocketAddr,
    path: &str,
    source: &SlowImageSource,
    image: &Arc<Vec<u8>>,
    scale: ImageBenchScale,
) -> io::Result<ColdReadResult> {
    let want = Some(Arc::clone(image));
    let reads = all_at_once(
        server,
        path,
        &ImageReadTransport::Plain,
        scale.readers,
        want,
    )
    .await?;
    let began = source
        .first()
        .ok_or_else(|| io::Error::other("the source got no request"))?;
    let seconds = |at: Instant| at.saturating_duration_since(began).as_secs_f64();
    let latest = |pick: fn(&ImageReadTimes) -> Instant| {
        let each = reads.iter().map(|read| seconds(pick(read)));
        each.fold(0.0, f64::max)
    };
    Ok(ColdReadResult {
        first_s: latest(|read| read.first),
        done_s: latest(|read| read.done),
        source_s: seconds(source.last()),
        bytes: mib(source.sent()) / mib(image.len() as u64),
    })
}

/// A server with a hot image.
struct HotImage<'a> {
    address: SocketAddr,
    path: &'a str,
    process: &'a BenchProcess,
}

async fn hot(
    program: &Path,
    directory: &Path,
    scale: ImageBenchScale,
    report: &mut dyn FnMut(ImageFigureTarget),
) -> io::Result<()> {
    let image = content(scale.hot_bytes);
    let root = directory.join("hot");
    std::fs::create_dir_all(&root)?;
    std::fs::write(root.join("hot.raw"), image.as_slice())?;
    let source = SlowImageSource::start(Arc::clone(&image), usize::MAX).await?;
    let data = directory.join("warm");
    let server = ImageBenchServer::start(program, &data)?;
    let url = format!("http://{}/hot.raw", source.address());
    server.add_image("hot.raw", &url, &image)?;
    let plain = peer::Nginx::serving(&directory.join("plain"), &root)?;
    let (authority, files) = tls::peer_certificate(&root)?;
    let over_tls = peer::Nginx::secure(&directory.join("secure"), &root, &files)?;
    let ours = std::fs::read_to_string(data.join("certs/ca.pem"))?;
    let trust = BenchTlsClient::new(&[ours, authority])?;
    let ours = |address: SocketAddr| HotImage {
        address,
        path: "/images/hot.raw",
        process: server.process(),
    };
    let sides = [ours(server.images()), plain.hot_image("/hot.raw")];
    let secure = [ours(server.secure), over_tls.hot_image("/hot.raw")];
    // Both have it in memory from now on, and the served bytes are right.
    for (places, way) in [
        (&sides, ImageReadTransport::Plain),
        (&secure, ImageReadTransport::Tls(trust.clone())),
    ] {
        for place in places {
            let want = Some(Arc::clone(&image));
            all_at_once(place.address, place.path, &way, 1, want).await?;
        }
    }
    drop(image);
    let suites = [
        trust.suite(secure[0].address).await?,
        trust.suite(secure[1].address).await?,
    ];
    if suites[0] != suites[1] {
        return Err(io::Error::other(format!("not the same suite: {suites:?}")));
    }
    let in_parts = peer::Nginx::serving_parts(&directory.join("parts"), &root)?;
    let places = [ours(server.images()), in_parts.hot_image("/hot.raw")];
    parts::measure(&places, scale, report).await?;
    drop(in_parts);
    measure_clients([&sides, &secure], trust, scale, report).await
}

/// Rates and costs for each number of clients, without and with TLS, and what TLS costs the
/// client.
async fn measure_clients(
    [sides, secure]: [&[HotImage<'_>; 2]; 2],
    trust: BenchTlsClient,
    scale: ImageBenchScale,
    report: &mut dyn FnMut(ImageFigureTarget),
) -> io::Result<()> {
    let mut figure = |name: &str, figures: &_, limit| {
        report(ImageFigureTarget::new(name, figures, limit));
    };
    for &clients in scale.clients {
        let (rates, costs) = one_hot(sides, &ImageReadTransport::Plain, clients, scale).await?;
        figure(
            &format!("hot_{clients}_mib_per_s"),
            &rates,
            ImageFigureLimit::RatioMin(0.95),
        );
        figure(
            &format!("hot_{clients}_cpu_s_per_gib"),
            &costs,
            ImageFigureLimit::RatioMax(1.1),
        );
        let way = ImageReadTransport::TlsUndecrypted(trust.clone());
        // This takes so long that one run is enough.
        let runs = if clients > scale.hot_reads {
            1
        } else {
            scale.runs
        };
        let scale = ImageBenchScale { runs, ..scale };
        let (rates, costs) = one_hot(secure, &way, clients, scale).await?;
        figure(
            &format!("hot_tls_{clients}_mib_per_s"),
            &rates,
            ImageFigureLimit::RatioMin(0.9),
        );
        figure(
            &format!("hot_tls_{clients}_cpu_s_per_gib"),
            &costs,
            ImageFigureLimit::RatioMax(1.0 / 1.4),
        );
    }
    let costs = client_costs(secure, trust, scale).await?;
    let limit = ImageFigureLimit::RatioMax(1.05);
    figure("hot_tls_client_cpu_s_per_gib", &costs, limit);
    Ok(())
}

/// MiB/s and CPU seconds per GiB of some runs, ours and the peer's.
async fn one_hot(
    places: &[HotImage<'_>; 2],
    way: &ImageReadTransport,
    clients: usize,
    scale: ImageBenchScale,
) -> io::Result<(Vec<(f64, f64)>, Vec<(f64, f64)>)> {
    let gib = |reads: usize| mib((reads * scale.hot_bytes) as u64) / 1024.0;
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
    let rounds = scale.hot_reads.div_ceil(clients);
    for _ in 0..scale.runs {
        let mut sides = [(0.0, 0.0); 2];
        for (side, place) in sides.iter_mut().zip(places) {
            let before = place.process.processor_seconds()?;
            let began = Instant::now();
            for _ in 0..rounds {
                all_at_once(place.address, place.path, way, clients, None).await?;
            }
            let took = began.elapsed().max(Duration::from_millis(1)).as_secs_f64();
            let moved = gib(rounds * clients);
            let spent = place.process.processor_seconds()? - before;
            *side = (moved * 1024.0 / took, spent / moved);
        }
        rates.push((sides[0].0, sides[1].0));
        costs.push((sides[0].1, sides[1].1));
    }
    Ok((rates, costs))
}

/// CPU seconds per GiB of a client that decrypts, from ours and from the peer.
async fn client_costs(
    places: &[HotImage<'_>; 2],
    trust: BenchTlsClient,
    scale: ImageBenchScale,
) -> io::Result<Vec<(f64, f64)>> {
    let way = ImageReadTransport::Tls(trust);
    let gib = mib(scale.hot_bytes as u64) / 1024.0;
    let mut costs = Vec::new();
    for _ in 0..scale.runs {
        let mut sides = [0.0; 2];
        for (side, place) in sides.iter_mut().zip(places) {
            let before = process::own_seconds()?;
            all_at_once(place.address, place.path, &way, 1, None).await?;
            *side = (process::own_seconds()? - before) / gib;
        }
        costs.push((sides[0], sides[1]));
    }
    Ok(costs)
}
