use super::*;
use crate::settings::tests::settings;

fn table() -> LeaseTable {
    LeaseTable::new(&settings())
}

/// A table whose first subnet has more than 65,534 addresses.
fn wide() -> LeaseTable {
    let mut settings = settings();
    let subnet = &mut settings.subnets[0];
    subnet.network = Ipv4Addr::new(11, 0, 0, 0);
    subnet.prefix = 8;
    subnet.first = Ipv4Addr::new(11, 0, 0, 0);
    subnet.last = Ipv4Addr::new(11, 255, 255, 255);
    LeaseTable::new(&settings)
}

fn mac(number: u32) -> MacAddr {
    let [a, b, c, d] = number.to_be_bytes();
    MacAddr([2, 0, a, b, c, d])
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

#[track_caller]
fn offered(table: &mut LeaseTable, now: u64, number: u32) -> Result<Ipv4Addr, Reason> {
    let offered = table.offer(Tick(now), 0, mac(number), None, &NO_KNOWN_HOST, &mut vec![])?;
    Ok(offered.address)
}

const NO_KNOWN_HOST: fn(MacAddr) -> bool = |_| false;
const ALL_HOSTS_KNOWN: fn(MacAddr) -> bool = |_| true;

fn granted(table: &mut LeaseTable, now: u64, number: u32, address: Ipv4Addr) -> Vec<LeaseChange> {
    let mut changes = vec![];
    table
        .grant(Tick(now), 0, mac(number), address, &mut changes)
        .unwrap();
    changes
}

#[test]
fn the_same_machine_is_offered_the_same_address() {
    let mut table = table();
    assert_eq!(offered(&mut table, 0, 1), Ok(address(100)));
    assert_eq!(offered(&mut table, 0, 2), Ok(address(101)));
    assert_eq!(offered(&mut table, 5, 1), Ok(address(100)));
}

#[test]
fn an_offer_ends_and_leaves_no_change_behind() {
    let mut table = table();
    offered(&mut table, 0, 1).unwrap();
    assert_eq!(table.deadline(), Some(Tick(OFFER_HOLD_MS)));
    assert_eq!(table.expire(Tick(OFFER_HOLD_MS)), []);
    assert_eq!(table.offer_of(mac(1)), None);
    assert_eq!(table.deadline(), None);
}

#[test]
fn a_lease_is_granted_once_and_renewed_without_a_change() {
    let mut table = table();
    let lease = Lease {
        mac: mac(1),
        address: address(100),
    };
    let want = [LeaseChange::Granted(lease)];
    assert_eq!(granted(&mut table, 0, 1, address(100)), want);
    assert_eq!(granted(&mut table, 9000, 1, address(100)), []);
    let end = 9000 + 600_000 + GRACE_MS;
    assert_eq!(table.expire(Tick(end - 1)), []);
    assert_eq!(table.expire(Tick(end)), [LeaseChange::Released(lease)]);
}

#[test]
fn a_machine_gets_the_address_it_had() {
    let mut table = table();
    granted(&mut table, 0, 1, address(105));
    table.forget(mac(1));
    assert_eq!(offered(&mut table, 1, 1), Ok(address(105)));
}

#[test]
fn a_requested_address_is_given_if_it_is_free() {
    let mut table = table();
    granted(&mut table, 0, 1, address(105));
    let mut wanted = |number, last| {
        table
            .offer(
                Tick(0),
                0,
                mac(number),
                Some(address(last)),
                &NO_KNOWN_HOST,
                &mut vec![],
            )
            .unwrap()
            .address
    };
    assert_eq!(wanted(2, 107), address(107));
    assert_eq!(wanted(3, 105), address(100));
    assert_eq!(wanted(4, 5), address(101));
}

#[test]
fn an_exhausted_pool_is_reported_and_recovers() {
    let mut table = table();
    let mut known = |now, number| {
        let offered = table.offer(
            Tick(now),
            0,
            mac(number),
            None,
            &ALL_HOSTS_KNOWN,
            &mut vec![],
        )?;
        Ok(offered.address)
    };
    for number in 0..10 {
        known(0, number).unwrap();
    }
    assert_eq!(known(1, 10), Err(Reason::PoolExhausted));
    assert!(known(OFFER_HOLD_MS, 10).is_ok());
}

#[test]
fn unknown_machines_cannot_take_the_last_addresses() {
    let mut table = table();
    // A quarter of ten, rounded up, stays free.
    for number in 0..7 {
        offered(&mut table, 0, number).unwrap();
    }
    assert_eq!(offered(&mut table, 1, 10), Err(Reason::OnlyForKnown));
    // Neither with a requested address, nor with a former address.
    let wanted = Some(address(109));
    let requested = table.offer(Tick(1), 0, mac(10), wanted, &NO_KNOWN_HOST, &mut vec![]);
    assert_eq!(requested, Err(Reason::OnlyForKnown));
    assert!(!table.may_have(0, mac(10), address(109), &NO_KNOWN_HOST));
    assert!(table.may_have(0, mac(10), address(109), &ALL_HOSTS_KNOWN));
    // A machine may keep its own address.
    let own = table.offer_of(mac(3)).unwrap();
    assert!(table.may_have(0, mac(3), own, &NO_KNOWN_HOST));
    for number in 20..23 {
        let known = table.offer(Tick(1), 0, mac(number), None, &ALL_HOSTS_KNOWN, &mut vec![]);
        assert!(known.is_ok());
    }
    // A lease that ends is free for unknown machines again.
    assert!(offered(&mut table, OFFER_HOLD_MS, 10).is_ok());
}

#[test]
fn moving_to_another_subnet_ends_the_old_lease_at_the_request() {
    let mut table = table();
    granted(&mut table, 0, 1, address(100));
    let there = table.offer(Tick(1), 1, mac(1), None, &NO_KNOWN_HOST, &mut vec![]);
    let there = there.unwrap().address;
    assert_eq!(table.lease_of(mac(1)), Some(address(100)));
    let changes = granted(&mut table, 2, 1, there);
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert_eq!(table.leases().count(), 1);
    assert!(table.may_have(0, mac(2), address(100), &NO_KNOWN_HOST));
}

#[test]
fn a_declined_address_is_in_quarantine_for_a_while() {
    let mut table = table();
    granted(&mut table, 0, 1, address(100));
    let change = table.decline(Tick(0), mac(1), address(100)).unwrap();
    assert!(matches!(change, Some(LeaseChange::Released(_))));
    assert!(!table.may_have(0, mac(1), address(100), &NO_KNOWN_HOST));
    assert_eq!(offered(&mut table, 1, 1), Ok(address(101)));
    table.expire(Tick(QUARANTINE_MS));
    assert!(table.may_have(0, mac(1), address(100), &NO_KNOWN_HOST));
}

#[test]
fn only_its_holder_declines_an_address() {
    let mut table = table();
    granted(&mut table, 0, 1, address(100));
    let refused = table.decline(Tick(0), mac(2), address(100));
    assert_eq!(refused, Err(Reason::NoRecord));
    assert_eq!(table.lease_of(mac(1)), Some(address(100)));
}

#[test]
fn one_quarantine_too_many_releases_the_oldest() {
    let mut table = wide();
    let mut declined = vec![];
    for number in 0..=QUARANTINED_MAX as u32 {
        let address = offered(&mut table, 0, number).unwrap();
        table.decline(Tick(0), mac(number), address).unwrap();
        declined.push(address);
    }
    assert_eq!(table.quarantined.len(), QUARANTINED_MAX);
    assert!(table.may_have(0, mac(9), declined[0], &NO_KNOWN_HOST));
    assert!(!table.may_have(0, mac(9), declined[1], &NO_KNOWN_HOST));
}

#[test]
fn offers_have_a_bound() {
    let mut table = wide();
    for number in 0..UNKNOWN_OFFERS_MAX as u32 {
        offered(&mut table, 0, number).unwrap();
    }
    let more = OFFERS_MAX as u32;
    assert_eq!(offered(&mut table, 1, more), Err(Reason::TooManyOffers));
    for number in 0..OFFERS_MAX as u32 {
        let to = mac(0x10_0000 + number);
        let offered = table.offer(Tick(1), 0, to, None, &ALL_HOSTS_KNOWN, &mut vec![]);
        assert!(offered.is_ok(), "known {number}");
    }
    assert!(
        table.unknown_offers.is_empty(),
        "the slots of known machines are in use"
    );
    let one_more = table.offer(Tick(2), 0, mac(more), None, &ALL_HOSTS_KNOWN, &mut vec![]);
    assert_eq!(one_more, Err(Reason::TooManyOffers));
    assert!(offered(&mut table, OFFER_HOLD_MS + 1, more).is_ok());
    assert_eq!(table.offers, 1);
}

#[test]
fn leases_and_the_memory_of_them_have_a_bound() {
    let mut table = wide();
    let numbered = |number: u32| Ipv4Addr::from_bits(0x0b00_0001 + number);
    for number in 0..LEASES_MAX as u32 {
        granted(&mut table, 0, number, numbered(number));
    }
    let more = LEASES_MAX as u32;
    let refused = table.grant(Tick(1), 0, mac(more), numbered(more), &mut vec![]);
    assert_eq!(refused, Err(Reason::TooManyLeases));
    let moved = granted(&mut table, 1, 0, numbered(more));
    assert_eq!(moved.len(), 2, "a move needs no further slot");
    let ended = table.expire(Tick(10_000_000));
    assert_eq!(ended.len(), LEASES_MAX);
    assert_eq!(table.former_addresses.len(), FORMER_ADDRESSES_MAX);
}

#[test]
fn a_restored_lease_starts_again_and_foreign_ones_are_refused() {
    let mut table = table();
    let lease = |number, address| Lease {
        mac: mac(number),
        address,
    };
    assert!(table.restore(Tick(7), lease(1, address(100)), &NO_KNOWN_HOST));
    assert!(
        !table.restore(Tick(7), lease(2, address(100)), &NO_KNOWN_HOST),
        "held"
    );
    assert!(
        !table.restore(Tick(7), lease(1, address(101)), &NO_KNOWN_HOST),
        "second"
    );
    assert!(
        !table.restore(Tick(7), lease(3, address(9)), &NO_KNOWN_HOST),
        "out of range"
    );
    assert_eq!(table.deadline(), Some(Tick(7 + 600_000 + GRACE_MS)));
}

#[test]
fn forgetting_ends_lease_and_offer() {
    let mut table = table();
    granted(&mut table, 0, 1, address(100));
    table
        .offer(Tick(0), 1, mac(1), None, &NO_KNOWN_HOST, &mut vec![])
        .unwrap();
    assert!(table.forget(mac(1)).is_some());
    assert_eq!(table.forget(mac(1)), None);
    assert!(table.machines.is_empty() && table.held.is_empty());
}

/// Machine 1 has 10.0.0.105 reserved, machine 2 has 10.0.0.9, which is outside the range.
struct ReservedHosts;

impl HostDirectory for ReservedHosts {
    fn known(&self, wanted: MacAddr) -> bool {
        self.reserved(wanted).is_some()
    }

    fn reserved(&self, wanted: MacAddr) -> Option<Ipv4Addr> {
        let reservations = [(mac(1), address(105)), (mac(2), address(9))];
        reservations
            .iter()
            .find(|reservations| reservations.0 == wanted)
            .map(|reservations| reservations.1)
    }

    fn owner(&self, wanted: Ipv4Addr) -> Option<MacAddr> {
        [1, 2]
            .map(mac)
            .into_iter()
            .find(|&mac| self.reserved(mac) == Some(wanted))
    }
}

fn offered_reserved(table: &mut LeaseTable, number: u32, wanted: Option<Ipv4Addr>) -> Ipv4Addr {
    let offered = table.offer(Tick(0), 0, mac(number), wanted, &ReservedHosts, &mut vec![]);
    offered.unwrap().address
}

#[test]
fn a_reserved_address_goes_to_its_machine_only() {
    let mut table = table();
    assert_eq!(
        offered_reserved(&mut table, 3, Some(address(105))),
        address(100)
    );
    assert_eq!(
        offered_reserved(&mut table, 3, Some(address(9))),
        address(100)
    );
    assert_eq!(
        offered_reserved(&mut table, 1, Some(address(107))),
        address(105)
    );
    assert_eq!(offered_reserved(&mut table, 2, None), address(9));
    assert!(!table.may_have(0, mac(3), address(105), &ReservedHosts));
    assert!(
        !table.may_have(1, mac(2), address(9), &ReservedHosts),
        "not there"
    );
    for number in 10..15 {
        assert_ne!(offered_reserved(&mut table, number, None), address(105));
    }
    let full = table.offer(Tick(0), 0, mac(18), None, &ReservedHosts, &mut vec![]);
    assert_eq!(full, Err(Reason::OnlyForKnown));
}

#[test]
fn a_reservation_made_later_is_obeyed_as_soon_as_the_address_is_free() {
    let mut table = table();
    granted(&mut table, 0, 3, address(105));
    granted(&mut table, 0, 1, address(100));
    assert_eq!(offered_reserved(&mut table, 1, None), address(100));
    assert!(
        !table.may_have(0, mac(3), address(105), &ReservedHosts),
        "no renewal"
    );
    table.forget(mac(3));
    assert_eq!(
        offered_reserved(&mut table, 3, None),
        address(101),
        "not its former one"
    );
    assert_eq!(offered_reserved(&mut table, 1, None), address(105));
    let changes = granted(&mut table, 0, 1, address(105));
    assert_eq!(changes.len(), 2, "{changes:?}");
}

#[test]
fn an_offered_address_is_withdrawn_for_the_owner_of_its_reservation() {
    let mut table = table();
    let wanted = Some(address(105));
    table
        .offer(Tick(0), 0, mac(3), wanted, &NO_KNOWN_HOST, &mut vec![])
        .unwrap();
    assert_eq!(offered_reserved(&mut table, 1, None), address(105));
    assert_eq!(table.offer_of(mac(3)), None);
}

#[test]
fn a_reserved_address_out_of_the_range_is_restored_while_it_is_reserved() {
    let lease = Lease {
        mac: mac(2),
        address: address(9),
    };
    assert!(table().restore(Tick(0), lease, &ReservedHosts));
    assert!(!table().restore(Tick(0), lease, &NO_KNOWN_HOST));
    let stolen = Lease {
        mac: mac(3),
        address: address(105),
    };
    assert!(!table().restore(Tick(0), stolen, &ReservedHosts));
}

#[test]
fn a_known_machine_takes_the_oldest_offer_to_an_unknown_machine_and_never_a_lease() {
    let mut table = table();
    granted(&mut table, 0, 50, address(100));
    for number in 0..6 {
        offered(&mut table, u64::from(number), number).unwrap();
    }
    offered(&mut table, 10, 0).unwrap();
    assert_eq!(offered(&mut table, 10, 60), Err(Reason::OnlyForKnown));
    let mut known = |number| {
        table
            .offer(
                Tick(11),
                0,
                mac(number),
                None,
                &ALL_HOSTS_KNOWN,
                &mut vec![],
            )
            .map(|offered| offered.address)
    };
    for number in 70..73 {
        known(number).unwrap();
    }
    assert_eq!(
        known(73),
        Ok(address(102)),
        "machine 0 has sent DISCOVER again"
    );
    for number in 74..79 {
        known(number).unwrap();
    }
    assert_eq!(known(79), Err(Reason::PoolExhausted));
    assert_eq!(table.lease_of(mac(50)), Some(address(100)));
    assert_eq!(table.exhausted().collect::<Vec<_>>(), [0]);
    table.forget(mac(50));
    assert_eq!(table.exhausted().count(), 0);
}

#[test]
fn an_offered_address_that_answers_is_set_aside() {
    let mut table = table();
    let first = offered(&mut table, 0, 1).unwrap();
    assert!(!table.claimed(Tick(1), first, mac(1)), "its own");
    assert!(table.claimed(Tick(1), first, mac(9)));
    assert!(!table.may_have(0, mac(1), first, &NO_KNOWN_HOST));
    assert!(
        !table.claimed(Tick(2), first, mac(9)),
        "already in quarantine"
    );
    assert_eq!(offered(&mut table, 2, 1), Ok(address(101)));
    assert!(
        !table.claimed(Tick(2), address(109), mac(9)),
        "no machine has it"
    );
    table.expire(Tick(1 + QUARANTINE_MS));
    assert!(table.may_have(0, mac(1), first, &NO_KNOWN_HOST));
}

#[test]
fn a_leased_address_that_answers_elsewhere_stays_leased() {
    let mut table = table();
    granted(&mut table, 0, 1, address(100));
    assert!(!table.claimed(Tick(1), address(100), mac(1)));
    assert!(table.claimed(Tick(1), address(100), mac(9)));
    assert_eq!(table.lease_of(mac(1)), Some(address(100)));
}

#[test]
fn an_offer_is_new_unless_the_machine_had_the_address() {
    let mut table = table();
    let fresh = |table: &mut LeaseTable| {
        let offered = table.offer(Tick(0), 0, mac(1), None, &NO_KNOWN_HOST, &mut vec![]);
        offered.unwrap().fresh
    };
    assert!(fresh(&mut table));
    assert!(!fresh(&mut table), "requested again");
    granted(&mut table, 0, 1, address(100));
    assert!(!fresh(&mut table), "leased");
    table.forget(mac(1));
    assert!(!fresh(&mut table), "had it");
}

#[test]
fn each_subnet_has_its_own_lease_time() {
    let mut settings = settings();
    settings.subnets[1].lease_s = 60;
    let mut table = LeaseTable::new(&settings);
    let there = Ipv4Addr::new(10, 0, 1, 100);
    table.grant(Tick(0), 1, mac(1), there, &mut vec![]).unwrap();
    assert_eq!(table.deadline(), Some(Tick(60_000 + GRACE_MS)));
}
