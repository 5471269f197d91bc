use super::*;

pub(crate) const MAC: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 1]);

/// A request frame with these option bytes.
fn frame(options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[..3].copy_from_slice(&[1, 1, 6]);
    bytes[28..34].copy_from_slice(&MAC.0);
    bytes.extend(MAGIC);
    bytes.extend(options);
    bytes
}

/// Leaks its bytes, so that a test can use the message without a lifetime.
#[track_caller]
fn decoded(options: &[u8]) -> DhcpMessage<'static> {
    decode(frame(options).leak(), 1).unwrap()
}

#[track_caller]
fn refused(change: impl FnOnce(&mut Vec<u8>)) -> Reason {
    let mut bytes = frame(&[53, 1, 1, 255]);
    change(&mut bytes);
    decode(&bytes, 1).unwrap_err()
}

#[test]
fn refuses_what_is_no_dhcp_request_on_ethernet() {
    assert_eq!(refused(|bytes| bytes.truncate(239)), Reason::TooShort);
    assert_eq!(refused(|bytes| bytes.resize(1473, 0)), Reason::TooLong);
    assert_eq!(refused(|bytes| bytes[0] = 2), Reason::WrongDirection);
    assert_eq!(refused(|bytes| bytes[1] = 6), Reason::NotEthernet);
    for hlen in [0, 5, 7, 16, 17, 255] {
        assert_eq!(refused(|bytes| bytes[2] = hlen), Reason::NotEthernet);
    }
    assert_eq!(refused(|bytes| bytes[28] = 0x53), Reason::NotOneMachine);
    assert_eq!(
        refused(|bytes| bytes[28..34].fill(0)),
        Reason::NotOneMachine
    );
    assert_eq!(refused(|bytes| bytes[236] = 0), Reason::NoCookie);
    assert_eq!(refused(|bytes| bytes[240] = 0), Reason::NoMessageType);
}

#[test]
fn a_bad_option_does_not_hide_the_others() {
    for bad in [
        &[54, 3, 1, 2, 3][..],
        &[94, 2, 1, 2],
        &[150, 8, 1, 2, 3, 4, 5, 6, 7, 8],
        &[12, 2, 0xe4, 0xf6],
        &[114, 1, 0xff],
        &[80, 3, 1, 2, 3],
        &[81, 1, 1],
        &[152, 1, 0],
        &[153, 1, 0],
        &[93, 1, 0],
        &[97, 3, 0, 1, 2],
        &[50, 0],
        &[121, 1, 33],
        &[119, 2, 0xc0, 0xff],
    ] {
        let options = [bad, &[53, 1, 3, 255]].concat();
        let frame = decoded(&options);
        assert_eq!(frame.message_type, DhcpMessageType::Request, "{bad:?}");
        assert_eq!(frame.requested(), None, "{bad:?}");
        assert_eq!(frame.server(), None, "{bad:?}");
        assert_eq!(frame.arch(), None, "{bad:?}");
        assert_eq!(frame.uuid(), None, "{bad:?}");
    }
}

#[test]
fn a_length_past_the_end_drops_only_that_option() {
    let frame = decoded(&[53, 1, 1, 50, 4, 10, 0]);
    assert_eq!(frame.message_type, DhcpMessageType::Discover);
    assert_eq!(frame.requested(), None);
}

#[test]
fn split_options_are_joined() {
    let frame = decoded(&[60, 3, b'P', b'X', b'E', 53, 1, 1, 60, 2, b'C', b'l', 255]);
    assert_eq!(frame.vendor_class(), Some(b"PXECl".as_slice()));
}

#[test]
fn options_are_found_in_file_and_server_name() {
    for (which, want) in [(1, (true, false)), (2, (false, true)), (3, (true, true))] {
        let mut bytes = frame(&[53, 1, 3, 52, 1, which, 255]);
        bytes[FILE.start..FILE.start + 7].copy_from_slice(&[50, 4, 10, 0, 0, 7, 255]);
        bytes[SNAME.start..SNAME.start + 7].copy_from_slice(&[54, 4, 10, 0, 0, 1, 255]);
        let frame = decode(&bytes, 1).unwrap();
        let found = (frame.requested().is_some(), frame.server().is_some());
        assert_eq!(found, want, "overload {which}");
        assert_eq!(frame.boot_file(), None);
    }
}

#[test]
fn reads_what_seabios_ipxe_sends() {
    let class = b"PXEClient:Arch:00000:UNDI:002001";
    let mut options = vec![53, 1, 1, 57, 2, 5, 0xc0, 93, 2, 0, 0, 94, 3, 1, 2, 1];
    options.extend([60, class.len() as u8]);
    options.extend(class);
    options.extend([77, 4]);
    options.extend(b"iPXE");
    options.extend([
        97, 17, 0, 0x33, 0x22, 0x11, 0, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99,
    ]);
    options.extend([0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff]);
    options.extend([175, 12, 0xb1, 5, 1, 0x1a, 0xf4, 0x10, 0, 0xeb, 3, 1, 0, 0]);
    options.push(255);
    let frame = decoded(&options);
    assert!(frame.is_ipxe());
    assert_eq!(frame.arch(), Some(0));
    let uuid = frame.uuid().unwrap();
    assert_eq!(uuid[..8], [0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77]);
    assert_eq!(frame.vendor_class(), Some(class.as_slice()));
}

#[test]
fn ipxe_is_known_by_either_form_of_its_user_class_and_by_nothing_less() {
    assert!(decoded(b"\x35\x01\x01\x4d\x04iPXE\xff").is_ipxe());
    assert!(decoded(b"\x35\x01\x01\x4d\x05\x04iPXE\xff").is_ipxe());
    assert!(!decoded(b"\x35\x01\x01\x4d\x05gPXE!\xff").is_ipxe());
    assert!(!decoded(b"\x35\x01\x01\xff").is_ipxe());
}

#[test]
fn the_architecture_is_taken_from_a_list_or_from_the_vendor_class() {
    assert_eq!(decoded(&[53, 1, 1, 93, 4, 0, 9, 0, 7]).arch(), Some(9));
    let class = b"\x35\x01\x01\x3c\x14PXEClient:Arch:00007\xff";
    assert_eq!(decoded(class).arch(), Some(7));
    let cut = b"\x35\x01\x01\x3c\x12PXEClient:Arch:000\xff";
    assert_eq!(decoded(cut).arch(), None);
}

#[test]
fn relay_information_is_kept_byte_for_byte() {
    let info = [1, 2, 0xff, 0x00, 9, 0, 1, 1, 7];
    let mut options = vec![82, info.len() as u8];
    options.extend(info);
    options.extend([53, 1, 1, 175, 1, 1, 255]);
    assert_eq!(decoded(&options).relay_info(), Some(info.as_slice()));
}

#[test]
fn a_relay_port_is_noticed() {
    assert!(decoded(&[53, 1, 1, 82, 5, 1, 1, 7, 19, 0, 255]).relay_port_counts());
    assert!(!decoded(&[53, 1, 1, 82, 3, 1, 1, 19, 255]).relay_port_counts());
    assert!(!decoded(&[53, 1, 1, 255]).relay_port_counts());
}

#[test]
fn the_accepted_size_has_a_minimum_and_a_maximum() {
    let size = |value: &[u8]| {
        let options = [&[53, 1, 1, 57, value.len() as u8][..], value].concat();
        decoded(&options).size_max()
    };
    assert_eq!(decoded(&[53, 1, 1]).size_max(), 548);
    assert_eq!(size(&[0x05, 0xc0]), 1444);
    assert_eq!(size(&[0xff, 0x00]), MESSAGE_BYTES_MAX);
    assert_eq!(size(&[0, 0]), 548);
    assert_eq!(size(&[5]), 548);
}

#[test]
fn message_types_have_their_numbers_and_names() {
    for number in 1..=8 {
        assert_eq!(DhcpMessageType::read(number).number(), number);
    }
    assert_eq!(DhcpMessageType::read(1).name(), "DISCOVER");
    assert_eq!(DhcpMessageType::read(8).name(), "INFORM");
    for number in [0, 9, 255] {
        assert_eq!(DhcpMessageType::read(number), DhcpMessageType::Other);
    }
}

#[test]
fn very_many_options_cost_no_more_than_those_we_read() {
    let mut options = vec![53, 1, 1];
    while options.len() < 1200 {
        let code = options.len() as u8;
        options.extend([code.clamp(100, 170), 0]);
    }
    assert_eq!(decoded(&options).options.len(), 1);
}

/// Every frame that the other implementation encodes is decoded to the same values.
#[test]
fn reads_what_another_implementation_reads() {
    use dhcproto::v4::{DhcpOption, Message, OptionCode};
    use dhcproto::{Decodable, Decoder};
    use trivet_model::SeededRandom;

    let mut random = SeededRandom::new(5);
    for _ in 0..5000 {
        let mut writer = crate::writer::DhcpMessageWriter::new(1, [7; 4], MAC);
        writer.option(code::MESSAGE_TYPE, &[1 + random.below(8) as u8]);
        for code in [50, 51, 54, 60, 61, 67, 93, 97, 175] {
            if random.chance(500) {
                let size = match code {
                    50 | 51 | 54 => 4,
                    93 => 2,
                    97 => 17,
                    _ => 1 + random.below(400) as usize,
                };
                let mut value = vec![b'a' + random.below(20) as u8; size];
                if code == 97 {
                    value[0] = 0;
                }
                writer.option(code, &value);
            }
        }
        let bytes = writer.finish(None);
        let ours = decode(&bytes, 1).unwrap();
        let theirs = Message::decode(&mut Decoder::new(&bytes)).unwrap();
        let option = |code: u8| theirs.opts().get(OptionCode::from(code));
        let kind: u8 = theirs.opts().msg_type().unwrap().into();
        assert_eq!(ours.message_type.number(), kind);
        assert_eq!(
            ours.requested()
                .map(DhcpOption::RequestedIpAddress)
                .as_ref(),
            option(50)
        );
        assert_eq!(
            ours.lease_s().map(DhcpOption::AddressLeaseTime).as_ref(),
            option(51)
        );
        assert_eq!(
            ours.server().map(DhcpOption::ServerIdentifier).as_ref(),
            option(54)
        );
        let bytes_of = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
        let class = bytes_of(ours.vendor_class()).map(DhcpOption::ClassIdentifier);
        assert_eq!(class.as_ref(), option(60));
        let id = bytes_of(ours.client_id()).map(DhcpOption::ClientIdentifier);
        assert_eq!(id.as_ref(), option(61));
        let file = ours
            .boot_file()
            .map(|file| DhcpOption::BootfileName(file.into()));
        assert_eq!(file.as_ref(), option(67));
        assert_eq!(ours.arch().is_some(), option(93).is_some());
        let machine = bytes_of(ours.machine_id()).map(DhcpOption::ClientMachineIdentifier);
        assert_eq!(machine.as_ref(), option(97));
        assert_eq!(ours.is_ipxe(), option(175).is_some());
    }
}
