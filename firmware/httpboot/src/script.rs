//! iPXE scripts, made for one machine when it asks.

use trivet_model::{BootPlan, MacAddr};

/// What the agent's kernel line is made of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AgentBoot<'a> {
    /// Where boot files are served, without a slash at the end.
    pub http_url: &'a str,
    /// Where the API is served, without a slash at the end.
    pub api_url: &'a str,
    /// The agent is to send what it finds.
    pub inspect: bool,
    /// What the operator adds to the kernel line.
    pub kernel_args: &'a str,
}

/// Seconds a machine without a plan waits before it asks again. Ours.
const WAIT_S: u32 = 10;

/// The script for a machine.
pub fn script(mac: MacAddr, plan: BootPlan, boot: &AgentBoot<'_>) -> String {
    match plan {
        BootPlan::Agent => agent(mac, boot),
        // Leaving iPXE with success makes BIOS and UEFI go on to the next boot device.
        BootPlan::Disk => "#!ipxe\nexit 0\n".to_owned(),
        BootPlan::Wait => format!(
            "#!ipxe\necho {mac} is not to boot now; asking again in {WAIT_S} s\nsleep {WAIT_S}\n\
             chain --replace {}{}\n",
            boot.http_url,
            crate::script_path(mac)
        ),
    }
}

fn agent(mac: MacAddr, boot: &AgentBoot<'_>) -> String {
    let dashed = mac.to_string().replace(':', "-");
    let mut line = format!(
        "initrd=ramdisk BOOTIF=01-{dashed} ipa-api-url={}",
        boot.api_url
    );
    if boot.inspect {
        line.push_str(" ipa-inspection-callback-url=");
        line.push_str(boot.api_url);
        line.push_str("/v1/continue_inspection");
    }
    if !boot.kernel_args.is_empty() {
        line.push(' ');
        line.push_str(boot.kernel_args);
    }
    let base = boot.http_url;
    format!(
        "#!ipxe\nkernel {base}/boot/kernel {line}\n\
         initrd --name ramdisk {base}/boot/ramdisk\nboot\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 0x0a]);

    fn boot(inspect: bool) -> AgentBoot<'static> {
        AgentBoot {
            http_url: "http://192.0.2.1:8080",
            api_url: "http://192.0.2.1:6385",
            inspect,
            kernel_args: "console=ttyS0",
        }
    }

    #[test]
    fn the_agents_kernel_line_carries_what_it_reads() {
        assert_eq!(
            script(MAC, BootPlan::Agent, &boot(false)),
            "#!ipxe\n\
             kernel http://192.0.2.1:8080/boot/kernel initrd=ramdisk \
             BOOTIF=01-52-54-00-00-00-0a ipa-api-url=http://192.0.2.1:6385 console=ttyS0\n\
             initrd --name ramdisk http://192.0.2.1:8080/boot/ramdisk\nboot\n"
        );
    }

    #[test]
    fn an_inspection_names_where_to_send_the_data() {
        let text = script(MAC, BootPlan::Agent, &boot(true));
        let want = "ipa-inspection-callback-url=http://192.0.2.1:6385/v1/continue_inspection";
        assert!(text.contains(want), "{text}");
    }

    #[test]
    fn a_machine_with_a_disk_leaves_the_loader() {
        assert_eq!(
            script(MAC, BootPlan::Disk, &boot(false)),
            "#!ipxe\nexit 0\n"
        );
    }

    #[test]
    fn a_machine_without_a_plan_asks_again_at_the_same_place() {
        let text = script(MAC, BootPlan::Wait, &boot(false));
        assert!(
            text.contains("chain --replace http://192.0.2.1:8080/boot/52:54:00:00:00:0a/script")
        );
    }
}
