//! Sensors: the records of the repository (section 33), those of sensors in
//! pieces, and for each sensor of the BMC itself its reading.

use super::piece::Piece;
use super::sel::RESERVATIONS_MAX;
use super::{Next, Report, nonsense, refused};
use crate::command::{NETFN_SENSOR, Request, completion, sensor, storage};
use crate::sdr::{HEAD_BYTES, KIND_COMPACT, KIND_FULL, RECORD_BYTES_MAX, Reading, Sensor};
use crate::wire::message::BMC_ADDRESS;

/// Most records that are looked at, sensors or not. Ours: a large server has 300.
pub const SENSOR_RECORDS_MAX: usize = 1024;
/// Length of the first piece. Ours; a usual size of BMC buffers.
const PIECE_BYTES: usize = 32;
const LAST: u16 = 0xffff;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    Reserve,
    Head,
    Body,
    Read,
}

#[derive(Clone, Debug)]
pub(super) struct Script {
    step: Step,
    reservation: [u8; 2],
    reserved: u8,
    piece: Piece,
    /// The record at hand: its number, the next one's, what is there of it.
    id: u16,
    next: u16,
    bytes: Vec<u8>,
    length: usize,
    sensor: Option<Sensor>,
    seen: usize,
    readings: Vec<Reading>,
}

impl Script {
    pub(super) fn start() -> (Self, Request) {
        let script = Self {
            step: Step::Reserve,
            reservation: [0; 2],
            reserved: 0,
            piece: Piece::new(PIECE_BYTES, 1),
            id: 0,
            next: LAST,
            bytes: Vec::new(),
            length: 0,
            sensor: None,
            seen: 0,
            readings: Vec::new(),
        };
        (script, Request::storage(storage::RESERVE_SDR, &[]))
    }

    fn go(&mut self, step: Step) -> Next {
        self.step = step;
        let ([low, high], [id_low, id_high]) = (self.reservation, self.id.to_le_bytes());
        let part = |at: usize, count: usize| {
            let data = [low, high, id_low, id_high, at as u8, count as u8];
            Request::storage(storage::SDR, &data)
        };
        Next::Ask(match step {
            Step::Reserve => Request::storage(storage::RESERVE_SDR, &[]),
            Step::Head => part(0, HEAD_BYTES),
            Step::Body => {
                let at = self.bytes.len();
                part(at, self.piece.of(self.length - at))
            }
            Step::Read => {
                let number = self.sensor.as_ref().map_or(0, |sensor| sensor.number);
                Request {
                    netfn: NETFN_SENSOR,
                    command: sensor::READING,
                    data: vec![number],
                }
            }
        })
    }

    pub(super) fn hear(&mut self, code: u8, data: &[u8]) -> Next {
        match (self.step, code) {
            (Step::Read, _) => self.hear_reading(code, data),
            (Step::Head | Step::Body, completion::CANCELLED)
                if self.reserved < RESERVATIONS_MAX =>
            {
                self.go(Step::Reserve)
            }
            (Step::Body, code) if code != completion::OK && self.piece.shrink(code) => {
                self.go(Step::Body)
            }
            // A repository without records.
            (Step::Head, completion::NOT_PRESENT) if self.seen == 0 => self.end(),
            (_, code) if code != completion::OK => refused(code),
            (Step::Reserve, _) => match *data {
                [low, high, ..] => {
                    self.reservation = [low, high];
                    self.reserved += 1;
                    self.go(Step::Head)
                }
                _ => nonsense("a reservation cut short"),
            },
            (Step::Head, _) => self.hear_head(data),
            (Step::Body, _) => self.hear_body(data),
        }
    }

    fn hear_head(&mut self, data: &[u8]) -> Next {
        let Some((&[low, high], head)) = data.split_first_chunk() else {
            return nonsense("a sensor record without a successor");
        };
        let &[_, _, _, kind, length] = head else {
            return nonsense("the head of a sensor record that is not 5 bytes");
        };
        self.next = u16::from_le_bytes([low, high]);
        self.bytes = head.to_vec();
        self.length = HEAD_BYTES + usize::from(length);
        self.seen += 1;
        let sensor = matches!(kind, KIND_FULL | KIND_COMPACT);
        if !sensor || length == 0 {
            return self.advance();
        }
        if self.length > RECORD_BYTES_MAX {
            return nonsense("a sensor record longer than any");
        }
        self.go(Step::Body)
    }

    fn hear_body(&mut self, data: &[u8]) -> Next {
        let asked = self.piece.of(self.length - self.bytes.len());
        let bytes = data.get(2..).unwrap_or_default();
        if bytes.is_empty() || bytes.len() > asked {
            return nonsense("none of a sensor record, or more than was asked for");
        }
        self.bytes.extend(bytes);
        if self.bytes.len() < self.length {
            return self.go(Step::Body);
        }
        let Some(sensor) = Sensor::parse(&self.bytes) else {
            return nonsense("a sensor record that is shorter than a sensor");
        };
        // Sensors of other controllers would have to be asked there.
        let own = sensor.owner == BMC_ADDRESS && sensor.lun == 0;
        if !own {
            self.readings.push(sensor.reading(&[]));
            return self.advance();
        }
        self.sensor = Some(sensor);
        self.go(Step::Read)
    }

    /// A sensor that cannot be read is not there at present; the others may be.
    fn hear_reading(&mut self, code: u8, data: &[u8]) -> Next {
        let data = if code == completion::OK { data } else { &[] };
        if let Some(sensor) = self.sensor.take() {
            self.readings.push(sensor.reading(data));
        }
        self.advance()
    }

    fn advance(&mut self) -> Next {
        if self.next == LAST || self.seen >= SENSOR_RECORDS_MAX {
            return self.end();
        }
        if self.next == 0 || self.next == self.id {
            return nonsense("a sensor record that is its own successor");
        }
        self.id = self.next;
        self.go(Step::Head)
    }

    fn end(&mut self) -> Next {
        let readings = core::mem::take(&mut self.readings);
        Next::Done(Ok(Report::Sensors(readings)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{nonsense_of, play};
    use super::super::{Errand, Outcome};
    use super::*;
    use crate::sdr::State;
    use crate::sdr::tests::full;
    use trivet_model::PowerError;

    /// A repository of whole records that gives pieces of so many bytes.
    fn repository(records: &[Vec<u8>], piece: usize) -> (Vec<Request>, Outcome) {
        play(Errand::Sensors, |request| match request.command {
            storage::RESERVE_SDR => vec![0, 1, 2],
            storage::SDR => {
                assert_eq!(request.data[..2], [1, 2]);
                let id = usize::from(u16::from_le_bytes([request.data[2], request.data[3]]));
                let [at, count] = [request.data[4], request.data[5]].map(usize::from);
                if count > piece {
                    return vec![0xca];
                }
                let next = if id + 1 < records.len() {
                    id as u16 + 1
                } else {
                    LAST
                };
                let mut body = vec![0];
                body.extend(next.to_le_bytes());
                body.extend(&records[id][at..at + count]);
                body
            }
            _ => vec![0, request.data[0], 0xc0, 0],
        })
    }

    fn readings(outcome: Outcome) -> Vec<Reading> {
        match outcome {
            Ok(Report::Sensors(readings)) => readings,
            other => panic!("{other:?}"),
        }
    }

    fn sensor(number: u8, owner: u8) -> Vec<u8> {
        let sensor = Sensor {
            owner,
            number,
            ..full()
        };
        sensor.emit(number.into())
    }

    #[test]
    fn reads_every_sensor_in_pieces_and_skips_other_records() {
        let locator = vec![1, 0, 0x51, 0x11, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let records = [sensor(5, 0x20), locator, sensor(6, 0x20), sensor(7, 0xc0)];
        for piece in [255, 32, 16, 6, 5] {
            let (_, outcome) = repository(&records, piece);
            let readings = readings(outcome);
            let values: Vec<_> = readings.iter().map(|it| (it.number, it.value)).collect();
            let want = [(5, Some(5.0)), (6, Some(6.0)), (7, None)];
            assert_eq!(values, want, "pieces of {piece}");
            assert_eq!(readings[2].state, State::Unavailable, "asked elsewhere");
        }
    }

    #[test]
    fn an_empty_repository_has_no_sensors() {
        let (_, outcome) = play(Errand::Sensors, |request| match request.command {
            storage::RESERVE_SDR => vec![0, 1, 0],
            _ => vec![0xcb],
        });
        assert!(readings(outcome).is_empty());
    }

    #[test]
    fn a_sensor_that_refuses_is_not_available_and_the_rest_goes_on() {
        let record = sensor(5, 0x20);
        for answer in [&[0xcb][..], &[0xc1], &[0], &[0, 1]] {
            let (_, outcome) = play(Errand::Sensors, |request| match request.command {
                storage::RESERVE_SDR => vec![0, 1, 0],
                storage::SDR => {
                    let [at, count] = [request.data[4], request.data[5]].map(usize::from);
                    [&[0, 0xff, 0xff][..], &record[at..at + count]].concat()
                }
                _ => answer.to_vec(),
            });
            assert_eq!(readings(outcome)[0].state, State::Unavailable);
        }
    }

    #[test]
    fn a_cancelled_reservation_is_made_again_but_not_for_ever() {
        let mut reservations = 0;
        let (asked, outcome) = play(Errand::Sensors, |request| match request.command {
            storage::RESERVE_SDR => {
                reservations += 1;
                vec![0, reservations, 0]
            }
            _ => vec![0xc5],
        });
        assert_eq!(outcome, Err(PowerError::Refused { code: 0xc5 }));
        assert_eq!(asked.len(), 2 * usize::from(RESERVATIONS_MAX));
    }

    #[test]
    fn records_that_cannot_be_are_refused() {
        let play_sdr = |head: &[u8], body: &[u8]| {
            play(Errand::Sensors, |request| match request.command {
                storage::RESERVE_SDR => vec![0, 1, 0],
                _ if request.data[4] == 0 => head.to_vec(),
                _ => body.to_vec(),
            })
            .1
        };
        let head = [0, 0xff, 0xff, 1, 0, 0x51, 1, 48];
        for (head, body) in [
            (&[0][..], &[0][..]),
            (&[0, 0xff, 0xff, 1, 0, 0x51, 1], &[0]),
            (&[0, 0xff, 0xff, 1, 0, 0x51, 1, 255], &[0]),
            (
                &[0, 0xff, 0xff, 1, 0, 0x51, 1, 3],
                &[0, 0xff, 0xff, 1, 2, 3],
            ),
            (&[0, 0, 0, 1, 0, 0x51, 0x11, 3], &[0]),
            (&head, &[0]),
            (&head, &[0, 0xff, 0xff]),
            (&head, &[0; 60]),
        ] {
            let outcome = play_sdr(head, body);
            assert!(nonsense_of(&outcome), "{head:?}: {outcome:?}");
        }
        let outcome = play_sdr(&[0xd4], &[]);
        assert_eq!(outcome, Err(PowerError::Refused { code: 0xd4 }));
        let (_, outcome) = play(Errand::Sensors, |_| vec![0, 1]);
        assert!(nonsense_of(&outcome), "half a reservation");
    }

    #[test]
    fn a_repository_without_end_is_cut() {
        let mut next = 0_u16;
        let (asked, outcome) = play(Errand::Sensors, |request| match request.command {
            storage::RESERVE_SDR => vec![0, 1, 0],
            _ => {
                next = next % 30_000 + 1;
                let [low, high] = next.to_le_bytes();
                vec![0, low, high, 1, 0, 0x51, 0x11, 3]
            }
        });
        assert_eq!(asked.len(), 1 + SENSOR_RECORDS_MAX);
        assert!(readings(outcome).is_empty());
    }
}
