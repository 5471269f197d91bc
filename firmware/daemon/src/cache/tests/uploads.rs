//! Tests of uploads, and of clients that disconnect.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Frame;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// A body that a test feeds; it ends early when the sender is dropped.
struct ChannelBody(Receiver<Bytes>);

impl hyper::body::Body for ChannelBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0.poll_recv(context).map(|piece| match piece {
            Some(piece) => Some(Ok(Frame::data(piece))),
            None => Some(Err(std::io::ErrorKind::ConnectionReset.into())),
        })
    }
}

fn channel_body() -> (Sender<Bytes>, ChannelBody) {
    let (send, receive) = channel(1);
    (send, ChannelBody(receive))
}

fn wanted(image: &[u8]) -> ImageSpec {
    ImageSpec {
        name: "up.raw".to_owned(),
        digest: sha256(image),
        sources: Vec::new(),
        format: ImageFormat::Raw,
    }
}

fn whole(image: &[u8]) -> ImageUploadRange {
    from(image, 0)
}

fn from(image: &[u8], from: usize) -> ImageUploadRange {
    ImageUploadRange {
        from: from as u64,
        bytes: (image.len() - from) as u64,
        size: image.len() as u64,
    }
}

fn body(bytes: &[u8]) -> Full<Bytes> {
    Full::new(Bytes::copy_from_slice(bytes))
}

/// Sends this many bytes and disconnects.
async fn cut(cache: &CacheBench, image: &[u8], after: usize) {
    let (send, mut fed) = channel_body();
    let uploaded = async {
        let outcome = cache.upload(&wanted(image), whole(image), &mut fed).await;
        assert!(
            matches!(outcome, Err(ImageUploadError::Interrupted(_))),
            "{outcome:?}"
        );
    };
    let sent = async {
        for piece in image[..after].chunks(100_000) {
            send.send(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        drop(send);
    };
    tokio::join!(uploaded, sent);
}

#[tokio::test]
async fn an_upload_is_followed_and_its_last_chunk_waits_for_the_digest() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let cache = cache(&scratch);
    let (send, mut fed) = channel_body();
    let (shared, wanted) = (cache.clone(), wanted(&image));
    let (ours, offer) = (wanted.clone(), whole(&image));
    let upload = tokio::spawn(async move { shared.upload(&ours, offer, &mut fed).await });
    let end = image.len() - 1;
    for piece in image[..end].chunks(CHUNK) {
        send.send(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    let mut reader = cache.reader(&wanted).unwrap();
    assert_eq!(reader.size().await.unwrap(), image.len() as u64);
    let readable = reader.readable(2 * CHUNK_BYTES - 1).await.unwrap();
    assert!(readable <= 3 * CHUNK_BYTES, "{readable}");
    // Another client uploads the same image.
    let second = cache
        .upload(&wanted, whole(&image), &mut body(&image))
        .await;
    assert!(
        matches!(&second, Err(ImageUploadError::Conflict(why)) if why.contains("another client")),
        "{second:?}"
    );
    let last = Bytes::copy_from_slice(&image[end..]);
    send.send(last).await.unwrap();
    assert_eq!(upload.await.unwrap(), Ok(image.len() as u64));
    assert!(read(reader).await.unwrap() == image);
    let again = cache
        .upload(&wanted, whole(&image), &mut body(&image))
        .await;
    assert!(
        matches!(again, Err(ImageUploadError::Conflict(_))),
        "{again:?}"
    );
}

#[tokio::test]
async fn bytes_received_before_a_disconnect_are_kept_and_continued() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let cache = cache(&scratch);
    cut(&cache, &image, 2 * CHUNK + 777).await;
    let why = cache.reader(&wanted(&image)).err().unwrap();
    assert!(why.contains("2097152 bytes of its upload"), "{why}");
    for wrong in [CHUNK, 2 * CHUNK + 777, 3 * CHUNK] {
        let offer = from(&image, wrong);
        let outcome = cache
            .upload(&wanted(&image), offer, &mut body(&image[wrong..]))
            .await;
        let part = "2097152 bytes here";
        assert!(
            matches!(&outcome, Err(ImageUploadError::Conflict(why)) if why.contains(part)),
            "{outcome:?}"
        );
    }
    let other = ImageUploadRange {
        size: image.len() as u64 + 1,
        ..from(&image, 2 * CHUNK)
    };
    let outcome = cache.upload(&wanted(&image), other, &mut body(b"")).await;
    assert!(
        matches!(outcome, Err(ImageUploadError::Conflict(_))),
        "{outcome:?}"
    );
    let offer = from(&image, 2 * CHUNK);
    let mut rest = body(&image[2 * CHUNK..]);
    let outcome = cache.upload(&wanted(&image), offer, &mut rest).await;
    assert_eq!(outcome, Ok(image.len() as u64));
    let reader = cache.reader(&wanted(&image)).unwrap();
    assert!(read(reader).await.unwrap() == image);
}

#[tokio::test]
async fn an_upload_in_parts_is_one() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let cache = cache(&scratch);
    for at in 0..4 {
        let part = &image[at * CHUNK..image.len().min((at + 1) * CHUNK)];
        let offer = ImageUploadRange {
            from: (at * CHUNK) as u64,
            bytes: part.len() as u64,
            size: image.len() as u64,
        };
        let outcome = cache.upload(&wanted(&image), offer, &mut body(part)).await;
        let here = image.len().min((at + 1) * CHUNK);
        assert_eq!(outcome, Ok(here as u64), "{at}");
    }
}

#[tokio::test]
async fn an_upload_that_was_killed_is_checked_and_goes_on_after_the_restart() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let first = cache(&scratch);
    cut(&first, &image, 3 * CHUNK + 100).await;
    drop(first);
    // The damage of a power cut.
    let key = wanted(&image).key();
    flip_byte(
        &scratch.0.join(format!("cache/{key}.part")),
        CHUNK_BYTES + 5,
    );
    let second = cache(&scratch);
    let why = read(second.reader(&wanted(&image)).unwrap()).await;
    let (got, why) = why.unwrap_err();
    assert!(
        got.len() <= CHUNK && why.contains("1048576 bytes of"),
        "{why}"
    );
    let offer = from(&image, CHUNK);
    let outcome = second
        .upload(&wanted(&image), offer, &mut body(&image[CHUNK..]))
        .await;
    assert_eq!(outcome, Ok(image.len() as u64));
    let reader = second.reader(&wanted(&image)).unwrap();
    assert!(read(reader).await.unwrap() == image);
}

#[tokio::test]
async fn another_file_than_the_digest_says_is_dropped() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let cache = cache(&scratch);
    let mut wrong = image.clone();
    wrong[CHUNK + 7] ^= 1;
    let outcome = cache
        .upload(&wanted(&image), whole(&wrong), &mut body(&wrong))
        .await;
    let Err(ImageUploadError::Mismatch(why)) = outcome else {
        panic!("{outcome:?}");
    };
    for digest in [sha256(&image), sha256(&wrong)] {
        assert!(why.contains(&digest.to_string()), "{why}");
    }
    expect_no_files(&scratch.0.join("cache")).await;
    // The right file is accepted at once.
    let outcome = cache
        .upload(&wanted(&image), whole(&image), &mut body(&image))
        .await;
    assert_eq!(outcome, Ok(image.len() as u64));
}

#[tokio::test]
async fn bit_rot_without_a_source_is_never_served_and_needs_an_upload() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let first = cache(&scratch);
    let outcome = first
        .upload(&wanted(&image), whole(&image), &mut body(&image))
        .await;
    assert_eq!(outcome, Ok(image.len() as u64));
    drop(first);
    let key = wanted(&image).key();
    let path = scratch.0.join(format!("cache/{key}.whole"));
    flip_byte(&path, 2 * CHUNK_BYTES + 5);
    let second = cache(&scratch);
    let (got, why) = read(second.reader(&wanted(&image)).unwrap())
        .await
        .unwrap_err();
    assert!(got.len() <= 2 * CHUNK, "{}", got.len());
    assert!(why.contains("upload it again"), "{why}");
    assert!(!path.exists());
    let offer = from(&image, 2 * CHUNK);
    let outcome = second
        .upload(&wanted(&image), offer, &mut body(&image[2 * CHUNK..]))
        .await;
    assert_eq!(outcome, Ok(image.len() as u64));
}

#[tokio::test]
async fn an_upload_without_space_is_refused_before_its_body() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let ways = BenchOptions {
        quota_bytes: Some(image.len() as u64 - 1),
        ..BenchOptions::plain(DaemonClock::start())
    };
    let cache = CacheBench::open(&scratch.0.join("cache"), ways, Box::new(|_| {})).unwrap();
    let (_send, mut fed) = channel_body();
    let outcome = cache.upload(&wanted(&image), whole(&image), &mut fed).await;
    assert!(
        matches!(&outcome, Err(ImageUploadError::NoSpace(why)) if why.contains("images.quota_gib")),
        "{outcome:?}"
    );
    expect_no_files(&scratch.0.join("cache")).await;
}

#[tokio::test]
async fn an_image_that_is_removed_while_it_is_uploaded_leaves_nothing() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let cache = cache(&scratch);
    let (send, mut fed) = channel_body();
    let (shared, wanted) = (cache.clone(), wanted(&image));
    let (ours, offer) = (wanted.clone(), whole(&image));
    let upload = tokio::spawn(async move { shared.upload(&ours, offer, &mut fed).await });
    let (first, rest) = image.split_at(2 * CHUNK);
    send.send(Bytes::copy_from_slice(first)).await.unwrap();
    // The upload holds its slot once it has received this.
    drop(send.reserve().await.unwrap());
    let mut reader = cache.reader(&wanted).unwrap();
    reader.readable(0).await.unwrap();
    cache.drop_image(wanted.key());
    let _ = send.send(Bytes::copy_from_slice(rest)).await;
    assert!(upload.await.unwrap().is_err());
    expect_no_files(&scratch.0.join("cache")).await;
}

/// A source was added later, or the same bytes are requested from another source.
#[tokio::test]
async fn a_broken_upload_is_finished_from_a_source() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let source = FakeImageSource::new(SourceBehaviour::plain(image.clone())).await;
    let cache = cache(&scratch);
    cut(&cache, &image, 2 * CHUNK + 777).await;
    let wanted = ImageSpec {
        sources: vec![format!("http://{}/up.raw", source.address)],
        ..wanted(&image)
    };
    let reader = cache.reader(&wanted).unwrap();
    assert!(read(reader).await.unwrap() == image);
    let sent = source.sent.load(Ordering::SeqCst);
    assert_eq!(sent, image.len() as u64 - 2 * CHUNK_BYTES);
}

#[tokio::test]
async fn an_upload_without_space_keeps_the_bytes_of_an_earlier_one() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let cache = cache(&scratch);
    cut(&cache, &image, 2 * CHUNK + 5).await;
    let offer = ImageUploadRange {
        size: 1 << 43,
        ..whole(&image)
    };
    let outcome = cache
        .upload(&wanted(&image), offer, &mut body(&image))
        .await;
    assert!(
        matches!(&outcome, Err(ImageUploadError::NoSpace(_))),
        "{outcome:?}"
    );
    let have = 2 * CHUNK;
    let rest = cache
        .upload(
            &wanted(&image),
            from(&image, have),
            &mut body(&image[have..]),
        )
        .await;
    assert_eq!(rest, Ok(image.len() as u64));
}

#[tokio::test]
async fn the_only_copy_of_an_image_is_not_evicted() {
    let (scratch, image) = (TestbedDirectory::new(), sample());
    let ways = BenchOptions {
        quota_bytes: Some(image.len() as u64 + CHUNK_BYTES),
        ..BenchOptions::plain(DaemonClock::start())
    };
    let cache = CacheBench::open(&scratch.0.join("cache"), ways, Box::new(|_| {})).unwrap();
    let ours = wanted(&image);
    let took = cache.upload(&ours, whole(&image), &mut body(&image)).await;
    assert_eq!(took, Ok(image.len() as u64));
    let (other, _) = of_bytes(&scratch, "other.raw", 7);
    let (_, why) = read(cache.reader(&other).unwrap()).await.unwrap_err();
    assert!(why.contains("unpin or remove one of: up.raw"), "{why}");
    assert!(read(cache.reader(&ours).unwrap()).await.unwrap() == image);
}
