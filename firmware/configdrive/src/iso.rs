//! Writes a small ISO 9660 image (ECMA-119) with a Joliet tree in addition to the plain one, so
//! that names keep their case. Supports only a few directories with a few files, each directory
//! within one sector.

use std::collections::BTreeMap;

/// Bytes of a logical sector (6.1.2).
pub(crate) const SECTOR_BYTES: usize = 2048;

/// The first sector of the volume descriptors (6.2.1).
const FIRST_DESCRIPTOR: usize = 16;

/// Sectors of the path table of either tree. Ours: one.
const PATH_TABLE_SECTORS: usize = 1;

/// Entries by name.
pub(crate) struct IsoDirectory(pub(crate) BTreeMap<String, IsoNode>);

/// An entry of a directory.
pub(crate) enum IsoNode {
    /// The index of its content; several files may have the same.
    File(usize),
    /// A subdirectory.
    Directory(IsoDirectory),
}

/// The two trees, which differ in the encoding of names.
#[derive(Clone, Copy, Eq, PartialEq)]
enum IsoNameEncoding {
    /// Capital letters, digits and underscores, and one dot.
    Plain,
    /// UCS-2, big-endian, with the names unchanged.
    Joliet,
}

impl IsoNameEncoding {
    /// Replaces every character that is not allowed by an underscore.
    fn identifier(self, name: &str, is_file: bool) -> Vec<u8> {
        if self == Self::Joliet {
            return name.encode_utf16().flat_map(u16::to_be_bytes).collect();
        }
        let dot = name.rfind('.').filter(|_| is_file);
        let characters = name.char_indices().map(|(at, character)| match character {
            _ if Some(at) == dot => '.',
            character if character.is_ascii_alphanumeric() => character.to_ascii_uppercase(),
            _ => '_',
        });
        let mut identifier: String = characters.collect();
        if is_file {
            if dot.is_none() {
                identifier.push('.');
            }
            identifier.push_str(";1");
        }
        identifier.into_bytes()
    }

    fn text(self, text: &str, bytes: usize) -> Vec<u8> {
        let mut field = match self {
            Self::Plain => text.as_bytes().to_vec(),
            Self::Joliet => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        };
        let pad: &[u8] = match self {
            Self::Plain => b" ",
            Self::Joliet => b"\0 ",
        };
        field.truncate(bytes);
        while field.len() < bytes {
            field.push(pad[field.len() % pad.len()]);
        }
        field
    }
}

/// A directory in the order of the path table, which is by depth.
struct PlacedIsoDirectory<'a> {
    identifier: Vec<u8>,
    parent: usize,
    directory: &'a IsoDirectory,
    sector: usize,
}

/// The whole image.
pub(crate) fn write(label: &str, root: &IsoDirectory, contents: &[Vec<u8>]) -> Vec<u8> {
    // Two descriptors and their terminator, then two path tables for each tree.
    let tables = FIRST_DESCRIPTOR + 3;
    let mut next = tables + 4 * PATH_TABLE_SECTORS;
    let mut plain = layout(root, IsoNameEncoding::Plain);
    let mut joliet = layout(root, IsoNameEncoding::Joliet);
    for placed in plain.iter_mut().chain(&mut joliet) {
        placed.sector = next;
        next += 1;
    }
    let mut extents = Vec::new();
    for content in contents {
        extents.push((next, content.len()));
        next += content.len().div_ceil(SECTOR_BYTES);
    }
    let mut disc = vec![0; next * SECTOR_BYTES];
    let mut put = |sector: usize, bytes: &[u8]| {
        let at = sector * SECTOR_BYTES;
        disc[at..at + bytes.len()].copy_from_slice(bytes);
    };
    for (at, (names, tree)) in [
        (IsoNameEncoding::Plain, &plain),
        (IsoNameEncoding::Joliet, &joliet),
    ]
    .into_iter()
    .enumerate()
    {
        let table = tables + 2 * at;
        let little = path_table(tree, false);
        put(
            FIRST_DESCRIPTOR + at,
            &descriptor(names, label, next, (table, little.len()), tree[0].sector),
        );
        put(table, &little);
        put(table + 1, &path_table(tree, true));
        for placed in tree {
            put(placed.sector, &records(placed, tree, names, &extents));
        }
    }
    put(FIRST_DESCRIPTOR + 2, b"\xffCD001\x01");
    for ((sector, _), content) in extents.iter().zip(contents) {
        put(*sector, content);
    }
    disc
}

fn layout(root: &IsoDirectory, names: IsoNameEncoding) -> Vec<PlacedIsoDirectory<'_>> {
    let mut placed = vec![PlacedIsoDirectory {
        identifier: vec![0],
        parent: 0,
        directory: root,
        sector: 0,
    }];
    let mut at = 0;
    while let Some(parent) = placed.get(at).map(|it| it.directory) {
        for (name, node) in &parent.0 {
            if let IsoNode::Directory(directory) = node {
                placed.push(PlacedIsoDirectory {
                    identifier: names.identifier(name, false),
                    parent: at,
                    directory,
                    sector: 0,
                });
            }
        }
        at += 1;
    }
    placed
}

/// A number in both byte orders (7.2.3 and 7.3.3).
fn both16(number: usize) -> [u8; 4] {
    let [low, high] = (number as u16).to_le_bytes();
    [low, high, high, low]
}

fn both32(number: usize) -> Vec<u8> {
    let number = number as u32;
    [number.to_le_bytes(), number.to_be_bytes()].concat()
}

/// The path table of a tree (9.4).
fn path_table(tree: &[PlacedIsoDirectory<'_>], big: bool) -> Vec<u8> {
    let mut table = Vec::new();
    for placed in tree {
        let (sector, parent) = (placed.sector as u32, placed.parent as u16 + 1);
        table.extend([placed.identifier.len() as u8, 0]);
        if big {
            table.extend(sector.to_be_bytes());
            table.extend(parent.to_be_bytes());
        } else {
            table.extend(sector.to_le_bytes());
            table.extend(parent.to_le_bytes());
        }
        table.extend(&placed.identifier);
        if placed.identifier.len() % 2 == 1 {
            table.push(0);
        }
    }
    table
}

/// One directory record (9.1). All dates are the first second of 1970, so that the same parts
/// always give the same image.
fn record(identifier: &[u8], sector: usize, bytes: usize, is_directory: bool) -> Vec<u8> {
    let length = (33 + identifier.len()).next_multiple_of(2);
    let mut record = vec![length as u8, 0];
    record.extend(both32(sector));
    record.extend(both32(bytes));
    record.extend([70, 1, 1, 0, 0, 0, 0]);
    record.extend([if is_directory { 2 } else { 0 }, 0, 0]);
    record.extend(both16(1));
    record.push(identifier.len() as u8);
    record.extend(identifier);
    record.resize(length, 0);
    record
}

/// The records of one directory: itself, its parent, and its entries in the order of
/// identifiers (9.3).
fn records(
    placed: &PlacedIsoDirectory<'_>,
    tree: &[PlacedIsoDirectory<'_>],
    names: IsoNameEncoding,
    extents: &[(usize, usize)],
) -> Vec<u8> {
    let parent = tree[placed.parent].sector;
    let mut all = record(&[0], placed.sector, SECTOR_BYTES, true);
    all.extend(record(&[1], parent, SECTOR_BYTES, true));
    let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for (name, node) in &placed.directory.0 {
        let is_file = matches!(node, IsoNode::File(_));
        let identifier = names.identifier(name, is_file);
        let (sector, bytes) = match node {
            IsoNode::File(at) => extents[*at],
            IsoNode::Directory(inner) => {
                let place = tree.iter().find(|it| std::ptr::eq(it.directory, inner));
                (place.map_or(0, |it| it.sector), SECTOR_BYTES)
            }
        };
        let record = record(&identifier, sector, bytes, !is_file);
        entries.push((identifier, record));
    }
    entries.sort();
    all.extend(entries.into_iter().flat_map(|(_, record)| record));
    assert!(all.len() <= SECTOR_BYTES, "a directory of a few files");
    all
}

/// A volume descriptor: the primary one (8.4), or Joliet's supplementary one (8.5).
fn descriptor(
    names: IsoNameEncoding,
    label: &str,
    sectors: usize,
    (table, table_bytes): (usize, usize),
    root: usize,
) -> Vec<u8> {
    let mut out = match names {
        IsoNameEncoding::Plain => b"\x01CD001\x01\0".to_vec(),
        IsoNameEncoding::Joliet => b"\x02CD001\x01\0".to_vec(),
    };
    out.extend(names.text("", 32));
    out.extend(names.text(label, 32));
    out.extend([0; 8]);
    out.extend(both32(sectors));
    // In Joliet an escape sequence marks names as UCS-2, level 3.
    let mut escapes = [0; 32];
    if names == IsoNameEncoding::Joliet {
        escapes[..3].copy_from_slice(b"%/E");
    }
    out.extend(escapes);
    out.extend(both16(1));
    out.extend(both16(1));
    out.extend(both16(SECTOR_BYTES));
    out.extend(both32(table_bytes));
    out.extend((table as u32).to_le_bytes());
    out.extend([0; 4]);
    out.extend((table as u32 + 1).to_be_bytes());
    out.extend([0; 4]);
    out.extend(record(&[0], root, SECTOR_BYTES, true));
    // Volume set, publisher, preparer and application, then three file names.
    for bytes in [128, 128, 128, 128, 37, 37, 37] {
        out.extend(names.text("", bytes));
    }
    // Four dates that are not set (8.4.26.1), and the version of the structure.
    for _ in 0..4 {
        out.extend(b"0000000000000000\0");
    }
    out.push(1);
    out.resize(SECTOR_BYTES, 0);
    out
}
