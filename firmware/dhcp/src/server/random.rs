//! Random clients against the server: lost frames, restarts, expiry, invalid frames. Checked
//! after every step: no address is used by two machines, the durable leases are those in
//! memory, and no reply grants more than that.

use super::*;
use crate::client::DhcpClient;
use crate::settings::tests::settings;
use std::collections::BTreeMap;
use trivet_model::{Entropy, SeededRandom};

const MACHINES: usize = 16;

struct RandomDhcpClient {
    mac: MacAddr,
    client: DhcpClient,
    relay: Option<Ipv4Addr>,
    /// The address it uses, and until when by its own clock.
    uses: Option<(Ipv4Addr, Tick)>,
}

struct RandomDhcpNetwork {
    random: SeededRandom,
    now: Tick,
    server: DhcpServer,
    durable: BTreeMap<MacAddr, Ipv4Addr>,
    machines: Vec<RandomDhcpClient>,
    seed: u64,
    acks: u64,
}

fn arrival() -> DhcpArrival {
    DhcpArrival::datagram(
        Ipv4Addr::new(10, 0, 0, 1),
        SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68),
    )
}

impl RandomDhcpNetwork {
    fn new(seed: u64) -> Self {
        let mut random = SeededRandom::new(seed);
        let machines = (0..MACHINES).map(|number| {
            let mac = MacAddr([2, 0, 0, 0, 0, number as u8]);
            let relay = random.chance(500).then_some(Ipv4Addr::new(10, 0, 1, 254));
            RandomDhcpClient {
                mac,
                client: DhcpClient::new(mac, None, false, None, relay),
                relay,
                uses: None,
            }
        });
        let machines = machines.collect();
        Self {
            random,
            now: Tick(0),
            server: DhcpServer::new(settings()),
            durable: BTreeMap::new(),
            machines,
            seed,
            acks: 0,
        }
    }

    fn keep(&mut self, changes: &[LeaseChange]) {
        for change in changes {
            match *change {
                LeaseChange::Granted(lease) => {
                    let old = self.durable.insert(lease.mac, lease.address);
                    assert_eq!(old, None, "seed {}: granted twice", self.seed);
                }
                LeaseChange::Released(lease) => {
                    let old = self.durable.remove(&lease.mac);
                    assert_eq!(old, Some(lease.address), "seed {}", self.seed);
                }
            }
        }
    }

    /// Sends the frames of the machine; the reply may be lost.
    fn exchange(&mut self, at: usize) {
        while let Some(bytes) = self.machines[at].client.transmit() {
            if self.random.chance(150) {
                continue;
            }
            let copies = 1 + usize::from(self.random.chance(100));
            for _ in 0..copies {
                self.deliver(at, &bytes);
            }
        }
    }

    fn deliver(&mut self, at: usize, bytes: &[u8]) {
        let outcome = self.server.handle(self.now, bytes, arrival(), |_| false);
        self.keep(&outcome.changes);
        // A power cut after the commit and before the reply, at random.
        if self.random.chance(20) {
            self.restart();
            return;
        }
        let Some(reply) = outcome.reply else { return };
        if self.random.chance(150) {
            return;
        }
        let machine = &mut self.machines[at];
        machine.client.datagram(self.now, &reply.bytes);
        if let Some(bound) = machine.client.bound() {
            // A client counts from the arrival of the reply, at the latest.
            let until = self.now.after_ms(u64::from(bound.lease_s) * 1000);
            if machine.client.deadline().is_none() {
                machine.uses = Some((bound.address, until));
                self.acks += 1;
            }
        } else {
            machine.uses = None;
        }
    }

    fn restart(&mut self) {
        // A tick means nothing after a restart; the clock of the simulation continues.
        self.server = DhcpServer::new(settings());
        for (&mac, &address) in &self.durable {
            let lease = Lease { mac, address };
            assert!(
                self.server.restore(self.now, lease, |_| false),
                "seed {}",
                self.seed
            );
        }
    }

    fn step(&mut self) {
        let at = self.random.below(MACHINES as u64) as usize;
        let now = self.now;
        let machine = &mut self.machines[at];
        match self.random.below(20) {
            0..8 if machine.uses.is_none() => machine.client.start(now),
            0..8 => machine.client.renew(now),
            // The machine moves to the other network and starts again.
            8 if machine.uses.is_none() => {
                machine.relay = match machine.relay {
                    Some(_) => None,
                    None => Some(Ipv4Addr::new(10, 0, 1, 254)),
                };
                machine.client = DhcpClient::new(machine.mac, None, false, None, machine.relay);
            }
            9 => {
                if let Some(bytes) = machine.client.release() {
                    machine.uses = None;
                    self.deliver(at, &bytes);
                }
            }
            10 => self.nonsense(at),
            11 if self.random.chance(200) => self.restart(),
            12..16 => self.now = now.after_ms(self.random.below(4000)),
            16 => self.now = now.after_ms(self.random.below(400_000)),
            17 => {
                let changes = self.server.expire(now);
                self.keep(&changes);
            }
            18 if self.random.chance(100) => {
                let mac = self.machines[at].mac;
                if self.machines[at].uses.is_none() {
                    let change = self.server.forget(mac);
                    self.keep(change.as_slice());
                }
            }
            _ => {
                let machine = &mut self.machines[at];
                machine.client.tick(now);
            }
        }
        self.exchange(at);
        self.check();
    }

    /// A frame with some bytes changed, from a machine that uses nothing.
    fn nonsense(&mut self, at: usize) {
        if self.machines[at].uses.is_some() {
            return;
        }
        let mac = self.machines[at].mac;
        let mut client = DhcpClient::new(mac, Some(0), false, Some([9; 16]), None);
        client.start(self.now);
        let mut bytes = client.transmit().expect("a client that starts sends");
        for _ in 0..self.random.below(8) {
            // Not in the hardware address: that would be another machine.
            let place = self.random.below(bytes.len() as u64) as usize;
            if !(28..44).contains(&place) {
                bytes[place] = self.random.number() as u8;
            }
        }
        let outcome = self.server.handle(self.now, &bytes, arrival(), |_| false);
        self.keep(&outcome.changes);
    }

    fn check(&mut self) {
        let seed = self.seed;
        let mut users: BTreeMap<Ipv4Addr, MacAddr> = BTreeMap::new();
        for machine in &mut self.machines {
            let Some((address, until)) = machine.uses else {
                continue;
            };
            if until <= self.now {
                machine.uses = None;
                machine.client = DhcpClient::new(machine.mac, None, false, None, machine.relay);
                continue;
            }
            let other = users.insert(address, machine.mac);
            assert_eq!(other, None, "seed {seed}: {address} is used twice");
            let stored = self.durable.get(&machine.mac);
            assert_eq!(stored, Some(&address), "seed {seed}: used but not durable");
        }
        let leased: BTreeMap<_, _> = self
            .server
            .leases()
            .map(|lease| (lease.mac, lease.address))
            .collect();
        assert_eq!(leased, self.durable, "seed {seed}: memory and store differ");
    }
}

#[test]
fn no_address_is_ever_used_twice() {
    let mut acks = 0;
    for seed in 0..60 {
        let mut network = RandomDhcpNetwork::new(seed);
        for _ in 0..3000 {
            network.step();
        }
        acks += network.acks;
    }
    assert!(acks > 10_000, "only {acks} leases: the clients do nothing");
}

#[test]
fn hostile_frames_never_panic() {
    let mut random = SeededRandom::new(99);
    let mut server = DhcpServer::new(settings());
    let mut client = DhcpClient::new(MacAddr([2; 6]), Some(7), true, Some([3; 16]), None);
    for round in 0..30_000 {
        client.start(Tick(round));
        let mut bytes = client.transmit().expect("a client that starts sends");
        match random.below(4) {
            0 => {
                let len = random.below(1600) as usize;
                bytes.resize(len, 0);
                random.fill(&mut bytes[240.min(len)..]);
            }
            1 => bytes.truncate(random.below(bytes.len() as u64 + 1) as usize),
            _ => {
                for _ in 0..=random.below(6) {
                    let place = random.below(bytes.len() as u64) as usize;
                    bytes[place] = random.number() as u8;
                }
            }
        }
        let outcome = server.handle(Tick(round), &bytes, arrival(), |_| true);
        assert!(outcome.reply.is_some() != outcome.dropped.is_some());
        if let Some(first) = bytes.first_mut() {
            *first = 2;
        }
        client.datagram(Tick(round), &bytes);
        let received = server.handle(Tick(round), &bytes, arrival(), |_| true);
        assert!(received.reply.is_none());
    }
}
