//! Orders over networks that lose, duplicate, delay and damage datagrams, from seeds.

use trivet_model::{PowerAnswer, PowerError, PowerOrder, PowerState};

use super::rig::{ACCEPTED, IpmiTestRig, IpmiWireFaults, SET_PXE};

/// Runs a series of orders and compares the answers with the machine.
fn round(seed: u64, faults: IpmiWireFaults) -> (usize, usize) {
    let mut rig = IpmiTestRig::seeded(seed, faults);
    let orders = [
        PowerOrder::On,
        PowerOrder::Status,
        SET_PXE,
        PowerOrder::ReadBoot,
        PowerOrder::Cycle,
        PowerOrder::Off,
        PowerOrder::Status,
    ];
    let mut good = 0;
    for order in orders {
        let cycles = count(&rig, PowerOrder::Cycle);
        let got = rig.run(order);
        let power = rig.machine.power;
        match (order, &got) {
            (_, Err(error)) => check_error(seed, order, error),
            (PowerOrder::On, _) => assert_eq!(power, PowerState::On, "seed {seed}"),
            (PowerOrder::Off, _) => assert_eq!(power, PowerState::Off, "seed {seed}"),
            (PowerOrder::Status, _) => {
                assert_eq!(got, Ok(PowerAnswer::Power(power)), "seed {seed}");
            }
            (PowerOrder::Cycle, _) => {
                let cycled = count(&rig, PowerOrder::Cycle) - cycles;
                assert!(cycled <= 2, "seed {seed}: {cycled} cycles");
            }
            (PowerOrder::SetBoot { .. }, _) => {
                assert_eq!(rig.machine.boot.emit(), [0xa0, 4, 0, 0, 0], "seed {seed}");
            }
            _ => assert!(matches!(got, Ok(PowerAnswer::Boot { .. })), "seed {seed}"),
        }
        good += usize::from(got.is_ok());
    }
    rig.faults = IpmiWireFaults::default();
    assert_eq!(
        rig.run(PowerOrder::On),
        ACCEPTED,
        "seed {seed}: the network has no faults again"
    );
    (good, orders.len())
}

fn count(rig: &IpmiTestRig, order: PowerOrder) -> usize {
    rig.machine
        .done
        .iter()
        .filter(|done| **done == order)
        .count()
}

/// A faulty network can cause a timeout, or damage a handshake so that it reads as a refusal; it
/// must not cause a refused command.
fn check_error(seed: u64, order: PowerOrder, error: &PowerError) {
    let fair = matches!(
        error,
        PowerError::NoResponse { .. }
            | PowerError::NoSession { .. }
            | PowerError::Login { .. }
            | PowerError::InvalidResponse { .. }
    );
    assert!(fair, "seed {seed}: {order:?} ended in {error:?}");
}

fn rounds(seeds: u64, faults: IpmiWireFaults) -> (usize, usize) {
    (0..seeds)
        .map(|seed| round(seed, faults))
        .fold((0, 0), |(good, all), (more, of)| (good + more, all + of))
}

#[test]
fn a_wire_that_doubles_and_reorders_costs_nothing() {
    let faults = IpmiWireFaults {
        doubled: 300,
        late_ms: 200,
        ..IpmiWireFaults::default()
    };
    let (good, all) = rounds(300, faults);
    assert_eq!(good, all);
}

#[test]
fn a_wire_later_than_the_first_repetition_costs_nothing() {
    let faults = IpmiWireFaults {
        late_ms: 900,
        ..IpmiWireFaults::default()
    };
    let (good, all) = rounds(300, faults);
    assert!(good * 100 >= all * 99, "{good} of {all}");
}

#[test]
fn a_wire_that_loses_a_tenth_serves_nearly_every_order() {
    // A request that changes power is sent twice at most; the caller polls the power state.
    let faults = IpmiWireFaults {
        lost: 100,
        doubled: 50,
        late_ms: 50,
        ..IpmiWireFaults::default()
    };
    let (good, all) = rounds(500, faults);
    assert!(good * 100 >= all * 98, "{good} of {all}");
}

#[test]
fn a_wire_that_loses_a_third_serves_most_orders() {
    let faults = IpmiWireFaults {
        lost: 330,
        doubled: 100,
        late_ms: 300,
        ..IpmiWireFaults::default()
    };
    let (good, all) = rounds(300, faults);
    assert!(good * 100 >= all * 80, "{good} of {all}");
}

#[test]
fn a_wire_that_bends_bits_serves_nearly_every_order() {
    let faults = IpmiWireFaults {
        bent: 100,
        doubled: 50,
        late_ms: 20,
        ..IpmiWireFaults::default()
    };
    let (good, all) = rounds(500, faults);
    assert!(good * 100 >= all * 97, "{good} of {all}");
}

#[test]
fn a_doubled_control_is_done_once() {
    for seed in 0..200 {
        let faults = IpmiWireFaults {
            doubled: 500,
            ..IpmiWireFaults::default()
        };
        let mut rig = IpmiTestRig::seeded(seed, faults);
        rig.machine.power = PowerState::On;
        assert_eq!(rig.run(PowerOrder::Cycle), ACCEPTED);
        assert_eq!(count(&rig, PowerOrder::Cycle), 1, "seed {seed}");
    }
}

#[test]
fn a_repeated_control_is_done_once_although_its_answer_was_lost() {
    let mut rig = IpmiTestRig::seeded(1, IpmiWireFaults::default());
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    // The BMC receives the first copy; its response is lost.
    let first = rig.order_withheld(1, PowerOrder::Cycle);
    let lost = rig
        .bmc
        .datagram(1, &first, &mut rig.machine, &mut rig.entropy);
    assert!(lost.is_some());
    assert_eq!(rig.run_until_idle(), [(1, ACCEPTED)]);
    assert_eq!(count(&rig, PowerOrder::Cycle), 1);
}

#[test]
fn a_bmc_that_does_not_answer_a_power_request_gets_it_twice_at_most() {
    for stored in [false, true] {
        let mut rig = IpmiTestRig::seeded(1, IpmiWireFaults::default());
        if stored {
            assert_eq!(rig.run(PowerOrder::Status), rig.run(PowerOrder::Status));
        }
        rig.order(1, PowerOrder::Off).unwrap();
        let mut requests = 0;
        let mut answer = None;
        while answer.is_none() {
            while let Some(bytes) = rig.session.transmit() {
                let before = rig.machine.done.len();
                let reply = rig
                    .bmc
                    .datagram(1, &bytes, &mut rig.machine, &mut rig.entropy);
                // Busy with the change, the BMC does not respond; it would execute each copy.
                if rig.machine.done.len() > before || requests > 0 {
                    requests += 1;
                } else if let Some(reply) = reply {
                    rig.session.datagram(rig.now, &reply, &mut rig.entropy);
                }
            }
            let due = rig.session.deadline().expect("it does not wait forever");
            rig.now = rig.now.max(due);
            rig.session.tick(rig.now, &mut rig.entropy);
            answer = rig.session.answer();
        }
        assert!(matches!(
            answer,
            Some((1, Err(PowerError::NoResponse { .. })))
        ));
        assert_eq!(requests, 2, "reused {stored}");
    }
}

#[test]
fn a_late_copy_of_a_control_is_not_done_after_a_newer_one() {
    let mut rig = IpmiTestRig::seeded(1, IpmiWireFaults::default());
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    let late = rig.order_withheld(1, PowerOrder::Off);
    assert_eq!(rig.run_until_idle(), [(1, ACCEPTED)]);
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    let answer = rig
        .bmc
        .datagram(1, &late, &mut rig.machine, &mut rig.entropy);
    assert!(answer.is_some());
    assert_eq!(rig.machine.power, PowerState::On);
}

#[test]
fn a_control_whose_number_came_round_is_done() {
    let mut rig = IpmiTestRig::seeded(1, IpmiWireFaults::default());
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    for _ in 0..63 {
        assert!(rig.run(PowerOrder::Status).is_ok());
    }
    rig.machine.power = PowerState::Off;
    assert_eq!(rig.run(PowerOrder::On), ACCEPTED);
    assert_eq!(rig.machine.power, PowerState::On);
}

#[test]
fn acts_beyond_those_a_bmc_remembers_are_still_done() {
    let mut rig = IpmiTestRig::seeded(1, IpmiWireFaults::default());
    for round in 0..40 {
        let order = if round % 2 == 0 {
            PowerOrder::On
        } else {
            PowerOrder::Off
        };
        assert_eq!(rig.run(order), ACCEPTED);
    }
    assert_eq!(rig.machine.done.len(), 40);
}

#[test]
fn the_same_seed_gives_the_same_datagrams() {
    let faults = IpmiWireFaults {
        lost: 100,
        doubled: 100,
        bent: 50,
        late_ms: 100,
    };
    let run = |seed| {
        let mut rig = IpmiTestRig::seeded(seed, faults);
        let _outcome = rig.run(SET_PXE);
        (rig.sent, rig.received)
    };
    assert_eq!(run(42), run(42));
    assert_ne!(run(42), run(43));
}
