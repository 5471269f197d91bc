//! Tests of packed images: the disk in them is unpacked once, and never served
//! incomplete.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

/// A disk of four chunks: bytes, two chunks of zeros, and bytes.
fn disk() -> Vec<u8> {
    let mut disk = sample();
    disk[CHUNK / 2..3 * CHUNK].fill(0);
    disk.truncate(3 * CHUNK + 512);
    disk
}

fn gzip(raw: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(raw).unwrap();
    encoder.finish().unwrap()
}

/// A qcow2 of version 2. Each of its clusters of 64 KiB is allocated or zero.
fn qcow2(raw: &[u8]) -> Vec<u8> {
    const CLUSTER: usize = 1 << 16;
    let mut file = vec![0; 3 * CLUSTER];
    file[..8].copy_from_slice(b"QFI\xfb\0\0\0\x02");
    file[23] = 16;
    file[24..32].copy_from_slice(&(raw.len() as u64).to_be_bytes());
    file[39] = 1;
    file[40..48].copy_from_slice(&(CLUSTER as u64).to_be_bytes());
    file[CLUSTER..CLUSTER + 8].copy_from_slice(&(2 * CLUSTER as u64).to_be_bytes());
    for (index, cluster) in raw.chunks(CLUSTER).enumerate() {
        if cluster.iter().all(|byte| *byte == 0) {
            continue;
        }
        let at = file.len() as u64;
        file[2 * CLUSTER + index * 8..][..8].copy_from_slice(&at.to_be_bytes());
        file.extend_from_slice(cluster);
        file.resize(file.len().next_multiple_of(CLUSTER), 0);
    }
    file
}

fn packed(source: &FakeImageSource, name: &str, image: &[u8], format: ImageFormat) -> ImageSpec {
    ImageSpec {
        name: name.to_owned(),
        format,
        ..source.wanted(sha256(image))
    }
}

/// A cache, and the reports that it sends.
fn cache_with_news(
    scratch: &TestbedDirectory,
    ways: BenchOptions,
) -> (CacheBench, Arc<Mutex<Vec<ImageStatus>>>) {
    let news = Arc::new(Mutex::new(Vec::new()));
    let stored = Arc::clone(&news);
    let sink: NewsSink = Box::new(move |one| stored.lock().unwrap().push(one));
    let cache = CacheBench::open(&scratch.0.join("cache"), ways, sink).unwrap();
    (cache, news)
}

fn quick() -> BenchOptions {
    BenchOptions {
        retry_delay: Duration::ZERO,
        ..BenchOptions::plain(DaemonClock::start())
    }
}

fn path(scratch: &TestbedDirectory, digest: Digest, end: &str) -> PathBuf {
    scratch.0.join(format!("cache/{}.{end}", ImageKey(digest)))
}

/// Waits until the cache has sent such a report.
async fn wait_for_news(news: &Mutex<Vec<ImageStatus>>, want: impl Fn(&ImageStatus) -> bool) {
    while !news.lock().unwrap().iter().any(&want) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn many_readers_of_a_packed_image_read_the_disk_in_it() {
    let (scratch, raw) = (TestbedDirectory::new(), disk());
    for (name, format, image) in [
        ("disk.gz", ImageFormat::Gzip, gzip(&raw)),
        ("disk.qcow2", ImageFormat::Qcow2, qcow2(&raw)),
    ] {
        let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
        let (cache, news) = cache_with_news(&scratch, quick());
        let wanted = packed(&source, name, &image, format);
        let mut readers = JoinSet::new();
        for _ in 0..8 {
            readers.spawn(read(cache.reader(&wanted).unwrap()));
        }
        while let Some(outcome) = readers.join_next().await {
            assert!(outcome.unwrap().unwrap() == raw, "{name}");
        }
        assert_eq!(source.sent(), image.len() as u64, "it came once");
        wait_for_news(&news, |one| one.state == ImageState::Complete).await;
        let news = news.lock().unwrap().clone();
        let last = news.last().unwrap();
        let made = last.raw.unwrap();
        assert_eq!(made.digest, sha256(&raw));
        assert_eq!(made.size, raw.len() as u64);
        assert_eq!(last.key, wanted.key().to_string());
        let is_whole = |one: &&ImageStatus| one.state == ImageState::Complete;
        assert!(news.iter().filter(is_whole).all(|one| one.raw.is_some()));
        let unpacks = news.iter().any(|one| one.state == ImageState::Unpacking);
        assert!(unpacks, "{name}");
        // Its own digest makes it an image like any other.
        let own = ImageSpec {
            digest: sha256(&raw),
            sources: Vec::new(),
            format: ImageFormat::Raw,
            ..wanted
        };
        assert!(read(cache.reader(&own).unwrap()).await.unwrap() == raw);
        let facts = path(&scratch, own.digest, "whole").metadata().unwrap();
        assert!(facts.blocks() * 512 < raw.len() as u64, "zeros are holes");
        let left = std::fs::read_dir(scratch.0.join("cache"))
            .unwrap()
            .flatten();
        let ends = left.map(|file| file.file_name().into_string().unwrap());
        assert!(!ends.into_iter().any(|name| name.ends_with(".unpack")));
    }
}

#[tokio::test]
async fn nothing_is_taken_out_of_an_image_whose_digest_is_wrong() {
    let (scratch, raw) = (TestbedDirectory::new(), disk());
    let image = gzip(&raw);
    let source = FakeImageSource::new(SourceBehaviour::plain(image)).await;
    let (cache, _) = cache_with_news(&scratch, BenchOptions::plain(DaemonClock::start()));
    let wanted = packed(&source, "disk.gz", b"something else", ImageFormat::Gzip);
    let (got, why) = read(cache.reader(&wanted).unwrap()).await.unwrap_err();
    assert!(got.is_empty() && why.contains("has a wrong digest"));
    assert!(!path(&scratch, sha256(&raw), "whole").exists());
}

#[tokio::test]
async fn an_image_that_is_refused_says_why_and_is_never_served() {
    let (scratch, raw) = (TestbedDirectory::new(), disk());
    let mut backed = qcow2(&raw);
    backed[14..16].copy_from_slice(&[1, 0]);
    backed[19] = 4;
    backed[256..260].copy_from_slice(b"base");
    let mut short = gzip(&raw);
    short.truncate(short.len() - 4);
    for (image, format, parts) in [
        (
            backed,
            ImageFormat::Qcow2,
            ["backing file (base)", "qemu-img"],
        ),
        (short, ImageFormat::Gzip, ["cut short", "gzip"]),
        (
            qcow2(&raw),
            ImageFormat::Raw,
            ["declared raw", "--format qcow2"],
        ),
        (
            raw.clone(),
            ImageFormat::Xz,
            ["declared as xz", "correct its format"],
        ),
    ] {
        let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
        let (cache, news) = cache_with_news(&scratch, BenchOptions::plain(DaemonClock::start()));
        let wanted = packed(&source, "disk.img", &image, format);
        let (got, why) = read(cache.reader(&wanted).unwrap()).await.unwrap_err();
        assert!(got.len() < image.len(), "{why}");
        for part in parts.into_iter().chain(["image disk.img"]) {
            assert!(why.contains(part), "{part}: {why}");
        }
        let failed = ImageState::Wrong(why.clone());
        wait_for_news(&news, |one| one.state == failed).await;
        // A second reader receives the same error, and the image is not fetched again.
        let again = read(cache.reader(&wanted).unwrap()).await.unwrap_err();
        assert_eq!(again, (Vec::new(), why));
        assert_eq!(source.sent(), image.len() as u64);
        // After a restart it is reported again.
        if format.is_packed() {
            drop(cache);
            let (cache, news) =
                cache_with_news(&scratch, BenchOptions::plain(DaemonClock::start()));
            cache.resume_all().await;
            wait_for_news(&news, |one| one.state == failed).await;
            cache.drop_image(wanted.key());
        }
    }
}

#[tokio::test]
async fn an_image_with_a_wrong_declared_format_is_used_as_it_is() {
    let (scratch, raw) = (TestbedDirectory::new(), disk());
    let image = qcow2(&raw);
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let (cache, _) = cache_with_news(&scratch, BenchOptions::plain(DaemonClock::start()));
    let wrong = packed(&source, "disk.img", &image, ImageFormat::Raw);
    assert!(read(cache.reader(&wrong).unwrap()).await.is_err());
    let right = packed(&source, "disk.img", &image, ImageFormat::Qcow2);
    assert!(read(cache.reader(&right).unwrap()).await.unwrap() == raw);
    assert!(read(cache.reader(&wrong).unwrap()).await.is_err());
    assert_eq!(source.sent(), image.len() as u64, "it came once");
}

#[tokio::test]
async fn the_same_disk_in_two_images_is_there_once() {
    let (scratch, raw) = (TestbedDirectory::new(), disk());
    let (cache, _) = cache_with_news(&scratch, quick());
    let mut all = Vec::new();
    for (format, image) in [
        (ImageFormat::Gzip, gzip(&raw)),
        (ImageFormat::Qcow2, qcow2(&raw)),
    ] {
        let file = scratch.file(format.name(), &image);
        let wanted = ImageSpec {
            name: format.name().to_owned(),
            digest: sha256(&image),
            sources: vec![format!("file://{}", file.display())],
            format,
        };
        assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == raw);
        all.push(wanted);
    }
    let whole = path(&scratch, sha256(&raw), "whole");
    cache.drop_image(all[0].key());
    assert!(whole.exists(), "the other one needs it");
    assert!(read(cache.reader(&all[1]).unwrap()).await.unwrap() == raw);
    cache.drop_image(all[1].key());
    expect_no_files(&scratch.0.join("cache")).await;
}

fn flip_byte(file: &Path, at: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(&[0x55, 0xaa], at).unwrap();
}

#[tokio::test]
async fn a_disk_that_has_changed_is_repaired_from_its_image_after_a_restart() {
    let (scratch, raw) = (TestbedDirectory::new(), disk());
    let image = gzip(&raw);
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let wanted = packed(&source, "disk.gz", &image, ImageFormat::Gzip);
    let (cache, _) = cache_with_news(&scratch, quick());
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == raw);
    drop(cache);
    let whole = path(&scratch, sha256(&raw), "whole");
    flip_byte(&whole, 5);
    flip_byte(&whole, 2 * CHUNK_BYTES);
    let (cache, news) = cache_with_news(&scratch, quick());
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == raw);
    assert!(std::fs::read(&whole).unwrap() == raw);
    wait_for_news(&news, |one| one.state == ImageState::Corrupt(2)).await;
    wait_for_news(&news, |one| one.raw.is_some()).await;
    assert_eq!(source.sent(), image.len() as u64, "the image was here");
    // The disk and its image are both missing: both are restored.
    drop(cache);
    std::fs::remove_file(&whole).unwrap();
    for end in ["whole", "json", "chunks"] {
        std::fs::remove_file(path(&scratch, wanted.digest, end)).unwrap();
    }
    let (cache, _) = cache_with_news(&scratch, quick());
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == raw);
    assert_eq!(source.sent(), 2 * image.len() as u64);
    assert!(std::fs::read(&whole).unwrap() == raw);
}

#[tokio::test]
async fn a_half_unpacked_disk_is_unpacked_again_after_a_restart() {
    let (scratch, raw) = (TestbedDirectory::new(), disk());
    let image = qcow2(&raw);
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let wanted = packed(&source, "disk.qcow2", &image, ImageFormat::Qcow2);
    let (cache, _) = cache_with_news(&scratch, quick());
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == raw);
    drop(cache);
    // As a kill during unpacking leaves it: no record of the disk, and only its
    // beginning.
    for end in ["json", "whole", "chunks"] {
        std::fs::remove_file(path(&scratch, sha256(&raw), end)).unwrap();
    }
    std::fs::remove_file(path(&scratch, wanted.digest, "disk")).unwrap();
    let half = path(&scratch, wanted.digest, "unpack");
    std::fs::write(&half, &raw[..CHUNK]).unwrap();
    // And a disk whose record was not written yet.
    std::fs::write(path(&scratch, Digest::Sha256([7; 32]), "whole"), b"half").unwrap();
    let (cache, news) = cache_with_news(&scratch, quick());
    assert!(!half.exists());
    assert!(!path(&scratch, Digest::Sha256([7; 32]), "whole").exists());
    cache.resume_all().await;
    wait_for_news(&news, |one| one.raw.is_some()).await;
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == raw);
    assert_eq!(source.sent(), image.len() as u64);
}

#[tokio::test]
async fn the_image_is_evicted_before_its_disk_and_space_is_reserved_for_both() {
    let (scratch, raw) = (TestbedDirectory::new(), disk());
    let image = qcow2(&raw);
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let wanted = packed(&source, "disk.qcow2", &image, ImageFormat::Qcow2);
    let ways = |quota| BenchOptions {
        quota_bytes: Some(quota),
        ..quick()
    };
    // Space for the image, but not for its disk.
    let tight = image.len() as u64 + raw.len() as u64 - 1;
    let (cache, news) = cache_with_news(&scratch, ways(tight));
    let (got, why) = read(cache.reader(&wanted).unwrap()).await.unwrap_err();
    assert!(got.is_empty() && why.contains("no space for"), "{why}");
    wait_for_news(&news, |one| matches!(one.state, ImageState::Failed(_))).await;
    drop(cache);
    // Space for both, and for one more without the image.
    let both = raw.len() as u64 + image.len() as u64;
    let (cache, news) = cache_with_news(&scratch, ways(both + CHUNK_BYTES / 2));
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == raw);
    let whole = |digest| path(&scratch, digest, "whole").exists();
    assert!(whole(wanted.digest) && whole(sha256(&raw)));
    let (other, bytes) = of_bytes(&scratch, "other.raw", 3);
    assert!(read(cache.reader(&other).unwrap()).await.unwrap() == bytes);
    assert!(!whole(wanted.digest) && whole(sha256(&raw)));
    let gone = |one: &ImageStatus| one.state == ImageState::Evicted;
    assert!(!news.lock().unwrap().iter().any(gone), "the disk is here");
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == raw);
    assert_eq!(source.sent(), image.len() as u64, "it did not come again");
    // A pinned disk is never evicted.
    cache.pin(&[wanted.digest]);
    let (last, _) = of_bytes(&scratch, "last.raw", 4);
    let large = ImageSpec {
        digest: sha256(&sample()),
        sources: vec![format!(
            "file://{}",
            scratch.file("large.raw", &sample()).display()
        )],
        ..last
    };
    let (_, why) = read(cache.reader(&large).unwrap()).await.unwrap_err();
    assert!(why.contains("disk.qcow2"), "{why}");
    assert!(whole(sha256(&raw)));
}

#[tokio::test]
async fn ensuring_an_image_unpacks_lists_and_checks_its_disk() {
    let (scratch, raw) = (TestbedDirectory::new(), disk());
    let image = gzip(&raw);
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let wanted = packed(&source, "disk.gz", &image, ImageFormat::Gzip);
    let (cache, news) = cache_with_news(&scratch, BenchOptions::plain(DaemonClock::start()));
    assert_eq!(cache.chunk_list(&wanted).await, None, "nothing is here");
    cache.ensure(&wanted).await;
    wait_for_news(&news, |one| one.raw.is_some()).await;
    // The list is that of the disk; with it an agent verifies what it writes.
    let list = cache.chunk_list(&wanted).await.unwrap();
    let list = trivet_chunks::ChunkList::read(&sha256(&raw), &list).unwrap();
    let size = raw.len() as u64;
    for (at, chunk) in raw.chunks(CHUNK).enumerate() {
        assert!(
            list.is_chunk_valid(at as u64, chunk, size, &sha256(&raw)),
            "{at}"
        );
    }
    // Each request is followed by a report, even if nothing changed.
    news.lock().unwrap().clear();
    cache.ensure(&wanted).await;
    assert!(news.lock().unwrap().iter().any(|one| one.raw.is_some()));
    // An agent reports a checksum error: the disk is verified and repaired.
    let whole = path(&scratch, sha256(&raw), "whole");
    flip_byte(&whole, 5);
    news.lock().unwrap().clear();
    cache.reverify(&wanted).await;
    wait_for_news(&news, |one| one.state == ImageState::Corrupt(1)).await;
    let right = |one: &ImageStatus| one.state == ImageState::Complete && one.raw.is_some();
    wait_for_news(&news, right).await;
    assert!(std::fs::read(&whole).unwrap() == raw);
    assert_eq!(
        source.sent(),
        image.len() as u64,
        "from the image that is here"
    );
}

#[tokio::test]
async fn an_image_that_changes_between_its_check_and_its_unpacking_is_not_unpacked() {
    let (scratch, raw) = (TestbedDirectory::new(), disk());
    let image = qcow2(&raw);
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let plain = packed(&source, "disk.qcow2", &image, ImageFormat::Iso);
    let (cache, _) = cache_with_news(&scratch, quick());
    assert!(read(cache.reader(&plain).unwrap()).await.unwrap() == image);
    // Changes the file directly, in the bytes of a cluster, which no format verifies.
    flip_byte(&path(&scratch, plain.digest, "whole"), 3 * (1 << 16) + 99);
    let chunks = path(&scratch, plain.digest, "chunks");
    let list = checking::read_list(&chunks, &plain.digest);
    let entry = Arc::new(CacheEntry::new(ImageEntryId(1)));
    let into = entry::new_file(&path(&scratch, plain.digest, "unpack")).unwrap();
    let reader = cache.reader(&plain).unwrap();
    let from = (
        reader.file().unwrap(),
        list,
        plain.digest,
        image.len() as u64,
    );
    let taking = unpack_worker::UnpackWorker::new(from, (entry, Arc::new(into)), None);
    let outcome = taking.run(trivet_unpack::Packing::Qcow2, &|_| Ok(()));
    assert!(matches!(
        outcome,
        Err(unpack_worker::DiskUnpackError::Corrupt)
    ));
}

#[tokio::test]
async fn a_disk_that_is_uploaded_too_outlives_the_image_that_it_was_in() {
    let (scratch, disk) = (TestbedDirectory::new(), disk());
    let image = gzip(&disk);
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let wanted = packed(&source, "a.gz", &image, ImageFormat::Gzip);
    let (cache, news) = cache_with_news(&scratch, quick());
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == disk);
    let own = ImageSpec {
        name: "own.raw".into(),
        digest: sha256(&disk),
        sources: Vec::new(),
        format: ImageFormat::Raw,
    };
    let size = disk.len() as u64;
    let offer = ImageUploadRange {
        from: 0,
        bytes: size,
        size,
    };
    let mut body = http_body_util::Full::new(bytes::Bytes::from(disk.clone()));
    let took = cache.upload(&own, offer, &mut body).await;
    assert_eq!(took, Ok(size));
    wait_for_news(&news, |one| {
        one.name == "own.raw" && one.state == ImageState::Complete
    })
    .await;
    cache.drop_image(wanted.key());
    assert!(read(cache.reader(&own).unwrap()).await.unwrap() == disk);
    // After a restart too.
    let (cache, _) = cache_with_news(&scratch, quick());
    assert!(read(cache.reader(&own).unwrap()).await.unwrap() == disk);
}
