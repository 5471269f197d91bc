//! Orders over a network without faults.

use trivet_model::{BootDevice, PowerAnswer, PowerError, PowerOrder, PowerState};

use super::rig::{ACCEPTED, IpmiTestRig, SET_PXE, refused, setup, target};
use crate::wire::message::IpmiMessage;
use crate::wire::packet::{self, RmcpPacket};
use crate::{IpmiCipherSuite, IpmiTarget, ORDERS_WAITING_MAX};

fn logins(rig: &IpmiTestRig) -> usize {
    // Open Session requests are RMCP+ packets of kind 0x10.
    rig.sent
        .iter()
        .filter(|bytes| bytes[4] == 6 && bytes[5] == 0x10)
        .count()
}

#[test]
fn executes_every_order_with_both_suites() {
    for suite in [IpmiCipherSuite::Sha1, IpmiCipherSuite::Sha256] {
        let mut rig = IpmiTestRig::new(
            IpmiTarget {
                suite: Some(suite),
                ..target()
            },
            setup(),
        );
        let power = |state| Ok(PowerAnswer::Power(state));
        assert_eq!(rig.run(PowerOrder::Status), power(PowerState::Off));
        assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
        assert_eq!(rig.run(PowerOrder::Status), power(PowerState::On));
        for order in [PowerOrder::Cycle, PowerOrder::Reset, PowerOrder::SoftOff] {
            assert_eq!(rig.run(order), ACCEPTED);
        }
        assert_eq!(rig.run(PowerOrder::Off), ACCEPTED);
        let want = [
            PowerOrder::On,
            PowerOrder::Cycle,
            PowerOrder::Reset,
            PowerOrder::SoftOff,
            PowerOrder::Off,
        ];
        assert_eq!(rig.machine.done, want);
        assert_eq!(logins(&rig), 1, "the session is kept");
    }
}

#[test]
fn sets_and_reads_the_boot_device() {
    let mut rig = IpmiTestRig::new(target(), setup());
    let boot = |device, persistent, efi| {
        Ok(PowerAnswer::Boot {
            device,
            persistent,
            efi,
        })
    };
    assert_eq!(rig.run(PowerOrder::ReadBoot), boot(None, false, false));
    assert_eq!(rig.run(SET_PXE), ACCEPTED);
    assert_eq!(
        rig.run(PowerOrder::ReadBoot),
        boot(Some(BootDevice::Pxe), false, true)
    );
    for device in [
        BootDevice::Disk,
        BootDevice::Cdrom,
        BootDevice::Bios,
        BootDevice::Safe,
    ] {
        let order = PowerOrder::SetBoot {
            device,
            persistent: true,
            efi: false,
        };
        assert_eq!(rig.run(order), ACCEPTED);
        assert_eq!(
            rig.run(PowerOrder::ReadBoot),
            boot(Some(device), true, false)
        );
    }
    rig.machine.boot.valid = false;
    assert_eq!(rig.run(PowerOrder::ReadBoot), boot(None, true, false));
}

#[test]
fn a_cycle_of_what_is_off_switches_it_on() {
    let mut rig = IpmiTestRig::new(target(), setup());
    assert_eq!(rig.run(PowerOrder::Cycle), ACCEPTED);
    assert_eq!(rig.machine.done, [PowerOrder::On]);
}

#[test]
fn a_reset_of_what_is_off_is_refused() {
    let mut rig = IpmiTestRig::new(target(), setup());
    assert_eq!(rig.run(PowerOrder::Reset), refused(0xd5));
    assert_eq!(rig.run(PowerOrder::SoftOff), ACCEPTED);
    assert!(rig.machine.done.is_empty());
}

#[test]
fn refuses_the_order_after_the_last_that_fits() {
    let mut rig = IpmiTestRig::new(target(), setup());
    for id in 0..ORDERS_WAITING_MAX as u64 {
        assert_eq!(rig.order(id, PowerOrder::Status), Ok(()));
    }
    assert_eq!(
        rig.order(99, PowerOrder::Status),
        Err(PowerError::QueueFull)
    );
    let answers = rig.run_until_idle();
    let ids: Vec<u64> = answers.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, (0..ORDERS_WAITING_MAX as u64).collect::<Vec<_>>());
    assert_eq!(rig.order(99, PowerOrder::Status), Ok(()));
    assert_eq!(rig.run_until_idle().len(), 1);
}

#[test]
fn answers_not_yet_fetched_count_against_the_queue() {
    let mut rig = IpmiTestRig::new(
        IpmiTarget {
            suite: Some(IpmiCipherSuite::Sha1),
            ..target()
        },
        setup(),
    );
    rig.faults.lost = 1000;
    for id in 0..ORDERS_WAITING_MAX as u64 {
        assert_eq!(rig.order(id, PowerOrder::Status), Ok(()));
    }
    while let Some(due) = rig.session.deadline() {
        rig.now = due;
        rig.session.tick(due, &mut rig.entropy);
    }
    assert_eq!(
        rig.order(99, PowerOrder::Status),
        Err(PowerError::QueueFull)
    );
    assert!(rig.session.answer().is_some());
    assert_eq!(rig.order(99, PowerOrder::Status), Ok(()));
    let mut posted = 0;
    while rig.session.transmit().is_some() {
        posted += 1;
    }
    assert!(posted <= 8, "{posted} datagrams wait");
}

#[test]
fn refuses_a_target_that_ipmi_does_not_allow() {
    for bad in [
        IpmiTarget {
            username: vec![b'a'; 17],
            ..target()
        },
        IpmiTarget {
            password: vec![b'a'; 21],
            ..target()
        },
        IpmiTarget {
            kg: Some(vec![0; 21]),
            ..target()
        },
    ] {
        let mut rig = IpmiTestRig::new(bad, setup());
        let got = rig.order(1, PowerOrder::Status);
        assert!(
            matches!(got, Err(PowerError::NotConfigured { .. })),
            "{got:?}"
        );
        assert_eq!(rig.session.deadline(), None);
    }
}

#[test]
fn a_target_shows_no_secret() {
    let shown = format!(
        "{:?}",
        IpmiTarget {
            kg: Some(b"key".to_vec()),
            ..target()
        }
    );
    assert!(shown.contains("admin") && !shown.contains("password") && !shown.contains("kg"));
}

#[test]
fn closing_frees_the_bmc_and_a_later_order_logs_in_again() {
    let mut rig = IpmiTestRig::new(target(), setup());
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    assert_eq!(rig.bmc.sessions(), 1);
    rig.session.close(&mut rig.entropy);
    rig.run_until_idle();
    assert_eq!(rig.bmc.sessions(), 0);
    assert_eq!(rig.run(PowerOrder::Off), ACCEPTED);
    assert_eq!(logins(&rig), 2);
}

#[test]
fn closing_waits_for_queued_orders() {
    let mut rig = IpmiTestRig::new(target(), setup());
    rig.order(1, PowerOrder::On).unwrap();
    rig.order(2, PowerOrder::Off).unwrap();
    rig.session.close(&mut rig.entropy);
    assert_eq!(rig.run_until_idle(), [(1, ACCEPTED), (2, ACCEPTED)]);
    assert_eq!(rig.bmc.sessions(), 0);
}

#[test]
fn a_session_that_rested_too_long_is_replaced_without_waiting() {
    let mut rig = IpmiTestRig::new(target(), setup());
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    rig.now = rig.now.after_ms(60_000);
    let before = rig.now;
    assert_eq!(rig.run(PowerOrder::Off), ACCEPTED);
    assert!(rig.now.since_ms(before) < 100);
    assert_eq!((logins(&rig), rig.bmc.sessions()), (2, 1));
}

#[test]
fn a_session_the_bmc_dropped_is_replaced_once_per_order() {
    let mut rig = IpmiTestRig::new(target(), setup());
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    rig.bmc.restart();
    assert_eq!(rig.run(PowerOrder::Off), ACCEPTED);
    assert_eq!(logins(&rig), 2);
}

#[test]
fn a_dead_bmc_is_reported_and_a_live_one_found_again() {
    let mut rig = IpmiTestRig::new(target(), setup());
    rig.faults.lost = 1000;
    let got = rig.run(PowerOrder::On);
    assert_eq!(got, Err(PowerError::NoResponse { waited_ms: 5_750 }));
    rig.faults.lost = 0;
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    rig.faults.lost = 1000;
    assert!(matches!(
        rig.run(PowerOrder::On),
        Err(PowerError::NoResponse { .. })
    ));
    rig.faults.lost = 0;
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
}

#[test]
fn a_bmc_rests_between_two_orders_and_never_has_two_at_once() {
    let mut rig = IpmiTestRig::new(target(), setup());
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    let rest_ms = crate::IpmiTiming::default().order_gap_ms;
    for id in 1..=3 {
        let given = rig
            .session
            .order(rig.now, id, PowerOrder::Status, &mut rig.entropy);
        given.unwrap();
    }
    for _ in 1..=3 {
        // The last response has just arrived.
        assert_eq!(rig.session.transmit(), None);
        assert_eq!(rig.session.deadline(), Some(rig.now.after_ms(rest_ms)));
        rig.now = rig.now.after_ms(rest_ms);
        rig.session.tick(rig.now, &mut rig.entropy);
        let requested = rig.session.transmit().unwrap();
        assert_eq!(rig.session.transmit(), None);
        let answer = rig
            .bmc
            .datagram(1, &requested, &mut rig.machine, &mut rig.entropy);
        rig.now = rig.now.after_ms(3);
        rig.forge(&answer.unwrap());
        assert!(rig.session.answer().is_some());
    }
    assert_eq!(rig.session.deadline(), None);
}

#[test]
fn the_time_limit_of_an_order_holds() {
    let mut rig = IpmiTestRig::new(target(), setup());
    let timing = crate::IpmiTiming {
        tries_max: 1_000,
        ..crate::IpmiTiming::default()
    };
    rig.session = crate::IpmiSession::new(target(), timing);
    rig.faults.lost = 1000;
    let got = rig.run(PowerOrder::On);
    assert_eq!(got, Err(PowerError::NoResponse { waited_ms: 20_000 }));
}

#[test]
fn a_bmc_that_answers_only_the_old_protocol_is_reported() {
    let mut rig = IpmiTestRig::new(target(), setup());
    rig.order(1, PowerOrder::Status).unwrap();
    let outcome = loop {
        while let Some(bytes) = rig.session.transmit() {
            if bytes[4] == 0 {
                let Some(RmcpPacket::Sessionless { message }) = RmcpPacket::parse(&bytes) else {
                    panic!("the first request has the old header");
                };
                let request = IpmiMessage::parse(message).unwrap();
                let answer = request.response(vec![0, 1, 0x14, 0x04, 0, 0, 0, 0, 0]);
                rig.forge(&packet::emit_sessionless(&answer.emit()).unwrap());
            }
        }
        if let Some((_, outcome)) = rig.session.answer() {
            break outcome;
        }
        rig.now = rig.session.deadline().unwrap();
        rig.session.tick(rig.now, &mut rig.entropy);
    };
    assert!(
        matches!(outcome, Err(PowerError::InvalidResponse { .. })),
        "{outcome:?}"
    );
}

/// Reads the power state of a BMC that is busy for this many requests.
fn run_busy(busy: u32) -> super::rig::IpmiPowerResult {
    let mut rig = IpmiTestRig::new(target(), setup());
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    rig.bmc.set_busy_requests(busy);
    rig.run(PowerOrder::Status)
}

#[test]
fn a_busy_bmc_is_retried_in_the_same_session() {
    assert_eq!(run_busy(2), Ok(PowerAnswer::Power(PowerState::On)));
    assert_eq!(run_busy(100), Err(PowerError::BmcBusy));
}
