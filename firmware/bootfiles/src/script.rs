//! iPXE scripts, generated for one machine at each request.
//!
//! No script ends at a prompt: after a failure the machine waits and fetches the script again,
//! which then follows the present boot plan. Values of node records are inserted into these
//! scripts, so the caller that makes a plan validates them (`trivet_drivers::payload`).

use trivet_model::{BootPlan, KernelBoot, MacAddr};

/// Seconds a machine waits before it fetches the script again. Ours.
const WAIT_S: u32 = 10;

/// The script for a machine. `http_url` is the base URL of the boot files, without a slash at
/// the end.
pub fn script(mac: MacAddr, plan: &BootPlan, http_url: &str) -> String {
    let (why, lines) = match plan {
        BootPlan::Agent {
            files,
            api_url,
            inspect,
        } => {
            let line = agent_line(Some(mac), api_url, *inspect);
            ("could not load the agent", kernel(files, &line))
        }
        BootPlan::Kernel(files) => ("could not load its kernel", kernel(files, "")),
        // Describing the image (iBFT) does not help systems that are read over HTTP.
        BootPlan::Iso { url } => (
            "could not boot its image",
            format!("sanboot --no-describe {url} || goto again\n"),
        ),
        BootPlan::Disk => return disk(),
        BootPlan::Wait => ("has no boot order now", String::new()),
    };
    let script = crate::script_path(mac);
    // Files of an earlier attempt would be passed to the kernel as further ramdisks.
    format!(
        "#!ipxe\nimgfree\n{lines}:again\necho {mac} {why}; asking again in {WAIT_S} s\n\
         sleep {WAIT_S}\nchain --replace {http_url}{script} || goto again\n"
    )
}

/// Exits to the machine's disk. A UEFI boot manager continues with the next device when a
/// loader fails, and stops at its menu when one succeeds (UEFI 2.10, section 3.1.1), so iPXE
/// exits with an error there. On a BIOS the script boots the first disk itself: some do not try
/// the next device after a network boot. If that disk does not boot, the script exits.
fn disk() -> String {
    "#!ipxe\n\
     iseq ${platform} efi && goto efi ||\n\
     sanboot --no-describe --drive 0x80 ||\n\
     exit 0\n\
     :efi\n\
     exit 1\n"
        .to_owned()
}

/// The kernel arguments of an agent that does not boot by a script: from a medium, where it is
/// not known which interface the machine will use. None if the plan is not to boot the agent.
pub fn agent_arguments(mac: Option<MacAddr>, plan: &BootPlan) -> Option<String> {
    let BootPlan::Agent {
        files,
        api_url,
        inspect,
    } = plan
    else {
        return None;
    };
    let line = agent_line(mac, api_url, *inspect);
    Some(
        format!("{} {}", line.trim(), files.args)
            .trim_end()
            .to_owned(),
    )
}

/// Characters that GRUB takes as its own syntax, so that they cannot be in its menu.
const GRUB_SYNTAX: &str = "$\\'\"`;&|<>(){}#";

/// The first character of kernel arguments that the menus of an ISO image cannot have: a loader
/// would read something else.
pub fn misread_character(arguments: &str) -> Option<char> {
    let plain = |character: char| {
        (character == ' ' || character.is_ascii_graphic()) && !GRUB_SYNTAX.contains(character)
    };
    arguments.chars().find(|&character| !plain(character))
}

/// The kernel arguments that the agent reads.
fn agent_line(mac: Option<MacAddr>, api_url: &str, inspect: bool) -> String {
    let mut line = mac.map_or_else(String::new, |mac| {
        format!(" BOOTIF=01-{}", mac.to_string().replace(':', "-"))
    });
    line.push_str(" ipa-api-url=");
    line.push_str(api_url);
    if inspect {
        line.push_str(" ipa-inspection-callback-url=");
        line.push_str(api_url);
        line.push_str("/v1/continue_inspection");
    }
    line
}

/// A UEFI kernel finds its ramdisk by the name in its arguments; a BIOS kernel ignores it.
fn kernel(files: &KernelBoot, own: &str) -> String {
    let KernelBoot {
        kernel,
        ramdisk,
        args,
    } = files;
    let space = if args.is_empty() { "" } else { " " };
    format!(
        "kernel {kernel} initrd=ramdisk{own}{space}{args} || goto again\n\
         initrd --name ramdisk {ramdisk} || goto again\n\
         boot || goto again\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 0x0a]);
    #[test]
    fn characters_that_a_loader_would_misread_are_found() {
        for (arguments, want) in [
            ("a=1 b,c/d:e[f]", None),
            ("a=$x", Some('$')),
            ("a=\"b\"", Some('"')),
            ("a={b}", Some('{')),
            ("a\nb", Some('\n')),
            ("a=\u{e4}", Some('\u{e4}')),
        ] {
            assert_eq!(misread_character(arguments), want, "{arguments}");
        }
    }

    const BASE: &str = "http://192.0.2.1:8080";

    fn files(args: &str) -> KernelBoot {
        KernelBoot {
            kernel: "http://192.0.2.1:8080/boot/kernel".into(),
            ramdisk: "http://192.0.2.1:8080/boot/ramdisk".into(),
            args: args.into(),
        }
    }

    fn agent(inspect: bool, args: &str) -> String {
        let plan = BootPlan::Agent {
            files: files(args),
            api_url: "http://192.0.2.1:6385".into(),
            inspect,
        };
        script(MAC, &plan, BASE)
    }

    #[test]
    fn the_agents_kernel_line_has_the_arguments_it_reads() {
        assert_eq!(
            agent(false, "console=ttyS0"),
            "#!ipxe\nimgfree\n\
             kernel http://192.0.2.1:8080/boot/kernel initrd=ramdisk \
             BOOTIF=01-52-54-00-00-00-0a ipa-api-url=http://192.0.2.1:6385 console=ttyS0 \
             || goto again\n\
             initrd --name ramdisk http://192.0.2.1:8080/boot/ramdisk || goto again\n\
             boot || goto again\n\
             :again\necho 52:54:00:00:00:0a could not load the agent; asking again in 10 s\n\
             sleep 10\n\
             chain --replace http://192.0.2.1:8080/boot/52:54:00:00:00:0a/script || goto again\n"
        );
    }

    #[test]
    fn an_inspection_has_the_callback_url() {
        let text = agent(true, "");
        let want = " ipa-inspection-callback-url=http://192.0.2.1:6385/v1/continue_inspection ||";
        assert!(text.contains(want), "{text}");
    }

    #[test]
    fn an_agent_on_a_medium_gets_the_same_arguments() {
        let plan = BootPlan::Agent {
            files: files("console=ttyS0"),
            api_url: "http://192.0.2.1:6385".into(),
            inspect: false,
        };
        let line = agent_arguments(Some(MAC), &plan).unwrap();
        let want = "BOOTIF=01-52-54-00-00-00-0a ipa-api-url=http://192.0.2.1:6385 console=ttyS0";
        assert_eq!(line, want);
        assert!(script(MAC, &plan, BASE).contains(want));
        let unknown = agent_arguments(None, &plan).unwrap();
        assert_eq!(unknown, "ipa-api-url=http://192.0.2.1:6385 console=ttyS0");
        assert_eq!(agent_arguments(Some(MAC), &BootPlan::Disk), None);
    }

    #[test]
    fn a_custom_kernel_gets_no_agent_arguments() {
        let text = script(MAC, &BootPlan::Kernel(files("auto url=http://a/b")), BASE);
        let want = "/boot/kernel initrd=ramdisk auto url=http://a/b || goto again\n";
        assert!(text.contains(want), "{text}");
        assert!(!text.contains("ipa-") && !text.contains("BOOTIF"), "{text}");
    }

    #[test]
    fn an_image_is_read_over_the_network() {
        let url = "http://192.0.2.1:8080/files/live.iso".to_owned();
        let text = script(MAC, &BootPlan::Iso { url }, BASE);
        let want = "\nsanboot --no-describe http://192.0.2.1:8080/files/live.iso || goto again\n";
        assert!(text.contains(want), "{text}");
    }

    #[test]
    fn a_machine_with_a_disk_exits_the_loader_as_its_firmware_needs_it() {
        assert_eq!(
            script(MAC, &BootPlan::Disk, BASE),
            "#!ipxe\niseq ${platform} efi && goto efi ||\n\
             sanboot --no-describe --drive 0x80 ||\nexit 0\n:efi\nexit 1\n"
        );
    }

    #[test]
    fn every_script_except_that_of_a_disk_ends_with_a_retry() {
        let url = "http://192.0.2.1/x".to_owned();
        for plan in [
            BootPlan::Wait,
            BootPlan::Iso { url },
            BootPlan::Kernel(files("")),
        ] {
            let text = script(MAC, &plan, BASE);
            let end = "\nsleep 10\nchain --replace \
                       http://192.0.2.1:8080/boot/52:54:00:00:00:0a/script || goto again\n";
            assert!(text.ends_with(end), "{text}");
            assert_eq!(text.matches("\n:again\n").count(), 1, "{text}");
            let (before, _) = text.split_once("\n:again\n").unwrap();
            for line in before.lines().skip(2) {
                assert!(line.ends_with(" || goto again"), "{line}");
            }
        }
    }
}
