use super::*;
use crate::testing::MemoryDisk;

/// An image of five chunks: data, zeros, zeros, data, and a short one.
fn image() -> Vec<u8> {
    let mut image: Vec<u8> = (0..5 * CHUNK - 700)
        .map(|at| (at * 131 % 249) as u8)
        .collect();
    image[CHUNK..3 * CHUNK].fill(0);
    image
}

fn digest_of(image: &[u8]) -> Digest {
    let mut running = IncrementalDigest::new(DigestAlgorithm::Sha256);
    running.update(image);
    running.finish()
}

fn listed(image: &[u8]) -> ExpectedImage {
    let digest = digest_of(image);
    let mut running = IncrementalDigest::new(DigestAlgorithm::Sha256);
    let mut list = ChunkList::new(&digest);
    for chunk in image.chunks(CHUNK) {
        running.update(chunk);
        if running.bytes() < image.len() as u64 {
            list.push(running.state().unwrap());
        }
    }
    ExpectedImage {
        digest,
        size: Some(image.len() as u64),
        chunks: Some(list),
    }
}

fn unlisted(image: &[u8]) -> ExpectedImage {
    ExpectedImage {
        digest: digest_of(image),
        size: None,
        chunks: None,
    }
}

fn both(image: &[u8]) -> [ExpectedImage; 2] {
    [listed(image), unlisted(image)]
}

#[test]
fn the_disk_has_the_image_and_zero_chunks_are_not_written() {
    let image = image();
    for expected in both(&image) {
        let mut disk = MemoryDisk::filled(8 * CHUNK, 0xee);
        let mut writer = ImageWriter::begin(&mut disk, expected).unwrap();
        for piece in image.chunks(70_001) {
            writer.push(piece).unwrap();
        }
        assert_eq!(writer.progress().bytes, 4 * CHUNK_BYTES);
        let report = writer.finish(ReadBackCheck::Everything).unwrap();
        assert_eq!(report.bytes, image.len() as u64);
        assert_eq!(report.zero_bytes, 2 * CHUNK_BYTES);
        assert_eq!(report.read_back_chunks, 5);
        assert_eq!(disk.data[..image.len()], image);
        // Three chunks with data; both ends and the zeros.
        assert_eq!(disk.written, 3 * CHUNK_BYTES - 512);
        assert_eq!(disk.zeroed, 4 * CHUNK_BYTES);
        assert_eq!(disk.data[6 * CHUNK], 0xee, "beyond the image");
        assert!(disk.flushes >= 3);
    }
}

#[test]
fn a_reader_is_written_without_a_copy() {
    let image = image();
    let mut disk = MemoryDisk::filled(8 * CHUNK, 0xee);
    let mut writer = ImageWriter::begin(&mut disk, listed(&image)).unwrap();
    writer.write_from(&mut &image[..]).unwrap();
    writer.finish(ReadBackCheck::Samples).unwrap();
    assert_eq!(disk.data[..image.len()], image);
}

#[test]
fn nothing_boots_before_the_end() {
    let image = image();
    for expected in both(&image) {
        let mut disk = MemoryDisk::filled(8 * CHUNK, 0xee);
        let mut writer = ImageWriter::begin(&mut disk, expected).unwrap();
        writer.push(&image[..4 * CHUNK]).unwrap();
        drop(writer);
        assert!(are_zeros(&disk.data[..CHUNK]), "the start");
        assert!(are_zeros(&disk.data[7 * CHUNK..]), "the end");
    }
}

#[test]
fn a_corrupted_chunk_is_named_and_not_written_and_the_writer_continues() {
    let image = image();
    let mut bad = image.clone();
    bad[3 * CHUNK + 5] ^= 1;
    let mut disk = MemoryDisk::filled(8 * CHUNK, 0xee);
    let mut writer = ImageWriter::begin(&mut disk, listed(&image)).unwrap();
    let error = writer.push(&bad).unwrap_err();
    let at = 3 * CHUNK_BYTES;
    assert_eq!(error, ImageWriteError::CorruptedChunk { chunk: 3, at });
    assert_eq!(writer.resume_at(), at);
    assert_eq!(writer.progress().corrupted_chunks, 1);
    writer.push(&image[3 * CHUNK..]).unwrap();
    writer.finish(ReadBackCheck::Everything).unwrap();
    assert_eq!(disk.data[..image.len()], image);
}

#[test]
fn without_a_list_a_wrong_image_is_found_at_the_end_and_does_not_boot() {
    let image = image();
    let mut bad = image.clone();
    bad[3 * CHUNK + 5] ^= 1;
    let mut disk = MemoryDisk::filled(8 * CHUNK, 0xee);
    let mut writer = ImageWriter::begin(&mut disk, unlisted(&image)).unwrap();
    writer.push(&bad).unwrap();
    let error = writer.finish(ReadBackCheck::Nothing).unwrap_err();
    let (want, got) = (Box::new(digest_of(&image)), Box::new(digest_of(&bad)));
    assert_eq!(error, ImageWriteError::Checksum { want, got });
    assert!(are_zeros(&disk.data[..CHUNK]));
}

#[test]
fn a_cut_is_resumed_at_the_last_whole_chunk() {
    let image = image();
    for expected in both(&image) {
        let mut disk = MemoryDisk::filled(8 * CHUNK, 0xee);
        let mut writer = ImageWriter::begin(&mut disk, expected).unwrap();
        writer.push(&image[..CHUNK + 1000]).unwrap();
        assert_eq!(writer.resume_at(), CHUNK_BYTES);
        writer.push(&image[CHUNK..]).unwrap();
        writer.finish(ReadBackCheck::Everything).unwrap();
        assert_eq!(disk.data[..image.len()], image);
    }
}

#[test]
fn an_image_that_ends_early_or_late_is_refused() {
    let image = image();
    let size = image.len() as u64;
    let mut disk = MemoryDisk::filled(8 * CHUNK, 0xee);
    let mut writer = ImageWriter::begin(&mut disk, listed(&image)).unwrap();
    writer.push(&image[..=CHUNK]).unwrap();
    let error = writer.finish(ReadBackCheck::Nothing).unwrap_err();
    let at = CHUNK_BYTES + 1;
    let size_known = Some(size);
    assert_eq!(
        error,
        ImageWriteError::Cut {
            at,
            size: size_known
        }
    );
    assert!(error.to_string().contains(&format!("of {size}")), "{error}");
    let mut writer = ImageWriter::begin(&mut disk, listed(&image)).unwrap();
    writer.push(&image[..image.len() - 1]).unwrap();
    assert_eq!(writer.push(&[1, 2]), Err(ImageWriteError::TooLong { size }));
    let mut broken = std::io::Read::chain(&image[..10], BrokenReader);
    let mut writer = ImageWriter::begin(&mut disk, unlisted(&image)).unwrap();
    let error = writer.write_from(&mut broken).unwrap_err();
    assert_eq!(error, ImageWriteError::Cut { at: 10, size: None });
}

struct BrokenReader;

impl std::io::Read for BrokenReader {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::ConnectionReset.into())
    }
}

#[test]
fn a_small_disk_is_refused_before_or_when_the_image_is_too_long() {
    let image = image();
    let mut disk = MemoryDisk::filled(4 * CHUNK, 0xee);
    let too_small = |needed_bytes| {
        ImageWriteError::Disk(TargetDiskError::TooSmall {
            needed_bytes,
            disk_bytes: 4 * CHUNK_BYTES,
        })
    };
    let refused = ImageWriter::begin(&mut disk, listed(&image)).err();
    assert_eq!(refused, Some(too_small(image.len() as u64)));
    assert!(
        disk.data.iter().all(|&byte| byte == 0xee),
        "nothing was changed"
    );
    let mut writer = ImageWriter::begin(&mut disk, unlisted(&image)).unwrap();
    writer.push(&image).unwrap();
    let error = writer.finish(ReadBackCheck::Nothing).unwrap_err();
    assert_eq!(error, too_small(image.len() as u64));
}

#[test]
fn errors_of_the_disk_are_named() {
    let image = image();
    let mut disk = MemoryDisk::filled(8 * CHUNK, 0);
    disk.is_read_only = true;
    let refused = ImageWriter::begin(&mut disk, listed(&image)).err();
    assert_eq!(refused, Some(TargetDiskError::ReadOnly.into()));
    let mut disk = MemoryDisk::filled(8 * CHUNK, 0);
    disk.fails_at = Some(3 * CHUNK_BYTES + 77);
    let mut writer = ImageWriter::begin(&mut disk, listed(&image)).unwrap();
    let error = writer.push(&image).unwrap_err();
    assert!(
        matches!(
            error,
            ImageWriteError::Disk(TargetDiskError::Failed { at: 3_145_728, .. })
        ),
        "{error}"
    );
    let mut disk = MemoryDisk::filled(8 * CHUNK, 0);
    disk.is_removed = true;
    let error = ImageWriter::begin(&mut disk, listed(&image)).err().unwrap();
    assert!(error.to_string().contains("the disk is gone"), "{error}");
}

#[test]
fn a_disk_that_stores_other_bytes_is_found_by_reading_back() {
    let image = image();
    for expected in both(&image) {
        let mut disk = MemoryDisk::filled(8 * CHUNK, 0);
        disk.rots_at = Some(3 * CHUNK_BYTES + 77);
        for check in [ReadBackCheck::Samples, ReadBackCheck::Everything] {
            let mut writer = ImageWriter::begin(&mut disk, expected.clone()).unwrap();
            writer.push(&image).unwrap();
            let error = writer.finish(check).unwrap_err();
            assert!(matches!(error, ImageWriteError::ReadBack { .. }), "{error}");
        }
        let mut writer = ImageWriter::begin(&mut disk, expected).unwrap();
        writer.push(&image).unwrap();
        writer.finish(ReadBackCheck::Nothing).unwrap();
    }
}

#[test]
fn an_empty_image_and_one_of_zeros_are_written() {
    let zeros = vec![0; 3 * CHUNK];
    for image in [&[][..], &zeros[..]] {
        for expected in both(image) {
            let mut disk = MemoryDisk::filled(8 * CHUNK, 0xee);
            let mut writer = ImageWriter::begin(&mut disk, expected).unwrap();
            writer.push(image).unwrap();
            let report = writer.finish(ReadBackCheck::Everything).unwrap();
            assert_eq!(report.zero_bytes, image.len() as u64);
            assert_eq!(disk.written, 0);
            assert!(are_zeros(&disk.data[..image.len()]));
        }
    }
}

#[test]
fn a_list_that_is_not_complete_is_refused() {
    let image = image();
    let mut expected = listed(&image);
    expected.size = None;
    let mut disk = MemoryDisk::filled(8 * CHUNK, 0);
    let refused = ImageWriter::begin(&mut disk, expected).err();
    assert_eq!(refused, Some(ImageWriteError::BadList));
    let mut expected = listed(&image);
    expected.chunks.as_mut().unwrap().truncate(1);
    let refused = ImageWriter::begin(&mut disk, expected).err();
    assert_eq!(refused, Some(ImageWriteError::BadList));
}

#[test]
fn sectors_of_4_kib_are_written_whole() {
    let image = image();
    let mut disk = MemoryDisk::filled(8 * CHUNK, 0xee);
    disk.sector_bytes = 4096;
    let mut writer = ImageWriter::begin(&mut disk, listed(&image)).unwrap();
    writer.push(&image).unwrap();
    writer.finish(ReadBackCheck::Everything).unwrap();
    assert_eq!(disk.data[..image.len()], image);
}

/// A disk with the image written ahead, and what remains to be written.
fn ahead(image: &[u8]) -> (MemoryDisk, ImageWrittenAhead) {
    let mut disk = MemoryDisk::filled(8 * CHUNK, 0xee);
    let mut writer = ImageWriter::begin(&mut disk, listed(image)).unwrap();
    writer.push(image).unwrap();
    let rest = writer.finish_ahead().unwrap();
    (disk, rest)
}

#[test]
fn an_image_written_ahead_does_not_boot_until_it_is_finished() {
    let mut zero_head = image();
    zero_head[..CHUNK].fill(0);
    for image in [image(), zero_head, image()[..900].to_vec()] {
        let (mut disk, rest) = ahead(&image);
        assert!(disk.data[..CHUNK].iter().all(|&byte| byte == 0));
        if image.len() > CHUNK {
            assert_eq!(disk.data[CHUNK..image.len()], image[CHUNK..]);
        }
        let before = disk.written;
        let report = finish_written(&mut disk, &rest).unwrap();
        assert_eq!(disk.data[..image.len()], image);
        assert_eq!(
            (report.bytes, report.digest),
            (rest.size, digest_of(&image))
        );
        let written = disk.written - before;
        assert!(written <= CHUNK_BYTES, "only the first chunk: {written}");
    }
}

#[test]
fn a_chunk_that_changed_since_it_was_written_ahead_is_found_and_nothing_is_made_bootable() {
    let image = image();
    for chunk in 1..5 {
        let (mut disk, rest) = ahead(&image);
        disk.data[chunk * CHUNK + 9] ^= 1;
        let error = finish_written(&mut disk, &rest).unwrap_err();
        let at = chunk as u64 * CHUNK_BYTES;
        assert_eq!(error, ImageWriteError::ReadBack { at });
        assert!(disk.data[..CHUNK].iter().all(|&byte| byte == 0));
    }
    let (mut disk, mut rest) = ahead(&image);
    rest.head[7] ^= 1;
    let error = finish_written(&mut disk, &rest).unwrap_err();
    assert_eq!(error, ImageWriteError::CorruptedChunk { chunk: 0, at: 0 });
}

#[test]
fn an_image_without_a_chunk_list_is_not_written_ahead() {
    let image = image();
    let mut disk = MemoryDisk::filled(8 * CHUNK, 0xee);
    let mut writer = ImageWriter::begin(&mut disk, unlisted(&image)).unwrap();
    writer.push(&image).unwrap();
    assert_eq!(writer.finish_ahead().unwrap_err(), ImageWriteError::BadList);
    // Cut off: it is not complete.
    let mut writer = ImageWriter::begin(&mut disk, listed(&image)).unwrap();
    writer.push(&image[..2 * CHUNK]).unwrap();
    let error = writer.finish_ahead().unwrap_err();
    assert!(matches!(error, ImageWriteError::Cut { .. }), "{error}");
}
