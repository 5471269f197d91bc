//! The message and severity of an event log record (tables 42-2 and 42-3).

use core::fmt::Write as _;

use trivet_model::UnixMs;
use trivet_model::bmc_request::{BmcEvent as Told, BmcEventSeverity};

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
pub(super) fn bmc_event(record: &SelRecord) -> Told {
    let time = record.time_s;
    let time = time.filter(|&time| (TIME_S_MIN..TIME_NONE).contains(&time));
    let raw = record.bytes.iter().fold(String::new(), |mut raw, byte| {
        let _never = write!(raw, "{byte:02x}");
        raw
    });
    let event = record.event.as_ref();
    Told {
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
    match (event.kind, event.sensor_type, offset(event)) {
        (THRESHOLD, _, 0 | 1 | 6 | 7) => BmcEventSeverity::Warning,
        (THRESHOLD, _, 2..=5 | 8..=11) => BmcEventSeverity::Critical,
        (OF_SENSOR, sensor_type, offset) => STATES
            .iter()
            .find(|(of, at, ..)| (*of, *at) == (sensor_type, offset))
            .map_or(BmcEventSeverity::Unknown, |(.., severity)| *severity),
        _ => BmcEventSeverity::Unknown,
    }
}

fn message(event: &SelEvent) -> String {
    let at = offset(event);
    let what = match event.kind {
        THRESHOLD => threshold(at),
        OF_SENSOR => {
            let known = STATES
                .iter()
                .find(|(of, state, ..)| (*of, *state) == (event.sensor_type, at));
            known.map(|(_, _, words, _)| (*words).to_owned())
        }
        _ => None,
    };
    let what = what.unwrap_or_else(|| {
        let kind = event.kind;
        format!("state {at} of kind 0x{kind:02x}")
    });
    if event.asserted {
        what
    } else {
        format!("{what}: over")
    }
}

fn threshold(at: u8) -> Option<String> {
    const LEVELS: [&str; 6] = [
        "lower non-critical",
        "lower critical",
        "lower non-recoverable",
        "upper non-critical",
        "upper critical",
        "upper non-recoverable",
    ];
    let level = LEVELS.get(usize::from(at / 2))?;
    let way = if at.is_multiple_of(2) {
        "falling"
    } else {
        "rising"
    };
    Some(format!("{level} threshold passed, {way}"))
}

/// Type of sensor, offset, message, and severity when asserted. Only the usual ones.
const STATES: &[(u8, u8, &str, BmcEventSeverity)] = &[
    (0x05, 0, "chassis opened", BmcEventSeverity::Warning),
    (
        0x07,
        0,
        "processor: internal error",
        BmcEventSeverity::Critical,
    ),
    (0x07, 1, "processor: too hot", BmcEventSeverity::Critical),
    (0x07, 7, "processor present", BmcEventSeverity::Ok),
    (0x07, 10, "processor throttled", BmcEventSeverity::Warning),
    (0x08, 0, "power supply present", BmcEventSeverity::Ok),
    (0x08, 1, "power supply failed", BmcEventSeverity::Critical),
    (0x08, 2, "power supply will fail", BmcEventSeverity::Warning),
    (
        0x08,
        3,
        "power supply without input",
        BmcEventSeverity::Critical,
    ),
    (0x09, 0, "power off", BmcEventSeverity::Ok),
    (0x09, 4, "mains lost", BmcEventSeverity::Critical),
    (0x09, 6, "power unit failed", BmcEventSeverity::Critical),
    (
        0x0c,
        0,
        "memory error, corrected",
        BmcEventSeverity::Warning,
    ),
    (
        0x0c,
        1,
        "memory error, not corrected",
        BmcEventSeverity::Critical,
    ),
    (
        0x0c,
        5,
        "too many corrected memory errors",
        BmcEventSeverity::Warning,
    ),
    (0x0d, 0, "drive present", BmcEventSeverity::Ok),
    (0x0d, 1, "drive failed", BmcEventSeverity::Critical),
    (0x0d, 2, "drive will fail", BmcEventSeverity::Warning),
    (
        0x0f,
        0,
        "firmware: error at start",
        BmcEventSeverity::Critical,
    ),
    (0x0f, 1, "firmware: hangs", BmcEventSeverity::Critical),
    (0x0f, 2, "firmware: progress", BmcEventSeverity::Ok),
    (0x10, 2, "event log cleared", BmcEventSeverity::Ok),
    (0x10, 4, "event log full", BmcEventSeverity::Warning),
    (0x10, 5, "event log almost full", BmcEventSeverity::Warning),
    (
        0x12,
        1,
        "system booted for the first time",
        BmcEventSeverity::Ok,
    ),
    (0x12, 5, "clock set", BmcEventSeverity::Ok),
    (
        0x13,
        0,
        "interrupt from the front panel",
        BmcEventSeverity::Warning,
    ),
    (0x13, 4, "PCI parity error", BmcEventSeverity::Critical),
    (0x13, 5, "PCI system error", BmcEventSeverity::Critical),
    (
        0x13,
        8,
        "bus error, not corrected",
        BmcEventSeverity::Critical,
    ),
    (0x14, 0, "power button pressed", BmcEventSeverity::Ok),
    (0x14, 2, "reset button pressed", BmcEventSeverity::Ok),
    (0x1d, 0, "started by power-up", BmcEventSeverity::Ok),
    (0x1d, 1, "started by hard reset", BmcEventSeverity::Ok),
    (0x1d, 2, "started by warm reset", BmcEventSeverity::Ok),
    (0x1e, 0, "no medium to boot from", BmcEventSeverity::Warning),
    (
        0x1e,
        2,
        "no answer to network boot",
        BmcEventSeverity::Warning,
    ),
    (0x1f, 1, "booted from disk", BmcEventSeverity::Ok),
    (0x1f, 2, "booted from the network", BmcEventSeverity::Ok),
    (
        0x20,
        1,
        "operating system stopped",
        BmcEventSeverity::Critical,
    ),
    (0x20, 3, "operating system shut down", BmcEventSeverity::Ok),
    (0x22, 0, "running", BmcEventSeverity::Ok),
    (0x22, 6, "soft off", BmcEventSeverity::Ok),
    (0x23, 0, "watchdog expired", BmcEventSeverity::Warning),
    (0x23, 1, "watchdog: hard reset", BmcEventSeverity::Critical),
    (0x23, 2, "watchdog: power off", BmcEventSeverity::Critical),
    (0x23, 3, "watchdog: power cycle", BmcEventSeverity::Critical),
    (0x29, 0, "battery low", BmcEventSeverity::Warning),
    (0x29, 1, "battery failed", BmcEventSeverity::Critical),
];

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
        let told = bmc_event(&SelRecord::new(7, 1_700_000_000, event));
        assert_eq!((&*told.message, told.severity), want);
        assert_eq!(told.asserted, Some(asserted));
        assert_eq!((&*told.id, told.sensor.as_deref()), ("7", Some("0x30")));
        assert_eq!(
            told.time.as_deref(),
            Some("2023-11-14T22:13:20.000000+00:00")
        );
        assert_eq!(told.raw.map(|raw| raw.len()), Some(32));
    }

    #[test]
    fn threshold_messages_have_the_direction() {
        let rising = "upper non-critical threshold passed, rising";
        check(1, 1, 7, true, (rising, BmcEventSeverity::Warning));
        let over = "upper non-critical threshold passed, rising: over";
        check(1, 1, 7, false, (over, BmcEventSeverity::Ok));
        let falling = "lower critical threshold passed, falling";
        check(2, 1, 2, true, (falling, BmcEventSeverity::Critical));
        check(
            2,
            1,
            12,
            true,
            ("state 12 of kind 0x01", BmcEventSeverity::Unknown),
        );
    }

    #[test]
    fn known_sensor_states_have_messages() {
        check(
            0x10,
            0x6f,
            2,
            true,
            ("event log cleared", BmcEventSeverity::Ok),
        );
        let failed = ("power supply failed", BmcEventSeverity::Critical);
        check(0x08, 0x6f, 1, true, failed);
        let unknown = ("state 9 of kind 0x6f", BmcEventSeverity::Unknown);
        check(0x08, 0x6f, 9, true, unknown);
        check(
            0x08,
            0x03,
            1,
            true,
            ("state 1 of kind 0x03", BmcEventSeverity::Unknown),
        );
    }

    #[test]
    fn a_clock_that_was_not_set_gives_no_time() {
        let mut record = SelRecord::parse(&[9; 16]).unwrap();
        for (time_s, told_at) in [
            (None, false),
            (Some(0), false),
            (Some(0x2000_0000), false),
            (Some(0x2000_0001), true),
            (Some(u32::MAX), false),
        ] {
            record.time_s = time_s;
            assert_eq!(bmc_event(&record).time.is_some(), told_at, "{time_s:?}");
        }
        let told = bmc_event(&record);
        assert_eq!(
            (told.severity, told.sensor),
            (BmcEventSeverity::Unknown, None)
        );
        assert!(told.message.contains("OEM"), "{}", told.message);
    }
}
