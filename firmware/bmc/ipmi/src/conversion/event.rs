//! The message and severity of an event log record (tables 42-2 and 42-3).
//!
//! The messages are those of the crate `ipmi-rs-core`; the severities are ours, because the
//! standard has none for discrete events.

use core::fmt::{self, Write as _};

use ipmi_rs_core::storage::sdr::{SensorType, decode_event};
use trivet_model::UnixMs;
use trivet_model::bmc_request::{BmcEvent, BmcEventSeverity};

use super::kind;
use crate::sel::{SelEvent, SelRecord};

/// The event type of thresholds, and that of sensor-specific events (table 42-1).
const THRESHOLD: u8 = 0x01;
const OF_SENSOR: u8 = 0x6f;

/// Smaller times count from the start of a BMC whose clock was not set, and the last one means none
/// (section 37.1).
const TIME_S_MIN: u32 = 0x2000_0001;
const TIME_NONE: u32 = u32::MAX;

/// The shared form of one record.
pub(super) fn bmc_event(record: &SelRecord) -> BmcEvent {
    let time = record.time_s;
    let time = time.filter(|&time| (TIME_S_MIN..TIME_NONE).contains(&time));
    let raw = record.bytes.iter().fold(String::new(), |mut raw, byte| {
        let _never = write!(raw, "{byte:02x}");
        raw
    });
    let event = record.event.as_ref();
    BmcEvent {
        id: record.id.to_string(),
        time: time.map(|time| UnixMs(u64::from(time) * 1000).to_string()),
        severity: event.map_or(BmcEventSeverity::Unknown, severity),
        sensor: event.map(|event| format!("0x{:02x}", event.sensor)),
        kind: event.map(|event| kind::of_sensor(event.sensor_type)),
        asserted: event.map(|event| event.asserted),
        message: event.map_or_else(|| "an OEM record".to_owned(), message),
        raw: Some(raw),
    }
}

/// The offset of the event within its type.
fn offset(event: &SelEvent) -> u8 {
    event.data[0] & 0x0f
}

fn severity(event: &SelEvent) -> BmcEventSeverity {
    if !event.asserted {
        return BmcEventSeverity::Ok;
    }
    let at = offset(event);
    match event.kind {
        THRESHOLD => match at {
            0 | 1 | 6 | 7 => BmcEventSeverity::Warning,
            2..=5 | 8..=11 => BmcEventSeverity::Critical,
            _ => BmcEventSeverity::Unknown,
        },
        OF_SENSOR => sensor_severity(event.sensor_type, at),
        _ => generic_severity(event.kind, at),
    }
}

/// Severity of a generic discrete event (table 42-2), where its text says one.
fn generic_severity(event_type: u8, at: u8) -> BmcEventSeverity {
    match (event_type, at) {
        // Predictive failure, limit, performance; then severity; then redundancy.
        (0x04..=0x06 | 0x0b, 0) | (0x07, 0 | 7 | 8) => BmcEventSeverity::Ok,
        (0x04..=0x06, 1) | (0x07, 1 | 4) | (0x0b, 1..=4 | 6 | 7) => BmcEventSeverity::Warning,
        (0x07, 2 | 3 | 5 | 6) | (0x0b, 5) => BmcEventSeverity::Critical,
        _ => BmcEventSeverity::Unknown,
    }
}

/// Severity of a sensor-specific event (table 42-3).
fn sensor_severity(sensor_type: u8, at: u8) -> BmcEventSeverity {
    let row = SEVERITIES.iter().find(|row| row.0 == sensor_type);
    match row {
        Some((_, ok, _, _)) if ok.contains(&at) => BmcEventSeverity::Ok,
        Some((_, _, warning, _)) if warning.contains(&at) => BmcEventSeverity::Warning,
        Some((_, _, _, critical)) if critical.contains(&at) => BmcEventSeverity::Critical,
        _ => BmcEventSeverity::Unknown,
    }
}

/// Sensor type, then the offsets that need no action, those that may be the first sign of a
/// failure, and those that are failures.
type SeverityRow = (u8, &'static [u8], &'static [u8], &'static [u8]);

const SEVERITIES: &[SeverityRow] = &[
    // Physical security.
    (0x05, &[], &[0], &[]),
    // Processor.
    (0x07, &[7], &[10, 12], &[0, 1, 2, 3, 4, 6, 11]),
    // Power supply and power unit.
    (0x08, &[0], &[2], &[1, 3]),
    (0x09, &[0], &[7], &[4, 6]),
    // Memory, drive slot, firmware progress, event log.
    (0x0c, &[6], &[0, 5], &[1, 10]),
    (0x0d, &[0], &[2], &[1, 6]),
    (0x0f, &[2], &[], &[0, 1]),
    (0x10, &[2], &[4, 5], &[]),
    // System event, critical interrupt, button.
    (0x12, &[1, 5], &[], &[]),
    (0x13, &[], &[0, 7], &[4, 5, 8, 9, 10]),
    (0x14, &[0, 2], &[], &[]),
    // System boot, boot error, operating system.
    (0x1d, &[0, 1, 2], &[], &[]),
    (0x1e, &[], &[0, 2], &[]),
    (0x1f, &[1, 2], &[], &[]),
    (0x20, &[2, 3], &[], &[0, 1]),
    (0x22, &[0, 5, 6], &[], &[]),
    // Watchdog 2, presence, battery, session audit.
    (0x23, &[], &[0], &[1, 2, 3]),
    (0x25, &[0], &[], &[]),
    (0x29, &[2], &[0], &[1]),
    (0x2a, &[], &[2, 3], &[]),
];

/// The text for an event; empty where the standard defines none.
struct EventText<'a>(&'a SelEvent);

impl fmt::Display for EventText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(event) = self;
        let sensor_type = SensorType::from(event.sensor_type);
        decode_event(f, event.kind, sensor_type, offset(event))
    }
}

fn message(event: &SelEvent) -> String {
    let mut text = EventText(event).to_string();
    if text.is_empty() {
        let at = offset(event);
        text = format!("event offset {at} of event type 0x{:02x}", event.kind);
    }
    if !event.asserted {
        text.push_str(" (deasserted)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sensor_type: u8, kind: u8, at: u8, asserted: bool, want: (&str, BmcEventSeverity)) {
        let event = SelEvent {
            generator: 0x20,
            sensor_type,
            sensor: 0x30,
            asserted,
            kind,
            data: [0x50 | at, 1, 2],
        };
        let reported = bmc_event(&SelRecord::new(7, 1_700_000_000, event));
        assert_eq!((&*reported.message, reported.severity), want);
        assert_eq!(reported.asserted, Some(asserted));
        assert_eq!(
            (&*reported.id, reported.sensor.as_deref()),
            ("7", Some("0x30"))
        );
        assert_eq!(
            reported.time.as_deref(),
            Some("2023-11-14T22:13:20.000000+00:00")
        );
        assert_eq!(reported.raw.map(|raw| raw.len()), Some(32));
    }

    #[test]
    fn threshold_messages_have_the_direction() {
        let rising = "Upper Non-critical - going high";
        check(1, 1, 7, true, (rising, BmcEventSeverity::Warning));
        let over = "Upper Non-critical - going high (deasserted)";
        check(1, 1, 7, false, (over, BmcEventSeverity::Ok));
        let falling = "Lower Critical - going low";
        check(2, 1, 2, true, (falling, BmcEventSeverity::Critical));
        let unknown = "event offset 12 of event type 0x01";
        check(2, 1, 12, true, (unknown, BmcEventSeverity::Unknown));
    }

    #[test]
    fn known_sensor_states_have_messages() {
        let cleared = ("Log Area Reset/Cleared", BmcEventSeverity::Ok);
        check(0x10, 0x6f, 2, true, cleared);
        let failed = ("Power Supply Failure detected", BmcEventSeverity::Critical);
        check(0x08, 0x6f, 1, true, failed);
        let violation = ("Invalid Username or Password", BmcEventSeverity::Warning);
        check(0x2a, 0x6f, 2, true, violation);
        let unknown = "event offset 9 of event type 0x6f";
        check(0x08, 0x6f, 9, true, (unknown, BmcEventSeverity::Unknown));
    }

    #[test]
    fn generic_events_have_messages() {
        let lost = ("Redundancy Lost", BmcEventSeverity::Warning);
        check(0x08, 0x0b, 1, true, lost);
        let state = ("State Asserted", BmcEventSeverity::Unknown);
        check(0x08, 0x03, 1, true, state);
        let oem = "event offset 1 of event type 0x70";
        check(0x08, 0x70, 1, true, (oem, BmcEventSeverity::Unknown));
    }

    /// All values of the three fields that the text depends on. Each gives a message without a
    /// panic, and a severity is only given to an event that has a text.
    #[test]
    fn every_event_that_a_record_can_hold_has_a_message() {
        let mut sensor_texts = 0;
        for kind in 0..=0x7f {
            for sensor_type in 0..=u8::MAX {
                for at in 0..=0x0f {
                    let event = SelEvent {
                        generator: 0x20,
                        sensor_type,
                        sensor: 1,
                        asserted: true,
                        kind,
                        data: [at, 0, 0],
                    };
                    let known = !EventText(&event).to_string().is_empty();
                    sensor_texts += usize::from(known && kind == OF_SENSOR);
                    assert!(!message(&event).is_empty());
                    let rated = severity(&event) != BmcEventSeverity::Unknown;
                    assert!(known || !rated, "{kind} {sensor_type} {at}");
                }
            }
        }
        assert_eq!(sensor_texts, 192);
    }

    #[test]
    fn a_clock_that_was_not_set_gives_no_time() {
        let mut record = SelRecord::parse(&[9; 16]).unwrap();
        for (time_s, has_time) in [
            (None, false),
            (Some(0), false),
            (Some(0x2000_0000), false),
            (Some(0x2000_0001), true),
            (Some(u32::MAX), false),
        ] {
            record.time_s = time_s;
            assert_eq!(bmc_event(&record).time.is_some(), has_time, "{time_s:?}");
        }
        let reported = bmc_event(&record);
        assert_eq!(
            (reported.severity, reported.sensor),
            (BmcEventSeverity::Unknown, None)
        );
        assert!(reported.message.contains("OEM"), "{}", reported.message);
    }
}
