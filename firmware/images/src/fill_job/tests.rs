//! Jobs with a shell that reports what a test sets.

use super::*;

const CHUNK: u64 = CHUNK_BYTES;
const SIZE: u64 = 3 * CHUNK + 5;
const RIGHT: Digest = Digest::Sha256([1; 32]);
const WRONG: Digest = Digest::Sha256([2; 32]);

fn spec(sources: &[&str]) -> ImageSpec {
    ImageSpec {
        name: "disk.raw".to_owned(),
        digest: RIGHT,
        sources: sources.iter().map(|&url| url.to_owned()).collect(),
        format: ImageFormat::Raw,
    }
}

fn stored(sources: &[&str], size: Option<u64>, whole: bool) -> ImageMetadata {
    ImageMetadata {
        size,
        whole,
        validator: Some("\"one\"".to_owned()),
        ..ImageMetadata::new(&spec(sources))
    }
}

fn head(status: u16, from: u64, validator: &str) -> ImageFillResult {
    ImageFillResult::Responded(Ok(ImageSourceHead {
        status,
        length: Some(SIZE - from),
        range: (status == 206).then_some((from, Some(SIZE))),
        validator: Some(validator.to_owned()),
    }))
}

fn ended(bytes: u64, end: ImageBodyEnd) -> ImageFillResult {
    ImageFillResult::BodyEnded { bytes, end }
}

fn cut(bytes: u64) -> ImageFillResult {
    ended(bytes, ImageBodyEnd::Interrupted("disconnected".to_owned()))
}

fn checked(check: StoredImageCheck) -> ImageFillResult {
    ImageFillResult::Checked(check)
}

fn nothing_stored() -> ImageFillResult {
    checked(StoredImageCheck::Partial { chunks: 0 })
}

/// A job, and its present order.
struct Bench {
    job: ImageFillJob,
    order: ImageFillOrder,
}

impl Bench {
    fn new(metadata: ImageMetadata) -> Self {
        let (job, order) = ImageFillJob::start(metadata);
        Self { job, order }
    }

    /// A fill from nothing that waits for the response of its first request.
    fn requesting(sources: &[&str]) -> Self {
        let mut bench = Self::new(ImageMetadata::new(&spec(sources)));
        bench.give(nothing_stored());
        bench.give_done_until_request();
        bench
    }

    fn give(&mut self, result: ImageFillResult) -> &ImageFillOrder {
        self.order = self.job.handle(result);
        &self.order
    }

    /// Carries out orders that need nothing but success.
    fn give_done_until_request(&mut self) -> ImageSourceRequest {
        for _ in 0..50 {
            match &self.order {
                ImageFillOrder::Request(request) => return request.clone(),
                ImageFillOrder::StartHashing { .. }
                | ImageFillOrder::Restart { .. }
                | ImageFillOrder::Wait { .. }
                | ImageFillOrder::AwaitWindow => self.give(ImageFillResult::Done),
                other => panic!("{other:?}"),
            };
        }
        panic!("no request: {:?}", self.order);
    }

    /// Answers a request, up to the order to receive.
    #[track_caller]
    fn respond(&mut self, response: ImageFillResult) -> (u64, Option<u64>) {
        self.give(response);
        for _ in 0..5 {
            match self.order {
                ImageFillOrder::Receive { skip, bytes_max } => return (skip, bytes_max),
                ImageFillOrder::Reserve { .. }
                | ImageFillOrder::SaveMetadata(_)
                | ImageFillOrder::Restart { .. } => self.give(ImageFillResult::Done),
                ref other => panic!("{other:?}"),
            };
        }
        panic!("{:?}", self.order);
    }

    #[track_caller]
    fn error(&self) -> &ImageFillError {
        match &self.order {
            ImageFillOrder::End(Err(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn is_right(&mut self) {
        assert_eq!(self.order, ImageFillOrder::MarkWhole { size: SIZE });
        self.give(ImageFillResult::Done);
        assert_eq!(self.order, ImageFillOrder::ReadMagic);
        self.give(ImageFillResult::Magic { is_qcow2: false });
        assert_eq!(self.order, ImageFillOrder::End(Ok(())));
    }
}

#[test]
fn an_image_is_complete_only_after_its_digest() {
    let mut bench = Bench::requesting(&["http://a"]);
    assert_eq!(bench.respond(head(200, 0, "\"one\"")), (0, Some(SIZE)));
    bench.give(ended(SIZE, ImageBodyEnd::Complete));
    assert_eq!(bench.order, ImageFillOrder::FinishHashing);
    bench.give(ImageFillResult::Hashed(RIGHT));
    bench.is_right();
}

#[test]
fn size_and_validator_are_stored_before_bytes_are_received() {
    let mut bench = Bench::requesting(&["http://a"]);
    bench.give(head(200, 0, "\"one\""));
    assert_eq!(bench.order, ImageFillOrder::Reserve { bytes: SIZE });
    bench.give(ImageFillResult::Done);
    let ImageFillOrder::SaveMetadata(metadata) = &bench.order else {
        panic!("{:?}", bench.order);
    };
    assert_eq!(metadata.size, Some(SIZE));
    assert_eq!(metadata.validator.as_deref(), Some("\"one\""));
}

#[test]
fn a_verified_file_needs_no_source() {
    let mut bench = Bench::new(stored(&[], Some(SIZE), true));
    let (size, whole) = (Some(SIZE), true);
    assert_eq!(bench.order, ImageFillOrder::Verify { size, whole });
    bench.give(checked(StoredImageCheck::Valid));
    bench.give(ImageFillResult::Magic { is_qcow2: false });
    assert_eq!(bench.order, ImageFillOrder::End(Ok(())));
    assert!(bench.job.take_reports().is_empty());
}

#[test]
fn a_partial_file_is_continued_where_its_chunks_end() {
    let mut bench = Bench::new(stored(&["http://a"], Some(SIZE), false));
    bench.give(checked(StoredImageCheck::Partial { chunks: 2 }));
    assert_eq!(bench.order, ImageFillOrder::StartHashing { chunks: 2 });
    let request = bench.give_done_until_request();
    assert_eq!(request.from, 2 * CHUNK);
    assert_eq!(request.if_range.as_deref(), Some("\"one\""));
    let rest = SIZE - 2 * CHUNK;
    assert_eq!(
        bench.respond(head(206, 2 * CHUNK, "\"one\"")),
        (0, Some(rest))
    );
    bench.give(ended(rest, ImageBodyEnd::Complete));
    bench.give(ImageFillResult::Hashed(RIGHT));
    bench.is_right();
}

#[test]
fn a_source_that_ignores_ranges_is_skipped_to_the_missing_bytes() {
    let mut bench = Bench::new(stored(&["http://a"], Some(SIZE), false));
    bench.give(checked(StoredImageCheck::Partial { chunks: 1 }));
    bench.give_done_until_request();
    let receive = bench.respond(head(200, 0, "\"one\""));
    assert_eq!(receive, (CHUNK, Some(SIZE - CHUNK)));
}

#[test]
fn a_cut_connection_is_continued_from_the_received_byte() {
    let mut bench = Bench::requesting(&["http://a"]);
    bench.respond(head(200, 0, "\"one\""));
    assert_eq!(bench.job.handle_received(CHUNK), None);
    bench.give(cut(7));
    let request = bench.give_done_until_request();
    assert_eq!(request.from, CHUNK + 7);
}

#[test]
fn another_file_at_the_source_disconnects_the_readers() {
    let mut bench = Bench::requesting(&["http://a"]);
    bench.respond(head(200, 0, "\"one\""));
    bench.give(cut(CHUNK));
    bench.give_done_until_request();
    bench.give(head(200, 0, "\"two\""));
    assert!(
        matches!(&bench.order, ImageFillOrder::Restart { why } if why.contains("another file"))
    );
    // The response that showed it is the new file.
    bench.give(ImageFillResult::Done);
    assert_eq!(bench.order, ImageFillOrder::Reserve { bytes: SIZE });
}

#[test]
fn a_wrong_file_in_parts_is_fetched_once_more_in_one_piece() {
    let mut bench = Bench::new(stored(&["http://a"], Some(SIZE), false));
    bench.give(checked(StoredImageCheck::Partial { chunks: 1 }));
    bench.give_done_until_request();
    bench.respond(head(206, CHUNK, "\"one\""));
    bench.give(ended(SIZE - CHUNK, ImageBodyEnd::Complete));
    bench.give(ImageFillResult::Hashed(WRONG));
    assert!(matches!(bench.order, ImageFillOrder::Restart { .. }));
    assert_eq!(bench.give_done_until_request().from, 0);
    bench.respond(head(200, 0, "\"one\""));
    bench.give(ended(SIZE, ImageBodyEnd::Complete));
    bench.give(ImageFillResult::Hashed(WRONG));
    // The job ends only after the wrong bytes are dropped.
    assert!(matches!(bench.order, ImageFillOrder::Restart { .. }));
    bench.give(ImageFillResult::Done);
    assert!(bench.error().is_wrong_image());
}

#[test]
fn the_next_source_is_used_when_one_is_wrong() {
    let mut bench = Bench::requesting(&["http://a", "http://b"]);
    bench.respond(head(200, 0, "\"one\""));
    bench.give(ended(SIZE, ImageBodyEnd::Complete));
    bench.give(ImageFillResult::Hashed(WRONG));
    assert_eq!(bench.give_done_until_request().url, "http://b");
}

#[test]
fn sources_that_fail_are_given_up() {
    let mut bench = Bench::requesting(&["http://a"]);
    let away = ImageFillResult::Responded(Err("is away".to_owned()));
    let mut requests = 0;
    while let ImageFillOrder::Request(_) = bench.order {
        requests += 1;
        bench.give(away.clone());
        while matches!(
            bench.order,
            ImageFillOrder::Wait { .. } | ImageFillOrder::AwaitWindow
        ) {
            bench.give(ImageFillResult::Done);
        }
    }
    assert_eq!(requests, 5);
    assert!(matches!(
        bench.error(),
        ImageFillError::SourceUnreachable { .. }
    ));
}

#[test]
fn more_bytes_than_announced_count_as_a_failure_of_the_source() {
    let mut bench = Bench::requesting(&["http://a"]);
    bench.respond(head(200, 0, "\"one\""));
    bench.give(ended(CHUNK, ImageBodyEnd::TooLong));
    assert_eq!(bench.give_done_until_request().from, CHUNK);
}

#[test]
fn a_removed_image_ends_its_job() {
    let mut bench = Bench::requesting(&["http://a"]);
    bench.respond(head(200, 0, "\"one\""));
    bench.give(ended(5, ImageBodyEnd::Removed));
    assert!(matches!(bench.error(), ImageFillError::Removed { .. }));
}

#[test]
fn no_space_and_a_failed_disk_end_the_job_with_their_sentence() {
    let mut bench = Bench::requesting(&["http://a"]);
    bench.give(head(200, 0, "\"one\""));
    bench.give(ImageFillResult::NoSpace("unpin one".to_owned()));
    let error = bench.error().to_string();
    assert!(
        error.contains("unpin one") && error.contains(&SIZE.to_string()),
        "{error}"
    );
    let mut bench = Bench::requesting(&["http://a"]);
    bench.respond(head(200, 0, "\"one\""));
    bench.give(ImageFillResult::DiskFailed("it is full".to_owned()));
    assert!(bench.error().to_string().contains("it is full"));
}

#[test]
fn progress_is_reported_and_an_unknown_size_reserves_space() {
    let mut bench = Bench::requesting(&["http://a"]);
    bench.give(ImageFillResult::Responded(Ok(ImageSourceHead {
        status: 200,
        ..ImageSourceHead::default()
    })));
    let (skip, bytes_max) = (0, None);
    assert_eq!(bench.order, ImageFillOrder::Receive { skip, bytes_max });
    bench.job.take_reports();
    assert_eq!(bench.job.handle_received(REPORT_BYTES - 1), None);
    assert!(bench.job.take_reports().is_empty());
    let reserved = bench.job.handle_received(1);
    assert_eq!(reserved, Some(3 * REPORT_BYTES));
    let reports = bench.job.take_reports();
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].have, REPORT_BYTES);
    // The end of the body is the size.
    bench.give(ended(0, ImageBodyEnd::Complete));
    assert_eq!(bench.order, ImageFillOrder::FinishHashing);
}

#[test]
fn only_bad_chunks_are_fetched_again() {
    let mut bench = Bench::new(stored(&["http://a"], Some(SIZE), true));
    bench.give(checked(StoredImageCheck::Corrupt { bad: vec![1, 3] }));
    let reports = bench.job.take_reports();
    assert_eq!(reports[0].state, ImageState::Corrupt(2));
    for (chunk, to) in [(1, 2 * CHUNK), (3, SIZE)] {
        let ImageFillOrder::FetchChunk {
            chunk: at, request, ..
        } = &bench.order
        else {
            panic!("{:?}", bench.order);
        };
        assert_eq!(
            (*at, request.from, request.to),
            (chunk, chunk * CHUNK, Some(to))
        );
        bench.give(ImageFillResult::Chunk(ChunkFetchResult::Written));
    }
    assert_eq!(bench.order, ImageFillOrder::FlushRepaired { size: SIZE });
    bench.give(ImageFillResult::Done);
    bench.give(ImageFillResult::Magic { is_qcow2: false });
    assert_eq!(bench.order, ImageFillOrder::End(Ok(())));
}

#[test]
fn a_repair_tries_the_next_source_then_waits_then_gives_up() {
    let mut bench = Bench::new(stored(&["http://a", "http://b"], Some(SIZE), true));
    bench.give(checked(StoredImageCheck::Corrupt { bad: vec![0] }));
    let (mut waits, mut urls) = (Vec::new(), Vec::new());
    loop {
        match &bench.order {
            ImageFillOrder::FetchChunk { request, .. } => {
                urls.push(request.url.clone());
                let away = ChunkFetchResult::Unreachable("is away".to_owned());
                bench.give(ImageFillResult::Chunk(away));
            }
            ImageFillOrder::Wait { ms } => {
                waits.push(*ms);
                bench.give(ImageFillResult::Done);
            }
            _ => break,
        }
    }
    assert_eq!(waits, [250, 500, 1000, 2000]);
    assert_eq!((urls.len(), urls[1].as_str()), (10, "http://b"));
    // The file stays marked as complete: its right chunks are not fetched again later.
    assert!(bench.job.metadata().whole);
    assert!(matches!(
        bench.error(),
        ImageFillError::SourceUnreachable { .. }
    ));
}

#[test]
fn without_ranges_the_image_is_fetched_from_the_first_bad_chunk() {
    let mut bench = Bench::new(stored(&["http://a"], Some(SIZE), true));
    bench.give(checked(StoredImageCheck::Corrupt { bad: vec![2] }));
    bench.give(ImageFillResult::Chunk(ChunkFetchResult::NotServed));
    assert_eq!(bench.order, ImageFillOrder::MarkPartial);
    bench.give(ImageFillResult::Done);
    assert_eq!(bench.order, ImageFillOrder::StartHashing { chunks: 2 });
    assert!(!bench.job.metadata().whole);
}

#[test]
fn without_a_source_the_right_chunks_wait_for_an_upload() {
    let check = |bad: &[u64], chunks: u64| {
        let mut bench = Bench::new(stored(&[], Some(SIZE), false));
        bench.give(checked(if bad.is_empty() {
            StoredImageCheck::Partial { chunks }
        } else {
            StoredImageCheck::Corrupt { bad: bad.to_vec() }
        }));
        assert_eq!(bench.order, ImageFillOrder::KeepChunks { chunks });
        bench.give(ImageFillResult::Done);
        bench.error().clone()
    };
    assert!(matches!(check(&[], 0), ImageFillError::NoSource { .. }));
    let partial = check(&[], 2);
    assert!(
        matches!(partial, ImageFillError::UploadIncomplete { have, .. } if have == 2 * CHUNK),
        "{partial}"
    );
    let corrupt = check(&[1, 2], 1);
    assert!(
        matches!(corrupt, ImageFillError::Corrupt { chunks: 2, have, .. } if have == CHUNK),
        "{corrupt}"
    );
}

#[test]
fn qcow2_that_is_declared_raw_is_refused() {
    let mut bench = Bench::new(stored(&[], Some(SIZE), true));
    bench.give(checked(StoredImageCheck::Valid));
    bench.give(ImageFillResult::Magic { is_qcow2: true });
    assert!(bench.error().is_wrong_image());
    let mut packed = stored(&[], Some(SIZE), true);
    packed.spec.format = ImageFormat::Qcow2;
    let mut bench = Bench::new(packed);
    bench.give(checked(StoredImageCheck::Valid));
    assert_eq!(bench.order, ImageFillOrder::End(Ok(())));
}

#[test]
fn a_result_of_another_order_ends_the_job() {
    let mut bench = Bench::requesting(&["http://a"]);
    bench.give(ImageFillResult::Hashed(RIGHT));
    assert!(bench.error().to_string().contains("does not belong"));
}

/// A random number below `below`, from a seed.
fn random(seed: &mut u64, below: u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

/// A result that a shell with failing disks and sources may give to an order. `right` becomes
/// true when the bytes were proven to be right, false when they change.
fn any_result(seed: &mut u64, order: &ImageFillOrder, right: &mut bool) -> ImageFillResult {
    if random(seed, 40) == 0 {
        return ImageFillResult::DiskFailed("input/output error".to_owned());
    }
    match order {
        ImageFillOrder::Verify { .. } => checked(match random(seed, 3) {
            0 => {
                *right = true;
                StoredImageCheck::Valid
            }
            1 => StoredImageCheck::Corrupt {
                bad: vec![random(seed, 4)],
            },
            _ => StoredImageCheck::Partial {
                chunks: random(seed, 4),
            },
        }),
        ImageFillOrder::FetchChunk { .. } => ImageFillResult::Chunk(match random(seed, 3) {
            0 => {
                *right = true;
                ChunkFetchResult::Written
            }
            1 => ChunkFetchResult::NotServed,
            _ => ChunkFetchResult::Unreachable("is away".to_owned()),
        }),
        ImageFillOrder::Request(request) => match random(seed, 4) {
            0 => ImageFillResult::Responded(Err("is away".to_owned())),
            1 => head(206, request.from, "\"one\""),
            2 => head(200, 0, "\"two\""),
            _ => head(404, 0, ""),
        },
        ImageFillOrder::Reserve { .. } if random(seed, 10) == 0 => {
            ImageFillResult::NoSpace("unpin one".to_owned())
        }
        ImageFillOrder::Receive { bytes_max, .. } => {
            let bytes_max = bytes_max.unwrap_or(SIZE);
            match random(seed, 5) {
                0 => cut(random(seed, bytes_max + 1)),
                1 => ended(bytes_max, ImageBodyEnd::TooLong),
                2 => ended(random(seed, bytes_max + 1), ImageBodyEnd::Complete),
                _ => ended(bytes_max, ImageBodyEnd::Complete),
            }
        }
        ImageFillOrder::FinishHashing => {
            *right = random(seed, 2) == 0;
            ImageFillResult::Hashed(if *right { RIGHT } else { WRONG })
        }
        ImageFillOrder::ReadMagic => ImageFillResult::Magic { is_qcow2: false },
        _ => ImageFillResult::Done,
    }
}

#[test]
fn whatever_fails_a_job_ends_and_succeeds_only_with_the_right_bytes() {
    let (mut succeeded, mut failed) = (0, 0);
    for start in 0..2_000 {
        let mut seed = start;
        let (mut right, mut orders) = (false, 0);
        let mut bench = Bench::new(stored(&["http://a", "http://b"], Some(SIZE), true));
        while !matches!(bench.order, ImageFillOrder::End(_)) {
            let order = bench.order.clone();
            if matches!(order, ImageFillOrder::Restart { .. }) {
                right = false;
            }
            bench.give(any_result(&mut seed, &order, &mut right));
            orders += 1;
            assert!(orders < 400, "seed {start} goes on: {:?}", bench.order);
        }
        if bench.order == ImageFillOrder::End(Ok(())) {
            assert!(right, "seed {start} succeeded without the right bytes");
            succeeded += 1;
        } else {
            failed += 1;
        }
    }
    assert!(succeeded > 200 && failed > 200, "{succeeded}, {failed}");
}
