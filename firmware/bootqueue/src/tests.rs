use super::*;
use trivet_model::SeededRandom;

const TIMEOUTS: BootTimeouts = BootTimeouts {
    idle_ms: 60_000,
    slow_file_ms: 10_000,
};

const WHOLE: FetchedBootFile = FetchedBootFile {
    sent: 1000,
    requested: 1000,
    took_ms: 100,
};

fn node(number: u64) -> NodeId {
    NodeId::random(&mut SeededRandom::new(number))
}

fn boot_queue(many: usize) -> BootQueue {
    BootQueue::new(BootLimitRule::Fixed(many), TIMEOUTS)
}

fn admit(queue: &mut BootQueue, number: u64) -> BootAdmission {
    queue.admit(Tick(0), node(number), PowerOrder::On)
}

fn queued(ahead: u64, number: u64) -> BootAdmission {
    BootAdmission::Queued { ahead, number }
}

/// A queue with an adaptive limit and this many machines.
fn full_queue(machines: u64) -> BootQueue {
    let mut queue = BootQueue::new(BootLimitRule::Auto, TIMEOUTS);
    for number in 0..machines {
        admit(&mut queue, number);
    }
    queue
}

#[test]
fn admits_up_to_the_limit_and_queues_the_others_in_order() {
    let mut queue = boot_queue(2);
    assert_eq!(admit(&mut queue, 1), BootAdmission::Admitted);
    assert_eq!(admit(&mut queue, 2), BootAdmission::Admitted);
    assert_eq!(admit(&mut queue, 3), queued(0, 0));
    assert_eq!(admit(&mut queue, 4), queued(1, 1));
    assert_eq!(queue.next(Tick(0)), None);
    queue.boot_finished(node(2));
    assert_eq!(queue.next(Tick(0)), Some((node(3), PowerOrder::On)));
    assert_eq!(queue.next(Tick(0)), None);
    queue.boot_finished(node(1));
    queue.boot_finished(node(3));
    // A new boot goes behind the queued ones, even if a slot is free.
    assert_eq!(admit(&mut queue, 5), queued(1, 2));
    assert_eq!(queue.next(Tick(0)), Some((node(4), PowerOrder::On)));
    assert_eq!(queue.next(Tick(0)), Some((node(5), PowerOrder::On)));
    let counts = queue.counts();
    assert_eq!((counts.booting, counts.waiting, counts.served), (2, 0, 3));
}

#[test]
fn an_order_given_again_takes_no_second_slot() {
    let mut queue = boot_queue(1);
    assert_eq!(admit(&mut queue, 1), BootAdmission::Admitted);
    assert_eq!(admit(&mut queue, 1), BootAdmission::Admitted);
    assert_eq!(admit(&mut queue, 2), queued(0, 0));
    assert_eq!(
        queue.admit(Tick(1), node(2), PowerOrder::Cycle),
        BootAdmission::AlreadyQueued
    );
    queue.boot_finished(node(1));
    assert_eq!(queue.next(Tick(1)), Some((node(2), PowerOrder::Cycle)));
    assert_eq!(queue.counts().waiting, 0);
}

#[test]
fn a_cancelled_boot_lets_those_behind_it_move_up() {
    let mut queue = boot_queue(1);
    for number in 1..=4 {
        admit(&mut queue, number);
    }
    assert_eq!(queue.remove(node(3)), Some(1));
    let behind: Vec<_> = queue.queued_from(1).collect();
    assert_eq!(behind, [(node(4), 1)]);
    assert_eq!(queue.remove(node(3)), None);
    assert_eq!(queue.remove(node(1)), None, "it booted");
    assert_eq!(queue.next(Tick(0)), Some((node(2), PowerOrder::On)));
    assert!(queue.is_queued(node(4)) && !queue.contains(node(3)));
}

#[test]
fn a_second_boot_goes_to_the_end() {
    let mut queue = boot_queue(1);
    admit(&mut queue, 1);
    admit(&mut queue, 2);
    queue.boot_failed(Tick(0), node(1));
    assert_eq!(admit(&mut queue, 1), queued(1, 1));
    assert_eq!(queue.next(Tick(0)), Some((node(2), PowerOrder::On)));
}

#[test]
fn a_boot_ends_with_its_last_file_and_not_with_a_part_of_it() {
    let mut queue = boot_queue(1);
    admit(&mut queue, 1);
    admit(&mut queue, 2);
    queue.file_started(Tick(1), node(1));
    let short = FetchedBootFile { sent: 999, ..WHOLE };
    queue.file_finished(Tick(2), node(1), short);
    assert_eq!(queue.next(Tick(2)), None);
    queue.file_finished(Tick(3), node(1), WHOLE);
    assert_eq!(queue.next(Tick(3)), Some((node(2), PowerOrder::On)));
}

#[test]
fn a_boot_without_packets_is_not_counted_for_ever() {
    let mut queue = boot_queue(1);
    admit(&mut queue, 1);
    admit(&mut queue, 2);
    assert_eq!(queue.deadline(), Some(Tick(60_000)));
    queue.file_started(Tick(50_000), node(1));
    assert_eq!(queue.deadline(), Some(Tick(110_000)));
    queue.tick(Tick(109_999));
    assert_eq!(queue.next(Tick(109_999)), None);
    queue.tick(Tick(110_000));
    assert!(queue.next(Tick(110_000)).is_some());
    queue.boot_finished(node(2));
    assert_eq!(queue.deadline(), None);
}

#[test]
fn boots_from_before_a_restart_are_counted_beyond_the_limit() {
    let mut queue = boot_queue(1);
    queue.resume(Tick(0), node(1));
    queue.resume(Tick(0), node(2));
    assert_eq!(admit(&mut queue, 3), queued(0, 0));
    queue.boot_finished(node(1));
    assert_eq!(queue.next(Tick(0)), None);
    queue.boot_finished(node(2));
    assert!(queue.next(Tick(0)).is_some());
}

#[test]
fn a_fixed_limit_stays_and_is_never_none() {
    let mut queue = boot_queue(0);
    assert_eq!(queue.counts().limit, 1);
    admit(&mut queue, 1);
    admit(&mut queue, 2);
    queue.file_finished(Tick(1), node(1), WHOLE);
    assert_eq!(queue.counts().limit, 1);
    let (mut wide, short) = (self::boot_queue(6), FetchedBootFile { sent: 1, ..WHOLE });
    admit(&mut wide, 1);
    wide.file_finished(Tick(1), node(1), short);
    assert_eq!(wide.counts().limit, 6);
}

#[test]
fn the_limit_doubles_with_each_batch_while_the_link_has_capacity() {
    let mut queue = full_queue(200);
    let mut wave: Vec<u64> = (0..8).collect();
    for want in [16, 32, 64] {
        for number in &wave {
            queue.file_finished(Tick(1), node(*number), WHOLE);
        }
        assert_eq!(queue.counts().limit, want);
        let first = wave[wave.len() - 1] + 1;
        while queue.next(Tick(1)).is_some() {}
        wave = (first..first + want as u64).collect();
        assert_eq!(queue.counts().booting, want);
    }
}

#[test]
fn a_limit_without_queued_boots_does_not_grow() {
    let mut queue = full_queue(8);
    for number in 0..8 {
        queue.file_finished(Tick(1), node(number), WHOLE);
    }
    assert_eq!(queue.counts().limit, LIMIT_START);
}

#[test]
fn a_full_link_holds_the_limit_and_an_overfull_one_halves_it_once() {
    let mut queue = full_queue(40);
    queue.file_finished(Tick(1), node(0), WHOLE);
    assert_eq!(queue.counts().limit, 9);
    let fuller = FetchedBootFile {
        took_ms: 500,
        ..WHOLE
    };
    queue.file_finished(Tick(2), node(1), fuller);
    assert_eq!(queue.counts().limit, 9, "a fifth of the best rate");
    while queue.next(Tick(3)).is_some() {}
    assert_eq!(queue.counts().booting, 9);
    let slow = FetchedBootFile {
        took_ms: 10_001,
        ..WHOLE
    };
    queue.file_finished(Tick(4), node(2), slow);
    assert_eq!(queue.counts().limit, 4);
    queue.file_finished(Tick(5), node(3), FetchedBootFile { sent: 9, ..WHOLE });
    queue.file_finished(Tick(5), node(4), slow);
    assert_eq!(queue.counts().limit, 4, "they began when it was nine");
}

#[test]
fn after_an_overload_the_limit_grows_by_one_for_each_batch() {
    let mut queue = full_queue(60);
    queue.file_started(Tick(1), node(0));
    queue.boot_failed(Tick(1), node(0));
    assert_eq!(queue.counts().limit, 4);
    let mut limits = Vec::new();
    for number in 1..=20 {
        queue.file_finished(Tick(2), node(number), WHOLE);
        while queue.next(Tick(2)).is_some() {}
        limits.push(queue.counts().limit);
    }
    let want = [4, 4, 4, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7];
    assert_eq!(limits, want);
}

#[test]
fn a_machine_that_never_loaded_does_not_change_the_limit() {
    let mut queue = full_queue(40);
    queue.boot_failed(Tick(1), node(0));
    queue.tick(Tick(60_000));
    assert_eq!(queue.counts().limit, LIMIT_START);
    assert_eq!(queue.counts().booting, 0);
}

#[test]
fn the_limit_never_falls_below_one_nor_rises_beyond_its_bound() {
    let mut queue = full_queue(3);
    for (at, number) in (1..).zip([0, 1, 2, 0, 1]) {
        queue.admit(Tick(at), node(number), PowerOrder::On);
        queue.file_started(Tick(at), node(number));
        queue.boot_failed(Tick(at), node(number));
    }
    assert_eq!(queue.counts().limit, 1);
    let mut limit = BootLimit::new(BootLimitRule::Fixed(usize::MAX));
    assert_eq!(limit.now(), LIMIT_MAX);
    limit = BootLimit::new(BootLimitRule::Auto);
    for _ in 0..2 * LIMIT_MAX {
        limit.file_completed(1, true);
    }
    assert_eq!(limit.now(), LIMIT_MAX);
}

/// Boots all machines over a link of `link` bytes per second that they share evenly: how long
/// it took, in milliseconds, and the most that booted at once.
fn rack(machines: u64, link: u64, rule: BootLimitRule) -> (u64, usize) {
    const STEP_MS: u64 = 100;
    const SELF_TEST_MS: u64 = 3000;
    const FILE_BYTES: u64 = 100_000;
    let mut queue = BootQueue::new(rule, TIMEOUTS);
    let mut loads: BTreeMap<NodeId, (u64, u64)> = BTreeMap::new();
    let (mut most, mut arrived, mut now) = (0, 0, Tick(0));
    for number in 0..machines {
        if queue.admit(now, node(number), PowerOrder::On) == BootAdmission::Admitted {
            loads.insert(node(number), (now.0 + SELF_TEST_MS, 0));
        }
    }
    while arrived < machines {
        now = now.after_ms(STEP_MS);
        let busy = loads.values().filter(|(from, _)| *from <= now.0).count() as u64;
        for (node, (from, sent)) in &mut loads {
            if *from <= now.0 {
                *sent += link * STEP_MS / 1000 / busy;
                queue.file_started(now, *node);
            }
        }
        let done = loads.iter().filter(|(_, (_, sent))| *sent >= FILE_BYTES);
        let done: Vec<_> = done
            .map(|(node, (from, _))| (*node, now.0 - *from))
            .collect();
        for (node, took_ms) in done {
            let (sent, requested) = (FILE_BYTES, FILE_BYTES);
            queue.file_finished(
                now,
                node,
                FetchedBootFile {
                    sent,
                    requested,
                    took_ms,
                },
            );
            loads.remove(&node);
            arrived += 1;
        }
        while let Some((node, _)) = queue.next(now) {
            loads.insert(node, (now.0 + SELF_TEST_MS, 0));
        }
        most = most.max(queue.counts().booting);
    }
    (now.0, most)
}

#[test]
fn a_rack_on_a_fast_link_is_not_held_up_much() {
    let free = rack(200, 1_000_000_000, BootLimitRule::Fixed(200));
    let auto = rack(200, 1_000_000_000, BootLimitRule::Auto);
    assert_eq!(free.1, 200);
    assert!(auto.0 <= 6 * free.0, "{auto:?} {free:?}");
}

#[test]
fn a_rack_on_a_slow_link_fills_it_and_no_more() {
    // All at once need twenty seconds each, which is slow; the link needs the same time for all
    // of them in any order.
    let free = rack(200, 1_000_000, BootLimitRule::Fixed(200));
    let auto = rack(200, 1_000_000, BootLimitRule::Auto);
    assert!(auto.1 < 120, "{auto:?}");
    assert!(2 * auto.0 <= 5 * free.0, "{auto:?} {free:?}");
}

#[test]
fn a_machine_that_never_sends_frees_its_slot_after_the_usual_time() {
    let timeouts = BootTimeouts {
        idle_ms: 600_000,
        ..TIMEOUTS
    };
    let mut queue = BootQueue::new(BootLimitRule::Auto, timeouts);
    admit(&mut queue, 1);
    assert_eq!(queue.deadline(), Some(Tick(FIRST_PACKET_MS)));
    // Another one sends its first packet after 40 s: it keeps its slot for as long as a boot
    // may take.
    admit(&mut queue, 2);
    queue.machine_seen(Tick(40_000), node(2));
    queue.tick(Tick(FIRST_PACKET_MS));
    assert!(!queue.contains(node(1)) && queue.contains(node(2)));
    assert_eq!(queue.deadline(), Some(Tick(640_000)));
    // From now on the timeout is twice that time.
    queue.admit(Tick(200_000), node(3), PowerOrder::On);
    assert_eq!(queue.deadline(), Some(Tick(280_000)));
    let before = queue.counts().limit;
    queue.tick(Tick(280_000));
    assert!(!queue.contains(node(3)));
    assert_eq!(
        queue.counts().limit,
        before,
        "a silent machine is not an overload"
    );
}

#[test]
fn the_usual_time_is_never_longer_than_a_boot_may_take_nor_shorter_than_a_minute() {
    let timeouts = BootTimeouts {
        idle_ms: 600_000,
        ..TIMEOUTS
    };
    let mut queue = BootQueue::new(BootLimitRule::Fixed(1000), timeouts);
    for (number, took_ms, usual_ms) in [(1, 1000, FIRST_PACKET_MS_MIN), (2, 500_000, 600_000)] {
        admit(&mut queue, number);
        queue.machine_seen(Tick(took_ms), node(number));
        assert_eq!(queue.first_packet_timeout_ms(), usual_ms);
    }
    for number in 0..100 {
        admit(&mut queue, 10 + number);
        queue.machine_seen(Tick(1000), node(10 + number));
    }
    assert_eq!(queue.first_packet_ms.len(), FIRST_PACKET_TIMES_MAX);
}
