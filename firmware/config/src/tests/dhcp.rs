//! Tests of `[[dhcp]]`: sources, modes, ranges.

use std::net::Ipv4Addr;

use super::*;

#[test]
fn a_dhcp_section_becomes_plain_values() {
    let text = format!("{DHCP}router = \"192.0.2.254\"\ndns = \"9.9.9.9\"\nlease_s = 600\n");
    let dhcp = &good(&text).dhcp[0];
    assert_eq!(dhcp.source, DhcpSource::Interface("eth1".to_owned()));
    assert_eq!(dhcp.mode, DhcpMode::Server);
    assert_eq!(dhcp.server, Some(Ipv4Addr::new(192, 0, 2, 1)));
    let pool = dhcp.pool.as_ref().unwrap();
    assert_eq!(pool.network.mask(), Ipv4Addr::new(255, 255, 255, 0));
    assert_eq!(pool.first, Ipv4Addr::new(192, 0, 2, 100));
    assert_eq!(pool.router, Some(Ipv4Addr::new(192, 0, 2, 254)));
    assert_eq!(
        (pool.dns.as_slice(), dhcp.lease_s),
        (&[Ipv4Addr::new(9, 9, 9, 9)][..], 600)
    );
    let relayed = DHCP.replace("interface = \"eth1\"", "listen = \"127.0.0.1\"");
    let source = good(&relayed.replace("\"server\"", "\"reservations\"")).dhcp[0].clone();
    assert_eq!(
        source.source,
        DhcpSource::Relayed("127.0.0.1:67".parse().unwrap())
    );
    assert_eq!(source.mode, DhcpMode::Reservations);
}

#[test]
fn networks_behind_relays_share_an_address_and_the_box_is_on_none_of_them() {
    let far = |third: u8, listen: &str| {
        format!(
            "[[dhcp]]\nlisten = \"{listen}\"\nmode = \"reservations\"\n\
             network = \"10.0.{third}.0/24\"\nfirst = \"10.0.{third}.10\"\n\
             last = \"10.0.{third}.20\"\nserver = \"192.0.2.1\"\n"
        )
    };
    let (one, two) = (far(1, "192.0.2.1"), far(2, "192.0.2.1"));
    let settings = good(&format!("{DHCP}{one}{two}"));
    assert_eq!(settings.dhcp.len(), 3);
    assert_eq!(settings.dhcp[2].server, Some(Ipv4Addr::new(192, 0, 2, 1)));
    let anywhere = format!("{DHCP}{}", far(1, "0.0.0.0"));
    let configured = "is already used by dhcp.interface (192.0.2.1:67): write the same address";
    bad(
        &anywhere,
        DHCP.lines().count() + 2,
        "dhcp.listen",
        configured,
    );
}

#[test]
fn a_dhcp_section_that_is_off_is_left_out_but_checked() {
    assert!(
        good("[[dhcp]]\ninterface = \"eth1\"\nmode = \"off\"\n")
            .dhcp
            .is_empty()
    );
    bad(
        "[[dhcp]]\ninterface = \"e\"\nmode = \"off\"\nfirst = \"x\"\n",
        4,
        "dhcp.first",
        "IPv4",
    );
}

#[test]
fn an_unknown_mode_is_one_mistake() {
    bad(
        "[[dhcp]]\ninterface = \"eth1\"\nmode = \"serve\"\n",
        3,
        "dhcp.mode",
        "`serve` is unknown",
    );
}

#[test]
fn a_section_without_a_mode_listens() {
    let settings = good("[[dhcp]]\ninterface = \"eth1\"\n");
    let dhcp = &settings.dhcp[0];
    assert_eq!((dhcp.mode, dhcp.server), (DhcpMode::Listen, None));
    assert!(dhcp.pool.is_none() && !dhcp.discovery && !dhcp.router_advertisements);
    assert!(!settings.listens_on_all_interfaces);
}

#[test]
fn a_file_without_dhcp_listens_everywhere_and_one_that_is_off_does_not() {
    assert!(good("").listens_on_all_interfaces);
    let off = good("[[dhcp]]\ninterface = \"eth1\"\nmode = \"off\"\n");
    assert!(!off.listens_on_all_interfaces);
}

/// So an operator can try a mode by changing one line.
#[test]
fn every_mode_takes_the_lines_of_the_fullest() {
    for mode in DhcpMode::ALL {
        let text = DHCP.replace("\"server\"", &format!("\"{}\"", mode.name()));
        let dhcp = &good(&text).dhcp[0];
        assert_eq!(dhcp.mode, mode);
        assert_eq!(dhcp.pool.is_some(), mode.gives_addresses());
        assert_eq!(dhcp.router_advertisements, mode.gives_addresses());
        assert_eq!(dhcp.discovery, mode == DhcpMode::Server);
        let addresses = text.replace("2.100", "1.100");
        bad(&addresses, 5, "dhcp.first", "is not in 192.0.2.0/24");
    }
    let unknown = DHCP.replace("\"server\"", "\"relay\"");
    bad(&unknown, 3, "dhcp.mode", "\"reservations\" or \"server\"");
}

#[test]
fn a_proxy_needs_no_pool_and_may_learn_its_address_from_the_interface() {
    let proxy = "[[dhcp]]\ninterface = \"eth1\"\nmode = \"proxy\"\n";
    assert_eq!(good(proxy).dhcp[0].server, None);
    let configured = good(&format!(
        "{proxy}server = \"192.0.2.1\"\ndiscovery = true\n"
    ));
    assert_eq!(configured.dhcp[0].server, Some(Ipv4Addr::new(192, 0, 2, 1)));
    assert!(configured.dhcp[0].discovery);
    let relayed = proxy.replace("interface = \"eth1\"", "listen = \"192.0.2.9\"");
    let address = good(&relayed).dhcp[0].server;
    assert_eq!(address, Some(Ipv4Addr::new(192, 0, 2, 9)));
    let anywhere = relayed.replace("192.0.2.9", "0.0.0.0");
    bad(&anywhere, 1, "dhcp.server", "listen is not an address");
}

#[test]
fn what_a_mode_cannot_do_is_refused() {
    let quiet = "[[dhcp]]\ninterface = \"eth1\"\nmode = \"listen\"\n";
    for value in ["true", "false"] {
        let text = format!("{quiet}discovery = {value}\n");
        bad(&text, 4, "dhcp.discovery", "remove the line");
    }
    let loud = format!("{quiet}router_advertisements = true\n");
    bad(&loud, 4, "dhcp.router_advertisements", "sends nothing");
    good(&format!("{quiet}router_advertisements = false\n"));
    let known = DHCP.replace("\"server\"", "\"reservations\"");
    let unknown_machines = format!("{known}discovery = true\n");
    bad(
        &unknown_machines,
        8,
        "dhcp.discovery",
        "known machines only",
    );
    good(&format!("{known}discovery = false\n"));
    let relayed = DHCP.replace("interface = \"eth1\"", "listen = \"192.0.2.1\"");
    assert!(!good(&relayed).dhcp[0].router_advertisements);
    let far = format!("{relayed}router_advertisements = true\n");
    bad(&far, 8, "dhcp.router_advertisements", "do not pass a relay");
    bad(
        "[[dhcp]]\nlisten = \"192.0.2.1\"\n",
        2,
        "dhcp.listen",
        "name an interface",
    );
}

/// An invalid mode does not affect the rest, which is checked as well.
#[test]
fn an_unknown_mode_does_not_hide_what_is_missing() {
    let list =
        mistakes("[[dhcp]]\ninterface = \"eth1\"\nmode = \"sever\"\nnetwork = \"192.0.2.0/24\"\n");
    let mut keys: Vec<&str> = list.iter().map(|(_, key, _)| key.as_str()).collect();
    keys.sort_unstable();
    assert_eq!(
        keys,
        ["dhcp.first", "dhcp.last", "dhcp.mode", "dhcp.server"]
    );
    let unknown = DHCP.replace("\"server\"", "\"sever\"");
    let other = unknown.replace("eth1", "eth2");
    let list = mistakes(&format!("{unknown}{other}"));
    assert!(
        list.iter().any(|(_, key, _)| key == "dhcp.first"),
        "{list:#?}"
    );
}

#[test]
fn a_dhcp_section_has_one_source() {
    bad(
        &DHCP.replace("interface = \"eth1\"\n", ""),
        1,
        "dhcp.interface",
        "is missing",
    );
    bad(
        &format!("{DHCP}listen = \"127.0.0.1\"\n"),
        2,
        "dhcp.interface",
        "not both",
    );
    for name in ["a b", "a/b", "..", "sixteen-letters-"] {
        bad(
            &DHCP.replace("eth1", name),
            2,
            "dhcp.interface",
            "interface name",
        );
    }
    let six = DHCP.replace("interface = \"eth1\"", "listen = \"[::1]\"");
    bad(&six, 2, "dhcp.listen", "IPv4 only");
    let twice = format!("{DHCP}{}", DHCP.replace("192.0.2.", "198.51.100."));
    bad(&twice, 9, "dhcp.interface", "another section");
}

#[test]
fn a_range_lies_in_its_network_and_runs_upwards() {
    bad(
        &DHCP.replace("2.100", "1.100"),
        5,
        "dhcp.first",
        "is not in 192.0.2.0/24",
    );
    bad(
        &DHCP.replace("2.200", "2.50"),
        6,
        "dhcp.last",
        "comes before",
    );
    bad(
        &DHCP.replace("2.200", "2.255"),
        6,
        "dhcp.last",
        "network or broadcast",
    );
    bad(
        &DHCP.replace("2.1\"", "2.0\""),
        7,
        "dhcp.server",
        "network or broadcast",
    );
    bad(
        &DHCP.replace("2.1\"", "2.150\""),
        7,
        "dhcp.server",
        "assigned to nodes",
    );
    bad(
        &format!("{DHCP}router = \"192.0.2.101\"\n"),
        8,
        "dhcp.router",
        "assigned to nodes",
    );
    bad(
        &format!("{DHCP}router = \"192.0.9.1\"\n"),
        8,
        "dhcp.router",
        "is not in",
    );
    bad(
        &DHCP.replace("2.0/24", "2.7/24"),
        4,
        "dhcp.network",
        "192.0.2.0/24",
    );
    bad(
        &DHCP.replace("last = \"192.0.2.200\"\n", ""),
        1,
        "dhcp.last",
        "is missing",
    );
    bad(
        &format!("{DHCP}lease_s = 5\n"),
        8,
        "dhcp.lease_s",
        "between 60",
    );
    bad(&format!("{DHCP}dns = [\"x\"]\n"), 8, "dhcp.dns", "IPv4");
}

#[test]
fn a_range_is_bounded_and_overlaps_no_other() {
    let wide = DHCP
        .replace("192.0.2.0/24", "10.0.0.0/8")
        .replace("192.0.2.", "10.0.0.");
    let full = wide.replace("10.0.0.200", "10.1.0.99");
    assert_eq!(good(&full).dhcp.len(), 1);
    bad(
        &wide.replace("10.0.0.200", "10.1.0.100"),
        6,
        "dhcp.last",
        "more than 65536",
    );
    let other = DHCP
        .replace("eth1", "eth2")
        .replace("2.100", "2.200")
        .replace("2.200\"\ns", "2.210\"\ns");
    bad(
        &format!("{DHCP}{other}"),
        12,
        "dhcp.first",
        "overlaps 192.0.2.100 to 192.0.2.200",
    );
}
