//! Sensor data records (section 43): full and compact sensors, and the conversion of their raw
//! readings: M times x plus B with two exponents, then one of twelve functions (section 36.3).

use crate::fru::text;

/// Bytes before the body of every record: number, version, type, length.
pub const HEAD_BYTES: usize = 5;
/// Most bytes of a sensor's record. Ours: a full one has at most 79.
pub const RECORD_BYTES_MAX: usize = 96;

pub(crate) const KIND_FULL: u8 = 0x01;
pub(crate) const KIND_COMPACT: u8 = 0x02;
/// Reading type of sensors with thresholds (table 42-1).
const THRESHOLDS: u8 = 0x01;
const FULL_NAME_AT: usize = 47;
const COMPACT_NAME_AT: usize = 31;
const NAME_BYTES_MAX: usize = 16;
/// The last function after the linear one; sensors with higher numbers have a table of their own.
const FUNCTION_MAX: u8 = 11;
/// Offsets of the thresholds in a record, in the order of the states and of Get Sensor Thresholds:
/// lower non-critical, critical, non-recoverable, then upper.
const THRESHOLDS_AT: [usize; 6] = [41, 40, 39, 38, 37, 36];

/// Factors of the conversion from a raw reading to a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SdrFactors {
    /// Unsigned, ones' complement or two's complement.
    pub format: u8,
    /// The last function of the conversion; zero for linear.
    pub function: u8,
    /// Ten bits, signed.
    pub m: i16,
    /// Ten bits, signed.
    pub b: i16,
    /// Exponent of B, four bits, signed.
    pub b_exponent: i8,
    /// Exponent of the result, four bits, signed.
    pub result_exponent: i8,
}

impl SdrFactors {
    /// The value of a raw reading; `None` if the result is not a number.
    pub fn value(self, raw: u8) -> Option<f64> {
        let raw = match self.format {
            // Ones' complement has two zeros.
            1 if raw & 0x80 != 0 => -f64::from(!raw),
            0 | 1 => f64::from(raw),
            _ => f64::from(raw.cast_signed()),
        };
        let offset = f64::from(self.b) * 10_f64.powi(self.b_exponent.into());
        let scale = 10_f64.powi(self.result_exponent.into());
        let linear = (f64::from(self.m) * raw + offset) * scale;
        let value = match self.function {
            0 => linear,
            1 => linear.ln(),
            2 => linear.log10(),
            3 => linear.log2(),
            4 => linear.exp(),
            5 => 10_f64.powf(linear),
            6 => linear.exp2(),
            7 => linear.recip(),
            8 => linear * linear,
            9 => linear.powi(3),
            10 => linear.sqrt(),
            FUNCTION_MAX => linear.cbrt(),
            _ => return None,
        };
        value.is_finite().then_some(value)
    }
}

/// A sensor as its record describes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SdrSensor {
    /// Address of the controller that owns it; 0x20 for the BMC itself.
    pub owner: u8,
    /// Logical unit number (LUN) within that controller.
    pub lun: u8,
    /// Sensor number within the LUN.
    pub number: u8,
    /// Sensor type (table 42-3).
    pub kind: u8,
    /// Event and reading type (table 42-1); one for thresholds.
    pub reading_type: u8,
    /// How the units combine, and whether it is a percentage.
    pub unit_flags: u8,
    /// Unit (table 43-15).
    pub unit: u8,
    /// Modifier unit, if units combine.
    pub unit_second: u8,
    /// Conversion factors; `None` for sensors with states only.
    pub factors: Option<SdrFactors>,
    /// Raw thresholds that can be read: lower before upper, each as non-critical, critical,
    /// non-recoverable.
    pub thresholds: [Option<u8>; 6],
    /// Its name.
    pub name: String,
}

/// The state of a sensor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SdrSensorState {
    /// Within its thresholds.
    Ok,
    /// Beyond a non-critical threshold.
    NonCritical,
    /// Beyond a critical threshold.
    Critical,
    /// Beyond a non-recoverable threshold.
    NonRecoverable,
    /// A sensor with states instead of thresholds: one bit for each asserted state.
    Bits(u16),
    /// It has no reading at present.
    Unavailable,
}

/// A sensor with its reading.
#[derive(Clone, Debug, PartialEq)]
pub struct SdrReading {
    /// Number of the sensor.
    pub number: u8,
    /// Sensor type (table 42-3).
    pub kind: u8,
    /// Its name.
    pub name: String,
    /// The value, if it has one.
    pub value: Option<f64>,
    /// Unit of the value.
    pub unit: String,
    /// Thresholds that can be read, in the order of [`SdrSensor::thresholds`].
    pub thresholds: [Option<f64>; 6],
    /// The state at the time of the reading.
    pub state: SdrSensorState,
}

fn ten_bits(low: u8, high: u8) -> i16 {
    let bits = u16::from(low) | u16::from(high & 0xc0) << 2;
    (bits << 6).cast_signed() >> 6
}

fn four_bits(bits: u8) -> i8 {
    (bits << 4).cast_signed() >> 4
}

fn name(bytes: &[u8], at: usize) -> Option<String> {
    let head = *bytes.get(at)?;
    let bytes = bytes.get(at + 1..)?.get(..usize::from(head & 0x1f))?;
    // Type zero is Unicode here; manufacturers write ASCII all the same.
    let kind = if head >> 6 == 0 { 3 } else { head >> 6 };
    let text = text(kind, bytes, true);
    let printable = text.chars().filter(|character| !character.is_control());
    Some(printable.collect::<String>().trim().to_owned())
}

impl SdrSensor {
    /// Parses a whole record; `None` if it is truncated or not a sensor.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let full = match *bytes.get(3)? {
            KIND_FULL => true,
            KIND_COMPACT => false,
            _ => return None,
        };
        let bytes = bytes.get(..HEAD_BYTES + usize::from(*bytes.get(4)?))?;
        let name = name(bytes, if full { FULL_NAME_AT } else { COMPACT_NAME_AT })?;
        let format = bytes[20] >> 6;
        let factors = (full && format < 3).then(|| SdrFactors {
            format,
            function: bytes[23] & 0x7f,
            m: ten_bits(bytes[24], bytes[25]),
            b: ten_bits(bytes[26], bytes[27]),
            b_exponent: four_bits(bytes[29]),
            result_exponent: four_bits(bytes[29] >> 4),
        });
        let readable = if full && bytes[13] == THRESHOLDS {
            bytes[18]
        } else {
            0
        };
        let mut thresholds = [None; 6];
        for (bit, at) in THRESHOLDS_AT.into_iter().enumerate() {
            if readable >> bit & 1 != 0 {
                thresholds[bit] = Some(bytes[at]);
            }
        }
        Some(Self {
            owner: bytes[5],
            lun: bytes[6] & 3,
            number: bytes[7],
            kind: bytes[12],
            reading_type: bytes[13] & 0x7f,
            unit_flags: bytes[20] & 0x3f,
            unit: bytes[21],
            unit_second: bytes[22],
            factors,
            thresholds,
            name,
        })
    }

    /// The record of this sensor: full if it has factors, else compact. The name is truncated to
    /// sixteen characters.
    pub fn emit(&self, id: u16) -> Vec<u8> {
        let (kind, name_at) = match self.factors {
            Some(_) => (KIND_FULL, FULL_NAME_AT),
            None => (KIND_COMPACT, COMPACT_NAME_AT),
        };
        let mut out = vec![0; name_at + 1];
        out[..2].copy_from_slice(&id.to_le_bytes());
        (out[2], out[3]) = (0x51, kind);
        (out[5], out[6], out[7]) = (self.owner, self.lun & 3, self.number);
        // Entity: the system board.
        (out[8], out[9]) = (7, 1);
        (out[12], out[13]) = (self.kind, self.reading_type & 0x7f);
        let format = self.factors.map_or(3, |factors| factors.format & 3);
        out[20] = format << 6 | self.unit_flags & 0x3f;
        (out[21], out[22]) = (self.unit, self.unit_second);
        if let Some(factors) = self.factors {
            let (m, b) = (factors.m.cast_unsigned(), factors.b.cast_unsigned());
            out[23] = factors.function & 0x7f;
            (out[24], out[25]) = (m as u8, (m >> 2) as u8 & 0xc0);
            (out[26], out[27]) = (b as u8, (b >> 2) as u8 & 0xc0);
            out[29] = factors.result_exponent.cast_unsigned() << 4
                | factors.b_exponent.cast_unsigned() & 0x0f;
            for (bit, at) in THRESHOLDS_AT.into_iter().enumerate() {
                if let Some(raw) = self.thresholds[bit] {
                    // The readable thresholds, and their mask.
                    out[11] = 0x04;
                    out[18] |= 1 << bit;
                    out[at] = raw;
                }
            }
        }
        let characters = self
            .name
            .chars()
            .map(|character| u8::try_from(character).unwrap_or(b'?'));
        let characters: Vec<u8> = characters.take(NAME_BYTES_MAX).collect();
        out[name_at] = 0xc0 | characters.len() as u8;
        out.extend(characters);
        out[4] = (out.len() - HEAD_BYTES) as u8;
        out
    }

    /// The reading of this sensor from the data of Get Sensor Reading (section 35.14).
    pub fn reading(&self, data: &[u8]) -> SdrReading {
        let mut reading = SdrReading {
            number: self.number,
            kind: self.kind,
            name: self.name.clone(),
            value: None,
            unit: self.unit_name(),
            thresholds: self.thresholds.map(|raw| self.factors?.value(raw?)),
            state: SdrSensorState::Unavailable,
        };
        let &[raw, flags, ref states @ ..] = data else {
            return reading;
        };
        let (scanned, missing) = (flags & 0x40 != 0, flags & 0x20 != 0);
        if !scanned || missing {
            return reading;
        }
        let low = states.first().copied().unwrap_or_default();
        let high = states.get(1).copied().unwrap_or_default() & 0x7f;
        reading.value = self.factors.and_then(|factors| factors.value(raw));
        reading.state = if self.reading_type == THRESHOLDS {
            state(low)
        } else {
            SdrSensorState::Bits(u16::from_le_bytes([low, high]))
        };
        reading
    }

    /// The name of the unit, such as `degrees C` or `V`; empty if it has none.
    pub fn unit_name(&self) -> String {
        let percent = if self.unit_flags & 1 != 0 { "%" } else { "" };
        let (base, second) = (unit(self.unit), unit(self.unit_second));
        let joint = match self.unit_flags >> 1 & 3 {
            1 => "/",
            2 => "*",
            _ => return format!("{percent}{base}"),
        };
        format!("{percent}{base}{joint}{second}")
    }
}

/// The worst threshold that is crossed.
fn state(bits: u8) -> SdrSensorState {
    match bits {
        bits if bits & 0b10_0100 != 0 => SdrSensorState::NonRecoverable,
        bits if bits & 0b01_0010 != 0 => SdrSensorState::Critical,
        bits if bits & 0b00_1001 != 0 => SdrSensorState::NonCritical,
        _ => SdrSensorState::Ok,
    }
}

/// Names of units (table 43-15), those that sensors of servers use.
fn unit(number: u8) -> &'static str {
    const UNITS: [&str; 27] = [
        "",
        "degrees C",
        "degrees F",
        "K",
        "V",
        "A",
        "W",
        "J",
        "C",
        "VA",
        "nt",
        "lm",
        "lx",
        "cd",
        "kPa",
        "PSI",
        "N",
        "CFM",
        "RPM",
        "Hz",
        "us",
        "ms",
        "s",
        "min",
        "h",
        "d",
        "weeks",
    ];
    UNITS.get(usize::from(number)).copied().unwrap_or("?")
}

#[cfg(test)]
pub(crate) mod tests;
