//! iPXE scripts, made for one machine when it asks.
//!
//! No script ends at a prompt: what cannot be loaded is asked for again after a while,
//! by then with whatever the plan has become. Words of a record stand in these scripts,
//! so whoever makes a plan has checked them (`trivet_drivers::payload`).

use trivet_model::{BootPlan, KernelBoot, MacAddr};

/// Seconds a machine waits before it asks again. Ours.
const WAIT_S: u32 = 10;

/// The script for a machine. `http_url` is where boot files are served, without a
/// slash at the end.
pub fn script(mac: MacAddr, plan: &BootPlan, http_url: &str) -> String {
    let (why, lines) = match plan {
        BootPlan::Agent {
            files,
            api_url,
            inspect,
        } => {
            let line = agent_line(mac, api_url, *inspect);
            ("could not load the agent", kernel(files, &line))
        }
        BootPlan::Kernel(files) => ("could not load its kernel", kernel(files, "")),
        // Describing the image (iBFT) helps no system that is read over HTTP.
        BootPlan::Iso { url } => (
            "could not boot its image",
            format!("sanboot --no-describe {url} || goto again\n"),
        ),
        BootPlan::Disk => return disk(),
        BootPlan::Wait => ("is not to boot now", String::new()),
    };
    let script = crate::script_path(mac);
    // Files of an earlier try would be handed to the kernel as further ramdisks.
    format!(
        "#!ipxe\nimgfree\n{lines}:again\necho {mac} {why}; asking again in {WAIT_S} s\n\
         sleep {WAIT_S}\nchain --replace {http_url}{script} || goto again\n"
    )
}

/// Leaves for the machine's own disk. A UEFI boot manager goes on to the next device
/// when a loader fails, and stops at its menu when one succeeds (UEFI 2.10, section
/// 3.1.1), so iPXE leaves with an error there. A BIOS is told the first disk itself:
/// not every one tries the next device after a network boot. Where that disk does not
/// boot, leaving is all that is left.
fn disk() -> String {
    "#!ipxe\n\
     iseq ${platform} efi && goto efi ||\n\
     sanboot --no-describe --drive 0x80 ||\n\
     exit 0\n\
     :efi\n\
     exit 1\n"
        .to_owned()
}

/// What the agent reads of its kernel line.
fn agent_line(mac: MacAddr, api_url: &str, inspect: bool) -> String {
    let dashed = mac.to_string().replace(':', "-");
    let mut line = format!(" BOOTIF=01-{dashed} ipa-api-url={api_url}");
    if inspect {
        line.push_str(" ipa-inspection-callback-url=");
        line.push_str(api_url);
        line.push_str("/v1/continue_inspection");
    }
    line
}

/// A UEFI kernel finds its ramdisk by the name on its line; a BIOS one ignores it.
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
    fn the_agents_kernel_line_carries_what_it_reads() {
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
    fn an_inspection_names_where_to_send_the_data() {
        let text = agent(true, "");
        let want = " ipa-inspection-callback-url=http://192.0.2.1:6385/v1/continue_inspection ||";
        assert!(text.contains(want), "{text}");
    }

    #[test]
    fn a_kernel_of_the_operators_gets_nothing_of_the_agents() {
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
    fn a_machine_with_a_disk_leaves_the_loader_as_its_firmware_wants_it() {
        assert_eq!(
            script(MAC, &BootPlan::Disk, BASE),
            "#!ipxe\niseq ${platform} efi && goto efi ||\n\
             sanboot --no-describe --drive 0x80 ||\nexit 0\n:efi\nexit 1\n"
        );
    }

    #[test]
    fn no_script_but_that_of_a_disk_ends_without_asking_again() {
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
