//! Fills from sources that disappear, return, change and deliver wrong bytes.

use super::*;

const SIZE: u64 = 1000;
const RIGHT: Digest = Digest::Sha256([1; 32]);
const WRONG: Digest = Digest::Sha256([2; 32]);

fn wanted(sources: usize) -> ImageSpec {
    ImageSpec {
        name: "disk.raw".into(),
        digest: RIGHT,
        sources: (0..sources)
            .map(|n| format!("http://s{n}/disk.raw"))
            .collect(),
        format: crate::ImageFormat::Raw,
    }
}

fn fill(sources: usize) -> ImageFill {
    ImageFill::new(wanted(sources), 0, None, None)
}

fn whole(validator: Option<&str>) -> ImageSourceHead {
    ImageSourceHead {
        status: 200,
        length: Some(SIZE),
        range: None,
        validator: validator.map(str::to_owned),
    }
}

fn part(from: u64, total: u64, validator: Option<&str>) -> ImageSourceHead {
    ImageSourceHead {
        status: 206,
        length: Some(total - from),
        range: Some((from, Some(total))),
        validator: validator.map(str::to_owned),
    }
}

/// The next request, after any delays.
#[track_caller]
fn next_request(fill: &mut ImageFill) -> ImageSourceRequest {
    loop {
        match fill.next_step() {
            ImageFillStep::Request(request) => return request,
            ImageFillStep::Wait { .. } => {}
            ImageFillStep::GiveUp(failure) => panic!("{failure}"),
        }
    }
}

#[track_caller]
fn gives_up(fill: &mut ImageFill) -> String {
    loop {
        match fill.next_step() {
            ImageFillStep::Request(_) => fill.handle_failure("is away".to_owned()),
            ImageFillStep::Wait { .. } => {}
            ImageFillStep::GiveUp(failure) => return failure.to_string(),
        }
    }
}

#[test]
fn an_image_is_fetched_in_one_piece() {
    let mut fill = fill(1);
    let requested = next_request(&mut fill);
    assert_eq!((requested.from, requested.if_range), (0, None));
    assert_eq!(
        fill.handle_response(&whole(Some("\"a\""))),
        ImageBodyAction::Append
    );
    assert_eq!(fill.size(), Some(SIZE));
    fill.handle_bytes(SIZE);
    assert!(fill.handle_end() && fill.verify_digest(RIGHT).is_ok());
}

#[test]
fn an_interrupted_fill_continues_if_the_file_is_the_same() {
    let mut fill = fill(1);
    next_request(&mut fill);
    fill.handle_response(&whole(Some("\"a\"")));
    fill.handle_bytes(400);
    fill.handle_failure("broke off".to_owned());
    assert!(matches!(fill.next_step(), ImageFillStep::Wait { ms: 250 }));
    let requested = next_request(&mut fill);
    assert_eq!(
        (requested.from, requested.if_range.as_deref()),
        (400, Some("\"a\""))
    );
    assert_eq!(
        fill.handle_response(&part(400, SIZE, Some("\"a\""))),
        ImageBodyAction::Append
    );
    fill.handle_bytes(600);
    assert!(fill.handle_end() && fill.verify_digest(RIGHT).is_ok());
}

#[test]
fn an_early_end_is_an_interruption() {
    let mut fill = fill(1);
    next_request(&mut fill);
    fill.handle_response(&whole(None));
    fill.handle_bytes(999);
    assert!(!fill.handle_end());
    assert_eq!(next_request(&mut fill).from, 999);
}

#[test]
fn another_file_at_the_source_starts_again() {
    for head in [
        whole(Some("\"b\"")),
        ImageSourceHead {
            length: Some(SIZE + 1),
            ..whole(Some("\"a\""))
        },
    ] {
        let mut fill = fill(1);
        next_request(&mut fill);
        fill.handle_response(&whole(Some("\"a\"")));
        fill.handle_bytes(400);
        fill.handle_failure("broke off".to_owned());
        next_request(&mut fill);
        assert_eq!(fill.handle_response(&head), ImageBodyAction::Restart);
        assert_eq!((fill.have(), fill.size()), (0, head.length));
    }
}

#[test]
fn a_part_of_another_file_is_dropped_and_requested_again() {
    for head in [
        part(400, SIZE, Some("\"b\"")),
        part(400, SIZE + 1, Some("\"a\"")),
        ImageSourceHead {
            status: 416,
            ..ImageSourceHead::default()
        },
    ] {
        let mut fill = ImageFill::new(wanted(1), 400, Some(SIZE), Some("\"a\"".to_owned()));
        next_request(&mut fill);
        assert_eq!(fill.handle_response(&head), ImageBodyAction::Discard);
        assert_eq!(fill.have(), 0);
        let requested = next_request(&mut fill);
        assert_eq!((requested.from, requested.if_range), (0, None));
    }
}

#[test]
fn a_source_without_ranges_is_read_from_the_start() {
    let mut fill = ImageFill::new(wanted(1), 400, Some(SIZE), None);
    next_request(&mut fill);
    assert_eq!(
        fill.handle_response(&whole(None)),
        ImageBodyAction::Skip(400)
    );
    fill.handle_bytes(600);
    assert!(fill.handle_end() && fill.verify_digest(RIGHT).is_ok());
}

#[test]
fn a_wrong_digest_of_one_piece_is_the_sources_fault() {
    let mut fill = fill(1);
    next_request(&mut fill);
    fill.handle_response(&whole(None));
    fill.handle_bytes(SIZE);
    assert!(fill.handle_end());
    assert!(fill.verify_digest(WRONG).is_err());
    assert_eq!(fill.have(), 0);
    let message = gives_up(&mut fill);
    for part in [
        "disk.raw",
        "http://s0/disk.raw",
        &RIGHT.to_string(),
        &WRONG.to_string(),
        "1000 bytes",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn a_wrong_digest_of_pieces_is_fetched_once_more_in_one() {
    let mut fill = ImageFill::new(wanted(1), 400, Some(SIZE), None);
    next_request(&mut fill);
    fill.handle_response(&part(400, SIZE, None));
    fill.handle_bytes(600);
    assert!(fill.handle_end() && fill.verify_digest(WRONG).is_err());
    assert_eq!(next_request(&mut fill).from, 0);
    fill.handle_response(&whole(None));
    fill.handle_bytes(SIZE);
    assert!(fill.handle_end() && fill.verify_digest(RIGHT).is_ok());
}

#[test]
fn the_next_source_is_tried_when_one_is_unreachable_or_wrong() {
    let mut fill = fill(2);
    assert_eq!(next_request(&mut fill).url, "http://s0/disk.raw");
    fill.handle_failure("is away".to_owned());
    assert!(matches!(fill.next_step(), ImageFillStep::Wait { ms: 0 }));
    assert_eq!(next_request(&mut fill).url, "http://s1/disk.raw");
    fill.handle_response(&whole(None));
    fill.handle_bytes(SIZE);
    assert!(fill.handle_end() && fill.verify_digest(WRONG).is_err());
    assert_eq!(next_request(&mut fill).url, "http://s0/disk.raw");
    fill.handle_response(&whole(None));
    fill.handle_bytes(SIZE);
    assert!(fill.handle_end() && fill.verify_digest(RIGHT).is_ok());
}

#[test]
fn a_part_from_one_source_is_continued_from_another() {
    let mut fill = fill(2);
    next_request(&mut fill);
    fill.handle_response(&whole(Some("\"a\"")));
    fill.handle_bytes(400);
    fill.handle_failure("broke off".to_owned());
    let requested = next_request(&mut fill);
    assert_eq!(requested.url, "http://s1/disk.raw");
    assert_eq!(
        (requested.from, requested.if_range),
        (400, None),
        "a validator is valid for its source only"
    );
    assert_eq!(
        fill.handle_response(&part(400, SIZE, Some("\"z\""))),
        ImageBodyAction::Append
    );
}

#[test]
fn unreachable_sources_are_given_up_with_their_last_error() {
    let message = gives_up(&mut fill(2));
    assert!(
        message.contains("is away") && message.contains("disk.raw"),
        "{message}"
    );
    let message = gives_up(&mut fill(0));
    assert!(message.contains("has no source"), "{message}");
}

#[test]
fn waits_grow_and_end_with_the_first_byte() {
    let mut fill = fill(1);
    let mut waits = Vec::new();
    for _ in 0..4 {
        next_request(&mut fill);
        fill.handle_failure("is away".to_owned());
        if let ImageFillStep::Wait { ms } = fill.next_step() {
            waits.push(ms);
        }
    }
    assert_eq!(waits, [250, 500, 1000, 2000]);
    next_request(&mut fill);
    fill.handle_response(&whole(None));
    fill.handle_bytes(1);
    fill.handle_failure("broke off".to_owned());
    assert!(matches!(fill.next_step(), ImageFillStep::Wait { ms: 250 }));
}

#[test]
fn inconsistent_responses_are_failures() {
    for head in [
        ImageSourceHead {
            status: 404,
            ..ImageSourceHead::default()
        },
        ImageSourceHead {
            status: 206,
            ..ImageSourceHead::default()
        },
        part(7, SIZE, None),
    ] {
        let mut fill = ImageFill::new(wanted(1), 400, Some(SIZE), None);
        next_request(&mut fill);
        assert_eq!(fill.handle_response(&head), ImageBodyAction::Refuse);
        assert_eq!(fill.have(), 400, "the partial download stays");
    }
}

#[test]
fn a_source_without_a_length_ends_with_its_body() {
    let mut fill = fill(1);
    next_request(&mut fill);
    let head = ImageSourceHead {
        length: None,
        ..whole(None)
    };
    assert_eq!(fill.handle_response(&head), ImageBodyAction::Append);
    fill.handle_bytes(77);
    assert!(fill.handle_end());
    assert_eq!(fill.size(), Some(77));
}

#[test]
fn an_impossible_size_is_ignored() {
    let mut fill = fill(1);
    assert!(matches!(fill.next_step(), ImageFillStep::Request(_)));
    let head = ImageSourceHead {
        length: Some(u64::MAX),
        ..whole(None)
    };
    assert_eq!(fill.handle_response(&head), ImageBodyAction::Refuse);
    assert_eq!(fill.size(), None);
}
