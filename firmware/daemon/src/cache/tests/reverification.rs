//! Tests of re-verification after an agent's checksum error, of chunk lists, and of
//! checksum files.

use super::*;
use std::sync::mpsc;

/// A cache, and a receiver of its reports.
fn cache_with_news(scratch: &TestbedDirectory) -> (CacheBench, mpsc::Receiver<ImageStatus>) {
    let (sender, reports) = mpsc::channel();
    let news = Box::new(move |news| drop(sender.send(news)));
    let root = scratch.0.join("cache");
    let ways = BenchOptions::plain(DaemonClock::start());
    (CacheBench::open(&root, ways, news).unwrap(), reports)
}

fn states(reports: &mpsc::Receiver<ImageStatus>) -> Vec<String> {
    reports
        .try_iter()
        .map(|news| news.state.to_string())
        .collect()
}

#[tokio::test]
async fn reverifying_a_valid_image_reports_it_as_whole() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let wanted = source.wanted(sha256(&image));
    let (cache, reported) = cache_with_news(&scratch);
    cache.ensure(&wanted).await;
    assert_eq!(states(&reported).last().unwrap(), "complete");
    let sent = source.sent();
    cache.reverify(&wanted).await;
    assert_eq!(states(&reported), ["complete"]);
    assert_eq!(source.sent(), sent, "nothing is fetched for a doubt");
}

#[tokio::test]
async fn reverifying_a_corrupt_image_repairs_it_at_once() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let wanted = source.wanted(sha256(&image));
    let (cache, reported) = cache_with_news(&scratch);
    cache.ensure(&wanted).await;
    let path = scratch.0.join(format!("cache/{}.whole", wanted.key()));
    flip_byte(&path, CHUNK_BYTES + 3);
    let sent = source.sent();
    assert!(cache.chunk_list(&wanted).await.is_some());
    states(&reported);
    cache.reverify(&wanted).await;
    assert!(states(&reported).contains(&"corrupt".to_owned()));
    assert_eq!(source.sent() - sent, CHUNK_BYTES);
    assert!(std::fs::read(&path).unwrap() == image);
}

#[tokio::test]
async fn bit_rot_with_an_unreachable_source_keeps_the_correct_chunks() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let path = filled(&scratch, &source, &image).await;
    let mut wanted = source.wanted(sha256(&image));
    flip_byte(&path, 3);
    drop(source);
    let (cache, reported) = cache_with_news(&scratch);
    cache.ensure(&wanted).await;
    let last = reported.try_iter().last().unwrap();
    let ImageState::Failed(why) = &last.state else {
        panic!("{last:?}")
    };
    assert!(why.contains("cannot be fetched"), "{why}");
    assert!(cache.chunk_list(&wanted).await.is_none(), "it is not whole");
    // An order retries at once, and one chunk is enough.
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    wanted.sources = source.wanted(wanted.digest).sources;
    cache.ensure(&wanted).await;
    assert_eq!(source.sent(), CHUNK_BYTES);
    assert!(std::fs::read(&path).unwrap() == image);
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == image);
}

#[tokio::test]
async fn a_source_without_ranges_repairs_by_sending_all() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let path = filled(&scratch, &source, &image).await;
    source.change(|behaviour| behaviour.ranges = false);
    flip_byte(&path, 3);
    let cache = cache(&scratch);
    let wanted = source.wanted(sha256(&image));
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == image);
}

#[tokio::test]
async fn the_chunk_list_of_a_whole_image_proves_every_chunk() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::gated(SourceBehaviour::plain(image.clone()), CHUNK).await;
    let wanted = source.wanted(sha256(&image));
    let cache = cache(&scratch);
    let reader = cache.reader(&wanted).unwrap();
    assert!(
        cache.chunk_list(&wanted).await.is_none(),
        "it is on its way"
    );
    source.permits.add_permits(OPEN / 2);
    assert!(read(reader).await.unwrap() == image);
    let bytes = cache.chunk_list(&wanted).await.unwrap();
    let list = trivet_chunks::ChunkList::read(&wanted.digest, &bytes).unwrap();
    let size = image.len() as u64;
    for (chunk, bytes) in (0..).zip(image.chunks(CHUNK)) {
        assert!(list.is_chunk_valid(chunk, bytes, size, &wanted.digest));
    }
}

#[tokio::test]
async fn the_digest_is_found_in_a_checksum_file() {
    let scratch = TestbedDirectory::new();
    let cache = cache(&scratch);
    let digest = sha256(b"x");
    let sums = format!("{digest}  disk.raw\n");
    let source = FakeImageSource::new(SourceBehaviour::plain(sums.into_bytes())).await;
    let url = format!("http://{}/SHA256SUMS", source.address);
    assert_eq!(cache.find_checksum(&url, "disk.raw").await, Ok(digest));
    let why = cache.find_checksum(&url, "other.raw").await.unwrap_err();
    assert!(why.contains("has no SHA-256 or SHA-512 for other.raw"));
    source.change(|behaviour| behaviour.content = Arc::new(vec![b'a'; 2 << 20]));
    let why = cache.find_checksum(&url, "disk.raw").await.unwrap_err();
    assert!(why.contains("too long"), "{why}");
    let why = cache.find_checksum("http://127.0.0.1:1/x", "a").await;
    assert!(why.unwrap_err().contains("give the digest itself"));
}

#[tokio::test]
async fn an_image_that_is_removed_is_not_fetched_any_further() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::gated(SourceBehaviour::plain(image.clone()), CHUNK).await;
    let wanted = source.wanted(sha256(&image));
    let cache = cache(&scratch);
    let mut reader = cache.reader(&wanted).unwrap();
    reader.readable(0).await.unwrap();
    cache.drop_image(wanted.key());
    assert!(reader.finished().await.is_err(), "its readers notice it");
    // A later request is a separate fill, and the first one does not change it.
    let reader = cache.reader(&wanted).unwrap();
    source.permits.add_permits(OPEN / 2);
    assert!(read(reader).await.unwrap() == image);
    assert!(source.sent() < 2 * image.len() as u64);
    let path = scratch.0.join(format!("cache/{}.whole", wanted.key()));
    assert!(std::fs::read(path).unwrap() == image);
}
