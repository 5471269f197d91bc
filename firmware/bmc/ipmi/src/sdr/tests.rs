//! Records that are read, written and truncated; conversion of readings.

use super::*;

pub(crate) fn full() -> SdrSensor {
    SdrSensor {
        owner: 0x20,
        lun: 0,
        number: 0x30,
        kind: 1,
        reading_type: 1,
        unit_flags: 0,
        unit: 1,
        unit_second: 0,
        factors: Some(LINEAR),
        thresholds: [None, None, None, Some(70), Some(80), None],
        name: "Inlet".into(),
    }
}

const LINEAR: SdrFactors = SdrFactors {
    format: 0,
    function: 0,
    m: 1,
    b: 0,
    b_exponent: 0,
    result_exponent: 0,
};

fn compact() -> SdrSensor {
    SdrSensor {
        reading_type: 0x6f,
        unit: 0,
        factors: None,
        thresholds: [None; 6],
        name: "Chassis".into(),
        ..full()
    }
}

#[test]
fn reads_what_it_writes() {
    for sensor in [full(), compact()] {
        let bytes = sensor.emit(7);
        assert_eq!(bytes.len(), HEAD_BYTES + usize::from(bytes[4]));
        assert!(bytes.len() <= RECORD_BYTES_MAX);
        assert_eq!(SdrSensor::parse(&bytes), Some(sensor));
    }
    let odd = SdrFactors {
        format: 2,
        function: 7,
        m: -512,
        b: 511,
        b_exponent: -8,
        result_exponent: 7,
    };
    let sensor = SdrSensor {
        factors: Some(odd),
        thresholds: [Some(1), Some(2), Some(3), Some(4), Some(5), Some(6)],
        ..full()
    };
    assert_eq!(SdrSensor::parse(&sensor.emit(1)), Some(sensor));
}

#[test]
fn every_prefix_and_every_other_kind_is_refused() {
    for sensor in [full(), compact()] {
        let mut bytes = sensor.emit(7);
        for length in 0..bytes.len() {
            assert_eq!(SdrSensor::parse(&bytes[..length]), None, "{length}");
        }
        bytes[3] = 0x12;
        assert_eq!(SdrSensor::parse(&bytes), None);
    }
    // A record whose length is shorter than its name.
    let mut bytes = full().emit(7);
    bytes[4] -= 1;
    assert_eq!(SdrSensor::parse(&bytes), None);
}

#[track_caller]
fn converts(factors: SdrFactors, raw: u8, want: Option<f64>) {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
    match (factors.value(raw), want) {
        (Some(value), Some(want)) => assert!(near(value, want), "{value} not {want}"),
        (value, want) => assert_eq!(value, want),
    }
}

#[test]
fn converts_readings() {
    // Twelve volts in steps of 63 mV, and a fan in steps of 60.
    let volts = SdrFactors {
        m: 63,
        result_exponent: -3,
        ..LINEAR
    };
    converts(volts, 192, Some(12.096));
    converts(SdrFactors { m: 60, ..LINEAR }, 100, Some(6000.0));
    let offset = SdrFactors {
        b: -5,
        b_exponent: 1,
        ..LINEAR
    };
    converts(offset, 20, Some(-30.0));
    for (format, raw, want) in [(0, 0xfe, 254.0), (1, 0xfe, -1.0), (2, 0xfe, -2.0)] {
        converts(SdrFactors { format, ..LINEAR }, raw, Some(want));
    }
    converts(
        SdrFactors {
            format: 1,
            ..LINEAR
        },
        0x7f,
        Some(127.0),
    );
}

#[test]
fn knows_every_function_and_no_number_that_is_none() {
    let wants = [
        (1, 2_f64.ln()),
        (2, 2_f64.log10()),
        (3, 1.0),
        (4, 2_f64.exp()),
        (5, 100.0),
        (6, 4.0),
        (7, 0.5),
        (8, 4.0),
        (9, 8.0),
        (10, 2_f64.sqrt()),
        (11, 2_f64.cbrt()),
    ];
    for (function, want) in wants {
        converts(SdrFactors { function, ..LINEAR }, 2, Some(want));
    }
    for function in [1, 2, 3, 7, 12, 0x70] {
        converts(SdrFactors { function, ..LINEAR }, 0, None);
    }
    let below = SdrFactors {
        function: 10,
        m: -1,
        ..LINEAR
    };
    converts(below, 4, None);
}

#[test]
fn readings_have_value_unit_and_state() {
    let sensor = full();
    for (data, value, state) in [
        (&[25, 0xc0, 0xc0][..], Some(25.0), SdrSensorState::Ok),
        (
            &[71, 0xc0, 0b00_1000],
            Some(71.0),
            SdrSensorState::NonCritical,
        ),
        (&[81, 0xc0, 0b01_1000], Some(81.0), SdrSensorState::Critical),
        (
            &[99, 0x40, 0b11_1000],
            Some(99.0),
            SdrSensorState::NonRecoverable,
        ),
        (&[25, 0xc0], Some(25.0), SdrSensorState::Ok),
        (&[25, 0xe0, 0], None, SdrSensorState::Unavailable),
        (&[25, 0x80, 0], None, SdrSensorState::Unavailable),
        (&[25], None, SdrSensorState::Unavailable),
        (&[], None, SdrSensorState::Unavailable),
    ] {
        let reading = sensor.reading(data);
        assert_eq!((reading.value, reading.state), (value, state), "{data:?}");
        assert_eq!((&*reading.name, &*reading.unit), ("Inlet", "degrees C"));
    }
    let reading = compact().reading(&[0, 0xc0, 0x05, 0x81]);
    assert_eq!(reading.state, SdrSensorState::Bits(0x0105));
    assert_eq!((reading.value, &*reading.unit), (None, ""));
}

#[test]
fn units_combine() {
    for (unit_flags, unit, unit_second, want) in [
        (1, 0, 0, "%"),
        (2, 6, 22, "W/s"),
        (4, 6, 24, "W*h"),
        (0, 18, 0, "RPM"),
        (0, 200, 0, "?"),
    ] {
        let sensor = SdrSensor {
            unit_flags,
            unit,
            unit_second,
            ..full()
        };
        assert_eq!(sensor.unit_name(), want);
    }
}

#[test]
fn names_lose_what_cannot_be_printed_and_what_is_too_long() {
    let sensor = SdrSensor {
        name: "a\u{7}b \u{2603}".into(),
        ..full()
    };
    let read = SdrSensor::parse(&sensor.emit(1)).unwrap();
    assert_eq!(read.name, "ab ?");
    let sensor = SdrSensor {
        name: "n".repeat(100),
        ..full()
    };
    assert_eq!(SdrSensor::parse(&sensor.emit(1)).unwrap().name.len(), 16);
}

proptest::proptest! {
    #[test]
    fn whatever_is_read_is_written_and_read_again(
        head in 1..=2_u8,
        bytes in proptest::collection::vec(0..=u8::MAX, 48..80),
        raw: [u8; 4],
    ) {
        let mut bytes = bytes;
        bytes[3] = head;
        bytes[4] = (bytes.len() - HEAD_BYTES) as u8;
        if let Some(sensor) = SdrSensor::parse(&bytes) {
            let again = SdrSensor::parse(&sensor.emit(1)).unwrap();
            assert_eq!(again.factors, sensor.factors);
            assert_eq!(again.number, sensor.number);
            let value = sensor.reading(&raw).value;
            assert!(value.is_none_or(f64::is_finite));
        }
    }
}
