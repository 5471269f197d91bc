//! Sensors of the simulated BMC: the repository of their records, read in chunks with the newest
//! reservation, and their readings.

use crate::command::{completion, sensor, storage};
use crate::sdr::SdrSensor;

/// Most sensors it has. Ours.
pub const SENSORS_MAX: usize = 64;
/// Longest chunk of a record. Ours.
const CHUNK_BYTES_MAX: usize = 32;

/// The sensors, each with its raw reading if it has one.
#[derive(Clone, Debug, Default)]
pub(super) struct SimulatedSensors {
    sensors: Vec<(SdrSensor, Option<u8>)>,
    reservation: u16,
}

impl SimulatedSensors {
    /// Adds a sensor or replaces the one with the same number. Changes of the repository cancel
    /// reservations.
    pub(super) fn set(&mut self, sensor: SdrSensor, raw: Option<u8>) {
        let known = |(other, _): &&mut (SdrSensor, _)| other.number == sensor.number;
        if let Some(place) = self.sensors.iter_mut().find(known) {
            *place = (sensor, raw);
        } else if self.sensors.len() < SENSORS_MAX {
            self.sensors.push((sensor, raw));
        }
        self.reservation = self.reservation.wrapping_add(1);
    }

    /// The body of the response to a command about the repository.
    pub(super) fn handle_repository_command(&mut self, command: u8, data: &[u8]) -> Vec<u8> {
        match command {
            storage::SDR_INFO => {
                let [low, high] = (self.sensors.len() as u16).to_le_bytes();
                let mut body = vec![completion::OK, 0x51, low, high, 0, 0];
                body.extend([0; 8]);
                // Reservations are supported.
                body.push(0x02);
                body
            }
            storage::RESERVE_SDR => {
                self.reservation = self.reservation.wrapping_add(1).max(1);
                let [low, high] = self.reservation.to_le_bytes();
                vec![completion::OK, low, high]
            }
            _ => self.record(data),
        }
    }

    fn record(&self, data: &[u8]) -> Vec<u8> {
        let &[low, high, id_low, id_high, offset, count, ..] = data else {
            return vec![completion::BAD_LENGTH];
        };
        if offset != 0 && u16::from_le_bytes([low, high]) != self.reservation {
            return vec![completion::CANCELLED];
        }
        // Record numbers count from one; zero requests the first too.
        let id = u16::from_le_bytes([id_low, id_high]).max(1);
        let at = usize::from(id) - 1;
        let Some((sensor, _)) = self.sensors.get(at) else {
            return vec![completion::NOT_PRESENT];
        };
        let record = sensor.emit(id);
        let Some(bytes) = record.get(usize::from(offset)..) else {
            return vec![completion::OUT_OF_RANGE];
        };
        let count = usize::from(count).min(bytes.len());
        if count > CHUNK_BYTES_MAX {
            return vec![completion::TOO_MUCH];
        }
        let next = if at + 1 < self.sensors.len() {
            id + 1
        } else {
            0xffff
        };
        let mut body = vec![completion::OK];
        body.extend(next.to_le_bytes());
        body.extend(&bytes[..count]);
        body
    }

    /// The body of the response to a command about a sensor.
    pub(super) fn handle_sensor_command(&self, command: u8, data: &[u8]) -> Vec<u8> {
        let Some(&number) = data.first() else {
            return vec![completion::BAD_LENGTH];
        };
        let found = self.sensors.iter().find(|(it, _)| it.number == number);
        let Some((sensor, raw)) = found else {
            return vec![completion::NOT_PRESENT];
        };
        match command {
            sensor::READING => match raw {
                Some(raw) => vec![
                    completion::OK,
                    *raw,
                    0xc0,
                    crossed_thresholds(sensor, *raw),
                    0,
                ],
                None => vec![completion::OK, 0, 0xe0, 0, 0],
            },
            sensor::THRESHOLDS => {
                let mut body = vec![completion::OK, 0];
                for (bit, raw) in sensor.thresholds.iter().enumerate() {
                    body[1] |= u8::from(raw.is_some()) << bit;
                    body.push(raw.unwrap_or_default());
                }
                body
            }
            _ => vec![completion::NO_COMMAND],
        }
    }
}

/// A bit for each threshold that a reading has crossed.
fn crossed_thresholds(sensor: &SdrSensor, raw: u8) -> u8 {
    let Some(factors) = sensor.factors else {
        return raw;
    };
    let mut bits = 0;
    for (bit, threshold) in sensor.thresholds.iter().enumerate() {
        let values = threshold.and_then(|it| Some((factors.value(raw)?, factors.value(it)?)));
        let past = values.is_some_and(|(value, limit)| match bit {
            0..3 => value <= limit,
            _ => value >= limit,
        });
        bits |= u8::from(past) << bit;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sdr::tests::full;

    fn two() -> SimulatedSensors {
        let mut sensors = SimulatedSensors::default();
        sensors.set(full(), Some(75));
        let other = SdrSensor {
            number: 9,
            ..full()
        };
        sensors.set(other, None);
        sensors
    }

    #[test]
    fn returns_records_in_chunks_for_the_newest_reservation() {
        let mut sensors = two();
        let reserve = sensors.handle_repository_command(storage::RESERVE_SDR, &[]);
        let (low, high) = (reserve[1], reserve[2]);
        let head = sensors.handle_repository_command(storage::SDR, &[low, high, 0, 0, 0, 5]);
        assert_eq!(head[..8], [0, 2, 0, 1, 0, 0x51, 1, head[7]]);
        let part = sensors.handle_repository_command(storage::SDR, &[low, high, 2, 0, 5, 3]);
        assert_eq!(part, [0, 0xff, 0xff, 0x20, 0, 9]);
        for (data, code) in [
            (&[low, high, 0, 0, 0][..], 0xc7),
            (&[low, high, 3, 0, 0, 5], 0xcb),
            (&[low, high, 1, 0, 0, 255], 0xca),
            (&[low, high, 1, 0, 200, 5], 0xc9),
            (&[low ^ 1, high, 1, 0, 5, 5], 0xc5),
        ] {
            assert_eq!(
                sensors.handle_repository_command(storage::SDR, data),
                [code],
                "{data:?}"
            );
        }
        sensors.set(full(), Some(1));
        let late = sensors.handle_repository_command(storage::SDR, &[low, high, 1, 0, 5, 5]);
        assert_eq!(late, [0xc5]);
        assert_eq!(
            sensors.handle_repository_command(storage::SDR_INFO, &[])[2],
            2
        );
    }

    #[test]
    fn readings_have_the_crossed_thresholds() {
        let mut sensors = two();
        for (raw, bits) in [(69, 0), (70, 0b1000), (80, 0b1_1000)] {
            sensors.set(full(), Some(raw));
            let reading = sensors.handle_sensor_command(sensor::READING, &[0x30]);
            assert_eq!(reading, [0, raw, 0xc0, bits, 0]);
        }
        assert_eq!(
            sensors.handle_sensor_command(sensor::READING, &[9])[2],
            0xe0
        );
        let thresholds = sensors.handle_sensor_command(sensor::THRESHOLDS, &[0x30]);
        assert_eq!(thresholds, [0, 0b1_1000, 0, 0, 0, 70, 80, 0]);
        for (command, data, code) in [
            (sensor::READING, &[][..], 0xc7),
            (sensor::READING, &[1], 0xcb),
            (0x99, &[9], 0xc1),
        ] {
            assert_eq!(sensors.handle_sensor_command(command, data), [code]);
        }
    }

    #[test]
    fn the_repository_is_bounded() {
        let mut sensors = SimulatedSensors::default();
        for number in 0..=u8::MAX {
            let sensor = SdrSensor { number, ..full() };
            sensors.set(sensor, None);
        }
        assert_eq!(sensors.sensors.len(), SENSORS_MAX);
    }
}
