//! Replies of BMCs: the dialogues of all BMC requests, and the inventories, events and sensor
//! records inside their replies.

pub(crate) mod session;

use trivet_bmc_ipmi::fru::{FruBoard, FruChassis, FruInventory, FruProduct};
use trivet_bmc_ipmi::operation::{
    IpmiIdentify, IpmiOperation, IpmiOperationNext, IpmiOperationScript, IpmiReply,
};
use trivet_bmc_ipmi::sdr::{HEAD_BYTES, SdrFactors, SdrSensor};
use trivet_bmc_ipmi::sel::{SelEvent, SelInfo, SelRecord};

use crate::FuzzTarget;
use crate::input::FuzzInput;

pub(crate) const BMC_REQUESTS: FuzzTarget = FuzzTarget {
    name: "ipmi_bmc_requests",
    run: bmc_requests,
    seeds: bmc_request_seeds,
    regressions: &[],
};

pub(crate) const FRU: FuzzTarget = FuzzTarget {
    name: "ipmi_fru",
    run: fru,
    seeds: fru_seeds,
    regressions: &[],
};

pub(crate) const SDR: FuzzTarget = FuzzTarget {
    name: "ipmi_sdr",
    run: sdr,
    seeds: sdr_seeds,
    regressions: &[],
};

pub(crate) const SEL: FuzzTarget = FuzzTarget {
    name: "ipmi_sel",
    run: sel,
    seeds: sel_seeds,
    regressions: &[],
};

/// Most IPMI requests of any BMC request, for any replies: an inventory of 16 KiB written and
/// read byte by byte.
const REQUESTS_MAX: usize = 40_000;
/// Longest data of a request that still fits a BMC's message.
const REQUEST_BYTES_MAX: usize = 64;

/// All BMC requests, by a number.
fn bmc_request(number: u8) -> IpmiOperation {
    match number % 15 {
        0 => IpmiOperation::BootFlags,
        1 => IpmiOperation::ReadMailbox { blocks: 3 },
        2 => IpmiOperation::WriteMailbox {
            bytes: vec![number; 20],
        },
        3 => IpmiOperation::ReadFru { device: 0 },
        4 => IpmiOperation::WriteFru {
            device: 0,
            offset: 4,
            bytes: vec![number; 40],
        },
        5 => IpmiOperation::SelInfo,
        6 => IpmiOperation::SelList,
        7 => IpmiOperation::SelClear,
        8 => IpmiOperation::Sensors,
        9 => IpmiOperation::Identify {
            identify: IpmiIdentify::On,
        },
        10 => IpmiOperation::SystemGuid,
        11 => IpmiOperation::Lan { channel: 14 },
        12 => IpmiOperation::Users { channel: 14 },
        13 => IpmiOperation::Identity,
        _ => IpmiOperation::IdentifyState,
    }
}

/// Runs a BMC request. The input gives replies, each with its length before it; after the last
/// one, it is repeated.
fn bmc_requests(bytes: &[u8]) {
    let mut input = FuzzInput::new(bytes);
    let Ok((mut dialogue, mut request)) = IpmiOperationScript::start(bmc_request(input.byte()))
    else {
        return;
    };
    let mut answer: &[u8] = &[];
    for _ in 0..REQUESTS_MAX {
        assert!(request.netfn & 1 == 0 && request.data.len() <= REQUEST_BYTES_MAX);
        if !input.is_empty() {
            answer = input.counted();
        }
        let (code, data) = answer
            .split_first()
            .map_or((0, answer), |(code, data)| (*code, data));
        match dialogue.handle_response(code, data) {
            IpmiOperationNext::Send(next) | IpmiOperationNext::SendLater { request: next, .. } => {
                request = next;
            }
            IpmiOperationNext::Done(Ok(report)) => return check_report(&report),
            IpmiOperationNext::Done(Err(_)) => return,
        }
    }
    panic!("a BMC request without end");
}

fn check_report(report: &IpmiReply) {
    let reported = trivet_bmc_ipmi::to_bmc_reply(report.clone()).value();
    assert!(reported.is_object());
    match report {
        IpmiReply::Fru(bytes) => fru(bytes),
        IpmiReply::Sensors(readings) => {
            assert!(
                readings
                    .iter()
                    .all(|it| it.value.is_none_or(f64::is_finite))
            );
        }
        IpmiReply::Users(users) => {
            let plain = |name: &str| name.chars().count() <= 16 && !name.contains('\0');
            assert!(users.iter().all(|user| plain(&user.name)));
        }
        _ => {}
    }
}

fn bmc_request_seeds() -> Vec<Vec<u8>> {
    let counted = |answers: &[&[u8]]| -> Vec<u8> {
        let parts = answers
            .iter()
            .map(|it| [&[it.len() as u8][..], it].concat());
        parts.collect::<Vec<_>>().concat()
    };
    let info: &[u8] = &[0, 0x51, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    let event = [&[0, 0xff, 0xff][..], &[2; 16]].concat();
    let sensor = sensor().emit(1);
    let head = [&[0, 0xff, 0xff][..], &sensor[..HEAD_BYTES]].concat();
    let body = [&[0, 0xff, 0xff][..], &sensor[HEAD_BYTES..37]].concat();
    let rest = [&[0, 0xff, 0xff][..], &sensor[37..]].concat();
    let block: &[u8] = &[
        0, 1, 7, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
    ];
    let user: &[u8] = &[0, 2, 1, 1, 0x14];
    let scripts: [(u8, Vec<&[u8]>); 8] = [
        (0, vec![&[0, 1, 5, 0xe0, 4, 0, 0, 0]]),
        (1, vec![block]),
        (3, vec![&[0, 64, 0, 0], &[0xca], &[0, 2, 7, 8]]),
        (6, vec![info, &[0, 1, 0], &event]),
        (7, vec![info, &[0, 1, 0], &[0, 0], &[0, 1]]),
        (8, vec![&[0, 1, 0], &head, &body, &rest, &[0, 40, 0xc0, 0]]),
        (11, vec![&[0, 0x11, 10, 0, 0, 2, 0, 0]]),
        (12, vec![user, b"\0admin\0\0\0\0\0\0\0\0\0\0\0", user]),
    ];
    let seeds = scripts
        .iter()
        .map(|(number, answers)| [&[*number][..], &counted(answers)].concat());
    seeds.collect()
}

/// What is decoded can be encoded, and decodes to the same.
fn fru(bytes: &[u8]) {
    let Ok(inventory) = FruInventory::parse(bytes) else {
        return;
    };
    let cut = FruInventory::parse(&inventory.emit()).expect("what was written is read");
    assert_eq!(FruInventory::parse(&cut.emit()), Ok(cut));
}

fn fru_seeds() -> Vec<Vec<u8>> {
    let (chassis, board, product) = (
        FruChassis::default(),
        FruBoard::default(),
        FruProduct::default(),
    );
    let mut inventory = FruInventory {
        chassis: Some(chassis),
        board: Some(board),
        product: Some(product),
    };
    let empty = inventory.emit();
    if let Some(board) = &mut inventory.board {
        board.maker = "Trivet".into();
        board.extra = vec!["more".into()];
    }
    vec![empty, inventory.emit(), FruInventory::default().emit()]
}

/// Four bytes of a reading, then the record.
fn sdr(bytes: &[u8]) {
    let (reading, record) = bytes.split_at(bytes.len().min(4));
    let Some(sensor) = SdrSensor::parse(record) else {
        return;
    };
    let again = SdrSensor::parse(&sensor.emit(1)).expect("what was written is read");
    assert_eq!(
        (again.factors, again.number),
        (sensor.factors, sensor.number)
    );
    let reading = sensor.reading(reading);
    assert!(reading.value.is_none_or(f64::is_finite));
    assert!(!reading.name.chars().any(char::is_control));
}

fn sensor() -> SdrSensor {
    SdrSensor {
        owner: 0x20,
        lun: 0,
        number: 4,
        kind: 1,
        reading_type: 1,
        unit_flags: 0,
        unit: 1,
        unit_second: 0,
        factors: Some(SdrFactors {
            format: 0,
            function: 0,
            m: 1,
            b: 0,
            b_exponent: 0,
            result_exponent: 0,
        }),
        thresholds: [None, None, None, Some(70), Some(80), None],
        name: "Inlet".into(),
    }
}

fn sdr_seeds() -> Vec<Vec<u8>> {
    let compact = SdrSensor {
        factors: None,
        thresholds: [None; 6],
        ..sensor()
    };
    let records = [sensor().emit(1), compact.emit(2)];
    records
        .map(|record| [&[25, 0xc0, 0, 0][..], &record].concat())
        .to_vec()
}

/// A record is either decoded and kept byte for byte, or rejected.
fn sel(bytes: &[u8]) {
    let record = SelRecord::parse(bytes);
    assert_eq!(record.is_some(), bytes.len() == 16);
    if let Some(record) = record {
        assert_eq!(record.bytes, bytes);
        // The texts of events come from a foreign crate.
        let shown = trivet_bmc_ipmi::to_bmc_reply(IpmiReply::Sel {
            info: SelInfo::default(),
            records: vec![record],
        });
        let shown = shown.value();
        let message = shown["events"][0]["message"].as_str();
        assert!(message.is_some_and(|message| !message.is_empty()));
        if let (Some(event), Some(time_s)) = (record.event, record.time_s) {
            let again = SelRecord::new(record.id, time_s, event);
            assert_eq!((again.event, again.time_s), (record.event, record.time_s));
        }
    }
    assert_eq!(SelInfo::parse(bytes).is_some(), bytes.len() >= 14);
}

fn sel_seeds() -> Vec<Vec<u8>> {
    let event = SelEvent {
        generator: 0x20,
        sensor_type: 1,
        sensor: 4,
        asserted: true,
        kind: 1,
        data: [0x57, 60, 55],
    };
    vec![
        SelRecord::new(1, 1_000, event).bytes.to_vec(),
        vec![0x51; 14],
    ]
}
