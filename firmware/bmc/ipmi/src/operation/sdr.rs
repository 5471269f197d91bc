//! Sensors: reads the records of the repository (section 33), those of sensors in chunks, and the
//! reading of each sensor that belongs to the BMC itself.

use super::chunk::IpmiChunkSize;
use super::sel::RESERVATIONS_MAX;
use super::{IpmiOperationNext, IpmiReply, invalid_response, refused};
use crate::command::{IpmiRequest, NETFN_SENSOR, completion, sensor, storage};
use crate::sdr::{HEAD_BYTES, KIND_COMPACT, KIND_FULL, RECORD_BYTES_MAX, SdrReading, SdrSensor};
use crate::wire::message::BMC_ADDRESS;

/// Most records that are read, sensors or not. Ours: a large server has 300.
pub const SENSOR_RECORDS_MAX: usize = 1024;
/// Length of the first chunk. Ours; a usual size of BMC buffers.
const CHUNK_BYTES: usize = 32;
const LAST: u16 = 0xffff;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SdrStep {
    Reserve,
    Head,
    Body,
    Read,
}

#[derive(Clone, Debug)]
pub(super) struct SdrScript {
    step: SdrStep,
    reservation: [u8; 2],
    reserved: u8,
    chunk_size: IpmiChunkSize,
    /// The present record: its number, the next one's number, the bytes read so far.
    id: u16,
    next: u16,
    bytes: Vec<u8>,
    length: usize,
    sensor: Option<SdrSensor>,
    records_seen: usize,
    readings: Vec<SdrReading>,
}

impl SdrScript {
    pub(super) fn start() -> (Self, IpmiRequest) {
        let script = Self {
            step: SdrStep::Reserve,
            reservation: [0; 2],
            reserved: 0,
            chunk_size: IpmiChunkSize::new(CHUNK_BYTES, 1),
            id: 0,
            next: LAST,
            bytes: Vec::new(),
            length: 0,
            sensor: None,
            records_seen: 0,
            readings: Vec::new(),
        };
        (script, IpmiRequest::storage(storage::RESERVE_SDR, &[]))
    }

    fn send_step(&mut self, step: SdrStep) -> IpmiOperationNext {
        self.step = step;
        let ([low, high], [id_low, id_high]) = (self.reservation, self.id.to_le_bytes());
        let part = |at: usize, count: usize| {
            let data = [low, high, id_low, id_high, at as u8, count as u8];
            IpmiRequest::storage(storage::SDR, &data)
        };
        IpmiOperationNext::Send(match step {
            SdrStep::Reserve => IpmiRequest::storage(storage::RESERVE_SDR, &[]),
            SdrStep::Head => part(0, HEAD_BYTES),
            SdrStep::Body => {
                let at = self.bytes.len();
                part(at, self.chunk_size.next_len(self.length - at))
            }
            SdrStep::Read => {
                let number = self.sensor.as_ref().map_or(0, |sensor| sensor.number);
                IpmiRequest {
                    netfn: NETFN_SENSOR,
                    command: sensor::READING,
                    data: vec![number],
                }
            }
        })
    }

    pub(super) fn handle_response(&mut self, code: u8, data: &[u8]) -> IpmiOperationNext {
        match (self.step, code) {
            (SdrStep::Read, _) => self.handle_reading(code, data),
            (SdrStep::Head | SdrStep::Body, completion::CANCELLED)
                if self.reserved < RESERVATIONS_MAX =>
            {
                self.send_step(SdrStep::Reserve)
            }
            (SdrStep::Body, code) if code != completion::OK && self.chunk_size.shrink(code) => {
                self.send_step(SdrStep::Body)
            }
            // A repository without records.
            (SdrStep::Head, completion::NOT_PRESENT) if self.records_seen == 0 => self.end(),
            (_, code) if code != completion::OK => refused(code),
            (SdrStep::Reserve, _) => match *data {
                [low, high, ..] => {
                    self.reservation = [low, high];
                    self.reserved += 1;
                    self.send_step(SdrStep::Head)
                }
                _ => invalid_response("a reservation cut short"),
            },
            (SdrStep::Head, _) => self.handle_head(data),
            (SdrStep::Body, _) => self.handle_body(data),
        }
    }

    fn handle_head(&mut self, data: &[u8]) -> IpmiOperationNext {
        let Some((&[low, high], head)) = data.split_first_chunk() else {
            return invalid_response("a sensor record without a successor");
        };
        let &[_, _, _, kind, length] = head else {
            return invalid_response("the head of a sensor record that is not 5 bytes");
        };
        self.next = u16::from_le_bytes([low, high]);
        self.bytes = head.to_vec();
        self.length = HEAD_BYTES + usize::from(length);
        self.records_seen += 1;
        let sensor = matches!(kind, KIND_FULL | KIND_COMPACT);
        if !sensor || length == 0 {
            return self.advance();
        }
        if self.length > RECORD_BYTES_MAX {
            return invalid_response("a sensor record that is too long");
        }
        self.send_step(SdrStep::Body)
    }

    fn handle_body(&mut self, data: &[u8]) -> IpmiOperationNext {
        let requested = self.chunk_size.next_len(self.length - self.bytes.len());
        let bytes = data.get(2..).unwrap_or_default();
        if bytes.is_empty() || bytes.len() > requested {
            return invalid_response("none of a sensor record, or more than was requested");
        }
        self.bytes.extend(bytes);
        if self.bytes.len() < self.length {
            return self.send_step(SdrStep::Body);
        }
        let Some(sensor) = SdrSensor::parse(&self.bytes) else {
            return invalid_response("a sensor record that is shorter than a sensor");
        };
        // Sensors of other controllers would have to be read from those.
        let own = sensor.owner == BMC_ADDRESS && sensor.lun == 0;
        if !own {
            self.readings.push(sensor.reading(&[]));
            return self.advance();
        }
        self.sensor = Some(sensor);
        self.send_step(SdrStep::Read)
    }

    /// A sensor that cannot be read counts as unavailable; the others are still read.
    fn handle_reading(&mut self, code: u8, data: &[u8]) -> IpmiOperationNext {
        let data = if code == completion::OK { data } else { &[] };
        if let Some(sensor) = self.sensor.take() {
            self.readings.push(sensor.reading(data));
        }
        self.advance()
    }

    fn advance(&mut self) -> IpmiOperationNext {
        if self.next == LAST || self.records_seen >= SENSOR_RECORDS_MAX {
            return self.end();
        }
        if self.next == 0 || self.next == self.id {
            return invalid_response("a sensor record that is its own successor");
        }
        self.id = self.next;
        self.send_step(SdrStep::Head)
    }

    fn end(&mut self) -> IpmiOperationNext {
        let readings = core::mem::take(&mut self.readings);
        IpmiOperationNext::Done(Ok(IpmiReply::Sensors(readings)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{is_invalid_response, run_script};
    use super::super::{IpmiOperation, IpmiOperationResult};
    use super::*;
    use crate::sdr::SdrSensorState;
    use crate::sdr::tests::full;
    use trivet_model::PowerError;

    /// A repository of whole records that returns chunks of this many bytes.
    fn repository(records: &[Vec<u8>], piece: usize) -> (Vec<IpmiRequest>, IpmiOperationResult) {
        run_script(IpmiOperation::Sensors, |request| match request.command {
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

    fn readings(outcome: IpmiOperationResult) -> Vec<SdrReading> {
        match outcome {
            Ok(IpmiReply::Sensors(readings)) => readings,
            other => panic!("{other:?}"),
        }
    }

    fn sensor(number: u8, owner: u8) -> Vec<u8> {
        let sensor = SdrSensor {
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
            assert_eq!(
                readings[2].state,
                SdrSensorState::Unavailable,
                "unexpected request"
            );
        }
    }

    #[test]
    fn an_empty_repository_has_no_sensors() {
        let (_, outcome) = run_script(IpmiOperation::Sensors, |request| match request.command {
            storage::RESERVE_SDR => vec![0, 1, 0],
            _ => vec![0xcb],
        });
        assert!(readings(outcome).is_empty());
    }

    #[test]
    fn a_sensor_that_refuses_is_unavailable_and_the_rest_is_read() {
        let record = sensor(5, 0x20);
        for answer in [&[0xcb][..], &[0xc1], &[0], &[0, 1]] {
            let (_, outcome) =
                run_script(IpmiOperation::Sensors, |request| match request.command {
                    storage::RESERVE_SDR => vec![0, 1, 0],
                    storage::SDR => {
                        let [at, count] = [request.data[4], request.data[5]].map(usize::from);
                        [&[0, 0xff, 0xff][..], &record[at..at + count]].concat()
                    }
                    _ => answer.to_vec(),
                });
            assert_eq!(readings(outcome)[0].state, SdrSensorState::Unavailable);
        }
    }

    #[test]
    fn a_cancelled_reservation_is_made_again_but_not_for_ever() {
        let mut reservations = 0;
        let (requests, outcome) =
            run_script(IpmiOperation::Sensors, |request| match request.command {
                storage::RESERVE_SDR => {
                    reservations += 1;
                    vec![0, reservations, 0]
                }
                _ => vec![0xc5],
            });
        assert_eq!(outcome, Err(PowerError::Refused { code: 0xc5 }));
        assert_eq!(requests.len(), 2 * usize::from(RESERVATIONS_MAX));
    }

    #[test]
    fn records_that_cannot_be_are_refused() {
        let run_sdr = |head: &[u8], body: &[u8]| {
            run_script(IpmiOperation::Sensors, |request| match request.command {
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
            let outcome = run_sdr(head, body);
            assert!(is_invalid_response(&outcome), "{head:?}: {outcome:?}");
        }
        let outcome = run_sdr(&[0xd4], &[]);
        assert_eq!(outcome, Err(PowerError::Refused { code: 0xd4 }));
        let (_, outcome) = run_script(IpmiOperation::Sensors, |_| vec![0, 1]);
        assert!(is_invalid_response(&outcome), "half a reservation");
    }

    #[test]
    fn a_repository_without_end_is_cut() {
        let mut next = 0_u16;
        let (requests, outcome) =
            run_script(IpmiOperation::Sensors, |request| match request.command {
                storage::RESERVE_SDR => vec![0, 1, 0],
                _ => {
                    next = next % 30_000 + 1;
                    let [low, high] = next.to_le_bytes();
                    vec![0, low, high, 1, 0, 0x51, 0x11, 3]
                }
            });
        assert_eq!(requests.len(), 1 + SENSOR_RECORDS_MAX);
        assert!(readings(outcome).is_empty());
    }
}
