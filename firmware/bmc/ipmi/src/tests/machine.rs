//! The rig: a machine, its BMC, a session with it, and a wire between them.

use std::collections::BTreeMap;

use trivet_model::{
    BootDevice, Entropy, PowerAnswer, PowerError, PowerOrder, PowerState, Seeded, Tick,
};

use crate::bmc::{Bmc, Chassis, Privilege, Setup, User};
use crate::errand::{Errand, Light, Report};
use crate::{BootFlags, Pace, Session, Suite, Target};

pub(super) type Outcome = Result<PowerAnswer, PowerError>;

pub(super) const ACCEPTED: Outcome = Ok(PowerAnswer::Accepted);

pub(super) const SET_PXE: PowerOrder = PowerOrder::SetBoot {
    device: BootDevice::Pxe,
    persistent: false,
    efi: true,
};

/// A machine that counts what is done to it.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) power: PowerState,
    pub(super) boot: BootFlags,
    pub(super) done: Vec<PowerOrder>,
    pub(super) lights: Vec<Light>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            power: PowerState::Off,
            boot: BootFlags::default(),
            done: Vec::new(),
            lights: Vec::new(),
        }
    }
}

impl Chassis for Machine {
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

    fn identify(&mut self, light: Light) {
        self.lights.push(light);
    }
}

pub(super) fn setup() -> Setup {
    let user = |name: &[u8], password: &[u8], limit| User {
        name: name.to_vec(),
        password: password.to_vec(),
        limit,
    };
    Setup {
        users: vec![
            user(b"admin", b"password", Privilege::Administrator),
            user(b"watcher", b"look", Privilege::User),
        ],
        guid: *b"0123456789abcdef",
        kg: None,
        suites: vec![Suite::Sha1, Suite::Sha256],
    }
}

pub(super) fn target() -> Target {
    Target {
        username: b"admin".to_vec(),
        password: b"password".to_vec(),
        kg: None,
        suite: None,
        old: false,
        privilege: Privilege::Administrator,
    }
}

/// What a wire does, in chances of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) bent: u64,
    /// Each datagram takes one to this many milliseconds more.
    pub(super) late_ms: u64,
}

/// Both ends and what is on the way between them.
pub(super) struct Rig {
    pub(super) now: Tick,
    pub(super) session: Session,
    pub(super) bmc: Bmc,
    pub(super) machine: Machine,
    pub(super) faults: Faults,
    pub(super) entropy: Seeded,
    /// Everything the session sent, and everything it was sent.
    pub(super) sent: Vec<Vec<u8>>,
    pub(super) received: Vec<Vec<u8>>,
    chance: Seeded,
    on_the_way: BTreeMap<(Tick, u64), (bool, Vec<u8>)>,
    count: u64,
}

impl Rig {
    pub(super) fn new(target: Target, setup: Setup) -> Self {
        Self {
            now: Tick(1_000),
            session: Session::new(target, Pace::default()),
            bmc: Bmc::new(setup),
            machine: Machine::default(),
            faults: Faults::default(),
            entropy: Seeded::new(11),
            sent: Vec::new(),
            received: Vec::new(),
            chance: Seeded::new(12),
            on_the_way: BTreeMap::new(),
            count: 0,
        }
    }

    pub(super) fn seeded(seed: u64, faults: Faults) -> Self {
        let mut rig = Self::new(target(), setup());
        rig.entropy = Seeded::new(seed);
        rig.chance = Seeded::new(seed ^ 0xface);
        rig.faults = faults;
        rig
    }

    /// Gives an order to a BMC that has rested.
    pub(super) fn order(&mut self, id: u64, order: PowerOrder) -> Result<(), PowerError> {
        if !self.sent.is_empty() {
            self.now = self.now.after_ms(Pace::default().rest_ms);
        }
        self.session.order(self.now, id, order, &mut self.entropy)
    }

    /// Gives one order and plays it to its end.
    pub(super) fn run(&mut self, order: PowerOrder) -> Outcome {
        self.order(7, order).expect("the queue has room");
        let answers = self.settle();
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].0, 7);
        answers[0].1.clone()
    }

    /// Gives an order that changes power in a session that stands, up to its request, which is
    /// given back instead of sent.
    pub(super) fn held_back(&mut self, id: u64, order: PowerOrder) -> Vec<u8> {
        self.order(id, order).expect("the queue has room");
        let probe = self.session.transmit().expect("the session is tried first");
        let answer = self
            .bmc
            .datagram(1, &probe, &mut self.machine, &mut self.entropy);
        let answer = answer.expect("the session stands");
        self.session.datagram(self.now, &answer, &mut self.entropy);
        self.session.transmit().expect("the request")
    }

    /// Gives one errand and plays it to its end.
    pub(super) fn run_errand(&mut self, errand: Errand) -> Result<Report, PowerError> {
        self.session
            .errand(self.now, 8, errand, &mut self.entropy)
            .expect("the queue has room");
        assert_eq!(self.settle(), []);
        let (id, result) = self.session.report().expect("a report");
        assert_eq!(id, 8);
        result
    }

    fn put(&mut self, to_bmc: bool, bytes: &[u8]) {
        let Faults {
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
            self.on_the_way.insert((at, self.count), (to_bmc, bytes));
        }
    }

    /// Plays until the session has nothing to do; gives the answers.
    pub(super) fn settle(&mut self) -> Vec<(u64, Outcome)> {
        let mut answers = Vec::new();
        for _ in 0..20_000 {
            while let Some(bytes) = self.session.transmit() {
                self.sent.push(bytes.clone());
                self.put(true, &bytes);
            }
            answers.extend(core::iter::from_fn(|| self.session.answer()));
            let arrival = self.on_the_way.first_key_value().map(|(&(at, _), _)| at);
            let Some(next) = [arrival, self.session.deadline()]
                .into_iter()
                .flatten()
                .min()
            else {
                return answers;
            };
            self.now = self.now.max(next);
            if arrival == Some(next) {
                self.arrive();
            } else {
                self.session.tick(self.now, &mut self.entropy);
            }
        }
        panic!("the session does not come to rest");
    }

    fn arrive(&mut self) {
        let (_, (to_bmc, bytes)) = self.on_the_way.pop_first().expect("something arrives");
        if to_bmc {
            let answer = self
                .bmc
                .datagram(1, &bytes, &mut self.machine, &mut self.entropy);
            if let Some(answer) = answer {
                self.put(false, &answer);
            }
        } else {
            self.received.push(bytes.clone());
            self.session.datagram(self.now, &bytes, &mut self.entropy);
        }
    }

    /// Hands the session a datagram at once.
    pub(super) fn forge(&mut self, bytes: &[u8]) {
        self.session.datagram(self.now, bytes, &mut self.entropy);
    }

    pub(super) fn random_bytes(&mut self, length_max: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.chance.below(length_max) as usize];
        self.chance.fill(&mut bytes);
        bytes
    }
}
