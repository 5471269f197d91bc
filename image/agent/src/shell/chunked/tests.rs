use super::super::disk::tests::{ScratchDiskFile, image, sha256};
use super::*;

const CHUNK: usize = CHUNK_BYTES as usize;

/// An image of four chunks, the last of them short, and its list.
fn sample() -> (Vec<u8>, Arc<ChunkedImage>) {
    let image = image(3 * CHUNK + 777);
    let digest = sha256(&image);
    let mut list = ChunkList::new(&digest);
    let mut running = list.digest_before(0).unwrap();
    for chunk in image.chunks(CHUNK).take(3) {
        running.update(chunk);
        list.push(running.state().unwrap());
    }
    let size = image.len() as u64;
    let wanted = ChunkedImage { list, size, digest };
    (image, Arc::new(wanted))
}

fn part(image: &[u8], wanted: &ChunkedImage, chunk: u64) -> Bytes {
    let place = wanted.byte_range(chunk);
    Bytes::copy_from_slice(&image[place.start as usize..place.end as usize])
}

fn disk(scratch: &ScratchDiskFile) -> AgentTargetDisk {
    AgentTargetDisk::file(scratch.0.clone(), 8 * CHUNK_BYTES)
}

#[tokio::test]
async fn every_chunk_is_checked_and_a_wrong_one_is_not_written() {
    let (scratch, (image, wanted)) = (ScratchDiskFile::new(), sample());
    let disk = disk(&scratch);
    let (mut writer, lacking) = ChunkWriter::begin(&disk, Arc::clone(&wanted), false)
        .await
        .unwrap();
    assert_eq!(lacking, [0, 1, 2, 3]);
    for chunk in [3, 1, 0] {
        let bytes = part(&image, &wanted, chunk);
        assert_eq!(writer.push(chunk, bytes).await, Ok(true));
    }
    let mut bent = part(&image, &wanted, 2).to_vec();
    bent[7] ^= 1;
    assert_eq!(writer.push(2, bent.into()).await, Ok(false));
    let right = part(&image, &wanted, 2);
    let other = part(&image, &wanted, 1);
    assert_eq!(writer.push(2, other).await, Ok(false), "of another place");
    assert_eq!(writer.push(2, right).await, Ok(true));
    let written = writer.finish().await.unwrap();
    assert_eq!(written.digest, wanted.digest);
    assert_eq!(written.disk.root_uuid.as_deref(), Some("0x1a2b3c4d"));
    assert!(scratch.bytes().starts_with(&image));
}

#[tokio::test]
async fn without_all_chunks_nothing_boots() {
    let (scratch, (image, wanted)) = (ScratchDiskFile::new(), sample());
    let disk = disk(&scratch);
    let (mut writer, _) = ChunkWriter::begin(&disk, Arc::clone(&wanted), false)
        .await
        .unwrap();
    for chunk in [0, 1, 3] {
        let bytes = part(&image, &wanted, chunk);
        writer.push(chunk, bytes).await.unwrap();
    }
    let failure = writer.finish().await.unwrap_err();
    let AgentWorkError::Checksum { got, .. } = &failure else {
        panic!("{failure}")
    };
    assert!(got.contains("the first at byte 2097152"), "{got}");
    assert!(scratch.bytes()[..CHUNK].iter().all(|&byte| byte == 0));
}

#[tokio::test]
async fn chunks_on_the_disk_are_not_missing() {
    let (scratch, (image, wanted)) = (ScratchDiskFile::new(), sample());
    let disk = disk(&scratch);
    let mut old = image.clone();
    old.resize(8 * CHUNK, 0);
    old[2 * CHUNK + 5] ^= 1;
    std::fs::write(&scratch.0, &old).unwrap();
    let (mut writer, lacking) = ChunkWriter::begin(&disk, Arc::clone(&wanted), false)
        .await
        .unwrap();
    assert_eq!(lacking, [0, 2], "the head is always written last");
    for chunk in lacking {
        let bytes = part(&image, &wanted, chunk);
        assert_eq!(writer.push(chunk, bytes).await, Ok(true));
    }
    writer.finish().await.unwrap();
    assert!(scratch.bytes().starts_with(&image));
}

#[tokio::test]
async fn an_image_that_is_too_long_is_refused_before_anything_is_touched() {
    let (scratch, (image, wanted)) = (ScratchDiskFile::new(), sample());
    std::fs::write(&scratch.0, &image[..CHUNK]).unwrap();
    let disk = AgentTargetDisk::file(scratch.0.clone(), CHUNK_BYTES);
    let outcome = ChunkWriter::begin(&disk, wanted, false).await;
    assert!(matches!(outcome, Err(AgentWorkError::Write(_))));
    assert!(scratch.bytes() == image[..CHUNK]);
}

#[test]
fn chunks_that_follow_each_other_are_one_request() {
    assert_eq!(runs(&[]), []);
    assert_eq!(runs(&[3, 5]), [3..4, 5..6]);
    assert_eq!(runs(&[0, 1, 2, 5, 7, 8]), [0..3, 5..6, 7..9]);
}
