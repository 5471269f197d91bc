use super::*;
use trivet_model::Seeded;

const PATIENCE: Patience = Patience {
    silent_ms: 60_000,
    slow_ms: 10_000,
};

const WHOLE: Fetched = Fetched {
    sent: 1000,
    asked: 1000,
    took_ms: 100,
};

fn node(number: u64) -> NodeId {
    NodeId::random(&mut Seeded::new(number))
}

fn gate(many: usize) -> Gate {
    Gate::new(AtOnce::Fixed(many), PATIENCE)
}

fn ask(gate: &mut Gate, number: u64) -> Turn {
    gate.ask(Tick(0), node(number), PowerOrder::On)
}

fn queued(ahead: u64, number: u64) -> Turn {
    Turn::Queued { ahead, number }
}

/// An automatic gate with this many machines at it.
fn storm(machines: u64) -> Gate {
    let mut gate = Gate::new(AtOnce::Auto, PATIENCE);
    for number in 0..machines {
        ask(&mut gate, number);
    }
    gate
}

#[test]
fn lets_so_many_through_and_the_others_wait_in_order() {
    let mut gate = gate(2);
    assert_eq!(ask(&mut gate, 1), Turn::Now);
    assert_eq!(ask(&mut gate, 2), Turn::Now);
    assert_eq!(ask(&mut gate, 3), queued(0, 0));
    assert_eq!(ask(&mut gate, 4), queued(1, 1));
    assert_eq!(gate.next(Tick(0)), None);
    gate.arrived(node(2));
    assert_eq!(gate.next(Tick(0)), Some((node(3), PowerOrder::On)));
    assert_eq!(gate.next(Tick(0)), None);
    gate.arrived(node(1));
    gate.arrived(node(3));
    // Whoever comes now goes behind those who wait, even where there is a place.
    assert_eq!(ask(&mut gate, 5), queued(1, 2));
    assert_eq!(gate.next(Tick(0)), Some((node(4), PowerOrder::On)));
    assert_eq!(gate.next(Tick(0)), Some((node(5), PowerOrder::On)));
    let tally = gate.tally();
    assert_eq!((tally.booting, tally.waiting, tally.served), (2, 0, 3));
}

#[test]
fn an_order_given_again_takes_no_second_place() {
    let mut gate = gate(1);
    assert_eq!(ask(&mut gate, 1), Turn::Now);
    assert_eq!(ask(&mut gate, 1), Turn::Now);
    assert_eq!(ask(&mut gate, 2), queued(0, 0));
    assert_eq!(gate.ask(Tick(1), node(2), PowerOrder::Cycle), Turn::Waits);
    gate.arrived(node(1));
    assert_eq!(gate.next(Tick(1)), Some((node(2), PowerOrder::Cycle)));
    assert_eq!(gate.tally().waiting, 0);
}

#[test]
fn who_leaves_the_queue_lets_those_behind_move_up() {
    let mut gate = gate(1);
    for number in 1..=4 {
        ask(&mut gate, number);
    }
    assert_eq!(gate.left(node(3)), Some(1));
    let behind: Vec<_> = gate.behind(1).collect();
    assert_eq!(behind, [(node(4), 1)]);
    assert_eq!(gate.left(node(3)), None);
    assert_eq!(gate.left(node(1)), None, "it booted");
    assert_eq!(gate.next(Tick(0)), Some((node(2), PowerOrder::On)));
    assert!(gate.waits(node(4)) && !gate.knows(node(3)));
}

#[test]
fn who_boots_again_goes_to_the_end() {
    let mut gate = gate(1);
    ask(&mut gate, 1);
    ask(&mut gate, 2);
    gate.given_up(Tick(0), node(1));
    assert_eq!(ask(&mut gate, 1), queued(1, 1));
    assert_eq!(gate.next(Tick(0)), Some((node(2), PowerOrder::On)));
}

#[test]
fn a_boot_ends_with_its_last_file_and_not_with_a_part_of_it() {
    let mut gate = gate(1);
    ask(&mut gate, 1);
    ask(&mut gate, 2);
    gate.loads(Tick(1), node(1));
    let short = Fetched { sent: 999, ..WHOLE };
    gate.fetched(Tick(2), node(1), short);
    assert_eq!(gate.next(Tick(2)), None);
    gate.fetched(Tick(3), node(1), WHOLE);
    assert_eq!(gate.next(Tick(3)), Some((node(2), PowerOrder::On)));
}

#[test]
fn a_boot_of_which_nothing_is_heard_is_not_counted_for_ever() {
    let mut gate = gate(1);
    ask(&mut gate, 1);
    ask(&mut gate, 2);
    assert_eq!(gate.deadline(), Some(Tick(60_000)));
    gate.loads(Tick(50_000), node(1));
    assert_eq!(gate.deadline(), Some(Tick(110_000)));
    gate.tick(Tick(109_999));
    assert_eq!(gate.next(Tick(109_999)), None);
    gate.tick(Tick(110_000));
    assert!(gate.next(Tick(110_000)).is_some());
    gate.arrived(node(2));
    assert_eq!(gate.deadline(), None);
}

#[test]
fn boots_from_before_a_restart_are_counted_beyond_the_limit() {
    let mut gate = gate(1);
    gate.resume(Tick(0), node(1));
    gate.resume(Tick(0), node(2));
    assert_eq!(ask(&mut gate, 3), queued(0, 0));
    gate.arrived(node(1));
    assert_eq!(gate.next(Tick(0)), None);
    gate.arrived(node(2));
    assert!(gate.next(Tick(0)).is_some());
}

#[test]
fn a_fixed_limit_stays_and_is_never_none() {
    let mut gate = gate(0);
    assert_eq!(gate.tally().limit, 1);
    ask(&mut gate, 1);
    ask(&mut gate, 2);
    gate.fetched(Tick(1), node(1), WHOLE);
    assert_eq!(gate.tally().limit, 1);
    let (mut wide, short) = (self::gate(6), Fetched { sent: 1, ..WHOLE });
    ask(&mut wide, 1);
    wide.fetched(Tick(1), node(1), short);
    assert_eq!(wide.tally().limit, 6);
}

#[test]
fn the_limit_doubles_with_each_wave_while_there_is_room() {
    let mut gate = storm(200);
    let mut wave: Vec<u64> = (0..8).collect();
    for want in [16, 32, 64] {
        for number in &wave {
            gate.fetched(Tick(1), node(*number), WHOLE);
        }
        assert_eq!(gate.tally().limit, want);
        let first = wave[wave.len() - 1] + 1;
        while gate.next(Tick(1)).is_some() {}
        wave = (first..first + want as u64).collect();
        assert_eq!(gate.tally().booting, want);
    }
}

#[test]
fn a_limit_that_nobody_waits_for_does_not_grow() {
    let mut gate = storm(8);
    for number in 0..8 {
        gate.fetched(Tick(1), node(number), WHOLE);
    }
    assert_eq!(gate.tally().limit, LIMIT_START);
}

#[test]
fn a_full_link_holds_the_limit_and_an_overfull_one_halves_it_once() {
    let mut gate = storm(40);
    gate.fetched(Tick(1), node(0), WHOLE);
    assert_eq!(gate.tally().limit, 9);
    let fuller = Fetched {
        took_ms: 500,
        ..WHOLE
    };
    gate.fetched(Tick(2), node(1), fuller);
    assert_eq!(gate.tally().limit, 9, "a fifth of the best rate");
    while gate.next(Tick(3)).is_some() {}
    assert_eq!(gate.tally().booting, 9);
    let slow = Fetched {
        took_ms: 10_001,
        ..WHOLE
    };
    gate.fetched(Tick(4), node(2), slow);
    assert_eq!(gate.tally().limit, 4);
    gate.fetched(Tick(5), node(3), Fetched { sent: 9, ..WHOLE });
    gate.fetched(Tick(5), node(4), slow);
    assert_eq!(gate.tally().limit, 4, "they began when it was nine");
}

#[test]
fn after_a_fall_the_limit_grows_by_one_for_each_wave() {
    let mut gate = storm(60);
    gate.loads(Tick(1), node(0));
    gate.given_up(Tick(1), node(0));
    assert_eq!(gate.tally().limit, 4);
    let mut limits = Vec::new();
    for number in 1..=20 {
        gate.fetched(Tick(2), node(number), WHOLE);
        while gate.next(Tick(2)).is_some() {}
        limits.push(gate.tally().limit);
    }
    let want = [4, 4, 4, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7];
    assert_eq!(limits, want);
}

#[test]
fn a_machine_that_never_loaded_says_nothing_about_the_link() {
    let mut gate = storm(40);
    gate.given_up(Tick(1), node(0));
    gate.tick(Tick(60_000));
    assert_eq!(gate.tally().limit, LIMIT_START);
    assert_eq!(gate.tally().booting, 0);
}

#[test]
fn the_limit_never_falls_below_one_nor_rises_beyond_its_bound() {
    let mut gate = storm(3);
    for (at, number) in (1..).zip([0, 1, 2, 0, 1]) {
        gate.ask(Tick(at), node(number), PowerOrder::On);
        gate.loads(Tick(at), node(number));
        gate.given_up(Tick(at), node(number));
    }
    assert_eq!(gate.tally().limit, 1);
    let mut limit = Limit::new(AtOnce::Fixed(usize::MAX));
    assert_eq!(limit.now(), LIMIT_MAX);
    limit = Limit::new(AtOnce::Auto);
    for _ in 0..2 * LIMIT_MAX {
        limit.came_whole(1, true);
    }
    assert_eq!(limit.now(), LIMIT_MAX);
}

/// Boots all machines over a link of so many bytes a second that they share evenly: how
/// long it took, in milliseconds, and the most that booted at once.
fn rack(machines: u64, link: u64, rule: AtOnce) -> (u64, usize) {
    const STEP_MS: u64 = 100;
    const SELF_TEST_MS: u64 = 3000;
    const FILE_BYTES: u64 = 100_000;
    let mut gate = Gate::new(rule, PATIENCE);
    let mut loads: BTreeMap<NodeId, (u64, u64)> = BTreeMap::new();
    let (mut most, mut arrived, mut now) = (0, 0, Tick(0));
    for number in 0..machines {
        if gate.ask(now, node(number), PowerOrder::On) == Turn::Now {
            loads.insert(node(number), (now.0 + SELF_TEST_MS, 0));
        }
    }
    while arrived < machines {
        now = now.after_ms(STEP_MS);
        let busy = loads.values().filter(|(from, _)| *from <= now.0).count() as u64;
        for (node, (from, sent)) in &mut loads {
            if *from <= now.0 {
                *sent += link * STEP_MS / 1000 / busy;
                gate.loads(now, *node);
            }
        }
        let done = loads.iter().filter(|(_, (_, sent))| *sent >= FILE_BYTES);
        let done: Vec<_> = done
            .map(|(node, (from, _))| (*node, now.0 - *from))
            .collect();
        for (node, took_ms) in done {
            let (sent, asked) = (FILE_BYTES, FILE_BYTES);
            gate.fetched(
                now,
                node,
                Fetched {
                    sent,
                    asked,
                    took_ms,
                },
            );
            loads.remove(&node);
            arrived += 1;
        }
        while let Some((node, _)) = gate.next(now) {
            loads.insert(node, (now.0 + SELF_TEST_MS, 0));
        }
        most = most.max(gate.tally().booting);
    }
    (now.0, most)
}

#[test]
fn a_rack_on_a_fast_link_is_not_held_up_much() {
    let free = rack(200, 1_000_000_000, AtOnce::Fixed(200));
    let auto = rack(200, 1_000_000_000, AtOnce::Auto);
    assert_eq!(free.1, 200);
    assert!(auto.0 <= 6 * free.0, "{auto:?} {free:?}");
}

#[test]
fn a_rack_on_a_slow_link_fills_it_and_no_more() {
    // All at once need twenty seconds each, which is slow; the link itself needs as long
    // for all of them whatever the order is.
    let free = rack(200, 1_000_000, AtOnce::Fixed(200));
    let auto = rack(200, 1_000_000, AtOnce::Auto);
    assert!(auto.1 < 120, "{auto:?}");
    assert!(2 * auto.0 <= 5 * free.0, "{auto:?} {free:?}");
}

#[test]
fn a_machine_that_is_never_heard_returns_its_place_after_the_usual_time() {
    let patience = Patience {
        silent_ms: 600_000,
        ..PATIENCE
    };
    let mut gate = Gate::new(AtOnce::Auto, patience);
    ask(&mut gate, 1);
    assert_eq!(gate.deadline(), Some(Tick(UNHEARD_MS)));
    // Another one is heard after 40 s: it keeps its place for as long as a boot may take.
    ask(&mut gate, 2);
    gate.heard(Tick(40_000), node(2));
    gate.tick(Tick(UNHEARD_MS));
    assert!(!gate.knows(node(1)) && gate.knows(node(2)));
    assert_eq!(gate.deadline(), Some(Tick(640_000)));
    // From now on twice that time is usual.
    gate.ask(Tick(200_000), node(3), PowerOrder::On);
    assert_eq!(gate.deadline(), Some(Tick(280_000)));
    let before = gate.tally().limit;
    gate.tick(Tick(280_000));
    assert!(!gate.knows(node(3)));
    assert_eq!(gate.tally().limit, before, "silence is no congestion");
}

#[test]
fn the_usual_time_is_never_longer_than_a_boot_may_take_nor_shorter_than_a_minute() {
    let patience = Patience {
        silent_ms: 600_000,
        ..PATIENCE
    };
    let mut gate = Gate::new(AtOnce::Fixed(1000), patience);
    for (number, took_ms, usual_ms) in [(1, 1000, UNHEARD_MS_MIN), (2, 500_000, 600_000)] {
        ask(&mut gate, number);
        gate.heard(Tick(took_ms), node(number));
        assert_eq!(gate.unheard_ms(), usual_ms);
    }
    for number in 0..100 {
        ask(&mut gate, 10 + number);
        gate.heard(Tick(1000), node(10 + number));
    }
    assert_eq!(gate.took.len(), HEARD_MAX);
}
