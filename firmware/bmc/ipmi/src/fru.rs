//! FRU inventories (IPMI Platform Management FRU Information Storage Definition, version 1.0): a
//! common header and the chassis, board and product areas. A wrong checksum makes an area, or the
//! whole inventory, unreadable.

mod field;

pub(crate) use field::text;
use field::{FruFields, push};

/// Offsets and lengths of areas are multiples of eight bytes.
const UNIT: usize = 8;
const VERSION: u8 = 1;
/// The end of the fields of an area.
const END: u8 = 0xc1;
/// Most fields of one area that are read. Ours.
pub const FIELDS_MAX: usize = 32;
/// Language code of English, in which eight-bit text is read here.
const ENGLISH: u8 = 25;

/// Why an inventory cannot be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FruError {
    /// The common header is missing, of another version or fails its checksum.
    #[error("no common header")]
    Header,
    /// An area is out of bounds, has another version or fails its checksum.
    #[error("the {area} area is damaged")]
    Area {
        /// Name of the area.
        area: &'static str,
    },
}

/// The chassis area.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FruChassis {
    /// Chassis type, as in SMBIOS; 23 is a rack mount chassis.
    pub kind: u8,
    /// Part number.
    pub part: String,
    /// Serial number.
    pub serial: String,
    /// Custom fields of the manufacturer.
    pub extra: Vec<String>,
}

/// The board area.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FruBoard {
    /// Manufacturing date, in minutes since the beginning of 1996; zero if unknown.
    pub made_minutes: u32,
    /// Manufacturer.
    pub maker: String,
    /// Product name.
    pub name: String,
    /// Serial number.
    pub serial: String,
    /// Part number.
    pub part: String,
    /// FRU file identifier: the file that the content was made from.
    pub file: String,
    /// Custom fields of the manufacturer.
    pub extra: Vec<String>,
}

/// The product area.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FruProduct {
    /// Manufacturer.
    pub maker: String,
    /// Product name.
    pub name: String,
    /// Part or model number.
    pub part: String,
    /// Version.
    pub version: String,
    /// Serial number.
    pub serial: String,
    /// Asset tag.
    pub asset: String,
    /// FRU file identifier: the file that the content was made from.
    pub file: String,
    /// Custom fields of the manufacturer.
    pub extra: Vec<String>,
}

/// A FRU inventory: the areas that are read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FruInventory {
    /// The chassis, if there is such an area.
    pub chassis: Option<FruChassis>,
    /// The board, if there is such an area.
    pub board: Option<FruBoard>,
    /// The product, if there is such an area.
    pub product: Option<FruProduct>,
}

impl FruInventory {
    /// Reads the bytes of a FRU device.
    pub fn parse(bytes: &[u8]) -> Result<Self, FruError> {
        let &[version, _internal, chassis, board, product, ..] =
            bytes.get(..UNIT).unwrap_or_default()
        else {
            return Err(FruError::Header);
        };
        if version & 0x0f != VERSION || !checksum_is_valid(&bytes[..UNIT]) {
            return Err(FruError::Header);
        }
        Ok(Self {
            chassis: area(bytes, chassis, "chassis", parse_chassis)?,
            board: area(bytes, board, "board", parse_board)?,
            product: area(bytes, product, "product", parse_product)?,
        })
    }

    /// The content of a FRU device with this inventory. Text that does not fit into a field or an
    /// area is left out.
    pub fn emit(&self) -> Vec<u8> {
        let areas = [
            self.chassis.as_ref().map(emit_chassis),
            self.board.as_ref().map(emit_board),
            self.product.as_ref().map(emit_product),
        ];
        let mut header = [VERSION, 0, 0, 0, 0, 0, 0, 0];
        let mut rest = Vec::new();
        for (at, area) in areas.into_iter().enumerate() {
            if let Some(area) = area {
                header[2 + at] = ((UNIT + rest.len()) / UNIT) as u8;
                rest.extend(area);
            }
        }
        header[UNIT - 1] = checksum(&header);
        [&header[..], &rest].concat()
    }
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, &byte| sum.wrapping_add(byte))
}

fn checksum_is_valid(bytes: &[u8]) -> bool {
    sum(bytes) == 0
}

/// The byte that makes the sum of all bytes zero.
fn checksum(bytes: &[u8]) -> u8 {
    sum(bytes).wrapping_neg()
}

/// Finds an area by its offset, verifies it and parses the bytes between its header and its
/// checksum.
fn area<T>(
    bytes: &[u8],
    offset: u8,
    area: &'static str,
    parse: fn(&[u8]) -> Option<T>,
) -> Result<Option<T>, FruError> {
    if offset == 0 {
        return Ok(None);
    }
    let damaged = FruError::Area { area };
    let bytes = bytes.get(usize::from(offset) * UNIT..).ok_or(damaged)?;
    let &[version, length, ..] = bytes else {
        return Err(damaged);
    };
    let bytes = bytes.get(..usize::from(length) * UNIT).ok_or(damaged)?;
    let inner = match bytes {
        [_, _, inner @ .., _sum] if version & 0x0f == VERSION && checksum_is_valid(bytes) => inner,
        _ => return Err(damaged),
    };
    parse(inner).map(Some).ok_or(damaged)
}

fn parse_chassis(bytes: &[u8]) -> Option<FruChassis> {
    let (&kind, rest) = bytes.split_first()?;
    let mut fields = FruFields::new(rest, ENGLISH);
    Some(FruChassis {
        kind,
        part: fields.text()?,
        serial: fields.text()?,
        extra: fields.rest()?,
    })
}

fn parse_board(bytes: &[u8]) -> Option<FruBoard> {
    let &[language, low, middle, high, ref rest @ ..] = bytes else {
        return None;
    };
    let mut fields = FruFields::new(rest, language);
    Some(FruBoard {
        made_minutes: u32::from_le_bytes([low, middle, high, 0]),
        maker: fields.text()?,
        name: fields.text()?,
        serial: fields.text()?,
        part: fields.text()?,
        file: fields.text()?,
        extra: fields.rest()?,
    })
}

fn parse_product(bytes: &[u8]) -> Option<FruProduct> {
    let (&language, rest) = bytes.split_first()?;
    let mut fields = FruFields::new(rest, language);
    Some(FruProduct {
        maker: fields.text()?,
        name: fields.text()?,
        part: fields.text()?,
        version: fields.text()?,
        serial: fields.text()?,
        asset: fields.text()?,
        file: fields.text()?,
        extra: fields.rest()?,
    })
}

fn emit_area<'a>(head: &[u8], texts: impl Iterator<Item = &'a String>) -> Vec<u8> {
    /// The length of an area is one byte, in units of eight; the end mark and the checksum need two
    /// bytes.
    const TEXT_BYTES_MAX: usize = 255 * UNIT - 2;
    let mut out = [&[VERSION, 0][..], head].concat();
    for text in texts {
        let before = out.len();
        push(&mut out, text);
        if out.len() > TEXT_BYTES_MAX {
            out.truncate(before);
            break;
        }
    }
    out.push(END);
    while out.len() % UNIT != UNIT - 1 {
        out.push(0);
    }
    out[1] = (out.len().div_ceil(UNIT)) as u8;
    out.push(checksum(&out));
    out
}

fn emit_chassis(chassis: &FruChassis) -> Vec<u8> {
    let FruChassis {
        kind,
        part,
        serial,
        extra,
    } = chassis;
    emit_area(&[*kind], [part, serial].into_iter().chain(extra))
}

fn emit_board(board: &FruBoard) -> Vec<u8> {
    let FruBoard {
        made_minutes,
        maker,
        name,
        serial,
        part,
        file,
        extra,
    } = board;
    let [low, middle, high, _] = made_minutes.to_le_bytes();
    let texts = [maker, name, serial, part, file].into_iter().chain(extra);
    emit_area(&[ENGLISH, low, middle, high], texts)
}

fn emit_product(product: &FruProduct) -> Vec<u8> {
    let FruProduct {
        maker,
        name,
        part,
        version,
        serial,
        asset,
        file,
        extra,
    } = product;
    let texts = [maker, name, part, version, serial, asset, file];
    emit_area(&[ENGLISH], texts.into_iter().chain(extra))
}

#[cfg(test)]
mod tests;
