//! Uploads.

use super::*;

fn own(bytes: &[u8]) -> ImageSpec {
    ImageSpec {
        sources: Vec::new(),
        ..spec("own.raw", bytes)
    }
}

fn range(from: usize, bytes: usize, size: usize) -> ImageUploadRange {
    ImageUploadRange {
        from: from as u64 * SIM_SCALE,
        bytes: bytes as u64 * SIM_SCALE,
        size: size as u64 * SIM_SCALE,
    }
}

fn answer(bench: &mut LibraryBench) -> ImageUploadAnswer {
    for _ in 0..100 {
        if let Some((ticket, answer)) = bench.shell.take_upload_answer() {
            assert_eq!(ticket, 7);
            return answer;
        }
        bench.step();
    }
    panic!("no answer: {:?}", bench.library);
}

fn offer(bench: &mut LibraryBench, spec: &ImageSpec, range: ImageUploadRange) -> ImageUploadAnswer {
    let report = ImageWorkReport::UploadOffered {
        ticket: 7,
        spec: Box::new(spec.clone()),
        range,
    };
    bench.library.handle(bench.now, report);
    bench.pump();
    answer(bench)
}

/// Sends these bytes of the offered ones.
fn upload(
    bench: &mut LibraryBench,
    spec: &ImageSpec,
    range: ImageUploadRange,
    bytes: &[u8],
) -> ImageUploadAnswer {
    match offer(bench, spec, range) {
        ImageUploadAnswer::Receive(entry) => {
            bench.shell.push(bench.now.tick, entry, bytes);
            answer(bench)
        }
        other => other,
    }
}

#[test]
fn an_upload_is_an_image_once_its_digest_is_right() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    let (spec, size) = (own(&bytes), bytes.len());
    let outcome = upload(&mut bench, &spec, range(0, size, size), &bytes);
    assert_eq!(outcome, ImageUploadAnswer::Stored(size as u64 * SIM_SCALE));
    assert_eq!(bench.read_all(&spec), Ok(bytes.clone()));
    let again = upload(&mut bench, &spec, range(0, size, size), &bytes);
    let ImageUploadAnswer::Refused(ImageUploadError::Conflict(why)) = again else {
        panic!("{again:?}");
    };
    assert!(why.contains("already complete"), "{why}");
}

#[test]
fn bytes_before_a_disconnect_are_kept_and_continued_after_a_restart() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    let (spec, size) = (own(&bytes), bytes.len());
    let cut = 2 * CHUNK + 100;
    let outcome = upload(&mut bench, &spec, range(0, size, size), &bytes[..cut]);
    assert!(
        matches!(
            &outcome,
            ImageUploadAnswer::Refused(ImageUploadError::Interrupted(_))
        ),
        "{outcome:?}"
    );
    assert!(bench.read(&spec).unwrap_err().contains("incomplete"));
    let wrong = offer(&mut bench, &spec, range(5, 10, size));
    let ImageUploadAnswer::Refused(ImageUploadError::Conflict(why)) = wrong else {
        panic!("{wrong:?}");
    };
    assert!(why.contains("bytes here; continue from there"), "{why}");
    let mut bench = bench.restarted(options());
    let from = 2 * CHUNK;
    let rest = range(from, size - from, size);
    let outcome = upload(&mut bench, &spec, rest, &bytes[from..]);
    assert_eq!(outcome, ImageUploadAnswer::Stored(size as u64 * SIM_SCALE));
    assert_eq!(bench.read_all(&spec), Ok(bytes));
}

#[test]
fn an_upload_in_parts_is_one() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    let (spec, size) = (own(&bytes), bytes.len());
    let first = range(0, 2 * CHUNK, size);
    let outcome = upload(&mut bench, &spec, first, &bytes[..2 * CHUNK]);
    let part = 2 * CHUNK as u64 * SIM_SCALE;
    assert_eq!(outcome, ImageUploadAnswer::Stored(part));
    let rest = range(2 * CHUNK, size - 2 * CHUNK, size);
    let outcome = upload(&mut bench, &spec, rest, &bytes[2 * CHUNK..]);
    assert_eq!(outcome, ImageUploadAnswer::Stored(size as u64 * SIM_SCALE));
}

#[test]
fn another_file_than_the_digest_says_is_dropped() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    let (spec, size) = (own(&bytes), bytes.len());
    let outcome = upload(&mut bench, &spec, range(0, size, size), &content(9));
    assert!(
        matches!(
            &outcome,
            ImageUploadAnswer::Refused(ImageUploadError::Mismatch(_))
        ),
        "{outcome:?}"
    );
    assert!(bench.library.wrong(&spec).is_some());
    assert_eq!(bench.shell.disk.free_bytes(), 1 << 30);
}

#[test]
fn an_upload_without_space_keeps_the_bytes_of_an_earlier_one() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    let (spec, size) = (own(&bytes), bytes.len());
    upload(
        &mut bench,
        &spec,
        range(0, 2 * CHUNK, size),
        &bytes[..2 * CHUNK],
    );
    bench.library.options.quota_bytes = Some(1000);
    let outcome = offer(&mut bench, &spec, range(0, size, size));
    assert!(
        matches!(
            &outcome,
            ImageUploadAnswer::Refused(ImageUploadError::NoSpace(_))
        ),
        "{outcome:?}"
    );
    bench.library.options.quota_bytes = None;
    let rest = range(2 * CHUNK, size - 2 * CHUNK, size);
    let outcome = upload(&mut bench, &spec, rest, &bytes[2 * CHUNK..]);
    assert_eq!(outcome, ImageUploadAnswer::Stored(size as u64 * SIM_SCALE));
}

#[test]
fn a_full_disk_is_named_and_the_bytes_before_it_are_kept() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    let (spec, size) = (own(&bytes), bytes.len());
    let ImageUploadAnswer::Receive(entry) = offer(&mut bench, &spec, range(0, size, size)) else {
        panic!("the bytes are taken");
    };
    let part = ImageWorkReport::Received {
        entry,
        bytes: 2 * CHUNK as u64 * SIM_SCALE,
    };
    bench.shell.store(entry, &bytes[..2 * CHUNK]);
    bench.library.handle(bench.now, part);
    bench.shell.disk.capacity = 0;
    bench.shell.push(bench.now.tick, entry, &bytes[2 * CHUNK..]);
    let outcome = answer(&mut bench);
    let ImageUploadAnswer::Refused(ImageUploadError::Disk(why)) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(why.contains("disk with the cache is full"), "{why}");
    let Some(ImageState::Failed(why)) = bench.state(&spec) else {
        panic!("{:?}", bench.state(&spec));
    };
    assert!(why.contains("disk with the cache is full"), "{why}");
    bench.shell.disk.capacity = 1 << 30;
    let rest = range(2 * CHUNK, size - 2 * CHUNK, size);
    let outcome = upload(&mut bench, &spec, rest, &bytes[2 * CHUNK..]);
    assert_eq!(outcome, ImageUploadAnswer::Stored(size as u64 * SIM_SCALE));
}

#[test]
fn a_second_client_waits_and_a_removed_image_ends_the_upload() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    let (spec, size) = (own(&bytes), bytes.len());
    let ImageUploadAnswer::Receive(_) = offer(&mut bench, &spec, range(0, size, size)) else {
        panic!("the bytes are taken");
    };
    let second = offer(&mut bench, &spec, range(0, size, size));
    let ImageUploadAnswer::Refused(ImageUploadError::Conflict(why)) = second else {
        panic!("{second:?}");
    };
    assert!(why.contains("another client"), "{why}");
    bench.library.drop_image(bench.now, spec.digest);
    bench.pump();
    let ended = answer(&mut bench);
    assert!(matches!(ended, ImageUploadAnswer::Refused(_)), "{ended:?}");
    assert!(bench.library.images.is_empty());
}

#[test]
fn the_only_copy_of_an_image_is_not_evicted() {
    let bytes = content(1);
    let size = bytes.len() as u64 * SIM_SCALE;
    let mut bench = LibraryBench::new(ImageLibraryOptions {
        quota_bytes: Some(size + size / 2),
        ..options()
    });
    let ours = own(&bytes);
    let whole = range(0, bytes.len(), bytes.len());
    upload(&mut bench, &ours, whole, &bytes);
    let other = content(2);
    let far = spec("far.raw", &other);
    bench.serve(&far, &other);
    let why = bench.read_all(&far).unwrap_err();
    assert!(why.contains("own.raw"), "{why}");
    assert_eq!(bench.read_all(&ours), Ok(bytes));
}

/// One status for each digest let the entries take the state of each other.
#[test]
fn two_entries_of_one_digest_keep_their_own_states() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    let (plain, size) = (own(&bytes), bytes.len());
    let all = ImageUploadAnswer::HasAll(size as u64 * SIM_SCALE);
    upload(&mut bench, &plain, range(0, size, size), &bytes);
    // The same bytes, wrongly declared, are not complete: they are verified in that format.
    let packed = ImageSpec {
        name: "x.qcow2".to_owned(),
        format: ImageFormat::Qcow2,
        ..plain.clone()
    };
    assert_eq!(bench.state(&packed), None);
    let outcome = upload(&mut bench, &packed, range(0, size, size), &bytes);
    assert_eq!(outcome, all);
    bench.run();
    let wrong = bench.state(&packed);
    assert!(matches!(wrong, Some(ImageState::Wrong(_))), "{wrong:?}");
    assert_eq!(bench.state(&plain), Some(ImageState::Complete));
    // Both ways, however often.
    for _ in 0..2 {
        bench.want(&packed, false);
        bench.run();
        assert_eq!(bench.state(&plain), Some(ImageState::Complete));
        assert!(bench.library.wrong(&packed).is_some());
        bench.want(&plain, false);
        bench.run();
        assert_eq!(bench.state(&plain), Some(ImageState::Complete));
        assert!(matches!(bench.state(&packed), Some(ImageState::Wrong(_))));
    }
    assert_eq!(bench.read_all(&plain), Ok(bytes.clone()));
    // After a restart each entry can be requested again.
    bench.want(&packed, false);
    bench.run();
    let mut bench = bench.restarted(options());
    bench.run();
    if bench.state(&plain).is_none() {
        let outcome = upload(&mut bench, &plain, range(0, size, size), &bytes);
        assert_eq!(outcome, all);
        bench.run();
    }
    assert_eq!(bench.state(&plain), Some(ImageState::Complete));
    // The bytes are gone: no entry says that they are here.
    bench.library.drop_image(bench.now, plain.digest);
    bench.pump();
    assert_eq!((bench.state(&plain), bench.state(&packed)), (None, None));
}
