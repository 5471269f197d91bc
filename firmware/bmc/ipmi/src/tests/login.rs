//! Login: users, suites, and the error messages of refusals.

use trivet_model::{PowerError, PowerOrder, SeededRandom};

use super::rig::{ACCEPTED, IpmiTestMachine, IpmiTestRig, setup, target};
use crate::IpmiTarget;
use crate::bmc::{IpmiSimulator, IpmiSimulatorSetup, SESSIONS_MAX};
use crate::channel::RmcpPlusChannel;
use crate::suite::{IpmiCipherSuite, RakpExchange};
use crate::wire::message::IpmiMessage;
use crate::wire::packet::{self, KIND_OPEN_REQUEST, KIND_RAKP_1, KIND_RAKP_3, RmcpPacket};
use crate::wire::rakp::{
    OpenSessionRequest, Rakp1, Rakp3, RakpReply, parse_opened, parse_rakp2, status,
};

#[track_caller]
fn fails(target: IpmiTarget, setup: IpmiSimulatorSetup, want: PowerError) {
    let mut rig = IpmiTestRig::new(target, setup);
    assert_eq!(rig.run(PowerOrder::On), Err(want));
    assert!(rig.machine.done.is_empty());
}

#[track_caller]
fn refuses(target: IpmiTarget, setup: IpmiSimulatorSetup, message: &'static str) {
    fails(target, setup, PowerError::Login { message });
}

#[test]
fn a_wrong_password_is_refused_and_leaves_no_session() {
    for suite in [IpmiCipherSuite::Sha1, IpmiCipherSuite::Sha256] {
        let bad = IpmiTarget {
            password: b"passw0rd".to_vec(),
            suite: Some(suite),
            ..target()
        };
        refuses(bad.clone(), setup(), "the password is wrong");
        let mut rig = IpmiTestRig::new(bad, setup());
        assert!(rig.run(PowerOrder::On).is_err());
        assert_eq!(rig.bmc.sessions(), 0);
    }
}

#[test]
fn an_unknown_user_is_refused() {
    let bad = IpmiTarget {
        username: b"root".to_vec(),
        ..target()
    };
    refuses(bad, setup(), "it does not know the user");
}

#[test]
fn a_user_below_administrator_is_refused() {
    let bad = IpmiTarget {
        username: b"watcher".to_vec(),
        password: b"look".to_vec(),
        ..target()
    };
    fails(bad, setup(), PowerError::Privilege);
}

#[test]
fn the_key_of_the_bmc_is_used_where_it_is_set() {
    for suite in [IpmiCipherSuite::Sha1, IpmiCipherSuite::Sha256] {
        let keyed = || IpmiSimulatorSetup {
            kg: Some(b"rack key".to_vec()),
            ..setup()
        };
        let good = IpmiTarget {
            kg: Some(b"rack key".to_vec()),
            suite: Some(suite),
            ..target()
        };
        assert_eq!(
            IpmiTestRig::new(good, keyed()).run(PowerOrder::On),
            ACCEPTED
        );
        let bad = IpmiTarget {
            kg: None,
            suite: Some(suite),
            ..target()
        };
        refuses(
            bad,
            keyed(),
            "the BMC key (K_g) is wrong, see ipmi_hex_kg_key",
        );
    }
}

#[test]
fn falls_back_to_suite_3_where_17_is_refused_and_remembers_it() {
    let old = IpmiSimulatorSetup {
        suites: vec![IpmiCipherSuite::Sha1],
        ..setup()
    };
    let mut rig = IpmiTestRig::new(target(), old);
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    rig.bmc.restart();
    let before = rig.sent.len();
    assert_eq!(rig.run(PowerOrder::Off), ACCEPTED);
    let opens = rig.sent[before..]
        .iter()
        .filter(|bytes| bytes[5] == KIND_OPEN_REQUEST);
    assert_eq!(opens.count(), 1);
}

#[test]
fn a_forced_suite_is_the_only_one_tried() {
    let old = IpmiSimulatorSetup {
        suites: vec![IpmiCipherSuite::Sha1],
        ..setup()
    };
    let forced = IpmiTarget {
        suite: Some(IpmiCipherSuite::Sha256),
        ..target()
    };
    fails(forced, old, PowerError::NoSuite);
    let new = IpmiSimulatorSetup {
        suites: vec![IpmiCipherSuite::Sha256],
        ..setup()
    };
    let mut rig = IpmiTestRig::new(target(), new);
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
}

/// Runs the present order where a refusal of two bytes arrives before every response to Open
/// Session, and, if `short`, instead of it for suite 17.
fn run_short(rig: &mut IpmiTestRig, short: bool) -> Vec<(u64, super::rig::IpmiPowerResult)> {
    for _ in 0..100 {
        while let Some(bytes) = rig.session.transmit() {
            let open = bytes[4] == 6 && bytes[5] == KIND_OPEN_REQUEST;
            let refusal =
                packet::emit_rmcp_plus(0x11, 0, 0, &[bytes[16], status::BAD_AUTHENTICATION]);
            if open {
                rig.forge(&refusal);
            }
            if !(open && short && bytes[28] == 3) {
                let answer = rig
                    .bmc
                    .datagram(1, &bytes, &mut rig.machine, &mut rig.entropy);
                rig.forge(&answer.unwrap());
            }
        }
        if let Some(answer) = rig.session.answer() {
            return vec![answer];
        }
        rig.now = rig.session.deadline().unwrap();
        rig.session.tick(rig.now, &mut rig.entropy);
    }
    panic!("no answer");
}

#[test]
fn a_refusal_of_two_bytes_counts_without_another_response() {
    let mut rig = IpmiTestRig::new(target(), setup());
    let before = rig.now;
    rig.order(1, PowerOrder::On).unwrap();
    assert_eq!(run_short(&mut rig, true), [(1, ACCEPTED)]);
    assert_eq!(rig.now.since_ms(before), 250);
}

#[test]
fn a_refusal_of_two_bytes_does_not_count_if_there_is_an_answer() {
    let mut rig = IpmiTestRig::new(target(), setup());
    let before = rig.now;
    rig.order(1, PowerOrder::On).unwrap();
    assert_eq!(run_short(&mut rig, false), [(1, ACCEPTED)]);
    assert_eq!(rig.now, before);
}

/// A console whose messages are built by hand.
struct IpmiManualConsole {
    bmc: IpmiSimulator,
    entropy: SeededRandom,
}

impl IpmiManualConsole {
    fn new() -> Self {
        Self {
            bmc: IpmiSimulator::new(setup()),
            entropy: SeededRandom::new(5),
        }
    }

    fn send(&mut self, peer: u64, bytes: &[u8]) -> Option<Vec<u8>> {
        self.bmc.datagram(
            peer,
            bytes,
            &mut IpmiTestMachine::default(),
            &mut self.entropy,
        )
    }

    fn payload(&mut self, peer: u64, kind: u8, payload: &[u8]) -> Option<Vec<u8>> {
        let answer = self.send(peer, &packet::emit_rmcp_plus(kind, 0, 0, payload))?;
        match RmcpPacket::parse(&answer) {
            Some(RmcpPacket::RmcpPlus(plus)) => Some(plus.payload.to_vec()),
            other => panic!("{other:?}"),
        }
    }

    fn open(&mut self, peer: u64, console_id: u32, algorithms: [u8; 3]) -> Vec<u8> {
        let request = OpenSessionRequest {
            tag: 1,
            privilege: 4,
            console_id,
            algorithms,
        };
        self.payload(peer, KIND_OPEN_REQUEST, &request.emit())
            .unwrap()
    }

    fn opened(&mut self, peer: u64, console_id: u32) -> u32 {
        let answer = self.open(peer, console_id, IpmiCipherSuite::Sha1.algorithms());
        parse_opened(RakpReply::parse(&answer).unwrap().rest)
            .unwrap()
            .0
    }

    fn rakp1(&mut self, managed_id: u32, role: u8, name: &[u8]) -> Vec<u8> {
        let message = Rakp1 {
            tag: 2,
            managed_id,
            console_random: [9; 16],
            role,
            username: name.to_vec(),
        };
        self.payload(1, KIND_RAKP_1, &message.emit()).unwrap()
    }

    /// The code of message 3 for a session whose message 2 was `answer`.
    fn exchange(managed_id: u32, answer: &[u8]) -> RakpExchange {
        let (managed_random, guid, _) =
            parse_rakp2(RakpReply::parse(answer).unwrap().rest).unwrap();
        RakpExchange {
            suite: IpmiCipherSuite::Sha1,
            console_id: 77,
            managed_id,
            console_random: [9; 16],
            managed_random,
            guid,
            role: 0x14,
            username: b"admin".to_vec(),
        }
    }

    fn rakp3(&mut self, managed_id: u32, status: u8, code: Vec<u8>) -> Option<Vec<u8>> {
        let message = Rakp3 {
            tag: 3,
            status,
            managed_id,
            code,
        };
        self.payload(1, KIND_RAKP_3, &message.emit())
    }
}

#[test]
fn the_bmc_names_the_algorithm_it_does_not_have() {
    let mut hand = IpmiManualConsole::new();
    for (algorithms, want) in [
        ([0, 0, 0], status::BAD_AUTHENTICATION),
        ([1, 0, 0], status::BAD_INTEGRITY),
        ([1, 1, 0], status::BAD_CONFIDENTIALITY),
        ([1, 4, 1], status::NO_SUITE_MATCH),
    ] {
        assert_eq!(hand.open(1, 77, algorithms)[1], want);
    }
    assert_eq!(hand.open(1, 0, [1, 1, 1])[1], status::BAD_SESSION_ID);
    assert_eq!(hand.bmc.sessions(), 0);
}

#[test]
fn the_bmc_refuses_names_and_roles_with_their_own_status() {
    let mut hand = IpmiManualConsole::new();
    let id = hand.opened(1, 77);
    assert_eq!(hand.rakp1(id, 0x14, b"nobody")[1], status::NAME_REFUSED);
    assert_eq!(
        hand.rakp1(id, 0x14, &[b'a'; 17])[1],
        status::BAD_NAME_LENGTH
    );
    assert_eq!(hand.rakp1(id, 0x14, b"watcher")[1], status::ROLE_REFUSED);
    assert_eq!(hand.rakp1(id, 0x12, b"watcher")[1], status::OK);
}

#[test]
fn the_bmc_refuses_a_wrong_third_message_with_its_status() {
    let mut hand = IpmiManualConsole::new();
    let id = hand.opened(1, 77);
    assert_eq!(
        hand.rakp3(id, 0, vec![0; 20]),
        None,
        "no user was named yet"
    );
    let second = hand.rakp1(id, 0x14, b"admin");
    let exchange = IpmiManualConsole::exchange(id, &second);
    let refused = hand.rakp3(id, 0, exchange.rakp3_code(b"passw0rd")).unwrap();
    assert_eq!(refused[1], status::BAD_CHECK_VALUE);
    let accepted = hand.rakp3(id, 0, exchange.rakp3_code(b"password")).unwrap();
    assert_eq!(accepted[1], status::OK);
    assert_eq!(accepted.len(), 8 + 12);
}

#[test]
fn repeated_handshake_messages_get_the_same_answers() {
    let mut hand = IpmiManualConsole::new();
    let id = hand.opened(1, 77);
    assert_eq!(hand.opened(1, 77), id);
    assert_ne!(hand.opened(2, 77), id, "another peer is another session");
    let second = hand.rakp1(id, 0x14, b"admin");
    assert_eq!(hand.rakp1(id, 0x14, b"admin"), second);
    let code = IpmiManualConsole::exchange(id, &second).rakp3_code(b"password");
    let fourth = hand.rakp3(id, 0, code.clone());
    assert_eq!(hand.rakp3(id, 0, code), fourth);
    assert_eq!(hand.rakp3(id, status::BAD_CHECK_VALUE, Vec::new()), None);
    assert_eq!(
        hand.bmc.sessions(),
        2,
        "an unauthenticated abort ends no live session"
    );
}

#[test]
fn the_session_table_is_bounded_and_half_open_sessions_go_first() {
    let mut rig = IpmiTestRig::new(target(), setup());
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    let mut hand = IpmiManualConsole {
        bmc: rig.bmc,
        entropy: SeededRandom::new(6),
    };
    for console_id in 1..100 {
        hand.opened(9, console_id);
        assert!(hand.bmc.sessions() <= SESSIONS_MAX);
    }
    assert_eq!(hand.bmc.sessions(), SESSIONS_MAX);
    rig.bmc = hand.bmc;
    let before = rig.sent.len();
    assert_eq!(rig.run(PowerOrder::Off), ACCEPTED);
    // The session is checked first, then the request is sent.
    assert_eq!(
        rig.sent.len(),
        before + 2,
        "the live session is still there"
    );
}

#[test]
fn outside_a_session_the_bmc_returns_only_login_data() {
    let mut hand = IpmiManualConsole::new();
    let mut send = |netfn, command, data: &[u8]| {
        let message = IpmiMessage::request(netfn, 1, command, data).emit();
        let old = hand
            .send(1, &packet::emit_sessionless(&message).unwrap())
            .unwrap();
        let new = hand
            .send(1, &packet::emit_rmcp_plus(0, 0, 0, &message))
            .unwrap();
        let (Some(RmcpPacket::Sessionless { message: one }), Some(RmcpPacket::RmcpPlus(two))) =
            (RmcpPacket::parse(&old), RmcpPacket::parse(&new))
        else {
            panic!("each header is answered with its own kind");
        };
        assert_eq!(one, two.payload);
        IpmiMessage::parse(one).unwrap().body
    };
    assert_eq!(
        send(6, 0x38, &[0x8e, 4]),
        [0, 1, 0x80, 0x04, 0x02, 0, 0, 0, 0]
    );
    assert_eq!(send(6, 0x38, &[0x87, 4]), [0xcc]);
    assert_eq!(send(6, 0x38, &[]), [0xc7]);
    let suites = [0, 1, 0xc0, 3, 1, 0x41, 0x81, 0xc0, 17, 3, 0x44, 0x81];
    assert_eq!(send(6, 0x54, &[0x0e, 0, 0x80]), suites);
    assert_eq!(send(6, 0x54, &[0x0e, 0, 0x81]), [0, 1]);
    assert_eq!(send(6, 0x37, &[])[1..], *b"0123456789abcdef");
    assert_eq!(send(0, 0x01, &[]), [0xd4]);
    assert_eq!(send(0, 0x02, &[1]), [0xd4]);
}

#[test]
fn a_session_starts_below_operator_until_it_is_raised() {
    let mut hand = IpmiManualConsole::new();
    let id = hand.opened(1, 77);
    let second = hand.rakp1(id, 0x14, b"admin");
    let exchange = IpmiManualConsole::exchange(id, &second);
    hand.rakp3(id, 0, exchange.rakp3_code(b"password")).unwrap();
    let keys = exchange.keys(b"password", None);
    let mut channel = RmcpPlusChannel::new(IpmiCipherSuite::Sha1, keys, 77, id);
    let mut send = |netfn, command, data: &[u8]| {
        let message = IpmiMessage::request(netfn, 1, command, data).emit();
        let bytes = channel.seal(0, &message, &mut SeededRandom::new(1));
        let answer = hand.send(1, &bytes).unwrap();
        let Some(RmcpPacket::RmcpPlus(plus)) = RmcpPacket::parse(&answer) else {
            panic!("a session is answered in RMCP+");
        };
        IpmiMessage::parse(&channel.open(&plus).unwrap())
            .unwrap()
            .body
    };
    assert_eq!(send(0, 0x02, &[1]), [0xd4]);
    assert_eq!(send(0, 0x08, &[5, 0x80, 4, 0, 0, 0]), [0xd4]);
    assert_eq!(send(6, 0x3b, &[0]), [0, 2]);
    assert_eq!(send(6, 0x3b, &[5]), [0xcc]);
    assert_eq!(send(6, 0x3b, &[]), [0xc7]);
    assert_eq!(send(6, 0x3b, &[4]), [0, 4]);
    assert_eq!(send(0, 0x02, &[]), [0xc7]);
    assert_eq!(send(0, 0x02, &[9]), [0xcc]);
    assert_eq!(send(0, 0x02, &[1]), [0], "a refusal is not stored");
    assert_eq!(send(0, 0x08, &[5, 0x80, 4, 0, 0, 0]), [0]);
    assert_eq!(send(6, 0x01, &[])[..2], [0, 0x20]);
    assert_eq!(send(6, 0x7f, &[]), [0xc1]);
    assert_eq!(send(6, 0x3c, &[1, 2, 3, 4]), [0x87]);
    assert_eq!(send(6, 0x3c, &[1]), [0xc7]);
    assert_eq!(send(6, 0x3c, &id.to_le_bytes()), [0]);
    assert_eq!(hand.bmc.sessions(), 0);
}
