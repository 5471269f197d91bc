//! The session state machine between a genuine BMC and an attacker on the network.
//!
//! The machine is off and stays off, and only its power state is requested: if the session
//! reports anything else, it has accepted a wrong, replayed or truncated reply.

use trivet_bmc_ipmi::bmc::{IpmiChassis, IpmiSimulator, IpmiSimulatorSetup, IpmiSimulatorUser};
use trivet_bmc_ipmi::{
    BootFlags, IpmiCipherSuite, IpmiPrivilege, IpmiSession, IpmiTarget as Peer, IpmiTiming,
};
use trivet_model::{PowerAnswer, PowerOrder, PowerState, SeededRandom, Tick};

use crate::FuzzTarget;
use crate::input::FuzzInput;

pub(crate) const TARGET: FuzzTarget = FuzzTarget {
    name: "ipmi_session",
    run,
    seeds,
    regressions: &[],
};

/// Requests of one input, and steps until all of them end.
const ORDERS_MAX: u64 = 8;
const STEPS_MAX: usize = 10_000;

/// Off, and stays off.
struct AlwaysOffChassis;

impl IpmiChassis for AlwaysOffChassis {
    fn power(&self) -> PowerState {
        PowerState::Off
    }

    fn control(&mut self, order: PowerOrder) {
        panic!("unexpected order {order:?}");
    }

    fn boot(&self) -> BootFlags {
        BootFlags::default()
    }

    fn set_boot(&mut self, flags: BootFlags) {
        panic!("unexpected flags {flags:?}");
    }
}

struct FuzzedIpmiSession {
    now: Tick,
    session: IpmiSession,
    bmc: IpmiSimulator,
    entropy: SeededRandom,
    ordered: u64,
    answered: u64,
    /// Replies of the BMC so far.
    replies: Vec<Vec<u8>>,
}

impl FuzzedIpmiSession {
    fn new(kind: u8) -> Self {
        let (username, password) = (b"admin".to_vec(), b"password".to_vec());
        let mut bmc = IpmiSimulator::new(IpmiSimulatorSetup {
            users: vec![IpmiSimulatorUser {
                name: username.clone(),
                password: password.clone(),
                limit: IpmiPrivilege::Administrator,
            }],
            guid: [7; 16],
            kg: None,
            suites: vec![IpmiCipherSuite::Sha1, IpmiCipherSuite::Sha256],
        });
        bmc.enable_ipmi15();
        let peer = Peer {
            username,
            password,
            kg: None,
            suite: [
                None,
                Some(IpmiCipherSuite::Sha1),
                Some(IpmiCipherSuite::Sha256),
                None,
            ][usize::from(kind % 4)],
            ipmi15: kind % 4 == 3,
            privilege: IpmiPrivilege::Administrator,
        };
        Self {
            now: Tick(1_000),
            session: IpmiSession::new(peer, IpmiTiming::default()),
            bmc,
            entropy: SeededRandom::new(u64::from(kind)),
            ordered: 0,
            answered: 0,
            replies: Vec::new(),
        }
    }

    fn order(&mut self) {
        if self.ordered < ORDERS_MAX {
            let order = PowerOrder::Status;
            let given = self
                .session
                .order(self.now, self.ordered, order, &mut self.entropy);
            given.expect("fewer orders than a session holds");
            self.ordered += 1;
        }
    }

    /// The BMC's reply to the next datagram of the session, if there is one.
    fn exchange(&mut self) -> Option<Vec<u8>> {
        let bytes = self.session.transmit()?;
        let answer = self
            .bmc
            .datagram(1, &bytes, &mut AlwaysOffChassis, &mut self.entropy)?;
        self.replies.push(answer.clone());
        Some(answer)
    }

    fn deliver(&mut self, bytes: &[u8]) {
        self.session.datagram(self.now, bytes, &mut self.entropy);
        while let Some((_, answer)) = self.session.answer() {
            self.answered += 1;
            if let Ok(answer) = answer {
                assert_eq!(answer, PowerAnswer::Power(PowerState::Off));
            }
        }
    }

    fn wait(&mut self, ms: u64) {
        self.now = self.now.after_ms(ms);
        self.session.tick(self.now, &mut self.entropy);
        self.deliver(&[]);
    }

    /// For any input, every request ends.
    fn finish(&mut self) {
        for _ in 0..STEPS_MAX {
            if let Some(answer) = self.exchange() {
                self.deliver(&answer);
            } else if let Some(due) = self.session.deadline() {
                self.wait(due.since_ms(self.now));
            } else {
                break;
            }
        }
        assert_eq!(self.answered, self.ordered, "a request without end");
    }
}

fn run(bytes: &[u8]) {
    let mut input = FuzzInput::new(bytes);
    let mut wire = FuzzedIpmiSession::new(input.byte());
    wire.order();
    while !input.is_empty() {
        match input.byte() % 8 {
            0 => wire.order(),
            1 => {
                if let Some(answer) = wire.exchange() {
                    wire.deliver(&answer);
                }
            }
            // Lost in transit.
            2 => drop(wire.exchange()),
            3 => {
                let (at, bits) = (usize::from(input.byte()), input.byte().max(1));
                if let Some(mut answer) = wire.exchange() {
                    let at = at % answer.len();
                    answer[at] ^= bits;
                    wire.deliver(&answer);
                }
            }
            4 => {
                let end = usize::from(input.byte());
                if let Some(answer) = wire.exchange() {
                    wire.deliver(answer.get(..end).unwrap_or_default());
                }
            }
            // Replayed, possibly from another session.
            5 => {
                let at = usize::from(input.byte());
                let old = wire.replies.get(at % wire.replies.len().max(1)).cloned();
                wire.deliver(&old.unwrap_or_default());
            }
            6 => {
                let forged = input.counted();
                wire.deliver(forged);
            }
            _ => {
                let ms = u64::from(input.word());
                wire.wait(ms);
                if ms % 16 == 15 {
                    wire.bmc.restart();
                }
            }
        }
    }
    wire.finish();
}

fn seeds() -> Vec<Vec<u8>> {
    // A login and a request without faults, one with every fault, one with forged packets.
    let peace = [1; 12];
    let faults = [
        1, 1, 2, 7, 1, 0, 3, 20, 1, 1, 4, 9, 5, 1, 1, 1, 0, 7, 0, 15, 1, 1,
    ];
    let forged = [
        1, 6, 12, 6, 0, 0xff, 7, 6, 0xc0, 1, 0, 0, 0, 9, 0, 1, 1, 5, 0,
    ];
    (0..4)
        .flat_map(|kind| [&peace[..], &faults, &forged].map(|steps| [&[kind][..], steps].concat()))
        .collect()
}
