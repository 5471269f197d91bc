//! Inventories that are written, read, damaged and truncated.

use super::*;

fn full() -> FruInventory {
    let text = str::to_owned;
    FruInventory {
        chassis: Some(FruChassis {
            kind: 23,
            part: text("CH-1"),
            serial: text("C0001"),
            extra: vec![],
        }),
        board: Some(FruBoard {
            made_minutes: 13_000_000,
            maker: text("Trivet"),
            name: text("Board"),
            serial: text("B0002"),
            part: text("BP-2"),
            file: String::new(),
            extra: vec![text("extra"), text("more")],
        }),
        product: Some(FruProduct {
            maker: text("Trivet"),
            name: text("Server"),
            part: text("PP-3"),
            version: text("1"),
            serial: text("P0003"),
            asset: text("shelf 4"),
            file: String::new(),
            extra: vec![],
        }),
    }
}

#[test]
fn reads_what_it_writes_with_and_without_each_area() {
    for mask in 0..8 {
        let mut inventory = full();
        if mask & 1 != 0 {
            inventory.chassis = None;
        }
        if mask & 2 != 0 {
            inventory.board = None;
        }
        if mask & 4 != 0 {
            inventory.product = None;
        }
        assert_eq!(FruInventory::parse(&inventory.emit()), Ok(inventory));
    }
}

/// A board area as in the storage definition, built by hand.
#[test]
fn reads_known_bytes() {
    let mut bytes = vec![1, 0, 0, 1, 0, 0, 0, 0xfe];
    bytes.extend([1, 3, 0, 0x40, 0x42, 0x0f]);
    bytes.extend([0xc3, b'A', b'C', b'M', 0x83, 0x29, 0xdc, 0xa6]);
    bytes.extend([0x42, 0x12, 0x34, 0x01, 0xbe, 0xc0, 0xc1, 0, 0]);
    assert_eq!(bytes.len(), 8 + 23);
    bytes.push(checksum(&bytes[8..]));
    let board = FruInventory::parse(&bytes).unwrap().board.unwrap();
    let want = FruBoard {
        made_minutes: 1_000_000,
        maker: "ACM".into(),
        name: "IPMI".into(),
        serial: "1234".into(),
        part: "be".into(),
        ..FruBoard::default()
    };
    assert_eq!(board, want);
}

#[test]
fn every_single_changed_byte_is_noticed_or_belongs_to_no_area() {
    let bytes = full().emit();
    for at in 0..bytes.len() {
        let mut bent = bytes.clone();
        bent[at] ^= 0x10;
        assert!(FruInventory::parse(&bent).is_err(), "byte {at}");
    }
}

#[test]
fn every_prefix_is_refused() {
    let bytes = full().emit();
    for length in 0..bytes.len() {
        assert!(FruInventory::parse(&bytes[..length]).is_err(), "{length}");
    }
    assert_eq!(FruInventory::parse(&[]), Err(FruError::Header));
    assert_eq!(FruInventory::parse(&[0; 256]), Err(FruError::Header));
    assert_eq!(FruInventory::parse(&[0xff; 256]), Err(FruError::Header));
}

#[test]
fn areas_without_length_or_beyond_the_end_are_named() {
    let mut bytes = full().emit();
    bytes[4] = 0xff;
    bytes[7] = checksum(&bytes[..7]);
    let want = Err(FruError::Area { area: "product" });
    assert_eq!(FruInventory::parse(&bytes), want);
    let mut bytes = full().emit();
    bytes[9] = 0;
    let want = Err(FruError::Area { area: "chassis" });
    assert_eq!(FruInventory::parse(&bytes), want);
}

#[test]
fn text_without_end_stays_inside_its_area() {
    let mut inventory = full();
    if let Some(product) = &mut inventory.product {
        product.extra = vec!["n".repeat(63); 40];
    }
    let bytes = inventory.emit();
    assert!(bytes.len() <= 3 * 255 * 8 + 8);
    // It has more fields than are read back.
    let product = FruInventory::parse(&bytes).map(|read| read.product);
    match product {
        Ok(Some(product)) => assert!(product.extra.len() <= FIELDS_MAX),
        other => assert_eq!(other, Err(FruError::Area { area: "product" })),
    }
}

proptest::proptest! {
    #[test]
    fn whatever_is_read_can_be_written_and_read_again(
        bytes in proptest::collection::vec(0..=u8::MAX, 0..120),
    ) {
        let mut bytes = bytes;
        if let Some(head) = bytes.get_mut(..8) {
            head.copy_from_slice(&[1, 0, 1, 0, 0, 0, 0, 0xfe]);
        }
        if bytes.len() >= 16 {
            let units = (bytes.len() - 8) / 8;
            bytes[8] = 1;
            bytes[9] = units as u8;
            let last = 8 + units * 8 - 1;
            bytes[last] = checksum(&bytes[8..last]);
        }
        if let Ok(inventory) = FruInventory::parse(&bytes) {
            // Text that becomes longer when decoded, as bytes do in hexadecimal, is truncated once,
            // then stable.
            let cut = FruInventory::parse(&inventory.emit()).unwrap();
            assert_eq!(FruInventory::parse(&cut.emit()), Ok(cut));
        }
    }
}
