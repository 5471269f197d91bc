//! Requests that must not be repeated (NMI, BMC resets, raw commands), privilege levels, and BMCs
//! without a free session.

use trivet_model::power::{RAW_BYTES_MAX, RawBytes};
use trivet_model::{PowerAnswer, PowerError, PowerOrder};

use super::rig::{ACCEPTED, IpmiPowerResult, IpmiTestRig, refused, setup, target};
use crate::wire::packet::{self, KIND_OPEN_REQUEST};
use crate::wire::rakp::status;
use crate::{IpmiPrivilege, IpmiTarget};

fn raw(netfn: u8, command: u8, data: &[u8]) -> PowerOrder {
    PowerOrder::Raw {
        netfn,
        command,
        data: RawBytes::new(data).unwrap(),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "compared with outcomes")]
fn raw_answer(code: u8, data: &[u8]) -> IpmiPowerResult {
    Ok(PowerAnswer::Raw {
        code,
        data: RawBytes::new(data).unwrap(),
    })
}

#[test]
fn a_raw_command_returns_the_response_of_the_bmc() {
    let mut rig = IpmiTestRig::new(target(), setup());
    assert_eq!(rig.run(raw(0, 1, &[])), raw_answer(0, &[0, 0, 0x40]));
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    assert_eq!(rig.run(raw(0, 1, &[])), raw_answer(0, &[1, 0, 0x40]));
    assert_eq!(rig.run(raw(0, 2, &[9])), raw_answer(0xcc, &[]), "bad field");
    assert_eq!(rig.run(raw(0x2e, 0x77, &[1, 2])), raw_answer(0xc1, &[]));
    let longest = raw(0x2e, 1, &[7; RAW_BYTES_MAX]);
    assert_eq!(rig.run(longest), raw_answer(0xc1, &[]));
}

#[test]
fn an_interrupt_reaches_a_machine_that_runs() {
    let mut rig = IpmiTestRig::new(target(), setup());
    let off = refused(0xd5);
    assert_eq!(rig.run(PowerOrder::Nmi), off);
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    assert_eq!(rig.run(PowerOrder::Nmi), ACCEPTED);
    assert_eq!(rig.machine.done, [PowerOrder::On, PowerOrder::Nmi]);
}

#[test]
fn a_bmc_that_was_reset_needs_a_new_login() {
    for warm in [true, false] {
        let mut rig = IpmiTestRig::new(target(), setup());
        assert_eq!(rig.run(PowerOrder::BmcReset { warm }), ACCEPTED);
        assert_eq!(rig.bmc.sessions(), 0);
        let before = rig.now;
        assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
        assert!(rig.now.since_ms(before) < 100, "no wait for a lost session");
    }
}

/// Whether the datagram is encrypted, so a request inside a session.
fn sealed(bytes: &[u8]) -> bool {
    bytes[4] == 6 && bytes[5] & 0xc0 == 0xc0
}

/// Runs an order where the BMC accepts the privilege level and then does not respond; returns how
/// often the machine or the BMC received the order, and the result.
fn run_unresponsive(order: PowerOrder) -> (usize, IpmiPowerResult) {
    let mut rig = IpmiTestRig::new(target(), setup());
    rig.machine.power = trivet_model::PowerState::On;
    rig.order(1, order).unwrap();
    let (mut inside, mut received) = (0, 0);
    for _ in 0..200 {
        while let Some(bytes) = rig.session.transmit() {
            inside += usize::from(sealed(&bytes));
            let answer = rig
                .bmc
                .datagram(1, &bytes, &mut rig.machine, &mut rig.entropy);
            if inside > 1 {
                received += usize::from(sealed(&bytes));
            } else if let Some(answer) = answer {
                rig.forge(&answer);
            }
        }
        if let Some((_, result)) = rig.session.answer() {
            return (received, result);
        }
        rig.now = rig.session.deadline().unwrap();
        rig.session.tick(rig.now, &mut rig.entropy);
    }
    panic!("no answer");
}

#[test]
fn an_at_most_once_order_is_not_sent_in_a_second_session() {
    let (received, outcome) = run_unresponsive(PowerOrder::Nmi);
    assert!(matches!(outcome, Err(PowerError::NoResponse { .. })));
    assert!(
        (1..=6).contains(&received),
        "{received} in one session, then closed"
    );
    let (_, outcome) = run_unresponsive(raw(6, 1, &[]));
    assert!(matches!(outcome, Err(PowerError::NoResponse { .. })));
}

#[test]
fn a_bmc_that_restarts_before_it_answers_counts_as_reset() {
    let (_, outcome) = run_unresponsive(PowerOrder::BmcReset { warm: false });
    assert_eq!(outcome, ACCEPTED);
    // If the order was never sent, a missing response is a timeout as usual.
    let mut rig = IpmiTestRig::new(target(), setup());
    rig.faults.lost = 1000;
    let reset = PowerOrder::BmcReset { warm: true };
    assert!(matches!(rig.run(reset), Err(PowerError::NoResponse { .. })));
}

/// A user with read access only.
pub(super) fn watcher() -> IpmiTarget {
    IpmiTarget {
        username: b"watcher".to_vec(),
        password: b"look".to_vec(),
        privilege: IpmiPrivilege::User,
        ..target()
    }
}

#[test]
fn a_lower_level_is_used_if_it_is_selected() {
    let mut rig = IpmiTestRig::new(watcher(), setup());
    assert!(rig.run(PowerOrder::Status).is_ok());
    let refused = Err(PowerError::Privilege);
    assert_eq!(rig.run(PowerOrder::On), refused);
    let operator = IpmiTarget {
        privilege: IpmiPrivilege::Operator,
        ..target()
    };
    let mut rig = IpmiTestRig::new(operator, setup());
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    assert_eq!(rig.run(PowerOrder::BmcReset { warm: true }), refused);
}

#[test]
fn a_full_bmc_is_distinguished_from_a_wrong_login() {
    for code in [status::NO_RESOURCES, status::NO_RESOURCES_AT_ROLE] {
        let mut rig = IpmiTestRig::new(target(), setup());
        rig.order(1, PowerOrder::Status).unwrap();
        let answer = loop {
            while let Some(bytes) = rig.session.transmit() {
                if bytes[4] == 6 && bytes[5] == KIND_OPEN_REQUEST {
                    // Tag, status, two bytes, and the session identifier of the request.
                    let mut refusal = vec![bytes[16], code, 0, 0];
                    refusal.extend(&bytes[20..24]);
                    rig.forge(&packet::emit_rmcp_plus(0x11, 0, 0, &refusal));
                } else {
                    let answer = rig
                        .bmc
                        .datagram(1, &bytes, &mut rig.machine, &mut rig.entropy);
                    rig.forge(&answer.unwrap());
                }
            }
            if let Some(answer) = rig.session.answer() {
                break answer;
            }
            rig.now = rig.session.deadline().unwrap();
            rig.session.tick(rig.now, &mut rig.entropy);
        };
        assert_eq!(answer, (1, Err(PowerError::NoFreeSession)));
    }
}
