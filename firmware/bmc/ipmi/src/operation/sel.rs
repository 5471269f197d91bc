//! The system event log (section 31): how full it is, its records one by one, and its erasure. A
//! reservation that another console cancels is made again.

use super::{IpmiOperationNext, IpmiReply, invalid_response, refused};
use crate::command::{IpmiRequest, completion, storage};
use crate::sel::{SelInfo, SelRecord};

/// Most records that are read. Ours: logs have a few thousand.
pub const EVENTS_MAX: usize = 4096;
/// Most reservations before the operation fails because another console uses the log. Ours.
pub(super) const RESERVATIONS_MAX: u8 = 8;
/// Most polls for the end of an erasure, and the pause between them. Ours; together more than the
/// slowest flash takes.
const POLLS_MAX: u8 = 60;
const POLL_MS: u64 = 500;

/// The record numbers for the first record and after the last.
const FIRST: u16 = 0x0000;
const LAST: u16 = 0xffff;
const WHOLE: u8 = 0xff;
/// Data of Clear SEL after the characters CLR.
const ERASE: u8 = 0xaa;
const PROGRESS: u8 = 0x00;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SelOperation {
    Info,
    List,
    Clear,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SelStep {
    Info,
    Reserve,
    Entry,
    Erase,
    Poll,
}

#[derive(Clone, Debug)]
pub(super) struct SelScript {
    operation: SelOperation,
    step: SelStep,
    info: SelInfo,
    reservation: u16,
    reserved: u8,
    polls: u8,
    next: u16,
    records: Vec<SelRecord>,
}

impl SelScript {
    pub(super) fn start(want: SelOperation) -> (Self, IpmiRequest) {
        let script = Self {
            operation: want,
            step: SelStep::Info,
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

    fn request(&self) -> IpmiRequest {
        let [low, high] = self.reservation.to_le_bytes();
        let clear = |what| [low, high, b'C', b'L', b'R', what];
        match self.step {
            SelStep::Info => IpmiRequest::storage(storage::SEL_INFO, &[]),
            SelStep::Reserve => IpmiRequest::storage(storage::RESERVE_SEL, &[]),
            SelStep::Entry => {
                let [next_low, next_high] = self.next.to_le_bytes();
                let data = [low, high, next_low, next_high, 0, WHOLE];
                IpmiRequest::storage(storage::SEL_ENTRY, &data)
            }
            SelStep::Erase => IpmiRequest::storage(storage::CLEAR_SEL, &clear(ERASE)),
            SelStep::Poll => IpmiRequest::storage(storage::CLEAR_SEL, &clear(PROGRESS)),
        }
    }

    fn send_step(&mut self, step: SelStep) -> IpmiOperationNext {
        self.step = step;
        IpmiOperationNext::Send(self.request())
    }

    pub(super) fn handle_response(&mut self, code: u8, data: &[u8]) -> IpmiOperationNext {
        match (self.step, code) {
            (SelStep::Info, completion::OK) => self.handle_info(data),
            (SelStep::Reserve, completion::OK) => match *data {
                [low, high, ..] => {
                    self.reservation = u16::from_le_bytes([low, high]);
                    self.reserved()
                }
                _ => invalid_response("a reservation cut short"),
            },
            // Whole records can be read without one; some BMCs do not support reservations.
            (SelStep::Reserve, completion::NO_COMMAND) if self.operation == SelOperation::List => {
                self.reserved()
            }
            (SelStep::Entry | SelStep::Erase | SelStep::Poll, completion::CANCELLED)
                if self.reserved < RESERVATIONS_MAX =>
            {
                self.send_step(SelStep::Reserve)
            }
            // Another console erased the log meanwhile.
            (SelStep::Entry, completion::NOT_PRESENT) => self.listed(),
            (SelStep::Entry, completion::OK) => self.handle_entry(data),
            (SelStep::Erase | SelStep::Poll, completion::OK) => self.handle_progress(data),
            _ => refused(code),
        }
    }

    fn reserved(&mut self) -> IpmiOperationNext {
        self.reserved += 1;
        match self.operation {
            SelOperation::Clear => self.send_step(SelStep::Erase),
            _ => self.send_step(SelStep::Entry),
        }
    }

    fn handle_info(&mut self, data: &[u8]) -> IpmiOperationNext {
        let Some(info) = SelInfo::parse(data) else {
            return invalid_response("a state of the event log cut short");
        };
        self.info = info;
        match self.operation {
            SelOperation::Info => IpmiOperationNext::Done(Ok(IpmiReply::SelInfo(info))),
            SelOperation::List if info.records == 0 => self.listed(),
            _ => self.send_step(SelStep::Reserve),
        }
    }

    fn listed(&mut self) -> IpmiOperationNext {
        let records = core::mem::take(&mut self.records);
        IpmiOperationNext::Done(Ok(IpmiReply::Sel {
            info: self.info,
            records,
        }))
    }

    fn handle_entry(&mut self, data: &[u8]) -> IpmiOperationNext {
        let [low, high, bytes @ ..] = data else {
            return invalid_response("an event without a successor");
        };
        let Some(record) = SelRecord::parse(bytes) else {
            return invalid_response("an event that is not 16 bytes");
        };
        self.records.push(record);
        self.next = u16::from_le_bytes([*low, *high]);
        if self.next == LAST || self.records.len() >= EVENTS_MAX {
            return self.listed();
        }
        // A log that links back to its start would never end.
        if self.next == FIRST || self.next == record.id {
            return invalid_response("an event that is its own successor");
        }
        self.send_step(SelStep::Entry)
    }

    fn handle_progress(&mut self, data: &[u8]) -> IpmiOperationNext {
        match data.first().map(|progress| progress & 0x0f) {
            Some(1) => IpmiOperationNext::Done(Ok(IpmiReply::Done)),
            Some(_) if self.polls >= POLLS_MAX => invalid_response("an erasure that does not end"),
            Some(_) => {
                self.polls += 1;
                self.step = SelStep::Poll;
                IpmiOperationNext::SendLater {
                    request: self.request(),
                    wait_ms: POLL_MS,
                }
            }
            None => invalid_response("an erasure without progress"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{is_invalid_response, run_script};
    use super::super::{IpmiOperation, IpmiOperationResult};
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

    /// Runs a list where a function of its number returns each entry.
    fn list(mut answer: impl FnMut(u16, u16) -> Vec<u8>) -> (usize, IpmiOperationResult) {
        let mut reservation = 0;
        let (requests, outcome) =
            run_script(IpmiOperation::SelList, |request| match request.command {
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
        (requests.len(), outcome)
    }

    fn ids(outcome: IpmiOperationResult) -> Vec<u16> {
        match outcome {
            Ok(IpmiReply::Sel { records, .. }) => records.iter().map(|record| record.id).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lists_record_by_record_and_reserves_again_when_it_must() {
        let (requests, outcome) = list(|id, _| match id {
            0 => entry(5, 1),
            5 => entry(0xffff, 5),
            _ => vec![0xcb],
        });
        assert_eq!((requests, ids(outcome)), (4, vec![1, 5]));
        let (_, outcome) = list(|id, reservation| match id {
            0 => entry(5, 1),
            _ if reservation < 3 => vec![0xc5],
            _ => entry(0xffff, 5),
        });
        assert_eq!(ids(outcome), [1, 5]);
        let (requests, outcome) = list(|_, _| vec![0xc5]);
        assert_eq!(outcome, Err(PowerError::Refused { code: 0xc5 }));
        assert!(requests < 20);
    }

    #[test]
    fn an_empty_log_is_not_read_and_one_emptied_meanwhile_ends() {
        let (requests, outcome) = run_script(IpmiOperation::SelList, |_| info(0));
        assert_eq!((requests.len(), ids(outcome)), (1, vec![]));
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
            assert!(is_invalid_response(&outcome));
        }
    }

    #[test]
    fn short_answers_are_refused() {
        for length in 1..18 {
            let (_, outcome) = list(|_, _| entry(5, 1)[..length].to_vec());
            assert!(is_invalid_response(&outcome), "{length}");
        }
        for length in 1..15 {
            let (_, outcome) = run_script(IpmiOperation::SelInfo, |_| info(3)[..length].to_vec());
            assert!(is_invalid_response(&outcome), "{length}");
        }
        let (_, outcome) = run_script(IpmiOperation::SelClear, |request| match request.command {
            storage::SEL_INFO => info(3),
            _ => vec![0],
        });
        assert!(is_invalid_response(&outcome));
    }

    #[test]
    fn clears_with_a_reservation_and_waits_for_the_end() {
        let mut polls = 0;
        let mut clear = |timeout: u8| {
            polls = 0;
            run_script(IpmiOperation::SelClear, |request| match request.command {
                storage::SEL_INFO => info(3),
                storage::RESERVE_SEL => vec![0, 7, 1],
                _ => {
                    assert_eq!(request.data[..5], [7, 1, b'C', b'L', b'R']);
                    assert_eq!(request.data[5], if polls == 0 { 0xaa } else { 0 });
                    polls += 1;
                    vec![0, u8::from(polls > timeout)]
                }
            })
        };
        assert_eq!(clear(0).1, Ok(IpmiReply::Done));
        assert_eq!(clear(5).1, Ok(IpmiReply::Done));
        assert!(is_invalid_response(&clear(200).1));
        let (_, outcome) = run_script(IpmiOperation::SelClear, |_| vec![0xd4]);
        assert_eq!(outcome, Err(PowerError::Refused { code: 0xd4 }));
    }

    #[test]
    fn a_bmc_without_reservations_is_still_read() {
        let (_, outcome) = run_script(IpmiOperation::SelList, |request| match request.command {
            storage::SEL_INFO => info(3),
            storage::RESERVE_SEL => vec![0xc1],
            _ => entry(0xffff, 1),
        });
        assert_eq!(ids(outcome), [1]);
    }
}
