//! Whole files: what each rule says, on which line, and that it says all at once.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use proptest::prelude::*;

use crate::*;

const BOX: &str = "[box]\ndata = \"/var/lib/trivet\"\n";

const DHCP: &str = "[[dhcp]]\ninterface = \"eth1\"\nmode = \"server\"\nnetwork = \"192.0.2.0/24\"\n\
                    first = \"192.0.2.100\"\nlast = \"192.0.2.200\"\nserver = \"192.0.2.1\"\n";

/// Parses `[box]` followed by `rest`.
#[track_caller]
fn good(rest: &str) -> Settings {
    parse(&format!("{BOX}{rest}")).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

/// The mistakes of `[box]` followed by `rest`, lines counted within `rest`.
#[track_caller]
fn mistakes(rest: &str) -> Vec<(usize, String, String)> {
    let list = parse(&format!("{BOX}{rest}")).unwrap_err();
    list.into_iter()
        .map(|mistake| (mistake.line - 2, mistake.key, mistake.sentence))
        .collect()
}

/// `rest` has exactly one mistake: on `line`, about `key`, with `word` in its sentence.
#[track_caller]
fn bad(rest: &str, line: usize, key: &str, word: &str) {
    let list = mistakes(rest);
    let [(at, named, sentence)] = &list[..] else {
        panic!("{list:#?}")
    };
    assert_eq!((*at, named.as_str()), (line, key), "{sentence}");
    assert!(sentence.contains(word), "{sentence}");
}

#[test]
fn a_missing_section_is_off() {
    let settings = good("");
    assert_eq!(settings.appliance.data, PathBuf::from("/var/lib/trivet"));
    assert_eq!(settings.appliance.store_mib, 64);
    assert_eq!(settings.appliance.name, None);
    assert!(settings.api.is_none() && settings.inspector.is_none() && settings.http.is_none());
    assert!(settings.tftp.is_none() && settings.panel.is_none() && settings.dhcp.is_empty());
    assert_eq!(settings.boot, Boot::default());
    assert_eq!(settings.hardware.types, [HardwareType::Ipmi]);
    assert_eq!(
        (settings.agent.heartbeat_timeout_s, settings.agent.wait_s),
        (300, 1800)
    );
    assert_eq!(settings.limits, Limits::default());
}

#[test]
fn the_default_file_has_no_mistakes() {
    let settings = parse(default_file()).unwrap();
    assert_eq!(settings.api.unwrap().auth, Auth::None);
    assert_eq!(
        settings.tftp.unwrap().listen,
        ["0.0.0.0:69".parse().unwrap()]
    );
    assert!(settings.panel.unwrap().tls);
    assert!(settings.dhcp.is_empty());
    assert_eq!(settings.limits, Limits::default());
    assert_eq!(settings.agent, Agent::default());
    assert_eq!(settings.boot, Boot::default());
}

/// The default file with every key switched on, and the two contradictions that
/// makes taken out.
fn everything() -> String {
    let lines = default_file().lines().map(|line| {
        let bare = line.strip_prefix('#').unwrap_or(line);
        let is_setting = bare.starts_with('[') || bare.contains(" = ") && !bare.starts_with(' ');
        if is_setting { bare } else { "" }
    });
    let text = lines.collect::<Vec<&str>>().join("\n");
    text.replace("auth = \"none\"", "auth = \"basic\"")
        .replace("listen = \"192.0.2.1:67\"\n", "")
}

#[test]
fn the_default_file_shows_every_key_with_a_valid_value() {
    let settings = parse(&everything()).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
    assert_eq!(settings.dhcp.len(), 1);
    assert_eq!(
        settings.api.unwrap().auth,
        Auth::Basic {
            users: "/etc/trivet/users".into()
        }
    );
    assert!(settings.inspector.is_some() && settings.boot.ramdisk.is_some());
    // What it shows as a default is the default.
    assert_eq!(settings.limits, Limits::default());
    assert_eq!(settings.agent, Agent::default());
    assert_eq!(settings.boot.loaders, Boot::default().loaders);
    assert_eq!(settings.appliance.store_mib, 64);
    assert_eq!(settings.dhcp[0].lease_s, good(DHCP).dhcp[0].lease_s);
}

#[test]
fn the_default_file_names_every_key_the_reader_knows() {
    // Whatever the reader knows it lists when it meets a key it does not.
    let sections = [
        "box",
        "api",
        "inspector",
        "http",
        "tftp",
        "panel",
        "boot",
        "dhcp",
        "hardware",
        "agent",
        "limits",
    ];
    for section in sections {
        let head = if section == "dhcp" {
            "[[dhcp]]".to_owned()
        } else {
            format!("[{section}]")
        };
        let list = parse(&format!("{head}\nsurely_unknown = 1\n")).unwrap_err();
        let unknown = list
            .iter()
            .find(|mistake| mistake.key.ends_with("surely_unknown"));
        let (_, known) = unknown
            .unwrap()
            .sentence
            .split_once("known here: ")
            .unwrap();
        let text = default_file();
        let start = text.find(&head).unwrap();
        let end = text[start + 2..]
            .find("\n[")
            .map_or(text.len(), |end| start + 2 + end);
        for key in known.split(", ") {
            let line = format!("{key} = ");
            assert!(
                text[start..end].contains(&line),
                "[{section}] shows no {key}"
            );
        }
    }
}

#[test]
fn three_mistakes_are_named_at_once_in_the_order_of_the_file() {
    let list = mistakes(
        "[api]\nlisen = \"127.0.0.1\"\n[http]\nlisten = \"localhost:8080\"\n\
         [agent]\nwait_s = \"x\"\n",
    );
    let places: Vec<(usize, &str)> = list
        .iter()
        .map(|(line, key, _)| (*line, key.as_str()))
        .collect();
    assert_eq!(
        places,
        [(2, "api.lisen"), (4, "http.listen"), (6, "agent.wait_s")]
    );
    assert!(
        list[0].2.contains("did you mean `api.listen`"),
        "{}",
        list[0].2
    );
}

#[test]
fn columns_point_at_the_value() {
    let list = parse("[box]\ndata = 7\n").unwrap_err();
    assert_eq!((list[0].line, list[0].column), (2, 8));
    assert_eq!(
        list[0].sentence,
        "must be a text in quotes, not a whole number"
    );
}

#[test]
fn a_file_without_data_directory_is_refused() {
    assert_eq!(parse("").unwrap_err()[0].key, "box.data");
    let list = parse("\n\n[box]\nname = \"a\"\n").unwrap_err();
    assert_eq!(
        (list.len(), list[0].line, list[0].key.as_str()),
        (1, 3, "box.data")
    );
}

#[test]
fn syntax_errors_carry_their_line_and_do_not_hide_the_rest() {
    let list = mistakes("[api]\nlisten = \"127.0.0.1\nauth = \"basic\"\nusers = 3\n");
    assert_eq!((list[0].0, list[0].1.as_str()), (2, ""));
    assert!(list[0].2.starts_with("this is not TOML"), "{}", list[0].2);
    assert_eq!(list[1].1, "api.users");
    assert_eq!(list.len(), 2, "{list:#?}");
}

#[test]
fn a_key_given_twice_is_a_mistake() {
    let list = mistakes("[api]\ntls = true\ntls = false\n");
    assert_eq!((list.len(), list[0].0), (1, 3));
    assert!(list[0].2.contains("duplicate"), "{}", list[0].2);
}

#[test]
fn unknown_sections_get_a_suggestion_or_the_list() {
    bad("[tfpt]\n", 1, "tfpt", "did you mean `tftp`");
    bad("[colour]\n", 1, "colour", "known here: box, api");
    bad("x = 1\n", 1, "box.x", "known here: data");
}

#[test]
fn a_value_where_a_section_belongs_is_refused() {
    let list = parse("http = 3\ndhcp = [1]\n[box]\ndata = \"d\"\n[[tftp]]\n").unwrap_err();
    let keys: Vec<&str> = list.iter().map(|mistake| mistake.key.as_str()).collect();
    assert_eq!(keys, ["http", "dhcp", "tftp"]);
    assert!(list[1].sentence.contains("[[dhcp]]"));
    bad("[dhcp]\nmode = \"off\"\n", 1, "dhcp", "[[dhcp]]");
}

#[test]
fn the_box_has_a_host_name_and_a_bounded_store() {
    let text = "[box]\ndata = \"d\"\nname = \"trivet.example\"\nstore_mib = 128\n";
    let settings = parse(text).unwrap();
    assert_eq!(settings.appliance.name.as_deref(), Some("trivet.example"));
    assert_eq!(settings.appliance.store_mib, 128);
    bad("name = \"two words\"\n", 1, "box.name", "not a host name");
    for size in ["0", "3", "-1", "99999999999999999999", "0x7fffffff"] {
        bad(
            &format!("store_mib = {size}\n"),
            1,
            "box.store_mib",
            "between 4 and 65536",
        );
    }
    bad("store_mib = 1.5\n", 1, "box.store_mib", "a whole number");
    assert!(
        parse("[box]\ndata = \"\"\n").unwrap_err()[0]
            .sentence
            .contains("is empty")
    );
    assert!(
        parse("[box]\ndata = \"a\\u0000b\"\n").unwrap_err()[0]
            .sentence
            .contains("control")
    );
}

#[test]
fn the_api_listens_on_loopback_until_told_otherwise() {
    let api = good("[api]\n").api.unwrap();
    assert_eq!(api.listen, ["127.0.0.1:6385".parse().unwrap()]);
    assert_eq!(
        (api.auth, api.tls, api.public_url),
        (Auth::None, false, None)
    );
    let api = good("[api]\nlisten = [\"127.0.0.1\", \"[::1]:7000\"]\n")
        .api
        .unwrap();
    assert_eq!(
        api.listen,
        [
            "127.0.0.1:6385".parse().unwrap(),
            "[::1]:7000".parse().unwrap()
        ]
    );
}

#[test]
fn an_open_api_must_be_asked_for() {
    let open = "[api]\nlisten = [\"127.0.0.1\", \"0.0.0.0:7000\"]\n";
    bad(
        &format!("{open}auth = \"none\"\n"),
        3,
        "api.auth",
        "0.0.0.0:7000 open to everybody",
    );
    bad(open, 1, "api.auth", "allow_open");
    bad(
        &format!("{open}allow_open = false\n"),
        1,
        "api.auth",
        "allow_open",
    );
    assert_eq!(
        good(&format!("{open}allow_open = true\n"))
            .api
            .unwrap()
            .auth,
        Auth::None
    );
    assert!(
        good("[api]\nlisten = \"[::1]\"\nauth = \"none\"\n")
            .api
            .is_some()
    );
}

#[test]
fn basic_authentication_needs_users_and_none_has_none() {
    let api = good("[api]\nlisten = \"0.0.0.0\"\nauth = \"basic\"\nusers = \"/u\"\n")
        .api
        .unwrap();
    assert_eq!(
        api.auth,
        Auth::Basic {
            users: PathBuf::from("/u")
        }
    );
    bad("[api]\nauth = \"basic\"\n", 2, "api.users", "is missing");
    bad(
        "[api]\nusers = \"/u\"\n",
        2,
        "api.users",
        "set api.auth = \"basic\"",
    );
    bad(
        "[api]\nauth = \"noauth\"\n",
        2,
        "api.auth",
        "write \"none\" or \"basic\"",
    );
    bad("[api]\nauth = true\n", 2, "api.auth", "a text in quotes");
    bad(
        "[api]\nallow_open = \"yes\"\n",
        2,
        "api.allow_open",
        "true or false",
    );
}

#[test]
fn public_urls_are_checked_and_fit_tls() {
    let api = good("[api]\ntls = true\npublic_url = \"https://box:6385/\"\n")
        .api
        .unwrap();
    assert_eq!(
        (api.tls, api.public_url.as_deref()),
        (true, Some("https://box:6385"))
    );
    bad(
        "[api]\ntls = true\npublic_url = \"http://box\"\n",
        3,
        "api.public_url",
        "api.tls",
    );
    // A proxy may end TLS in front of the box.
    assert!(good("[api]\npublic_url = \"https://box\"\n").api.is_some());
    bad(
        "[http]\nlisten = \"::\"\npublic_url = \"box\"\n",
        3,
        "http.public_url",
        "http://",
    );
}

#[test]
fn services_without_a_default_address_ask_for_one() {
    bad("\n[http]\n", 2, "http.listen", "0.0.0.0:8080");
    bad("[tftp]\n", 1, "tftp.listen", "0.0.0.0:69");
    bad("[inspector]\n", 1, "inspector.listen", "0.0.0.0:5050");
    let settings = good("[inspector]\nlisten = \"::\"\n[tftp]\nlisten = \"::\"\n");
    assert_eq!(settings.inspector.unwrap().listen[0].port(), INSPECTOR_PORT);
    assert_eq!(settings.tftp.unwrap().listen[0].port(), TFTP_PORT);
}

#[test]
fn the_page_is_on_loopback_with_tls_by_default() {
    let panel = good("[panel]\n").panel.unwrap();
    assert_eq!(panel.listen, ["127.0.0.1:8443".parse().unwrap()]);
    assert!(panel.tls);
    assert!(!good("[panel]\ntls = false\n").panel.unwrap().tls);
}

#[test]
fn bad_addresses_in_a_list_are_all_named() {
    let list = mistakes("[http]\nlisten = [\"a\", \"127.0.0.1:0\", 5]\n");
    // Wrong types end the reading of a list before its addresses are looked at.
    assert_eq!(list.len(), 1);
    let list = mistakes("[http]\nlisten = [\"a\", \"127.0.0.1:0\", \"127.0.0.1:1\"]\n");
    assert_eq!(list.len(), 2, "{list:#?}");
    bad("[http]\nlisten = []\n", 2, "http.listen", "empty list");
}

#[test]
fn lists_are_bounded() {
    let many: Vec<String> = (1..=LISTEN_MAX)
        .map(|port| format!("\"127.0.0.1:{port}\""))
        .collect();
    assert!(
        good(&format!("[http]\nlisten = [{}]\n", many.join(", ")))
            .http
            .is_some()
    );
    let more = format!("[http]\nlisten = [{}, \"127.0.0.1:99\"]\n", many.join(", "));
    bad(&more, 2, "http.listen", "at most 16");
    let dns = ["\"192.0.2.1\""; DNS_MAX + 1].join(", ");
    bad(
        &format!("{DHCP}dns = [{dns}]\n"),
        8,
        "dhcp.dns",
        "at most 4",
    );
    let off = "[[dhcp]]\nmode = \"off\"\ninterface = \"e\"\n";
    let sections: String = (0..=DHCP_MAX)
        .map(|index| off.replace("\"e\"", &format!("\"e{index}\"")))
        .collect();
    bad(&sections, 3 * DHCP_MAX + 1, "dhcp", "at most 32");
    let long = "x".repeat(TEXT_BYTES_MAX + 1);
    bad(
        &format!("[boot]\nfiles = \"{long}\"\n"),
        2,
        "boot.files",
        "longer than 4096",
    );
    let huge = format!("# {}", "x".repeat(FILE_BYTES_MAX));
    assert!(
        parse(&huge).unwrap_err()[0]
            .sentence
            .contains("longer than 262144")
    );
}

#[test]
fn two_services_cannot_share_an_address() {
    let both = "[api]\nlisten = \"127.0.0.1:9\"\n[http]\nlisten = \"0.0.0.0:9\"\n";
    bad(both, 4, "http.listen", "already taken by api.listen");
    bad(
        "[http]\nlisten = [\"::1\", \"::1\"]\n",
        2,
        "http.listen",
        "already taken by http.listen",
    );
    // UDP and TCP have their own ports.
    good("[http]\nlisten = \"127.0.0.1:69\"\n[tftp]\nlisten = \"127.0.0.1:69\"\n");
    let relayed = DHCP.replace("interface = \"eth1\"", "listen = \"0.0.0.0:69\"");
    bad(
        &format!("[tftp]\nlisten = \"::\"\n{relayed}"),
        4,
        "dhcp.listen",
        "tftp.listen",
    );
    // The default address is claimed as well.
    bad(
        "[api]\n[http]\nlisten = \"127.0.0.1:6385\"\n",
        3,
        "http.listen",
        "api.listen",
    );
}

#[test]
fn boot_files_are_never_the_data_directory() {
    for files in [
        "/var/lib/trivet",
        "/var/lib/trivet/files",
        "/var/lib",
        "/",
        "/var/lib/x/../trivet/",
    ] {
        bad(
            &format!("[boot]\nfiles = \"{files}\"\n"),
            2,
            "boot.files",
            "share a tree",
        );
    }
    let boot = good("[boot]\nfiles = \"/var/lib/trivet-files\"\n").boot;
    assert_eq!(boot.files, Some(PathBuf::from("/var/lib/trivet-files")));
}

#[test]
fn kernel_and_ramdisk_come_together() {
    let boot = good("[boot]\nkernel = \"/k\"\nramdisk = \"/r\"\nkernel_args = \" a=b \"\n").boot;
    assert_eq!(
        boot.ramdisk,
        Some(Ramdisk {
            kernel: "/k".into(),
            ramdisk: "/r".into()
        })
    );
    assert_eq!(boot.kernel_args, "a=b");
    bad(
        "[boot]\nkernel = \"/k\"\n",
        2,
        "boot.kernel",
        "without boot.ramdisk",
    );
    bad(
        "[boot]\nramdisk = \"/r\"\n",
        2,
        "boot.ramdisk",
        "without boot.kernel",
    );
    bad(
        "[boot]\nkernel_args = \"a\\nb\"\n",
        2,
        "boot.kernel_args",
        "control",
    );
    let long = "x".repeat(2049);
    bad(
        &format!("[boot]\nkernel_args = \"{long}\"\n"),
        2,
        "boot.kernel_args",
        "at most 2048",
    );
    assert_eq!(good("[boot]\nkernel_args = \"\"\n").boot.kernel_args, "");
}

#[test]
fn hardware_types_are_the_built_ones() {
    assert_eq!(
        good("[hardware]\ntypes = \"ipmi\"\n").hardware.types,
        [HardwareType::Ipmi]
    );
    bad(
        "[hardware]\ntypes = [\"redfish\"]\n",
        2,
        "hardware.types",
        "known so far: ipmi",
    );
    bad(
        "[hardware]\ntypes = [\"impi\"]\n",
        2,
        "hardware.types",
        "`impi` is not a hardware type",
    );
    bad(
        "[hardware]\ntypes = [\"ipmi\", \"ipmi\"]\n",
        2,
        "hardware.types",
        "listed twice",
    );
    bad(
        "[hardware]\ntypes = []\n",
        2,
        "hardware.types",
        "empty list",
    );
}

#[test]
fn waits_and_limits_have_bounds() {
    let settings = good("[agent]\nwait_s = 60\n[limits]\nconnections_max = 16\n");
    assert_eq!(
        (settings.agent.wait_s, settings.limits.connections_max),
        (60, 16)
    );
    bad(
        "[agent]\nheartbeat_timeout_s = 0\n",
        2,
        "agent.heartbeat_timeout_s",
        "between 10",
    );
    bad("[agent]\nwait_s = 86401\n", 2, "agent.wait_s", "and 86400");
    bad(
        "[limits]\nconnections_max = 1\n",
        2,
        "limits.connections_max",
        "between 16",
    );
    bad(
        "[limits]\ntransfers_max = 0\n",
        2,
        "limits.transfers_max",
        "between 1",
    );
}

#[test]
fn a_dhcp_section_becomes_plain_values() {
    let text = format!("{DHCP}router = \"192.0.2.254\"\ndns = \"9.9.9.9\"\nlease_s = 600\n");
    let dhcp = &good(&text).dhcp[0];
    assert_eq!(dhcp.door, DhcpDoor::Interface("eth1".to_owned()));
    assert_eq!(dhcp.mode, DhcpMode::Server);
    assert_eq!(dhcp.network.mask(), Ipv4Addr::new(255, 255, 255, 0));
    assert_eq!(dhcp.first, Ipv4Addr::new(192, 0, 2, 100));
    assert_eq!(dhcp.router, Some(Ipv4Addr::new(192, 0, 2, 254)));
    assert_eq!(
        (dhcp.dns.as_slice(), dhcp.lease_s),
        (&[Ipv4Addr::new(9, 9, 9, 9)][..], 600)
    );
    let relayed = DHCP.replace("interface = \"eth1\"", "listen = \"127.0.0.1\"");
    let door = good(&relayed.replace("\"server\"", "\"reservations\"")).dhcp[0].clone();
    assert_eq!(
        door.door,
        DhcpDoor::Relayed("127.0.0.1:67".parse().unwrap())
    );
    assert_eq!(door.mode, DhcpMode::Reservations);
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
fn dhcp_modes_are_the_built_ones() {
    for mode in ["listen", "proxy"] {
        let text = DHCP.replace("\"server\"", &format!("\"{mode}\""));
        bad(&text, 3, "dhcp.mode", "not built yet");
    }
    bad(
        &DHCP.replace("\"server\"", "\"relay\""),
        3,
        "dhcp.mode",
        "unknown",
    );
    bad(
        &DHCP.replace("mode = \"server\"\n", ""),
        1,
        "dhcp.mode",
        "is missing",
    );
}

#[test]
fn a_dhcp_section_has_one_door() {
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
        "whole network",
    );
    bad(
        &DHCP.replace("2.1\"", "2.0\""),
        7,
        "dhcp.server",
        "whole network",
    );
    bad(
        &DHCP.replace("2.1\"", "2.150\""),
        7,
        "dhcp.server",
        "handed out",
    );
    bad(
        &format!("{DHCP}router = \"192.0.2.101\"\n"),
        8,
        "dhcp.router",
        "handed out",
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
fn a_range_is_bounded_and_nobody_elses() {
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn random_text_never_panics(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&String::from_utf8_lossy(&bytes));
    }

    /// Near-miss files reach the deep checks that noise never does.
    #[test]
    fn a_mangled_good_file_never_panics(
        at in 0usize..5000, length in 0usize..40, put in "[\\[\\]\"=.#0-9a-z\\n, /:-]{0,12}",
    ) {
        let mut text = everything();
        let start = at.min(text.len());
        let end = (start + length).min(text.len());
        text.replace_range(start..end, &put);
        if let Err(list) = parse(&text) {
            prop_assert!(!list.is_empty());
            prop_assert!(list.iter().all(|mistake| mistake.line <= text.lines().count() + 1));
            prop_assert!(list.is_sorted_by_key(|mistake| mistake.line));
        }
    }
}

#[test]
fn deep_nesting_and_floods_of_errors_are_bounded() {
    assert!(parse(&"[".repeat(100_000)).is_err());
    assert!(parse(&format!("a = {}", "[".repeat(50_000))).is_err());
    let flood = parse(&"=\n".repeat(50_000)).unwrap_err();
    assert_eq!(flood.len(), MISTAKES_MAX + 1);
    let keys: Vec<String> = (0..1000).map(|index| format!("key{index} = 1")).collect();
    assert_eq!(parse(&keys.join("\n")).unwrap_err().len(), MISTAKES_MAX + 1);
}
