//! Tests of the cache with sources that are slow, disconnect, change or send wrong
//! data, and with damage on its own disk.

mod bench;
mod fetched;
mod packed;
mod uploads;

use super::*;
use bench::{BenchOptions, CacheBench, NewsSink};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ring::digest::{SHA256, SHA512, digest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use trivet_chunks::CHUNK_BYTES;
use trivet_images::{
    ImageEntryId, ImageFormat, ImageKey, ImageSpec, ImageUploadError, ImageUploadRange,
};
use trivet_model::Digest;
use trivet_model::image::ImageState;
use trivet_model::image::ImageStatus;

use crate::testbed::{TestbedDirectory, expect_no_files};

mod reverification;

const CHUNK: usize = CHUNK_BYTES as usize;

/// An image of four chunks, the last of them short.
fn sample() -> Vec<u8> {
    (0..3 * CHUNK + 12_345)
        .map(|at| (at * 131 % 251) as u8)
        .collect()
}

fn sha256(bytes: &[u8]) -> Digest {
    Digest::Sha256(digest(&SHA256, bytes).as_ref().try_into().unwrap())
}

/// How a source behaves.
#[derive(Clone)]
struct SourceBehaviour {
    content: Arc<Vec<u8>>,
    tag: Option<&'static str>,
    ranges: bool,
    /// The size it announces, if not the real one.
    claimed_size: Option<usize>,
    /// It closes each connection after this many bytes of the file.
    cut_after: Option<usize>,
    /// It replies to each request with this status line instead.
    refuses: Option<&'static str>,
}

impl SourceBehaviour {
    fn plain(content: Vec<u8>) -> Self {
        Self {
            content: Arc::new(content),
            tag: Some("\"one\""),
            ranges: true,
            claimed_size: None,
            cut_after: None,
            refuses: None,
        }
    }
}

/// A source on loopback, whose behaviour a test can change.
struct FakeImageSource {
    address: SocketAddr,
    behaviour: watch::Sender<SourceBehaviour>,
    /// Bytes of the file that were sent, and requests that were received.
    sent: Arc<AtomicU64>,
    requests: Arc<AtomicUsize>,
    /// The first byte of the last response.
    from: Arc<AtomicUsize>,
    /// Bytes that may be sent: unlimited unless a test holds them back.
    permits: Arc<Semaphore>,
    _task: JoinSet<()>,
}

const OPEN: usize = Semaphore::MAX_PERMITS / 2;

/// Bytes that the source sends at a time.
const STEP: usize = 16 * 1024;

impl FakeImageSource {
    async fn new(behaviour: SourceBehaviour) -> Self {
        Self::gated(behaviour, OPEN).await
    }

    async fn gated(behaviour: SourceBehaviour, permits: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (behaviour, watched) = watch::channel(behaviour);
        let (sent, requested) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
        let semaphore = Arc::new(Semaphore::new(permits));
        let mut task = JoinSet::new();
        let from = Arc::new(AtomicUsize::new(0));
        let begun = Arc::clone(&from);
        let counts = (
            Arc::clone(&sent),
            Arc::clone(&requested),
            Arc::clone(&semaphore),
        );
        task.spawn(async move {
            let mut clients = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let behaviour = watched.borrow().clone();
                let (sent, requested, semaphore) = counts.clone();
                requested.fetch_add(1, Ordering::SeqCst);
                let begun = Arc::clone(&begun);
                clients.spawn(async move {
                    let _ = Box::pin(answer(stream, behaviour, (&sent, &begun), &semaphore)).await;
                });
            }
        });
        Self {
            address,
            behaviour,
            sent,
            requests: requested,
            from,
            permits: semaphore,
            _task: task,
        }
    }

    fn wanted(&self, digest: Digest) -> ImageSpec {
        ImageSpec {
            name: "disk.raw".into(),
            digest,
            sources: vec![format!("http://{}/disk.raw", self.address)],
            format: ImageFormat::Raw,
        }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    fn change(&self, change: impl FnOnce(&mut SourceBehaviour)) {
        self.behaviour.send_modify(change);
    }
}

async fn answer(
    mut stream: TcpStream,
    behaviour: SourceBehaviour,
    (sent, begun): (&AtomicU64, &AtomicUsize),
    semaphore: &Semaphore,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let field = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim().to_owned())
    };
    let known = field("if-none-match:").filter(|tag| Some(tag.as_str()) == behaviour.tag);
    let refusal = known.map(|_| "304 Not Modified").or(behaviour.refuses);
    if let Some(status) = refusal {
        let lines = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        return stream.write_all(lines.as_bytes()).await;
    }
    let size = behaviour.claimed_size.unwrap_or(behaviour.content.len());
    let requested = field("range: bytes=").filter(|_| behaviour.ranges);
    let same = field("if-range:").is_none_or(|tag| Some(tag.as_str()) == behaviour.tag);
    let bounds = requested.filter(|_| same).map(|text| {
        let (from, to) = text.split_once('-').unwrap();
        let to = to.parse::<usize>().map_or(size, |last| last + 1);
        (from.parse::<usize>().unwrap(), to)
    });
    let (from, to) = bounds.unwrap_or((0, size));
    begun.store(from, Ordering::SeqCst);
    let mut lines = match bounds {
        Some(_) => format!(
            "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes {from}-{}/{size}\r\n",
            to - 1
        ),
        None => "HTTP/1.1 200 OK\r\n".to_owned(),
    };
    if let Some(tag) = behaviour.tag {
        lines = format!("{lines}etag: {tag}\r\n");
    }
    lines = format!("{lines}content-length: {}\r\n\r\n", to - from);
    stream.write_all(lines.as_bytes()).await?;
    let end = to.min(behaviour.cut_after.map_or(to, |after| from + after));
    let mut at = from;
    while at < end {
        let step = STEP.min(end - at);
        semaphore.acquire_many(step as u32).await.unwrap().forget();
        let missing = [0; STEP];
        let part = behaviour
            .content
            .get(at..at + step)
            .unwrap_or(&missing[..step]);
        stream.write_all(part).await?;
        sent.fetch_add(step as u64, Ordering::SeqCst);
        at += step;
    }
    Ok(())
}

fn cache(scratch: &TestbedDirectory) -> CacheBench {
    let root = scratch.0.join("cache");
    CacheBench::open(
        &root,
        BenchOptions::plain(DaemonClock::start()),
        Box::new(|_| {}),
    )
    .unwrap()
}

/// Reads as a client does: all announced bytes, or those before the disconnect and its
/// reason.
async fn read(mut reader: ImageReader) -> Result<Vec<u8>, (Vec<u8>, String)> {
    let mut all = Vec::new();
    let size = reader.size().await.map_err(|why| (Vec::new(), why))?;
    while (all.len() as u64) < size {
        let at = all.len();
        match reader.readable(at as u64).await {
            Err(why) => return Err((all, why)),
            Ok(until) => {
                all.resize(usize::try_from(until).unwrap(), 0);
                reader
                    .file()
                    .unwrap()
                    .read_exact_at(&mut all[at..], at as u64)
                    .unwrap();
            }
        }
    }
    Ok(all)
}

#[tokio::test]
async fn many_readers_are_one_fill() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let cache = cache(&scratch);
    let wanted = source.wanted(sha256(&image));
    let mut readers = JoinSet::new();
    for _ in 0..40 {
        readers.spawn(read(cache.reader(&wanted).unwrap()));
    }
    while let Some(outcome) = readers.join_next().await {
        assert!(outcome.unwrap().unwrap() == image);
    }
    assert_eq!(source.sent(), image.len() as u64);
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == image);
    assert_eq!(source.requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_reader_follows_and_the_last_chunk_waits_for_the_digest() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    // All but the last step of the file may be sent.
    let source =
        FakeImageSource::gated(SourceBehaviour::plain(image.clone()), 3 * CHUNK + STEP / 4).await;
    let cache = cache(&scratch);
    let mut reader = cache.reader(&source.wanted(sha256(&image))).unwrap();
    assert_eq!(reader.size().await, Ok(image.len() as u64));
    let mut at = 0;
    while at < 3 * CHUNK_BYTES {
        at = reader.readable(at).await.unwrap();
    }
    assert_eq!(at, 3 * CHUNK_BYTES, "the last chunk is not for anybody yet");
    source.permits.add_permits(STEP);
    assert_eq!(reader.readable(at).await, Ok(image.len() as u64));
}

#[tokio::test]
async fn both_digests_are_known() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let sum = digest(&SHA512, &image);
    let wanted = source.wanted(Digest::Sha512(sum.as_ref().try_into().unwrap()));
    let cache = cache(&scratch);
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == image);
}

/// The error that every reader of a wrong image receives.
async fn never_whole(behaviour: SourceBehaviour, digest: Digest) -> String {
    let scratch = TestbedDirectory::new();
    let source = FakeImageSource::new(behaviour).await;
    let cache = cache(&scratch);
    let wanted = source.wanted(digest);
    let mut readers = JoinSet::new();
    for _ in 0..8 {
        readers.spawn(read(cache.reader(&wanted).unwrap()));
    }
    let mut message = String::new();
    while let Some(outcome) = readers.join_next().await {
        let (got, why) = outcome.unwrap().expect_err("no reader has all of it");
        assert!(got.len() <= 3 * CHUNK);
        message = why;
    }
    // A later reader receives the same error, and no file of the image remains.
    let late = read(cache.reader(&wanted).unwrap()).await.unwrap_err();
    assert_eq!(late, (Vec::new(), message.clone()));
    expect_no_files(&scratch.0.join("cache")).await;
    message
}

#[tokio::test]
async fn a_flipped_byte_is_never_a_whole_answer() {
    let image = sample();
    for at in [0, CHUNK, image.len() - 1] {
        let mut wrong = image.clone();
        wrong[at] ^= 1;
        let found = sha256(&wrong).to_string();
        let message = never_whole(SourceBehaviour::plain(wrong), sha256(&image)).await;
        for part in ["disk.raw", "http://", &sha256(&image).to_string(), &found] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}

#[tokio::test]
async fn a_byte_more_or_less_is_never_a_whole_answer() {
    let image = sample();
    let short = image[..image.len() - 1].to_vec();
    let message = never_whole(SourceBehaviour::plain(short), sha256(&image)).await;
    assert!(message.contains("has a wrong digest"), "{message}");
    let long = [image.clone(), vec![0]].concat();
    let message = never_whole(SourceBehaviour::plain(long), sha256(&image)).await;
    assert!(message.contains("has a wrong digest"), "{message}");
}

#[tokio::test]
async fn a_disconnected_source_is_continued_at_the_same_offset() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let mut behaviour = SourceBehaviour::plain(image.clone());
    behaviour.cut_after = Some(image.len() * 2 / 5);
    let source = FakeImageSource::new(behaviour).await;
    let cache = cache(&scratch);
    let wanted = source.wanted(sha256(&image));
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == image);
    assert_eq!(source.requests.load(Ordering::SeqCst), 3);
    assert_eq!(source.sent(), image.len() as u64, "no byte came twice");
}

#[tokio::test]
async fn a_source_without_ranges_is_read_over() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let mut behaviour = SourceBehaviour::plain(image.clone());
    behaviour.ranges = false;
    behaviour.cut_after = Some(image.len() * 2 / 5);
    let source = FakeImageSource::gated(behaviour, 0).await;
    let cache = cache(&scratch);
    let wanted = source.wanted(sha256(&image));
    let reader = tokio::spawn(read(cache.reader(&wanted).unwrap()));
    source.permits.add_permits(image.len() * 2 / 5);
    while source.requests.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    source.change(|behaviour| behaviour.cut_after = None);
    source.permits.add_permits(OPEN);
    assert!(reader.await.unwrap().unwrap() == image);
}

#[tokio::test]
async fn another_file_at_the_source_cuts_readers_of_the_first() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let other: Vec<u8> = image.iter().map(|byte| byte ^ 0x55).collect();
    let mut behaviour = SourceBehaviour::plain(other);
    behaviour.cut_after = Some(2 * CHUNK);
    let source = FakeImageSource::gated(behaviour, CHUNK + STEP).await;
    let cache = cache(&scratch);
    // The second file is the right one, and has the right digest.
    let wanted = source.wanted(sha256(&image));
    let mut first = cache.reader(&wanted).unwrap();
    assert!(first.readable(0).await.unwrap() > 0);
    let right = Arc::new(image.clone());
    source.change(|behaviour| {
        behaviour.content = right;
        behaviour.tag = Some("\"two\"");
        behaviour.cut_after = None;
    });
    source.permits.add_permits(OPEN);
    let (got, why) = read(first).await.expect_err("half of each is no image");
    assert!(
        got.len() <= 3 * CHUNK && why.contains("another file"),
        "{why}"
    );
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == image);
}

#[tokio::test]
async fn a_fill_that_was_killed_goes_on_after_the_restart() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source =
        FakeImageSource::gated(SourceBehaviour::plain(image.clone()), 2 * CHUNK + STEP).await;
    let wanted = source.wanted(sha256(&image));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let root = scratch.0.join("cache");
    let first = wanted.clone();
    runtime
        .spawn(async move {
            let cache = CacheBench::open(
                &root,
                BenchOptions::plain(DaemonClock::start()),
                Box::new(|_| {}),
            );
            let mut reader = cache.unwrap().reader(&first).unwrap();
            let mut at = 0;
            while at < 2 * CHUNK_BYTES {
                at = reader.readable(at).await.unwrap();
            }
        })
        .await
        .unwrap();
    // As when the kernel kills a process: no task continues.
    runtime.shutdown_background();
    let list = scratch.0.join(format!("cache/{}.chunks", wanted.key()));
    assert_eq!(std::fs::read(list).unwrap().len(), 2 * 32);
    source.permits.add_permits(OPEN);
    let cache = cache(&scratch);
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == image);
    assert_eq!(source.from.load(Ordering::SeqCst), 2 * CHUNK);
}

/// A cache with one complete image, as it is on disk.
async fn filled(scratch: &TestbedDirectory, source: &FakeImageSource, image: &[u8]) -> PathBuf {
    let wanted = source.wanted(sha256(image));
    let cache = cache(scratch);
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == image);
    let path = scratch.0.join(format!("cache/{}.whole", wanted.key()));
    assert!(path.exists());
    path
}

fn flip_byte(path: &Path, at: u64) {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path);
    let file = file.unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[tokio::test]
async fn bit_rot_is_found_after_a_restart_and_only_its_chunk_is_fetched_again() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let path = filled(&scratch, &source, &image).await;
    let wanted = source.wanted(sha256(&image));
    for (at, length) in [(5, CHUNK), (CHUNK + 1, CHUNK), (image.len() - 1, 12_345)] {
        flip_byte(&path, at as u64);
        let before = source.sent();
        let cache = cache(&scratch);
        assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == image);
        assert_eq!(source.sent() - before, length as u64, "{at}");
        assert!(std::fs::read(&path).unwrap() == image);
    }
}

#[tokio::test]
async fn a_corrupt_image_without_its_source_is_not_served() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let path = filled(&scratch, &source, &image).await;
    let wanted = source.wanted(sha256(&image));
    flip_byte(&path, CHUNK_BYTES);
    drop(source);
    let cache = cache(&scratch);
    let (got, why) = read(cache.reader(&wanted).unwrap()).await.unwrap_err();
    assert!(
        got.len() <= CHUNK && why.contains("cannot be fetched"),
        "{why}"
    );
}

#[tokio::test]
async fn a_whole_image_needs_no_source_after_a_restart() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let path = filled(&scratch, &source, &image).await;
    let wanted = source.wanted(sha256(&image));
    drop(source);
    let again = cache(&scratch);
    again.resume_all().await;
    assert!(read(again.reader(&wanted).unwrap()).await.unwrap() == image);
    // Not even its chunk list, since the digest covers the whole image.
    std::fs::remove_file(path.with_extension("chunks")).unwrap();
    let cache = cache(&scratch);
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == image);
}

#[tokio::test]
async fn files_of_this_machine_are_sources_too() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let file = scratch.file("origin.raw", &image);
    let wanted = ImageSpec {
        name: "origin.raw".into(),
        digest: sha256(&image),
        sources: vec![
            "file:///nowhere/at/all".into(),
            format!("file://{}", file.display()),
        ],
        format: ImageFormat::Raw,
    };
    let cache = cache(&scratch);
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == image);
}

#[tokio::test]
async fn an_image_without_bytes_is_an_image() {
    let scratch = TestbedDirectory::new();
    let source = FakeImageSource::new(SourceBehaviour::plain(Vec::new())).await;
    let cache = cache(&scratch);
    let reader = cache.reader(&source.wanted(sha256(b""))).unwrap();
    assert!(read(reader).await.unwrap().is_empty());
}

#[tokio::test]
async fn unknown_files_in_the_cache_are_left_or_removed() {
    let scratch = TestbedDirectory::new();
    let key = format!("sha256-{}", "ab".repeat(32));
    scratch.file("cache/notes.txt", b"mine");
    scratch.file(&format!("cache/{key}.whole"), b"whose");
    scratch.file(&format!("cache/{key}.json.new"), b"{");
    let _cache = cache(&scratch);
    let mut left: Vec<_> = std::fs::read_dir(scratch.0.join("cache"))
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["notes.txt"]);
}

fn scrubbed(scratch: &TestbedDirectory) -> CacheBench {
    let root = scratch.0.join("cache");
    let ways = BenchOptions {
        scrub: Some(Duration::from_millis(1)),
        ..BenchOptions::plain(DaemonClock::start())
    };
    CacheBench::open(&root, ways, Box::new(|_| {})).unwrap()
}

#[tokio::test]
async fn bit_rot_is_found_by_the_scrub_and_repaired_at_run_time() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let wanted = source.wanted(sha256(&image));
    let cache = scrubbed(&scratch);
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == image);
    let path = scratch.0.join(format!("cache/{}.whole", wanted.key()));
    let before = source.sent();
    flip_byte(&path, CHUNK_BYTES + 7);
    while std::fs::read(&path).unwrap() != image {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(source.sent() - before, CHUNK_BYTES);
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == image);
}

#[tokio::test]
async fn a_corrupt_list_is_rebuilt_from_a_correct_image() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let path = filled(&scratch, &source, &image).await;
    let list = path.with_extension("chunks");
    let good = std::fs::read(&list).unwrap();
    flip_byte(&list, 40);
    let before = source.sent();
    let cache = cache(&scratch);
    let wanted = source.wanted(sha256(&image));
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == image);
    assert_eq!(source.sent(), before, "nothing was fetched");
    assert!(std::fs::read(&list).unwrap() == good);
}

#[tokio::test]
async fn an_image_that_is_removed_leaves_no_files_even_while_it_is_fetched() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::gated(SourceBehaviour::plain(image.clone()), CHUNK).await;
    let wanted = source.wanted(sha256(&image));
    let cache = cache(&scratch);
    let mut reader = cache.reader(&wanted).unwrap();
    assert!(reader.readable(0).await.unwrap() > 0);
    cache.drop_image(wanted.key());
    let why = reader.readable(0).await.unwrap_err();
    assert!(why.contains("removed"), "{why}");
    source.permits.add_permits(OPEN);
    expect_no_files(&scratch.0.join("cache")).await;
}

fn of_bytes(scratch: &TestbedDirectory, name: &str, byte: u8) -> (ImageSpec, Vec<u8>) {
    let image = vec![byte; CHUNK + 1];
    let file = scratch.file(name, &image);
    let wanted = ImageSpec {
        name: name.to_owned(),
        digest: sha256(&image),
        sources: vec![format!("file://{}", file.display())],
        format: ImageFormat::Raw,
    };
    (wanted, image)
}

/// A cache with space for two and a half images.
fn small(scratch: &TestbedDirectory) -> CacheBench {
    let ways = BenchOptions {
        quota_bytes: Some(5 * CHUNK_BYTES / 2),
        retry_delay: Duration::ZERO,
        ..BenchOptions::plain(DaemonClock::start())
    };
    CacheBench::open(&scratch.0.join("cache"), ways, Box::new(|_| {})).unwrap()
}

#[tokio::test]
async fn the_least_recently_requested_image_is_evicted() {
    let scratch = TestbedDirectory::new();
    let cache = small(&scratch);
    let images: Vec<_> = (1..=3)
        .map(|byte| of_bytes(&scratch, &format!("{byte}.raw"), byte))
        .collect();
    for (wanted, image) in &images {
        assert!(read(cache.reader(wanted).unwrap()).await.unwrap() == *image);
    }
    let there = |at: usize| {
        let key = images[at].0.key();
        scratch.0.join(format!("cache/{key}.whole")).exists()
    };
    assert_eq!([there(0), there(1), there(2)], [false, true, true]);
    let one = format!("cache/{}.json", images[0].0.key());
    assert!(!scratch.0.join(one).exists(), "nothing of it is left");
}

#[tokio::test]
async fn what_is_read_or_pinned_stays_and_the_new_image_is_refused() {
    let scratch = TestbedDirectory::new();
    let cache = small(&scratch);
    let (pinned, image) = of_bytes(&scratch, "pinned.raw", 1);
    assert!(read(cache.reader(&pinned).unwrap()).await.unwrap() == image);
    cache.pin(&[pinned.digest]);
    let (used, _) = of_bytes(&scratch, "used.raw", 2);
    let mut reader = cache.reader(&used).unwrap();
    let size = reader.size().await.unwrap();
    while reader.readable(size - 1).await.unwrap() < size {}
    let (late, image) = of_bytes(&scratch, "late.raw", 3);
    let (got, why) = read(cache.reader(&late).unwrap()).await.unwrap_err();
    assert!(got.is_empty());
    for part in [
        "late.raw",
        "no space for",
        "pinned.raw",
        "used.raw",
        "quota",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let left = scratch.0.join(format!("cache/{}.whole", late.key()));
    assert!(!left.exists());
    // Without the reader the image can be evicted.
    drop(reader);
    assert!(read(cache.reader(&late).unwrap()).await.unwrap() == image);
    assert!(
        scratch
            .0
            .join(format!("cache/{}.whole", pinned.key()))
            .exists()
    );
    assert!(
        !scratch
            .0
            .join(format!("cache/{}.whole", used.key()))
            .exists()
    );
}

#[tokio::test]
async fn the_stores_reserve_is_not_filled_with_images() {
    let scratch = TestbedDirectory::new();
    let ways = BenchOptions {
        reserve_bytes: u64::MAX / 2,
        ..BenchOptions::plain(DaemonClock::start())
    };
    let cache = CacheBench::open(&scratch.0.join("cache"), ways, Box::new(|_| {})).unwrap();
    let (wanted, _) = of_bytes(&scratch, "x.raw", 1);
    let (_, why) = read(cache.reader(&wanted).unwrap()).await.unwrap_err();
    assert!(why.contains("images.reserve_mib"), "{why}");
}

#[tokio::test]
async fn an_order_for_a_fill_does_not_wait_for_the_retry_delay() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::new(SourceBehaviour::plain(b"another".to_vec())).await;
    let cache = cache(&scratch);
    let wanted = source.wanted(sha256(&image));
    let first = read(cache.reader(&wanted).unwrap()).await;
    assert!(first.is_err());
    source
        .behaviour
        .send_replace(SourceBehaviour::plain(image.clone()));
    let again = read(cache.reader(&wanted).unwrap()).await;
    assert!(again.is_err(), "it rests, and says why");
    cache.fill(&wanted);
    let reader = cache.reader(&wanted).unwrap();
    assert!(read(reader).await.unwrap() == image);
}
