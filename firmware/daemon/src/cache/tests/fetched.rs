//! Tests of files that are fetched by URL only.

use super::*;
use trivet_images::FetchedFile;

impl FakeImageSource {
    fn url(&self) -> String {
        format!("http://{}/ramdisk", self.address)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

async fn fetch(cache: &CacheBench, url: &str) -> Result<FetchedFile, String> {
    cache.fetch_file(url, ImageFormat::Ramdisk).await
}

/// The bytes that a machine receives that may read the file with this digest.
async fn served(cache: &CacheBench, url: &str, digest: Digest) -> Vec<u8> {
    let wanted = ImageSpec {
        name: "ramdisk".into(),
        digest,
        sources: vec![url.to_owned()],
        format: ImageFormat::Ramdisk,
    };
    read(cache.reader(&wanted).unwrap()).await.unwrap()
}

fn fresh(image: &[u8]) -> FetchedFile {
    FetchedFile {
        digest: sha256(image),
        old: None,
        has_validator: true,
    }
}

/// Number of files in the cache's directory that belong to a running fetch.
fn on_their_way(scratch: &TestbedDirectory) -> usize {
    let files = std::fs::read_dir(scratch.0.join("cache")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(".fetch")).count()
}

#[tokio::test]
async fn a_file_without_a_digest_is_fetched_once_and_then_only_compared() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let (cache, url) = (cache(&scratch), source.url());
    assert_eq!(fetch(&cache, &url).await, Ok(fresh(&image)));
    assert!(served(&cache, &url, sha256(&image)).await == image);
    assert_eq!(fetch(&cache, &url).await, Ok(fresh(&image)));
    assert_eq!(source.requests(), 2, "once for its bytes, once to compare");
    assert_eq!(source.sent(), image.len() as u64, "no byte came twice");
    assert_eq!(on_their_way(&scratch), 0);
}

#[tokio::test]
async fn a_fetched_file_is_still_there_after_a_restart() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let url = source.url();
    assert_eq!(fetch(&cache(&scratch), &url).await, Ok(fresh(&image)));
    let cache = cache(&scratch);
    assert_eq!(fetch(&cache, &url).await, Ok(fresh(&image)));
    assert!(served(&cache, &url, sha256(&image)).await == image);
    assert_eq!(source.sent(), image.len() as u64);
}

#[tokio::test]
async fn a_file_that_has_changed_at_its_source_is_fetched_again() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let (cache, url) = (cache(&scratch), source.url());
    assert_eq!(fetch(&cache, &url).await, Ok(fresh(&image)));
    let other = image[1..].to_vec();
    source.change(|behaviour| {
        behaviour.content = Arc::new(other.clone());
        behaviour.tag = Some("\"two\"");
    });
    assert_eq!(fetch(&cache, &url).await, Ok(fresh(&other)));
    assert!(served(&cache, &url, sha256(&other)).await == other);
    // The newer file is compared from now on.
    let sent = source.sent();
    assert_eq!(fetch(&cache, &url).await, Ok(fresh(&other)));
    assert_eq!(source.sent(), sent);
}

#[tokio::test]
async fn a_copy_is_used_while_its_source_does_not_answer() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let (cache, url) = (cache(&scratch), source.url());
    assert_eq!(fetch(&cache, &url).await, Ok(fresh(&image)));
    drop(source);
    let stored = fetch(&cache, &url).await.unwrap();
    assert_eq!(stored.digest, sha256(&image));
    let why = stored.old.unwrap();
    assert!(why.contains(&url) && why.contains("earlier"), "{why}");
    assert!(served(&cache, &url, sha256(&image)).await == image);
}

#[tokio::test]
async fn a_file_that_its_source_does_not_have_is_an_error_with_its_url() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let mut behaviour = SourceBehaviour::plain(image.clone());
    behaviour.refuses = Some("404 Not Found");
    let source = FakeImageSource::new(behaviour).await;
    let (cache, url) = (cache(&scratch), source.url());
    let why = fetch(&cache, &url).await.unwrap_err();
    assert!(why.contains(&url) && why.contains("404"), "{why}");
    assert_eq!(source.requests(), 1, "the answer would be the same");
}

#[tokio::test]
async fn a_truncated_file_leaves_no_files_behind() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let mut behaviour = SourceBehaviour::plain(image.clone());
    behaviour.cut_after = Some(CHUNK);
    let source = FakeImageSource::new(behaviour).await;
    let (cache, url) = (cache(&scratch), source.url());
    let why = fetch(&cache, &url).await.unwrap_err();
    assert!(why.contains("disconnected"), "{why}");
    assert_eq!(on_their_way(&scratch), 0);
    source.change(|behaviour| behaviour.cut_after = None);
    assert_eq!(fetch(&cache, &url).await, Ok(fresh(&image)));
}

#[tokio::test]
async fn a_partial_file_of_a_stopped_box_is_removed() {
    let scratch = TestbedDirectory::new();
    let root = scratch.0.join("cache");
    std::fs::create_dir_all(&root).unwrap();
    let key = trivet_images::ImageKey(sha256(b"http://h/ramdisk"));
    std::fs::write(root.join(format!("{key}.fetch")), b"half").unwrap();
    std::fs::write(root.join(format!("{key}.fetch-chunks")), b"").unwrap();
    let _cache = cache(&scratch);
    assert_eq!(on_their_way(&scratch), 0);
}

#[tokio::test]
async fn a_file_whose_bytes_are_an_image_of_the_cache_is_that_image() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let (cache, url) = (cache(&scratch), source.url());
    let wanted = source.wanted(sha256(&image));
    cache.ensure(&wanted).await;
    assert_eq!(fetch(&cache, &url).await, Ok(fresh(&image)));
    assert_eq!(fetch(&cache, &url).await, Ok(fresh(&image)));
    assert_eq!(source.sent(), 2 * image.len() as u64, "then it is known");
    assert!(read(cache.reader(&wanted).unwrap()).await.unwrap() == image);
}

#[tokio::test]
async fn a_source_without_validators_is_reported_as_such() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let mut behaviour = SourceBehaviour::plain(image.clone());
    behaviour.tag = None;
    let source = FakeImageSource::new(behaviour).await;
    let file = fetch(&cache(&scratch), &source.url()).await.unwrap();
    assert!(!file.has_validator && file.old.is_none());
    assert_eq!(file.digest, sha256(&image));
}

#[tokio::test]
async fn a_file_with_a_digest_is_downloaded_once_from_a_source_without_validators() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let mut behaviour = SourceBehaviour::plain(image.clone());
    behaviour.tag = None;
    let source = FakeImageSource::new(behaviour).await;
    let (cache, wanted) = (cache(&scratch), source.wanted(sha256(&image)));
    cache.ensure(&wanted).await;
    cache.ensure(&wanted).await;
    assert_eq!(source.sent(), image.len() as u64);
}
