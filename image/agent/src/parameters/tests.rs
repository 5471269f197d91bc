use super::*;

fn from_kernel(text: &str) -> AgentParameters {
    let mut parameters = AgentParameters::default();
    parameters.read_kernel_line(text);
    parameters
}

fn from_arguments(words: &[&str]) -> Result<AgentParameters, ArgumentError> {
    let mut parameters = AgentParameters::default();
    parameters.read_arguments(words.iter().copied())?;
    Ok(parameters)
}

#[test]
fn reads_a_kernel_command_line() {
    let token = "t".repeat(TOKEN_CHARS_MIN);
    let line = format!(
        "console=ttyS0 quiet ipa-api-url=http://10.0.0.1:6385/,http://10.0.0.2:6385 \
         ipa-inspection-callback-url=http://10.0.0.1:6385/v1/continue_inspection \
         ipa-inspection-collectors=default,logs,lldp ipa-advertise-host=10.0.0.9 ipa-debug=1 \
         ipa-insecure=true ipa-agent-token={token} ipa-lldp-timeout=7 ipa-listen-port=9998 \
         ipa-collect-lldp=1 ipa-inspection-dhcp-wait-timeout=9 ipa-unknown=1 \
         BOOTIF=01-52-54-00-77-00-11 boot_method=vmedia root=/dev/ram0\n"
    );
    let read = from_kernel(&line);
    assert_eq!(
        read.api_urls,
        ["http://10.0.0.1:6385", "http://10.0.0.2:6385"]
    );
    let url = read.inspection_callback_url.as_deref().unwrap();
    assert!(url.ends_with("/v1/continue_inspection"));
    assert_eq!(read.inspection_collectors, ["default", "logs", "lldp"]);
    assert_eq!(read.advertise_host.as_deref(), Some("10.0.0.9"));
    assert!(read.debug && read.insecure && read.virtual_media && read.collect_lldp);
    assert!(!read.standalone);
    assert_eq!(read.agent_token, Some(token));
    assert_eq!(read.lldp_timeout, Duration::from_secs(7));
    assert_eq!(read.dhcp_wait, Duration::from_secs(9));
    assert_eq!(read.listen_port, 9998);
    assert_eq!(read.boot_mac(), "52:54:00:77:00:11".parse().ok());
    assert!(from_kernel("ipa-standalone").standalone);
    assert!(from_kernel("ipa-standalone=1").standalone);
}

#[test]
fn values_that_do_not_fit_leave_the_default() {
    let read = from_kernel("ipa-agent-token=short ipa-listen-port=x ipa-debug=perhaps ip=dhcp");
    assert_eq!(read, AgentParameters::default());
}

#[test]
fn later_texts_win() {
    let mut read = from_kernel("ipa-api-url=http://a ipa-debug=1");
    read.read_settings_file(
        "# note\n[DEFAULT]\napi_url = http://b/\n; note\ncafile=/etc/ca.crt\n\
         [other]\napi_url = http://c\n",
    );
    assert_eq!(read.api_urls, ["http://b"]);
    assert_eq!(read.ca_file.as_deref(), Some("/etc/ca.crt"));
    read.read_arguments(["--api-url", "http://d", "--debug=false"])
        .unwrap();
    assert_eq!(read.api_urls, ["http://d"]);
    assert!(!read.debug);
}

#[test]
fn reads_options_with_and_without_equals_sign() {
    let words = [
        "--standalone",
        "--debug",
        "--insecure",
        "--listen_host=127.0.0.1",
        "--listen-port",
        "0",
        "--advertise-port=1234",
        "--inspection_collectors",
        "default",
        "--certfile=/c",
        "--hardware-managers=/m",
        "--keyfile=/k",
        "--collect-lldp",
        "--ignore-bootloader-failure",
    ];
    let read = from_arguments(&words).unwrap();
    assert!(read.standalone && read.debug && read.insecure && read.collect_lldp);
    assert!(read.ignore_bootloader_failure);
    assert_eq!(read.listen_host.as_deref(), Some("127.0.0.1"));
    assert_eq!((read.listen_port, read.advertise_port), (0, Some(1234)));
    assert_eq!(read.inspection_collectors, ["default"]);
    assert_eq!(read.hardware_managers, "/m");
    assert_eq!(read.key_file.as_deref(), Some("/k"));
    assert_eq!(read.certificate_file.as_deref(), Some("/c"));
}

#[test]
fn options_that_do_not_exist_or_lack_a_value_are_errors() {
    for (words, sentence) in [
        (&["--no-such"][..], "is not an option"),
        (&["--no-such=1"], "is not an option"),
        (&["word"], "is not an option"),
        (&["--api-url"], "needs a value"),
        (&["--listen-port", "high"], "does not take high"),
        (&["--agent-token=short"], "does not take"),
    ] {
        let error = from_arguments(words).unwrap_err().to_string();
        assert!(error.contains(sentence), "{words:?}: {error}");
    }
}

#[test]
fn reads_a_static_address() {
    let address = |text: &str| from_kernel(text).static_addresses.pop();
    let read = address("ip=10.0.0.5::10.0.0.1:255.255.0.0:host1:eth0:off:10.0.0.2:10.0.0.3");
    let read = read.unwrap();
    assert_eq!(
        (read.address, read.prefix),
        (Ipv4Addr::new(10, 0, 0, 5), 16)
    );
    assert_eq!(read.gateway, Some(Ipv4Addr::new(10, 0, 0, 1)));
    assert_eq!(read.host_name.as_deref(), Some("host1"));
    assert_eq!(read.device.as_deref(), Some("eth0"));
    assert_eq!(read.name_servers.len(), 2);
    assert_eq!(address("ip=10.0.0.5/27").unwrap().prefix, 27);
    assert_eq!(address("ip=10.0.0.5").unwrap().prefix, 24);
    for bad in ["ip=", "ip=dhcp", "ip=:::::eth0:dhcp", "ip=10.0.0.5/33"] {
        assert_eq!(address(bad), None, "{bad}");
    }
}

#[test]
fn a_boot_interface_may_lack_the_hardware_type() {
    let mac = "52:54:00:77:00:11".parse().ok();
    assert_eq!(from_kernel("BOOTIF=52:54:00:77:00:11").boot_mac(), mac);
    assert_eq!(from_kernel("BOOTIF=0\u{e9}-x").boot_mac(), None);
    assert_eq!(from_kernel("BOOTIF=").boot_mac(), None);
}
