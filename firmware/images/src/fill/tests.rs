//! Fills against sources that go away, come back, change and lie.

use super::*;

const SIZE: u64 = 1000;
const RIGHT: Digest = Digest::Sha256([1; 32]);
const WRONG: Digest = Digest::Sha256([2; 32]);

fn wanted(sources: usize) -> Wanted {
    Wanted {
        name: "disk.raw".into(),
        digest: RIGHT,
        sources: (0..sources)
            .map(|n| format!("http://s{n}/disk.raw"))
            .collect(),
        format: crate::Format::Raw,
    }
}

fn fill(sources: usize) -> Fill {
    Fill::new(wanted(sources), 0, None, None)
}

fn whole(validator: Option<&str>) -> Head {
    Head {
        status: 200,
        length: Some(SIZE),
        range: None,
        validator: validator.map(str::to_owned),
    }
}

fn part(from: u64, total: u64, validator: Option<&str>) -> Head {
    Head {
        status: 206,
        length: Some(total - from),
        range: Some((from, Some(total))),
        validator: validator.map(str::to_owned),
    }
}

/// The next request, after any waits.
#[track_caller]
fn ask(fill: &mut Fill) -> Ask {
    loop {
        match fill.turn() {
            Next::Ask(ask) => return ask,
            Next::Wait { .. } => {}
            Next::GiveUp(failure) => panic!("{failure}"),
        }
    }
}

#[track_caller]
fn gives_up(fill: &mut Fill) -> String {
    loop {
        match fill.turn() {
            Next::Ask(_) => fill.failed("is away".to_owned()),
            Next::Wait { .. } => {}
            Next::GiveUp(failure) => return failure.to_string(),
        }
    }
}

#[test]
fn an_image_comes_in_one_piece() {
    let mut fill = fill(1);
    let asked = ask(&mut fill);
    assert_eq!((asked.from, asked.if_range), (0, None));
    assert_eq!(fill.answered(&whole(Some("\"a\""))), Taken::Append);
    assert_eq!(fill.size(), Some(SIZE));
    fill.came(SIZE);
    assert!(fill.ended() && fill.judged(RIGHT).is_ok());
}

#[test]
fn a_cut_fill_goes_on_where_it_was_if_the_file_is_the_same() {
    let mut fill = fill(1);
    ask(&mut fill);
    fill.answered(&whole(Some("\"a\"")));
    fill.came(400);
    fill.failed("broke off".to_owned());
    assert!(matches!(fill.turn(), Next::Wait { ms: 250 }));
    let asked = ask(&mut fill);
    assert_eq!(
        (asked.from, asked.if_range.as_deref()),
        (400, Some("\"a\""))
    );
    assert_eq!(
        fill.answered(&part(400, SIZE, Some("\"a\""))),
        Taken::Append
    );
    fill.came(600);
    assert!(fill.ended() && fill.judged(RIGHT).is_ok());
}

#[test]
fn an_end_before_the_end_is_a_cut() {
    let mut fill = fill(1);
    ask(&mut fill);
    fill.answered(&whole(None));
    fill.came(999);
    assert!(!fill.ended());
    assert_eq!(ask(&mut fill).from, 999);
}

#[test]
fn another_file_at_the_source_begins_anew() {
    for head in [
        whole(Some("\"b\"")),
        Head {
            length: Some(SIZE + 1),
            ..whole(Some("\"a\""))
        },
    ] {
        let mut fill = fill(1);
        ask(&mut fill);
        fill.answered(&whole(Some("\"a\"")));
        fill.came(400);
        fill.failed("broke off".to_owned());
        ask(&mut fill);
        assert_eq!(fill.answered(&head), Taken::Anew);
        assert_eq!((fill.have(), fill.size()), (0, head.length));
    }
}

#[test]
fn a_part_of_another_file_is_dropped_and_asked_for_anew() {
    for head in [
        part(400, SIZE, Some("\"b\"")),
        part(400, SIZE + 1, Some("\"a\"")),
        Head {
            status: 416,
            ..Head::default()
        },
    ] {
        let mut fill = Fill::new(wanted(1), 400, Some(SIZE), Some("\"a\"".to_owned()));
        ask(&mut fill);
        assert_eq!(fill.answered(&head), Taken::Drop);
        assert_eq!(fill.have(), 0);
        let asked = ask(&mut fill);
        assert_eq!((asked.from, asked.if_range), (0, None));
    }
}

#[test]
fn a_source_without_ranges_is_read_over() {
    let mut fill = Fill::new(wanted(1), 400, Some(SIZE), None);
    ask(&mut fill);
    assert_eq!(fill.answered(&whole(None)), Taken::Skip(400));
    fill.came(600);
    assert!(fill.ended() && fill.judged(RIGHT).is_ok());
}

#[test]
fn a_wrong_digest_of_one_piece_is_the_sources_fault() {
    let mut fill = fill(1);
    ask(&mut fill);
    fill.answered(&whole(None));
    fill.came(SIZE);
    assert!(fill.ended());
    assert!(fill.judged(WRONG).is_err());
    assert_eq!(fill.have(), 0);
    let said = gives_up(&mut fill);
    for part in [
        "disk.raw",
        "http://s0/disk.raw",
        &RIGHT.to_string(),
        &WRONG.to_string(),
        "1000 bytes",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_wrong_digest_of_pieces_is_fetched_once_more_in_one() {
    let mut fill = Fill::new(wanted(1), 400, Some(SIZE), None);
    ask(&mut fill);
    fill.answered(&part(400, SIZE, None));
    fill.came(600);
    assert!(fill.ended() && fill.judged(WRONG).is_err());
    assert_eq!(ask(&mut fill).from, 0);
    fill.answered(&whole(None));
    fill.came(SIZE);
    assert!(fill.ended() && fill.judged(RIGHT).is_ok());
}

#[test]
fn the_next_source_is_asked_when_one_is_away_or_wrong() {
    let mut fill = fill(2);
    assert_eq!(ask(&mut fill).url, "http://s0/disk.raw");
    fill.failed("is away".to_owned());
    assert!(matches!(fill.turn(), Next::Wait { ms: 0 }));
    assert_eq!(ask(&mut fill).url, "http://s1/disk.raw");
    fill.answered(&whole(None));
    fill.came(SIZE);
    assert!(fill.ended() && fill.judged(WRONG).is_err());
    assert_eq!(ask(&mut fill).url, "http://s0/disk.raw");
    fill.answered(&whole(None));
    fill.came(SIZE);
    assert!(fill.ended() && fill.judged(RIGHT).is_ok());
}

#[test]
fn a_part_from_one_source_is_gone_on_with_at_another() {
    let mut fill = fill(2);
    ask(&mut fill);
    fill.answered(&whole(Some("\"a\"")));
    fill.came(400);
    fill.failed("broke off".to_owned());
    let asked = ask(&mut fill);
    assert_eq!(asked.url, "http://s1/disk.raw");
    assert_eq!(
        (asked.from, asked.if_range),
        (400, None),
        "its tags are its own"
    );
    assert_eq!(
        fill.answered(&part(400, SIZE, Some("\"z\""))),
        Taken::Append
    );
}

#[test]
fn sources_that_stay_away_are_given_up_with_what_they_said() {
    let said = gives_up(&mut fill(2));
    assert!(
        said.contains("is away") && said.contains("disk.raw"),
        "{said}"
    );
    let said = gives_up(&mut fill(0));
    assert!(said.contains("has no source"), "{said}");
}

#[test]
fn waits_grow_and_end_with_the_first_byte() {
    let mut fill = fill(1);
    let mut waits = Vec::new();
    for _ in 0..4 {
        ask(&mut fill);
        fill.failed("is away".to_owned());
        if let Next::Wait { ms } = fill.turn() {
            waits.push(ms);
        }
    }
    assert_eq!(waits, [250, 500, 1000, 2000]);
    ask(&mut fill);
    fill.answered(&whole(None));
    fill.came(1);
    fill.failed("broke off".to_owned());
    assert!(matches!(fill.turn(), Next::Wait { ms: 250 }));
}

#[test]
fn answers_that_fit_nothing_are_failures() {
    for head in [
        Head {
            status: 404,
            ..Head::default()
        },
        Head {
            status: 206,
            ..Head::default()
        },
        part(7, SIZE, None),
    ] {
        let mut fill = Fill::new(wanted(1), 400, Some(SIZE), None);
        ask(&mut fill);
        assert_eq!(fill.answered(&head), Taken::Refuse);
        assert_eq!(fill.have(), 400, "what is here stays");
    }
}

#[test]
fn a_source_that_tells_no_length_ends_where_it_ends() {
    let mut fill = fill(1);
    ask(&mut fill);
    let head = Head {
        length: None,
        ..whole(None)
    };
    assert_eq!(fill.answered(&head), Taken::Append);
    fill.came(77);
    assert!(fill.ended());
    assert_eq!(fill.size(), Some(77));
}

#[test]
fn a_size_beyond_all_measure_is_not_believed() {
    let mut fill = fill(1);
    assert!(matches!(fill.turn(), Next::Ask(_)));
    let head = Head {
        length: Some(u64::MAX),
        ..whole(None)
    };
    assert_eq!(fill.answered(&head), Taken::Refuse);
    assert_eq!(fill.size(), None);
}
