//! Operations, from the session over the network to the simulated BMC and back.

use trivet_model::{BootDevice, PowerError, PowerOrder, PowerState};

use super::rig::{ACCEPTED, IpmiTestRig, IpmiWireFaults, SET_PXE, refused, setup, target};
use crate::fru::{FruInventory, FruProduct};
use crate::operation::{AddressSource, IpmiIdentify, IpmiLanConfig, IpmiOperation, IpmiReply};
use crate::sdr::SdrSensorState;
use crate::sdr::tests::full;
use crate::sel::SelEvent;
use crate::{BootFlags, ORDERS_WAITING_MAX};

pub(super) const BAD_WIRE: IpmiWireFaults = IpmiWireFaults {
    lost: 100,
    doubled: 100,
    // Damaged datagrams have other tests; here they would only cause logins.
    bent: 0,
    late_ms: 40,
};

fn write_mailbox() -> IpmiOperation {
    let bytes = (0..100).collect();
    IpmiOperation::WriteMailbox { bytes }
}

#[test]
fn the_mailbox_is_written_and_read_by_a_bmc_of_either_kind() {
    for framed in [false, true] {
        let mut rig = IpmiTestRig::new(target(), setup());
        if framed {
            rig.bmc.require_set_in_progress();
        }
        assert_eq!(rig.run_operation(write_mailbox()), Ok(IpmiReply::Done));
        assert_eq!(rig.bmc.mailbox(6).map(|block| block[..5].to_vec()), {
            Some(vec![96, 97, 98, 99, 0])
        });
        let Ok(IpmiReply::Mailbox(bytes)) =
            rig.run_operation(IpmiOperation::ReadMailbox { blocks: 7 })
        else {
            panic!("no mailbox");
        };
        assert_eq!(bytes[..100], (0..100).collect::<Vec<u8>>());
        let orders = rig.run(PowerOrder::On);
        assert_eq!(orders, ACCEPTED, "orders continue in the same session");
    }
}

#[test]
fn the_flags_are_read_back_bit_by_bit() {
    let mut rig = IpmiTestRig::new(target(), setup());
    assert_eq!(rig.run(SET_PXE), ACCEPTED);
    let mut want = BootFlags {
        valid: true,
        persistent: false,
        efi: true,
        device: Some(BootDevice::Pxe),
    };
    assert_eq!(
        rig.run_operation(IpmiOperation::BootFlags),
        Ok(IpmiReply::BootFlags(want))
    );
    want.valid = false;
    rig.machine.boot = want;
    assert_eq!(
        rig.run_operation(IpmiOperation::BootFlags),
        Ok(IpmiReply::BootFlags(want))
    );
}

#[test]
fn operations_and_orders_wait_for_each_other_and_share_one_bound() {
    let mut rig = IpmiTestRig::new(target(), setup());
    let send = |rig: &mut IpmiTestRig, id: u64| match id % 2 {
        0 => rig.order(id, PowerOrder::Status),
        _ => (rig.session).operation(rig.now, id, write_mailbox(), &mut rig.entropy),
    };
    for id in 0..ORDERS_WAITING_MAX as u64 {
        assert_eq!(send(&mut rig, id), Ok(()));
    }
    assert_eq!(send(&mut rig, 98), Err(PowerError::QueueFull));
    assert_eq!(send(&mut rig, 99), Err(PowerError::QueueFull));
    assert_eq!(rig.run_until_idle().len(), ORDERS_WAITING_MAX / 2);
    let reports: Vec<_> = core::iter::from_fn(|| rig.session.reply()).collect();
    assert_eq!(reports.len(), ORDERS_WAITING_MAX / 2);
    assert!(
        reports
            .iter()
            .all(|(_, report)| *report == Ok(IpmiReply::Done))
    );
}

/// Runs an operation twice on faulty networks, the second time with a BMC that restarted. Each one
/// succeeds or, rarely, times out; nothing else.
#[track_caller]
pub(super) fn survives(
    operation: &IpmiOperation,
    prepare: fn(&mut IpmiTestRig),
    done: fn(&IpmiReply) -> bool,
) {
    let mut silent = 0;
    for seed in 0..50 {
        let mut rig = IpmiTestRig::seeded(seed, BAD_WIRE);
        prepare(&mut rig);
        for _ in 0..2 {
            match rig.run_operation(operation.clone()) {
                Ok(report) => assert!(done(&report), "seed {seed}: {report:?}"),
                Err(PowerError::NoResponse { .. }) => silent += 1,
                Err(error) => panic!("seed {seed}: {error}"),
            }
            rig.bmc.restart();
        }
    }
    assert!(silent <= 5, "{silent} of 100");
}

#[test]
fn the_mailbox_survives_a_bad_wire_and_a_bmc_that_restarts() {
    let framed = |rig: &mut IpmiTestRig| rig.bmc.require_set_in_progress();
    survives(&write_mailbox(), framed, |report| {
        *report == IpmiReply::Done
    });
}

#[test]
fn a_silent_bmc_ends_an_operation_too() {
    let mut rig = IpmiTestRig::new(target(), setup());
    rig.machine.power = PowerState::On;
    rig.faults.lost = 1000;
    let outcome = rig.run_operation(write_mailbox());
    assert!(matches!(outcome, Err(PowerError::NoResponse { .. })));
    rig.faults.lost = 0;
    assert_eq!(rig.run_operation(write_mailbox()), Ok(IpmiReply::Done));
}

fn inventory() -> FruInventory {
    let product = FruProduct {
        maker: "Trivet".into(),
        name: "Server".into(),
        serial: "S0001".into(),
        ..FruProduct::default()
    };
    FruInventory {
        product: Some(product),
        ..FruInventory::default()
    }
}

#[test]
fn the_fru_is_read_and_written_in_chunks_that_the_bmc_accepts() {
    for piece in [255, 32, 16, 5, 1] {
        let mut rig = IpmiTestRig::new(target(), setup());
        rig.bmc.set_fru(&inventory());
        rig.bmc.set_fru_piece(piece);
        let Ok(IpmiReply::Fru(bytes)) = rig.run_operation(IpmiOperation::ReadFru { device: 0 })
        else {
            panic!("no FRU");
        };
        assert_eq!(FruInventory::parse(&bytes), Ok(inventory()));
        let mut other = inventory();
        if let Some(product) = &mut other.product {
            product.asset = "shelf 4".into();
        }
        let write = IpmiOperation::WriteFru {
            device: 0,
            offset: 0,
            bytes: other.emit(),
        };
        assert_eq!(rig.run_operation(write), Ok(IpmiReply::Done));
        assert_eq!(FruInventory::parse(rig.bmc.fru()), Ok(other));
        let elsewhere = rig.run_operation(IpmiOperation::ReadFru { device: 1 });
        assert_eq!(elsewhere, refused(0xcb));
    }
}

#[test]
fn a_mere_user_writes_no_fru() {
    let mut rig = IpmiTestRig::new(super::vendor::watcher(), setup());
    let write = IpmiOperation::WriteFru {
        device: 0,
        offset: 0,
        bytes: vec![1],
    };
    let refused = Err(PowerError::Privilege);
    assert_eq!(rig.run_operation(write), refused);
    assert!(
        rig.run_operation(IpmiOperation::ReadFru { device: 0 })
            .is_ok()
    );
}

#[test]
fn the_fru_survives_a_bad_wire_and_a_bmc_that_restarts() {
    let write = IpmiOperation::WriteFru {
        device: 0,
        offset: 8,
        bytes: (0..200).collect(),
    };
    survives(&write, |_| {}, |report| *report == IpmiReply::Done);
}

fn fill_log(rig: &mut IpmiTestRig) {
    for sensor in 0..20 {
        let event = SelEvent {
            generator: 0x20,
            sensor_type: 1,
            sensor,
            asserted: true,
            kind: 1,
            data: [0x57, 60, 55],
        };
        rig.bmc.add_event(1_000 + u32::from(sensor), event);
    }
}

#[test]
fn the_log_is_listed_and_cleared() {
    let mut rig = IpmiTestRig::new(target(), setup());
    fill_log(&mut rig);
    rig.bmc.set_sel_erase_polls(3);
    let Ok(IpmiReply::SelInfo(info)) = rig.run_operation(IpmiOperation::SelInfo) else {
        panic!("no state");
    };
    assert_eq!((info.records, info.overflowed), (20, false));
    let Ok(IpmiReply::Sel { records, .. }) = rig.run_operation(IpmiOperation::SelList) else {
        panic!("no log");
    };
    assert_eq!(records, rig.bmc.events());
    assert_eq!(records.len(), 20);
    let before = rig.now;
    assert_eq!(
        rig.run_operation(IpmiOperation::SelClear),
        Ok(IpmiReply::Done)
    );
    assert!(rig.now.since_ms(before) >= 1_000, "it waits between polls");
    assert!(rig.bmc.events().is_empty());
    let empty = rig.run_operation(IpmiOperation::SelList);
    assert!(matches!(empty, Ok(IpmiReply::Sel { records, .. }) if records.is_empty()));
}

#[test]
fn the_log_survives_a_bad_wire_and_a_bmc_that_restarts() {
    let whole = |report: &IpmiReply| match report {
        IpmiReply::Sel { records, .. } => records.len() == 20,
        _ => false,
    };
    survives(&IpmiOperation::SelList, fill_log, whole);
    survives(&IpmiOperation::SelClear, fill_log, |report| {
        *report == IpmiReply::Done
    });
    let mut rig = IpmiTestRig::new(super::vendor::watcher(), setup());
    fill_log(&mut rig);
    let refused = Err(PowerError::Privilege);
    assert_eq!(rig.run_operation(IpmiOperation::SelClear), refused);
    assert_eq!(rig.bmc.events().len(), 20);
}

/// Number of sessions opened for an operation if the BMC does not respond inside them.
fn sessions_of_an_unresponsive_bmc(operation: IpmiOperation) -> usize {
    // RMCP+ and the payload type of Open Session (section 13.27).
    let opens = |bytes: &[u8]| bytes[4] == 6 && bytes[5] == 0x10;
    let mut rig = IpmiTestRig::new(target(), setup());
    let requested = rig
        .session
        .operation(rig.now, 1, operation, &mut rig.entropy);
    requested.unwrap();
    let mut opened = 0;
    for _ in 0..200 {
        while let Some(bytes) = rig.session.transmit() {
            opened += usize::from(opens(&bytes));
            let answer = rig
                .bmc
                .datagram(1, &bytes, &mut rig.machine, &mut rig.entropy);
            let sealed = bytes[4] == 6 && bytes[5] & 0xc0 == 0xc0;
            if let Some(answer) = answer.filter(|_| !sealed) {
                rig.forge(&answer);
            }
        }
        if let Some((_, result)) = rig.session.reply() {
            assert!(matches!(result, Err(PowerError::NoResponse { .. })));
            return opened;
        }
        rig.now = rig.session.deadline().unwrap();
        rig.session.tick(rig.now, &mut rig.entropy);
    }
    panic!("no end");
}

#[test]
fn a_log_is_not_cleared_in_a_second_session() {
    assert_eq!(sessions_of_an_unresponsive_bmc(IpmiOperation::SelClear), 1);
    assert_eq!(sessions_of_an_unresponsive_bmc(IpmiOperation::SelList), 2);
}

fn add_sensors(rig: &mut IpmiTestRig) {
    for number in 0..12 {
        let mut sensor = full();
        sensor.number = number;
        sensor.name = format!("Inlet {number}");
        let raw = (number != 3).then_some(68 + number);
        rig.bmc.set_sensor(sensor, raw);
    }
}

#[test]
fn sensors_are_read_with_name_value_unit_and_state() {
    let mut rig = IpmiTestRig::new(super::vendor::watcher(), setup());
    add_sensors(&mut rig);
    let Ok(IpmiReply::Sensors(readings)) = rig.run_operation(IpmiOperation::Sensors) else {
        panic!("no sensors");
    };
    assert_eq!(readings.len(), 12);
    let message_of = |at: usize| (readings[at].value, readings[at].state);
    assert_eq!(message_of(0), (Some(68.0), SdrSensorState::Ok));
    assert_eq!(message_of(2), (Some(70.0), SdrSensorState::NonCritical));
    assert_eq!(message_of(3), (None, SdrSensorState::Unavailable));
    assert_eq!(readings[11].name, "Inlet 11");
    assert_eq!(readings[11].unit, "degrees C");
}

#[test]
fn sensors_survive_a_bad_wire_and_a_bmc_that_restarts() {
    let whole = |report: &IpmiReply| match report {
        IpmiReply::Sensors(readings) => readings.len() == 12,
        _ => false,
    };
    survives(&IpmiOperation::Sensors, add_sensors, whole);
}

#[test]
fn the_identify_led_is_for_operators() {
    let mut rig = IpmiTestRig::new(target(), setup());
    let lights = [
        IpmiIdentify::For { seconds: 30 },
        IpmiIdentify::On,
        IpmiIdentify::For { seconds: 0 },
    ];
    for light in lights {
        assert_eq!(
            rig.run_operation(IpmiOperation::Identify { identify: light }),
            Ok(IpmiReply::Done)
        );
    }
    assert_eq!(rig.machine.identifies, lights);
    let mut rig = IpmiTestRig::new(super::vendor::watcher(), setup());
    let light = IpmiIdentify::On;
    let refused = Err(PowerError::Privilege);
    assert_eq!(
        rig.run_operation(IpmiOperation::Identify { identify: light }),
        refused
    );
}

#[test]
fn a_bmc_returns_its_identity_and_network() {
    let mut rig = IpmiTestRig::new(target(), setup());
    let guid = Ok(IpmiReply::Guid(*b"0123456789abcdef"));
    assert_eq!(rig.run_operation(IpmiOperation::SystemGuid), guid);
    assert_eq!(rig.run_operation(IpmiOperation::DeviceGuid), guid);
    let lan = IpmiLanConfig {
        address: Some([10, 0, 0, 2].into()),
        source: Some(AddressSource::Static),
        mac: Some([2, 0, 0, 0, 0, 9]),
        mask: Some([255, 255, 255, 0].into()),
        gateway: Some([10, 0, 0, 1].into()),
    };
    let operation = IpmiOperation::Lan { channel: 14 };
    assert_eq!(
        rig.run_operation(operation.clone()),
        Ok(IpmiReply::Lan(IpmiLanConfig::default()))
    );
    rig.bmc.set_lan(lan);
    assert_eq!(rig.run_operation(operation), Ok(IpmiReply::Lan(lan)));
    let elsewhere = rig.run_operation(IpmiOperation::Lan { channel: 7 });
    assert_eq!(elsewhere, refused(0xcc));
}

#[test]
fn a_bmc_lists_its_users_to_operators() {
    let users = IpmiOperation::Users { channel: 1 };
    let mut rig = IpmiTestRig::new(target(), setup());
    let Ok(IpmiReply::Users(listed)) = rig.run_operation(users.clone()) else {
        panic!("no users");
    };
    let names: Vec<_> = listed
        .iter()
        .map(|user| (&*user.name, user.limit))
        .collect();
    assert_eq!(names, [("", 15), ("admin", 4), ("watcher", 2)]);
    let mut rig = IpmiTestRig::new(super::vendor::watcher(), setup());
    let refused = Err(PowerError::Privilege);
    assert_eq!(rig.run_operation(users), refused);
}
