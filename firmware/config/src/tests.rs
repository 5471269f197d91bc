//! Tests with whole files: the message and line of each rule, and that all are reported
//! at once.

mod dhcp;
mod every_key;
mod images;
mod registries;
mod services;
mod webhook;

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
    assert_eq!(settings.boot, BootSettings::default());
    assert_eq!(settings.hardware.types, HardwareType::ALL);
    assert_eq!(
        (settings.agent.heartbeat_timeout_s, settings.agent.wait_s),
        (300, 1800)
    );
    assert_eq!(settings.limits, LimitSettings::default());
}

#[test]
fn the_default_file_has_no_mistakes() {
    let settings = parse(default_file()).unwrap();
    assert_eq!(settings.api.unwrap().auth, ApiAuthSettings::None);
    assert_eq!(
        settings.tftp.unwrap().listen,
        ["0.0.0.0:69".parse().unwrap()]
    );
    assert!(settings.panel.unwrap().tls);
    assert!(settings.dhcp.is_empty());
    assert_eq!(settings.limits, LimitSettings::default());
    assert_eq!(settings.agent, AgentSettings::default());
    assert_eq!(settings.boot, BootSettings::default());
}

/// The default file with every key enabled, without the two contradictions that this
/// causes.
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
        ApiAuthSettings::Basic {
            users: "/etc/trivet/users".into(),
            tokens: Some("/etc/trivet/tokens".into())
        }
    );
    assert!(settings.inspector.is_some() && settings.boot.ramdisk.is_some());
    // The values shown as defaults are the defaults; one of them is only an example.
    let limits = LimitSettings {
        transfers_max: None,
        ..settings.limits
    };
    assert_eq!(limits, LimitSettings::default());
    assert_eq!(settings.power, PowerSettings::default());
    assert_eq!(settings.agent, AgentSettings::default());
    assert_eq!(settings.boot.loaders, BootSettings::default().loaders);
    assert_eq!(settings.boot.loader, BootLoaderSettings::default());
    assert_eq!(settings.appliance.store_mib, 64);
    assert_eq!(settings.dhcp[0].lease_s, good(DHCP).dhcp[0].lease_s);
}

#[test]
fn power_times_are_ironics_and_a_bmc_reset_can_be_forbidden() {
    let default = good("").power;
    assert_eq!(default.power_state_change_timeout_s, 60);
    assert_eq!(default.soft_power_off_timeout_s, 600);
    assert_eq!(default.bmc_wait_s, 240);
    assert!(default.bmc_reset && default.power_off_after_deploy_failure);
    let power = good("[power]\npower_state_change_timeout_s = 120\nbmc_reset = false\n").power;
    assert_eq!(power.power_state_change_timeout_s, 120);
    assert!(!power.bmc_reset);
    assert_eq!(
        mistakes("[power]\nbmc_wait_s = 0\n")[0].1,
        "power.bmc_wait_s"
    );
}

#[test]
fn the_default_file_names_every_key_the_reader_knows() {
    // For an unknown key, the reader lists all keys that it knows.
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
        "power",
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

    /// Files with small errors reach the deep checks that random text never does.
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
