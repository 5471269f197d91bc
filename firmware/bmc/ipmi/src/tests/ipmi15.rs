//! IPMI 1.5 with MD5, client and BMC.

use trivet_model::{PowerAnswer, PowerError, PowerOrder, PowerState};

use super::rig::{ACCEPTED, IpmiTestRig, IpmiWireFaults, SET_PXE, setup, target};
use crate::bmc::IpmiSimulator;
use crate::channel::ipmi15::sign;
use crate::operation::{IpmiOperation, IpmiReply};
use crate::wire::message::IpmiMessage;
use crate::wire::packet::{self, RmcpPacket};
use crate::{IpmiSession, IpmiTarget, IpmiTiming};

const ON: Result<PowerAnswer, PowerError> = Ok(PowerAnswer::Power(PowerState::On));

fn ipmi15_target() -> IpmiTarget {
    IpmiTarget {
        ipmi15: true,
        ..target()
    }
}

fn rig(target: IpmiTarget) -> IpmiTestRig {
    let mut rig = IpmiTestRig::new(target, setup());
    rig.bmc.enable_ipmi15();
    rig
}

/// A rig with an established session and a running machine.
fn standing() -> IpmiTestRig {
    let mut rig = rig(ipmi15_target());
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    rig
}

#[test]
fn orders_and_operations_go_through_one_session() {
    let mut rig = standing();
    let logged_in = rig.sent.len();
    assert_eq!(rig.run(PowerOrder::Status), ON);
    assert_eq!(rig.run(SET_PXE), ACCEPTED);
    assert_eq!(rig.machine.boot.emit(), [0xa0, 4, 0, 0, 0]);
    assert!(matches!(
        rig.run_operation(IpmiOperation::SystemGuid),
        Ok(IpmiReply::Guid(_))
    ));
    let more = &rig.sent[logged_in..];
    let signed = |it: &Vec<u8>| matches!(RmcpPacket::parse(it), Some(RmcpPacket::Ipmi15(_)));
    assert!(more.iter().all(signed));
    assert_eq!(rig.machine.done, [PowerOrder::On]);
}

#[test]
fn a_closed_session_is_gone_and_a_new_one_follows() {
    let mut rig = standing();
    rig.session.close(&mut rig.entropy);
    rig.run_until_idle();
    assert_eq!(rig.run(PowerOrder::Status), ON);
    rig.bmc.restart();
    assert_eq!(rig.run(PowerOrder::Status), ON);
}

#[track_caller]
fn fails(target: IpmiTarget, want: PowerError) {
    let mut rig = rig(target);
    assert_eq!(rig.run(PowerOrder::On), Err(want));
    assert!(rig.machine.done.is_empty());
}

#[test]
fn a_wrong_password_gets_no_response_and_is_reported() {
    let message = "it did not reply to the password, which is probably wrong";
    let password = b"wrong".to_vec();
    fails(
        IpmiTarget {
            password,
            ..ipmi15_target()
        },
        PowerError::Login { message },
    );
}

#[test]
fn an_unknown_user_is_named() {
    let message = "it does not know the user";
    let username = b"root".to_vec();
    fails(
        IpmiTarget {
            username,
            ..ipmi15_target()
        },
        PowerError::Login { message },
    );
}

#[test]
fn a_level_above_the_users_is_named() {
    let watcher = IpmiTarget {
        username: b"watcher".to_vec(),
        password: b"look".to_vec(),
        ..ipmi15_target()
    };
    fails(watcher, PowerError::Privilege);
}

#[test]
fn a_bmc_that_does_not_support_it_is_reported() {
    let mut rig = IpmiTestRig::new(ipmi15_target(), setup());
    match rig.run(PowerOrder::On) {
        Err(PowerError::InvalidResponse { message }) => {
            assert!(message.contains("no login with MD5"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_password_that_is_too_long_is_refused_before_anything_is_sent() {
    let long = IpmiTarget {
        password: vec![b'x'; 17],
        ..ipmi15_target()
    };
    let mut rig = rig(long);
    let refused = rig.order(1, PowerOrder::Status);
    assert!(
        matches!(refused, Err(PowerError::NotConfigured { missing }) if missing.contains("16"))
    );
    assert!(rig.sent.is_empty());
}

#[test]
fn it_is_never_used_unless_it_is_selected() {
    let mut rig = rig(target());
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    let old = |it: &Vec<u8>| matches!(RmcpPacket::parse(it), Some(RmcpPacket::Ipmi15(_)));
    assert!(!rig.sent.iter().any(old));
}

#[test]
fn unsigned_wrongly_signed_cut_and_old_answers_are_not_accepted() {
    let mut rig = standing();
    assert_eq!(rig.run(PowerOrder::Off), ACCEPTED);
    let recorded = rig.received.clone();
    rig.order(1, PowerOrder::Status).unwrap();
    let requested = rig.session.transmit().unwrap();
    let Some(RmcpPacket::Ipmi15(packet)) = RmcpPacket::parse(&requested) else {
        panic!("a signed packet");
    };
    let request = IpmiMessage::parse(packet.message).unwrap();
    let mismatch = request.response(vec![0, 1, 0, 0]).emit();
    let answers = recorded
        .iter()
        .filter_map(|it| match RmcpPacket::parse(it)? {
            RmcpPacket::Ipmi15(packet) => Some(packet.sequence),
            _ => None,
        });
    let next = answers.max().unwrap() + 1;
    for sequence in next.saturating_sub(3)..next + 3 {
        let forged = sign(b"guess", packet.session_id, sequence, &mismatch).unwrap();
        rig.forge(&forged);
    }
    rig.forge(&packet::emit_sessionless(&mismatch).unwrap());
    for bytes in &recorded {
        rig.forge(bytes);
        for end in 0..bytes.len() {
            rig.forge(&bytes[..end]);
        }
    }
    assert_eq!(rig.session.answer(), None);
    let off = Ok(PowerAnswer::Power(PowerState::Off));
    assert_eq!(rig.run_until_idle(), [(1, off)]);
}

#[test]
fn recorded_requests_played_again_do_nothing() {
    let mut rig = standing();
    assert_eq!(rig.run(PowerOrder::Off), ACCEPTED);
    let done = rig.machine.done.clone();
    for bytes in rig.sent.clone() {
        rig.bmc
            .datagram(1, &bytes, &mut rig.machine, &mut rig.entropy);
    }
    assert_eq!(rig.machine.done, done);
}

#[test]
fn a_bad_wire_gives_the_correct_state_or_no_response() {
    let mut good = 0;
    for seed in 0..200 {
        let faults = IpmiWireFaults {
            lost: 100,
            doubled: 100,
            bent: 20,
            late_ms: 300,
        };
        let mut rig = IpmiTestRig::seeded(seed, faults);
        rig.session = IpmiSession::new(ipmi15_target(), IpmiTiming::default());
        rig.bmc = IpmiSimulator::new(setup());
        rig.bmc.enable_ipmi15();
        for (order, state) in [
            (PowerOrder::On, PowerState::On),
            (PowerOrder::Off, PowerState::Off),
        ] {
            match rig.run(order) {
                Ok(_) => {
                    good += 1;
                    assert_eq!(rig.machine.power, state, "seed {seed}");
                }
                Err(PowerError::NoResponse { .. } | PowerError::Login { .. }) => {}
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
    }
    assert!(good > 350, "{good} of 400 went through");
}

#[test]
fn random_bytes_end_no_session() {
    let mut rig = standing();
    rig.order(1, PowerOrder::Status).unwrap();
    for _ in 0..20_000 {
        let mut bytes = rig.random_bytes(120);
        if let Some(front) = bytes.get_mut(..5) {
            front.copy_from_slice(&[6, 0, 0xff, 7, 2]);
        }
        rig.forge(&bytes);
        rig.bmc
            .datagram(2, &bytes, &mut rig.machine, &mut rig.entropy);
    }
    assert_eq!(rig.run_until_idle(), [(1, ON)]);
}
