//! The rig: a machine, its BMC, a session with it, and a network between them.

use std::collections::BTreeMap;

use trivet_model::{
    BmcFailureCause, BootDevice, Entropy, PowerAnswer, PowerError, PowerOrder, PowerState,
    SeededRandom, Tick,
};

use crate::bmc::{
    IpmiChassis, IpmiPrivilege, IpmiSimulator, IpmiSimulatorSetup, IpmiSimulatorUser,
};
use crate::operation::{IpmiIdentify, IpmiOperation, IpmiReply};
use crate::{BootFlags, IpmiCipherSuite, IpmiSession, IpmiTarget, IpmiTiming};

pub(super) type IpmiPowerResult = Result<PowerAnswer, PowerError>;

pub(super) const ACCEPTED: IpmiPowerResult = Ok(PowerAnswer::Accepted);

/// The outcome of a request that the BMC refused with this completion code.
pub(super) fn refused<T>(code: u8) -> Result<T, PowerError> {
    Err(PowerError::Bmc {
        cause: BmcFailureCause::Refused,
        message: crate::completion_code::refusal(code),
    })
}

pub(super) const SET_PXE: PowerOrder = PowerOrder::SetBoot {
    device: BootDevice::Pxe,
    persistent: false,
    efi: true,
};

/// A machine that records what is done to it.
#[derive(Clone, Debug)]
pub(super) struct IpmiTestMachine {
    pub(super) power: PowerState,
    pub(super) boot: BootFlags,
    pub(super) done: Vec<PowerOrder>,
    pub(super) identifies: Vec<IpmiIdentify>,
}

impl Default for IpmiTestMachine {
    fn default() -> Self {
        Self {
            power: PowerState::Off,
            boot: BootFlags::default(),
            done: Vec::new(),
            identifies: Vec::new(),
        }
    }
}

impl IpmiChassis for IpmiTestMachine {
    fn power(&self) -> PowerState {
        self.power
    }

    fn control(&mut self, order: PowerOrder) {
        self.done.push(order);
        match order {
            PowerOrder::Off | PowerOrder::SoftOff => self.power = PowerState::Off,
            _ => self.power = PowerState::On,
        }
    }

    fn boot(&self) -> BootFlags {
        self.boot
    }

    fn set_boot(&mut self, flags: BootFlags) {
        self.boot = flags;
    }

    fn identify(&mut self, light: IpmiIdentify) {
        self.identifies.push(light);
    }
}

pub(super) fn setup() -> IpmiSimulatorSetup {
    let user = |name: &[u8], password: &[u8], limit| IpmiSimulatorUser {
        name: name.to_vec(),
        password: password.to_vec(),
        limit,
    };
    IpmiSimulatorSetup {
        users: vec![
            user(b"admin", b"password", IpmiPrivilege::Administrator),
            user(b"watcher", b"look", IpmiPrivilege::User),
        ],
        guid: *b"0123456789abcdef",
        kg: None,
        suites: vec![IpmiCipherSuite::Sha1, IpmiCipherSuite::Sha256],
    }
}

pub(super) fn target() -> IpmiTarget {
    IpmiTarget {
        username: b"admin".to_vec(),
        password: b"password".to_vec(),
        kg: None,
        suite: None,
        ipmi15: false,
        privilege: IpmiPrivilege::Administrator,
    }
}

/// Faults of the network, as probabilities in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IpmiWireFaults {
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) bent: u64,
    /// Each datagram is delayed by one to this many milliseconds more.
    pub(super) late_ms: u64,
}

/// Client, BMC, and the datagrams in flight between them.
pub(super) struct IpmiTestRig {
    pub(super) now: Tick,
    pub(super) session: IpmiSession,
    pub(super) bmc: IpmiSimulator,
    pub(super) machine: IpmiTestMachine,
    pub(super) faults: IpmiWireFaults,
    pub(super) entropy: SeededRandom,
    /// Everything that the session sent, and everything that it received.
    pub(super) sent: Vec<Vec<u8>>,
    pub(super) received: Vec<Vec<u8>>,
    chance: SeededRandom,
    in_flight: BTreeMap<(Tick, u64), (bool, Vec<u8>)>,
    count: u64,
}

impl IpmiTestRig {
    pub(super) fn new(target: IpmiTarget, setup: IpmiSimulatorSetup) -> Self {
        Self {
            now: Tick(1_000),
            session: IpmiSession::new(target, IpmiTiming::default()),
            bmc: IpmiSimulator::new(setup),
            machine: IpmiTestMachine::default(),
            faults: IpmiWireFaults::default(),
            entropy: SeededRandom::new(11),
            sent: Vec::new(),
            received: Vec::new(),
            chance: SeededRandom::new(12),
            in_flight: BTreeMap::new(),
            count: 0,
        }
    }

    pub(super) fn seeded(seed: u64, faults: IpmiWireFaults) -> Self {
        let mut rig = Self::new(target(), setup());
        rig.entropy = SeededRandom::new(seed);
        rig.chance = SeededRandom::new(seed ^ 0xface);
        rig.faults = faults;
        rig
    }

    /// Queues an order after the pause that the BMC needs.
    pub(super) fn order(&mut self, id: u64, order: PowerOrder) -> Result<(), PowerError> {
        if !self.sent.is_empty() {
            self.now = self.now.after_ms(IpmiTiming::default().order_gap_ms);
        }
        self.session.order(self.now, id, order, &mut self.entropy)
    }

    /// Queues one order and runs it to its end.
    pub(super) fn run(&mut self, order: PowerOrder) -> IpmiPowerResult {
        self.order(7, order).expect("the queue is not full");
        let answers = self.run_until_idle();
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].0, 7);
        answers[0].1.clone()
    }

    /// Runs an order that changes power in an established session up to its request, which is
    /// returned instead of sent.
    pub(super) fn order_withheld(&mut self, id: u64, order: PowerOrder) -> Vec<u8> {
        self.order(id, order).expect("the queue is not full");
        let probe = self
            .session
            .transmit()
            .expect("the session is checked first");
        let answer = self
            .bmc
            .datagram(1, &probe, &mut self.machine, &mut self.entropy);
        let answer = answer.expect("the session is established");
        self.session.datagram(self.now, &answer, &mut self.entropy);
        self.session.transmit().expect("the request")
    }

    /// Queues one operation and runs it to its end.
    pub(super) fn run_operation(
        &mut self,
        operation: IpmiOperation,
    ) -> Result<IpmiReply, PowerError> {
        self.session
            .operation(self.now, 8, operation, &mut self.entropy)
            .expect("the queue is not full");
        assert_eq!(self.run_until_idle(), []);
        let (id, result) = self.session.reply().expect("a report");
        assert_eq!(id, 8);
        result
    }

    fn send(&mut self, to_bmc: bool, bytes: &[u8]) {
        let IpmiWireFaults {
            lost,
            doubled,
            bent,
            late_ms,
        } = self.faults;
        let copies = 1 + u64::from(self.chance.chance(doubled));
        for _ in 0..copies {
            if self.chance.chance(lost) {
                continue;
            }
            let mut bytes = bytes.to_vec();
            if self.chance.chance(bent) {
                let bit = self.chance.below(bytes.len() as u64 * 8) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            let at = self.now.after_ms(1 + self.chance.below(late_ms));
            self.count += 1;
            self.in_flight.insert((at, self.count), (to_bmc, bytes));
        }
    }

    /// Runs until the session has nothing to do; returns the answers.
    pub(super) fn run_until_idle(&mut self) -> Vec<(u64, IpmiPowerResult)> {
        let mut answers = Vec::new();
        for _ in 0..20_000 {
            while let Some(bytes) = self.session.transmit() {
                self.sent.push(bytes.clone());
                self.send(true, &bytes);
            }
            answers.extend(core::iter::from_fn(|| self.session.answer()));
            let arrival = self.in_flight.first_key_value().map(|(&(at, _), _)| at);
            let Some(next) = [arrival, self.session.deadline()]
                .into_iter()
                .flatten()
                .min()
            else {
                return answers;
            };
            self.now = self.now.max(next);
            if arrival == Some(next) {
                self.deliver_due();
            } else {
                self.session.tick(self.now, &mut self.entropy);
            }
        }
        panic!("the session does not become idle");
    }

    fn deliver_due(&mut self) {
        let (_, (to_bmc, bytes)) = self.in_flight.pop_first().expect("something arrives");
        if to_bmc {
            let answer = self
                .bmc
                .datagram(1, &bytes, &mut self.machine, &mut self.entropy);
            if let Some(answer) = answer {
                self.send(false, &answer);
            }
        } else {
            self.received.push(bytes.clone());
            self.session.datagram(self.now, &bytes, &mut self.entropy);
        }
    }

    /// Passes a datagram to the session immediately.
    pub(super) fn forge(&mut self, bytes: &[u8]) {
        self.session.datagram(self.now, bytes, &mut self.entropy);
    }

    pub(super) fn random_bytes(&mut self, length_max: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.chance.below(length_max) as usize];
        self.chance.fill(&mut bytes);
        bytes
    }
}
