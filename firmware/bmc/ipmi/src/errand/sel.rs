//! The system event log (section 31): how full it is, its records one by one,
//! and its erasure. A reservation that somebody else's cancels is made again.

use super::{Next, Report, nonsense, refused};
use crate::command::{Request, completion, storage};
use crate::sel::{Record, SelInfo};

/// Most records that are read. Ours: logs hold a few thousand.
pub const EVENTS_MAX: usize = 4096;
/// Reservations made again before the log counts as somebody else's. Ours.
pub(super) const RESERVATIONS_MAX: u8 = 8;
/// How often to ask whether a log is erased, and how far apart. Ours; together
/// more than the slowest flash takes.
const POLLS_MAX: u8 = 60;
const POLL_MS: u64 = 500;

/// The records before the first and after the last.
const FIRST: u16 = 0x0000;
const LAST: u16 = 0xffff;
const WHOLE: u8 = 0xff;
/// What Clear SEL is told after the letters CLR.
const ERASE: u8 = 0xaa;
const PROGRESS: u8 = 0x00;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Want {
    Info,
    List,
    Clear,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    Info,
    Reserve,
    Entry,
    Erase,
    Poll,
}

#[derive(Clone, Debug)]
pub(super) struct Script {
    want: Want,
    step: Step,
    info: SelInfo,
    reservation: u16,
    reserved: u8,
    polls: u8,
    next: u16,
    records: Vec<Record>,
}

impl Script {
    pub(super) fn start(want: Want) -> (Self, Request) {
        let script = Self {
            want,
            step: Step::Info,
            info: SelInfo::default(),
            reservation: 0,
            reserved: 0,
            polls: 0,
            next: FIRST,
            records: Vec::new(),
        };
        let request = script.request();
        (script, request)
    }

    fn request(&self) -> Request {
        let [low, high] = self.reservation.to_le_bytes();
        let clear = |what| [low, high, b'C', b'L', b'R', what];
        match self.step {
            Step::Info => Request::storage(storage::SEL_INFO, &[]),
            Step::Reserve => Request::storage(storage::RESERVE_SEL, &[]),
            Step::Entry => {
                let [next_low, next_high] = self.next.to_le_bytes();
                let data = [low, high, next_low, next_high, 0, WHOLE];
                Request::storage(storage::SEL_ENTRY, &data)
            }
            Step::Erase => Request::storage(storage::CLEAR_SEL, &clear(ERASE)),
            Step::Poll => Request::storage(storage::CLEAR_SEL, &clear(PROGRESS)),
        }
    }

    fn go(&mut self, step: Step) -> Next {
        self.step = step;
        Next::Ask(self.request())
    }

    pub(super) fn hear(&mut self, code: u8, data: &[u8]) -> Next {
        match (self.step, code) {
            (Step::Info, completion::OK) => self.hear_info(data),
            (Step::Reserve, completion::OK) => match *data {
                [low, high, ..] => {
                    self.reservation = u16::from_le_bytes([low, high]);
                    self.reserved()
                }
                _ => nonsense("a reservation cut short"),
            },
            // Whole records can be read without; some BMCs know no reservations.
            (Step::Reserve, completion::NO_COMMAND) if self.want == Want::List => self.reserved(),
            (Step::Entry | Step::Erase | Step::Poll, completion::CANCELLED)
                if self.reserved < RESERVATIONS_MAX =>
            {
                self.go(Step::Reserve)
            }
            // The log was emptied under our hands.
            (Step::Entry, completion::NOT_PRESENT) => self.listed(),
            (Step::Entry, completion::OK) => self.hear_entry(data),
            (Step::Erase | Step::Poll, completion::OK) => self.hear_progress(data),
            _ => refused(code),
        }
    }

    fn reserved(&mut self) -> Next {
        self.reserved += 1;
        match self.want {
            Want::Clear => self.go(Step::Erase),
            _ => self.go(Step::Entry),
        }
    }

    fn hear_info(&mut self, data: &[u8]) -> Next {
        let Some(info) = SelInfo::parse(data) else {
            return nonsense("a state of the event log cut short");
        };
        self.info = info;
        match self.want {
            Want::Info => Next::Done(Ok(Report::SelInfo(info))),
            Want::List if info.records == 0 => self.listed(),
            _ => self.go(Step::Reserve),
        }
    }

    fn listed(&mut self) -> Next {
        let records = core::mem::take(&mut self.records);
        Next::Done(Ok(Report::Sel {
            info: self.info,
            records,
        }))
    }

    fn hear_entry(&mut self, data: &[u8]) -> Next {
        let [low, high, bytes @ ..] = data else {
            return nonsense("an event without a successor");
        };
        let Some(record) = Record::parse(bytes) else {
            return nonsense("an event that is not 16 bytes");
        };
        self.records.push(record);
        self.next = u16::from_le_bytes([*low, *high]);
        if self.next == LAST || self.records.len() >= EVENTS_MAX {
            return self.listed();
        }
        // A log that leads back to its start would never end.
        if self.next == FIRST || self.next == record.id {
            return nonsense("an event that is its own successor");
        }
        self.go(Step::Entry)
    }

    fn hear_progress(&mut self, data: &[u8]) -> Next {
        match data.first().map(|progress| progress & 0x0f) {
            Some(1) => Next::Done(Ok(Report::Done)),
            Some(_) if self.polls >= POLLS_MAX => nonsense("an erasure without end"),
            Some(_) => {
                self.polls += 1;
                self.step = Step::Poll;
                Next::Later {
                    request: self.request(),
                    wait_ms: POLL_MS,
                }
            }
            None => nonsense("an erasure without progress"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{nonsense_of, play};
    use super::super::{Errand, Outcome};
    use super::*;
    use trivet_model::PowerError;

    fn info(records: u8) -> Vec<u8> {
        vec![0, 0x51, records, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2]
    }

    fn entry(next: u16, id: u8) -> Vec<u8> {
        let mut body = vec![0];
        body.extend(next.to_le_bytes());
        body.extend([id, 0, 2]);
        body.resize(19, 0);
        body
    }

    /// Plays a list where each entry is answered by a function of its number.
    fn list(mut answer: impl FnMut(u16, u16) -> Vec<u8>) -> (usize, Outcome) {
        let mut reservation = 0;
        let (asked, outcome) = play(Errand::SelList, |request| match request.command {
            storage::SEL_INFO => info(3),
            storage::RESERVE_SEL => {
                reservation += 1;
                vec![0, reservation, 0]
            }
            _ => {
                let word = |at| u16::from_le_bytes([request.data[at], request.data[at + 1]]);
                assert_eq!(word(0), u16::from(reservation));
                answer(word(2), word(0))
            }
        });
        (asked.len(), outcome)
    }

    fn ids(outcome: Outcome) -> Vec<u16> {
        match outcome {
            Ok(Report::Sel { records, .. }) => records.iter().map(|record| record.id).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lists_record_by_record_and_reserves_again_when_it_must() {
        let (asked, outcome) = list(|id, _| match id {
            0 => entry(5, 1),
            5 => entry(0xffff, 5),
            _ => vec![0xcb],
        });
        assert_eq!((asked, ids(outcome)), (4, vec![1, 5]));
        let (_, outcome) = list(|id, reservation| match id {
            0 => entry(5, 1),
            _ if reservation < 3 => vec![0xc5],
            _ => entry(0xffff, 5),
        });
        assert_eq!(ids(outcome), [1, 5]);
        let (asked, outcome) = list(|_, _| vec![0xc5]);
        assert_eq!(outcome, Err(PowerError::Refused { code: 0xc5 }));
        assert!(asked < 20);
    }

    #[test]
    fn an_empty_log_is_not_read_and_one_emptied_meanwhile_ends() {
        let (asked, outcome) = play(Errand::SelList, |_| info(0));
        assert_eq!((asked.len(), ids(outcome)), (1, vec![]));
        let (_, outcome) = list(|_, _| vec![0xcb]);
        assert!(ids(outcome).is_empty());
    }

    #[test]
    fn a_log_without_end_is_cut_and_one_in_a_circle_refused() {
        let (_, outcome) = list(|id, _| {
            let next = id % 30_000 + 1;
            entry(next, 0)
        });
        assert_eq!(ids(outcome).len(), EVENTS_MAX);
        for next in [0, 1] {
            let (_, outcome) = list(|_, _| entry(next, 1));
            assert!(nonsense_of(&outcome));
        }
    }

    #[test]
    fn short_answers_are_refused() {
        for length in 1..18 {
            let (_, outcome) = list(|_, _| entry(5, 1)[..length].to_vec());
            assert!(nonsense_of(&outcome), "{length}");
        }
        for length in 1..15 {
            let (_, outcome) = play(Errand::SelInfo, |_| info(3)[..length].to_vec());
            assert!(nonsense_of(&outcome), "{length}");
        }
        let (_, outcome) = play(Errand::SelClear, |request| match request.command {
            storage::SEL_INFO => info(3),
            _ => vec![0],
        });
        assert!(nonsense_of(&outcome));
    }

    #[test]
    fn clears_with_a_reservation_and_waits_for_the_end() {
        let mut polls = 0;
        let mut clear = |patience: u8| {
            polls = 0;
            play(Errand::SelClear, |request| match request.command {
                storage::SEL_INFO => info(3),
                storage::RESERVE_SEL => vec![0, 7, 1],
                _ => {
                    assert_eq!(request.data[..5], [7, 1, b'C', b'L', b'R']);
                    assert_eq!(request.data[5], if polls == 0 { 0xaa } else { 0 });
                    polls += 1;
                    vec![0, u8::from(polls > patience)]
                }
            })
        };
        assert_eq!(clear(0).1, Ok(Report::Done));
        assert_eq!(clear(5).1, Ok(Report::Done));
        assert!(nonsense_of(&clear(200).1));
        let (_, outcome) = play(Errand::SelClear, |_| vec![0xd4]);
        assert_eq!(outcome, Err(PowerError::Refused { code: 0xd4 }));
    }

    #[test]
    fn a_bmc_without_reservations_is_still_read() {
        let (_, outcome) = play(Errand::SelList, |request| match request.command {
            storage::SEL_INFO => info(3),
            storage::RESERVE_SEL => vec![0xc1],
            _ => entry(0xffff, 1),
        });
        assert_eq!(ids(outcome), [1]);
    }
}
