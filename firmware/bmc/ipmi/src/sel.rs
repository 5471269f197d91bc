//! Records of the system event log (section 32). Records have sixteen bytes; only the standard type
//! is parsed, the others are kept as bytes.

/// Bytes of a record.
pub const RECORD_BYTES: usize = 16;

/// The standard record type.
const KIND_EVENT: u8 = 0x02;
/// Record types from here on have no time.
const KIND_TIMELESS: u8 = 0xe0;

/// How full a log is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SelInfo {
    /// Number of records.
    pub records: u16,
    /// Free bytes; 65535 means that many or more.
    pub free_bytes: u16,
    /// Whether records were lost because it was full.
    pub overflowed: bool,
}

impl SelInfo {
    /// Reads the data of Get SEL Info.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let &[_version, low, high, free_low, free_high, ..] = data else {
            return None;
        };
        // Two timestamps of four bytes are before the last byte.
        let operations = *data.get(13)?;
        Some(Self {
            records: u16::from_le_bytes([low, high]),
            free_bytes: u16::from_le_bytes([free_low, free_high]),
            overflowed: operations & 0x80 != 0,
        })
    }
}

/// The fields of a standard record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SelEvent {
    /// Generator ID: the address of a controller or the number of a program.
    pub generator: u16,
    /// Sensor type (table 42-3).
    pub sensor_type: u8,
    /// Number of the sensor.
    pub sensor: u8,
    /// Whether the event was asserted; otherwise deasserted.
    pub asserted: bool,
    /// Event type (table 42-1).
    pub kind: u8,
    /// The offset of the event within its type, and two bytes that depend on it.
    pub data: [u8; 3],
}

/// One record of the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SelRecord {
    /// Record ID.
    pub id: u16,
    /// Seconds since 1970 if the BMC's clock was set; `None` for types without time.
    pub time_s: Option<u32>,
    /// The parsed fields, if it is a standard record.
    pub event: Option<SelEvent>,
    /// The whole record.
    pub bytes: [u8; RECORD_BYTES],
}

impl SelRecord {
    /// Reads one record.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; RECORD_BYTES] = bytes.try_into().ok()?;
        let kind = bytes[2];
        let time = u32::from_le_bytes([bytes[3], bytes[4], bytes[5], bytes[6]]);
        let event = SelEvent {
            generator: u16::from_le_bytes([bytes[7], bytes[8]]),
            sensor_type: bytes[10],
            sensor: bytes[11],
            asserted: bytes[12] & 0x80 == 0,
            kind: bytes[12] & 0x7f,
            data: [bytes[13], bytes[14], bytes[15]],
        };
        Some(Self {
            id: u16::from_le_bytes([bytes[0], bytes[1]]),
            time_s: (kind < KIND_TIMELESS).then_some(time),
            event: (kind == KIND_EVENT).then_some(event),
            bytes,
        })
    }

    /// A standard record.
    pub fn new(id: u16, time_s: u32, event: SelEvent) -> Self {
        let SelEvent {
            generator,
            sensor_type,
            sensor,
            asserted,
            kind,
            data,
        } = event;
        let mut bytes = [0; RECORD_BYTES];
        bytes[..2].copy_from_slice(&id.to_le_bytes());
        bytes[2] = KIND_EVENT;
        bytes[3..7].copy_from_slice(&time_s.to_le_bytes());
        bytes[7..9].copy_from_slice(&generator.to_le_bytes());
        // The revision of the event format, always four.
        bytes[9] = 4;
        bytes[10] = sensor_type;
        bytes[11] = sensor;
        bytes[12] = kind & 0x7f | if asserted { 0 } else { 0x80 };
        bytes[13..].copy_from_slice(&data);
        Self {
            id,
            time_s: Some(time_s),
            event: Some(event),
            bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: SelEvent = SelEvent {
        generator: 0x20,
        sensor_type: 1,
        sensor: 0x30,
        asserted: false,
        kind: 1,
        data: [0x57, 60, 55],
    };

    #[test]
    fn reads_what_it_writes() {
        let record = SelRecord::new(7, 1_000_000, EVENT);
        let want = [7, 0, 2, 0x40, 0x42, 0x0f, 0, 0x20, 0, 4, 1, 0x30, 0x81];
        assert_eq!(record.bytes[..13], want);
        assert_eq!(SelRecord::parse(&record.bytes), Some(record));
        for length in (0..RECORD_BYTES).chain([17, 32]) {
            assert_eq!(SelRecord::parse(&vec![2; length]), None);
        }
    }

    #[test]
    fn records_of_other_kinds_keep_their_bytes() {
        let mut bytes = [9; RECORD_BYTES];
        bytes[2] = 0xc0;
        let timed = SelRecord::parse(&bytes).unwrap();
        assert_eq!((timed.time_s, timed.event), (Some(0x0909_0909), None));
        bytes[2] = 0xe0;
        let timeless = SelRecord::parse(&bytes).unwrap();
        assert_eq!((timeless.time_s, timeless.event), (None, None));
        assert_eq!(timeless.bytes, bytes);
    }

    #[test]
    fn reads_how_full_a_log_is_and_refuses_a_short_answer() {
        let data = [0x51, 3, 1, 0xf0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x82];
        let want = SelInfo {
            records: 259,
            free_bytes: 0xfff0,
            overflowed: true,
        };
        assert_eq!(SelInfo::parse(&data), Some(want));
        for length in 0..data.len() {
            assert_eq!(SelInfo::parse(&data[..length]), None);
        }
    }
}
