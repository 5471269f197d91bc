//! Datagrams that no correct peer sends, to client and BMC.

use trivet_model::{PowerAnswer, PowerOrder, PowerState, Tick};

use super::rig::{ACCEPTED, IpmiTestRig, IpmiWireFaults, setup, target};
use crate::command::NETFN_CHASSIS;
use crate::wire::PACKET_BYTES_MAX;
use crate::wire::message::IpmiMessage;
use crate::wire::packet;
use crate::wire::rakp::{RakpReply, status};

const ON: Result<PowerAnswer, trivet_model::PowerError> = Ok(PowerAnswer::Power(PowerState::On));

/// A rig with an established session and a running machine.
fn standing() -> IpmiTestRig {
    let mut rig = IpmiTestRig::new(target(), setup());
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    rig
}

/// The session is still the same, without a new login.
#[track_caller]
fn survives(rig: &mut IpmiTestRig) {
    let before = rig.sent.len();
    assert_eq!(rig.run(PowerOrder::Status), ON);
    assert_eq!(rig.sent.len(), before + 1);
}

#[test]
fn random_bytes_end_no_session_at_either_end() {
    let mut rig = standing();
    rig.order(1, PowerOrder::Status).unwrap();
    for _ in 0..20_000 {
        let mut bytes = rig.random_bytes(PACKET_BYTES_MAX as u64 + 50);
        // Most random bytes fail at the first header; these get further.
        let head = [[6, 0, 0xff, 7, 6], [6, 0, 0xff, 7, 0], [6, 0, 0xff, 6, 0]];
        if let (Some(front), Some(head)) = (bytes.get_mut(..5), head.get(rig.sent.len() % 4)) {
            front.copy_from_slice(head);
        }
        rig.forge(&bytes);
        rig.bmc
            .datagram(2, &bytes, &mut rig.machine, &mut rig.entropy);
        rig.sent.push(bytes);
    }
    assert_eq!(rig.run_until_idle(), [(1, ON)]);
    survives(&mut rig);
}

#[test]
fn every_bit_of_every_recorded_datagram_can_be_turned() {
    let mut rig = standing();
    let (sent, received) = (rig.sent.clone(), rig.received.clone());
    for (to_bmc, recorded) in [(true, sent), (false, received)] {
        for bytes in recorded {
            for bit in 0..bytes.len() * 8 {
                let mut bent = bytes.clone();
                bent[bit / 8] ^= 1 << (bit % 8);
                if to_bmc {
                    rig.bmc
                        .datagram(1, &bent, &mut rig.machine, &mut rig.entropy);
                } else {
                    rig.forge(&bent);
                }
            }
        }
    }
    assert_eq!(rig.machine.done, [PowerOrder::On]);
    survives(&mut rig);
}

#[test]
fn recorded_datagrams_played_again_do_nothing() {
    let mut rig = standing();
    assert_eq!(rig.run(PowerOrder::Off), ACCEPTED);
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    let done = rig.machine.done.clone();
    rig.order(1, PowerOrder::Status).unwrap();
    for bytes in rig.sent.clone() {
        rig.bmc
            .datagram(1, &bytes, &mut rig.machine, &mut rig.entropy);
    }
    for bytes in rig.received.clone() {
        rig.forge(&bytes);
    }
    assert_eq!(rig.machine.done, done);
    assert_eq!(rig.run_until_idle(), [(1, ON)]);
    survives(&mut rig);
}

#[test]
fn an_old_answer_is_not_taken_for_a_new_one_when_numbers_come_round() {
    let mut rig = standing();
    assert_eq!(rig.run(PowerOrder::Status), ON);
    let old = rig.received.last().unwrap().clone();
    assert_eq!(rig.run(PowerOrder::Off), ACCEPTED);
    // Request numbers have six bits: the 64th request after it has its number.
    for _ in 0..62 {
        assert_eq!(
            rig.run(PowerOrder::Status),
            Ok(PowerAnswer::Power(PowerState::Off))
        );
    }
    rig.order(1, PowerOrder::Status).unwrap();
    rig.forge(&old);
    assert_eq!(
        rig.run_until_idle(),
        [(1, Ok(PowerAnswer::Power(PowerState::Off)))]
    );
}

#[test]
fn plain_answers_are_not_accepted_inside_a_session() {
    let mut rig = standing();
    rig.order(1, PowerOrder::Status).unwrap();
    for sequence in 0..64 {
        let request = IpmiMessage::request(NETFN_CHASSIS, sequence, 0x01, &[]);
        for body in [vec![0, 0, 0, 0], vec![0xd4]] {
            let forged = request.response(body).emit();
            rig.forge(&packet::emit_sessionless(&forged).unwrap());
            for session_id in [0, 1] {
                rig.forge(&packet::emit_rmcp_plus(0, session_id, 1, &forged));
                rig.forge(&packet::emit_rmcp_plus(0xc0, session_id, 1, &forged));
            }
        }
    }
    assert_eq!(rig.run_until_idle(), [(1, ON)]);
}

#[test]
fn refusals_for_another_login_are_not_accepted() {
    let mut rig = IpmiTestRig::new(target(), setup());
    rig.order(1, PowerOrder::On).unwrap();
    for kind in [0x11, 0x13, 0x15] {
        for tag in 0..=u8::MAX {
            let reply = RakpReply {
                tag,
                status: status::NAME_REFUSED,
                console_id: 1,
                rest: &[],
            };
            rig.forge(&packet::emit_rmcp_plus(kind, 0, 0, &reply.emit()));
        }
    }
    assert_eq!(rig.run_until_idle(), [(1, ACCEPTED)]);
}

#[test]
fn one_damaged_handshake_message_does_not_fail_the_order() {
    // Flips one bit of the n-th datagram, for each datagram of a login.
    for nth in 0..10 {
        for bit in (0..64 * 8).step_by(5) {
            let mut rig = IpmiTestRig::new(target(), setup());
            rig.order(1, PowerOrder::On).unwrap();
            let got = run_with_one_changed(&mut rig, nth, bit);
            assert_eq!(got, [(1, ACCEPTED)], "datagram {nth}, bit {bit}");
        }
    }
}

fn run_with_one_changed(
    rig: &mut IpmiTestRig,
    nth: usize,
    bit: usize,
) -> Vec<(u64, super::rig::IpmiPowerResult)> {
    let mut count = 0;
    let mut bend = |bytes: &mut Vec<u8>| {
        if count == nth && bit / 8 < bytes.len() {
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        count += 1;
    };
    while let Some(mut bytes) = rig.session.transmit() {
        bend(&mut bytes);
        let answer = rig
            .bmc
            .datagram(1, &bytes, &mut rig.machine, &mut rig.entropy);
        if let Some(mut answer) = answer {
            bend(&mut answer);
            rig.now = Tick(rig.now.0 + 1);
            rig.forge(&answer);
        }
    }
    rig.run_until_idle()
}

#[test]
fn garbage_between_the_datagrams_of_a_bad_wire_changes_nothing() {
    for seed in 0..100 {
        let faults = IpmiWireFaults {
            lost: 50,
            bent: 50,
            late_ms: 30,
            ..IpmiWireFaults::default()
        };
        let mut rig = IpmiTestRig::seeded(seed, faults);
        for id in 0..4 {
            rig.order(id, PowerOrder::Status).unwrap();
            for _ in 0..20 {
                let bytes = rig.random_bytes(200);
                rig.forge(&bytes);
            }
            assert_eq!(rig.run_until_idle().len(), 1, "seed {seed}");
        }
    }
}
