//! Tests of the sections, except `[[dhcp]]`.

use std::path::Path;

use super::*;

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
fn the_api_listens_on_loopback_by_default() {
    let api = good("[api]\n").api.unwrap();
    assert_eq!(api.listen, ["127.0.0.1:6385".parse().unwrap()]);
    assert_eq!(
        (api.auth, api.tls, api.public_url),
        (ApiAuthSettings::None, false, None)
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
fn an_open_api_must_be_allowed_explicitly() {
    let open = "[api]\nlisten = [\"127.0.0.1\", \"0.0.0.0:7000\"]\n";
    bad(
        &format!("{open}auth = \"none\"\n"),
        3,
        "api.auth",
        "0.0.0.0:7000 open to every machine",
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
        ApiAuthSettings::None
    );
    assert!(
        good("[api]\nlisten = \"[::1]\"\nauth = \"none\"\n")
            .api
            .is_some()
    );
}

#[test]
fn passwords_in_plain_http_beyond_loopback_are_refused_unless_allowed() {
    let basic = "auth = \"basic\"\nusers = \"/u\"\n";
    let open = format!("[api]\nlisten = \"192.0.2.1\"\n{basic}");
    bad(
        &open,
        3,
        "api.auth",
        "passwords to 192.0.2.1:6385 in plain HTTP",
    );
    good(&format!("{open}tls = true\n"));
    good(&format!("{open}allow_plain_http = true\n"));
    good(&format!("[api]\nlisten = \"[::1]\"\n{basic}"));
    let inspector = "[inspector]\nlisten = \"0.0.0.0\"\n";
    let text = format!("[api]\n{basic}{inspector}");
    bad(&text, 5, "inspector.listen", "allow_plain_http");
    good(&format!(
        "[api]\n{basic}allow_plain_http = true\n{inspector}"
    ));
}

#[test]
fn tokens_in_plain_http_beyond_loopback_are_noticed_unless_allowed() {
    let plain = |text: &str| crate::plain_tokens(&good(text)).map(|address| address.to_string());
    let tokens = "auth = \"tokens\"\ntokens = \"/t\"\n";
    let open = format!("[api]\nlisten = [\"127.0.0.1\", \"192.0.2.1\"]\n{tokens}");
    assert_eq!(plain(&open).as_deref(), Some("192.0.2.1:6385"));
    assert_eq!(plain(&format!("{open}tls = true\n")), None);
    assert_eq!(plain(&format!("{open}allow_plain_http = true\n")), None);
    let home = format!("[api]\nlisten = \"[::1]\"\n{tokens}");
    assert_eq!(plain(&home), None);
    let inspector = format!("{home}tls = true\n[inspector]\nlisten = \"192.0.2.2\"\n");
    assert_eq!(plain(&inspector).as_deref(), Some("192.0.2.2:5050"));
    assert_eq!(plain("[api]\n"), None, "no tokens");
}

#[test]
fn a_page_beyond_loopback_is_refused_unless_allowed() {
    let open = "[panel]\nlisten = \"0.0.0.0\"\n";
    bad(open, 2, "panel.listen", "has no log-in");
    bad(
        "[panel]\nlisten = [\"127.0.0.1\", \"[2001:db8::1]\"]\n",
        2,
        "panel.listen",
        "2001:db8",
    );
    good(&format!("{open}allow_open = true\n"));
    good("[panel]\nlisten = \"[::ffff:127.0.0.1]:8443\"\n");
}

#[test]
fn agents_addresses_and_networks_of_bmcs_are_read() {
    for (word, check) in [
        ("normal", crate::AgentAddressCheck::Normal),
        ("strict", crate::AgentAddressCheck::Strict),
        ("off", crate::AgentAddressCheck::Off),
    ] {
        let text = format!("[agent]\naddress_check = \"{word}\"\n");
        assert_eq!(good(&text).agent.address_check, check);
    }
    bad(
        "[agent]\naddress_check = \"no\"\n",
        2,
        "agent.address_check",
        "strict",
    );
    for (word, requirement) in [
        ("none", crate::AgentRequirement::None),
        ("mtls-with-token", crate::AgentRequirement::MtlsWithToken),
        ("mtls", crate::AgentRequirement::Mtls),
    ] {
        let text = format!("[agent]\nrequire = \"{word}\"\n");
        assert_eq!(good(&text).agent.require, requirement);
    }
    let wrong = "[agent]\nrequire = \"yes\"\n";
    bad(wrong, 2, "agent.require", "mtls-with-token");
    let networks = good("[hardware]\nbmc_networks = [\"192.0.2.0/24\"]\n");
    assert_eq!(networks.hardware.bmc_networks[0].prefix, 24);
    bad(
        "[hardware]\nbmc_networks = [\"x\"]\n",
        2,
        "hardware.bmc_networks",
        "x",
    );
    let api = good("[api]\nhost_names = [\"trivet.example\"]\n").api;
    assert_eq!(api.unwrap().host_names, ["trivet.example"]);
    bad(
        "[api]\nhost_names = [\"a b\"]\n",
        2,
        "api.host_names",
        "host name",
    );
}

#[test]
fn basic_authentication_needs_users_and_none_has_none() {
    let api = good("[api]\nlisten = \"0.0.0.0\"\ntls = true\nauth = \"basic\"\nusers = \"/u\"\n")
        .api
        .unwrap();
    assert_eq!(
        api.auth,
        ApiAuthSettings::Basic {
            users: PathBuf::from("/u"),
            tokens: None
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
        "write \"none\", \"basic\" or \"tokens\"",
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
fn tokens_work_alone_or_together_with_users() {
    let auth = |text: &str| {
        good(&format!("[api]\nlisten = \"::\"\ntls = true\n{text}"))
            .api
            .unwrap()
            .auth
    };
    let both = auth("auth = \"basic\"\nusers = \"/u\"\ntokens = \"/t\"\n");
    assert_eq!(both.users(), Some(Path::new("/u")));
    assert_eq!(both.tokens(), Some(Path::new("/t")));
    let alone = auth("auth = \"tokens\"\ntokens = \"/t\"\n");
    assert_eq!((alone.users(), alone.tokens()), (None, both.tokens()));
    bad("[api]\nauth = \"tokens\"\n", 2, "api.tokens", "is missing");
    bad(
        "[api]\nauth = \"tokens\"\ntokens = \"/t\"\nusers = \"/u\"\n",
        4,
        "api.users",
        "set api.auth = \"basic\"",
    );
    bad(
        "[api]\ntokens = \"/t\"\n",
        2,
        "api.tokens",
        "set api.auth = \"tokens\"",
    );
    bad(
        "[api]\nauth = \"basic\"\nusers = \"/u\"\ntokens = 7\n",
        4,
        "api.tokens",
        "a text in quotes",
    );
}

#[test]
fn agents_use_tls_by_default() {
    assert!(!good("[agent]\nwait_s = 60\n").agent.plain_http);
    assert!(good("[agent]\nplain_http = true\n").agent.plain_http);
    assert!(!good("[agent]\nwait_s = 60\n").agent.fast_track);
    assert!(good("[agent]\nfast_track = true\n").agent.fast_track);
    for (word, erase) in [
        ("metadata", CleaningErase::Metadata),
        ("full", CleaningErase::Full),
        ("none", CleaningErase::None),
    ] {
        let text = format!("[agent]\nerase = \"{word}\"\n");
        assert_eq!(good(&text).agent.erase, erase);
    }
    let all = "[agent]\nerase = \"all\"\n";
    bad(
        all,
        2,
        "agent.erase",
        "write \"metadata\", \"full\" or \"none\"",
    );
    bad(
        "[agent]\nplain_http = \"yes\"\n",
        2,
        "agent.plain_http",
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
    // A proxy may terminate TLS in front of the box.
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
fn images_over_tls_have_addresses_of_their_own() {
    let http = |more: &str| {
        good(&format!("[http]\nlisten = \"::\"\n{more}"))
            .http
            .unwrap()
    };
    assert!(http("").tls_listen.is_empty());
    let secure = http("tls_listen = [\"192.0.2.1\", \"[::]:443\"]\n").tls_listen;
    assert_eq!(secure[0].port(), HTTPS_PORT);
    assert_eq!(secure[1], "[::]:443".parse().unwrap());
    bad(
        "[http]\nlisten = \"127.0.0.1:80\"\ntls_listen = \"127.0.0.1:80\"\n",
        3,
        "http.tls_listen",
        "http.listen",
    );
    bad(
        "[http]\nlisten = \"::\"\ntls_listen = \"box\"\n",
        3,
        "http.tls_listen",
        "IP:PORT",
    );
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
    // Values of a wrong type end the reading of a list before its addresses are
    // checked.
    assert_eq!(list.len(), 1);
    let list = mistakes("[http]\nlisten = [\"a\", \"127.0.0.1:0\", \"127.0.0.1:1\"]\n");
    assert_eq!(list.len(), 2, "{list:#?}");
    bad("[http]\nlisten = []\n", 2, "http.listen", "empty list");
}

#[test]
fn two_services_cannot_share_an_address() {
    let both = "[api]\nlisten = \"127.0.0.1:9\"\n[http]\nlisten = \"0.0.0.0:9\"\n";
    bad(both, 4, "http.listen", "already used by api.listen");
    bad(
        "[http]\nlisten = [\"::1\", \"::1\"]\n",
        2,
        "http.listen",
        "already used by http.listen",
    );
    // UDP and TCP have separate ports.
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
fn directories_of_boot_files_and_loaders_are_never_the_data_directory() {
    for key in ["files", "loaders"] {
        for path in [
            "/var/lib/trivet",
            "/var/lib/trivet/files",
            "/var/lib",
            "/",
            "/var/lib/x/../trivet/",
        ] {
            bad(
                &format!("[boot]\n{key} = \"{path}\"\n"),
                2,
                &format!("boot.{key}"),
                "share a tree",
            );
        }
    }
    let boot = good("[boot]\nfiles = \"/var/lib/trivet-files\"\n").boot;
    assert_eq!(boot.files, Some(PathBuf::from("/var/lib/trivet-files")));
}

#[test]
fn kernel_and_ramdisk_come_together() {
    let boot = good("[boot]\nkernel = \"/k\"\nramdisk = \"/r\"\nkernel_args = \" a=b \"\n").boot;
    assert_eq!(
        boot.ramdisk,
        Some(AgentRamdiskSettings {
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
fn authorities_of_bmcs_are_a_file() {
    let hardware = good("[hardware]\nredfish_ca = \"/etc/bmc.pem\"\n").hardware;
    let path = std::path::Path::new("/etc/bmc.pem");
    assert_eq!(hardware.redfish_ca.as_deref(), Some(path));
    assert_eq!(hardware.types, HardwareType::ALL);
}

#[test]
fn hardware_types_are_the_built_ones() {
    assert_eq!(
        good("[hardware]\ntypes = \"ipmi\"\n").hardware.types,
        [HardwareType::Ipmi]
    );
    bad(
        "[hardware]\ntypes = [\"ilo\"]\n",
        2,
        "hardware.types",
        "known so far: ipmi, redfish, manual-management, ssh, fake-hardware",
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
fn boots_at_once_are_a_number_or_left_to_the_box() {
    let many = |text: &str| good(&format!("[limits]\n{text}\n")).limits.boots_at_once;
    assert_eq!(many(""), None);
    assert_eq!(many("boots_at_once = \"auto\""), None);
    assert_eq!(many("boots_at_once = 24"), Some(24));
    for (text, word) in [
        ("\"many\"", "auto"),
        ("0", "between 1"),
        ("1025", "and 1024"),
        ("true", "a whole number"),
    ] {
        let text = format!("[limits]\nboots_at_once = {text}\n");
        bad(&text, 2, "limits.boots_at_once", word);
    }
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
    let settings = good("[agent]\nboot_wait_s = 1200\n");
    assert_eq!(
        (settings.agent.boot_wait_s, settings.agent.wait_s),
        (1200, 1800)
    );
    bad("[agent]\nboot_wait_s = 1\n", 2, "agent.boot_wait_s", "10");
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
fn each_kind_of_firmware_has_a_loader_or_none() {
    let usual = good("[boot]\nloaders = \"/l\"\n").boot.loader;
    assert_eq!(usual, BootLoaderSettings::default());
    assert_eq!(usual.bios.as_deref(), Some("undionly.kpxe"));
    let text = "[boot]\nloader_bios = \"\"\nloader_x64 = \"shim/shimx64.efi\"\n\
                loader_arm64 = \"snp-arm64.efi\"\n";
    let named = good(text).boot.loader;
    assert_eq!(named.bios, None);
    assert_eq!(named.x64.as_deref(), Some("shim/shimx64.efi"));
    assert_eq!(named.ia32, None);
    assert_eq!(named.arm64.as_deref(), Some("snp-arm64.efi"));
    bad(
        "[boot]\nloader_x64 = \"../key\"\n",
        2,
        "boot.loader_x64",
        "below boot.loaders",
    );
}

#[test]
fn the_log_is_text_of_level_info_by_default() {
    assert_eq!(good("").log, LogSettings::default());
    assert_eq!(LogSettings::default().format, LogFormat::Text);
    for (word, level) in [
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
    ] {
        let log = good(&format!("[log]\nformat = \"json\"\nlevel = \"{word}\"\n")).log;
        assert_eq!((log.format, log.level), (LogFormat::Json, level));
    }
    bad(
        "[log]\nformat = \"xml\"\n",
        2,
        "log.format",
        "write \"text\" or \"json\"",
    );
    bad("[log]\nlevel = \"trace\"\n", 2, "log.level", "\"debug\"");
    bad("[log]\nfile = \"/x\"\n", 2, "log.file", "unknown");
}
