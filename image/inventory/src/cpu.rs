//! Processors, as `lscpu` of util-linux 2.38 shows them.

use std::collections::BTreeSet;

use trivet_agent_wire::inventory::IpaCpu;

use crate::SystemRoot;

/// Most processors that are counted. The kernel's own limit is lower.
const CPUS_MAX: usize = 65_536;

/// The model and the flags of the first processor in `/proc/cpuinfo`. The flags of ARM
/// processors are called features.
pub fn parse_cpuinfo(text: &str) -> (Option<String>, Vec<String>) {
    let first = text.split("\n\n").next().unwrap_or_default();
    let field = |names: &[&str]| {
        let lines = first.lines().filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(key, _)| names.contains(&key.trim()));
        found.next().map(|(_, value)| value.trim().to_owned())
    };
    let flags = field(&["flags", "Features"]).unwrap_or_default();
    let flags = flags.split_whitespace().map(str::to_owned).collect();
    (field(&["model name"]), flags)
}

/// A list of ranges as the kernel writes it, such as `0-3,8`.
pub(crate) fn parse_ranges(text: &str) -> BTreeSet<u64> {
    let mut numbers = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) {
            let last = last.min(first.saturating_add(CPUS_MAX as u64));
            numbers.extend((first..=last).take(CPUS_MAX.saturating_sub(numbers.len())));
        }
    }
    numbers
}

/// The processors of a machine.
pub(crate) fn read(root: &SystemRoot) -> IpaCpu {
    let (model_name, flags) = parse_cpuinfo(&root.whole_text("proc/cpuinfo").unwrap_or_default());
    let list = |name: &str| root.text(&format!("sys/devices/system/cpu/{name}"));
    let present = list("present")
        .map(|text| parse_ranges(&text))
        .unwrap_or_default();
    let online = list("online")
        .map(|text| parse_ranges(&text))
        .unwrap_or_default();
    let sockets: BTreeSet<String> = online
        .iter()
        .filter_map(|cpu| {
            let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            root.text(&format!("{topology}/package_cpus_list"))
                .or_else(|| root.text(&format!("{topology}/core_siblings_list")))
        })
        .collect();
    let fastest_khz = online
        .iter()
        .filter_map(|cpu| {
            let frequency = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq");
            root.number(&frequency)
        })
        .max();
    IpaCpu {
        model_name: Some(model_name.unwrap_or_default()),
        frequency: Some(fastest_khz.map_or_else(String::new, megahertz)),
        count: Some(present.len() as u64),
        architecture: Some(std::env::consts::ARCH.to_owned()),
        flags,
        socket_count: Some(sockets.len() as u64),
    }
}

/// MHz with four decimals, as `lscpu` prints it.
fn megahertz(khz: u64) -> String {
    format!("{}.{:03}0", khz / 1000, khz % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SystemTree;

    const CPUINFO: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\n\
        model name\t: AMD EPYC 7302 16-Core Processor\ncpu MHz\t\t: 1499.9\n\
        flags\t\t: fpu vme de\nbugs\t\t: sysret_ss_attrs\n\n\
        processor\t: 1\nmodel name\t: another\nflags\t\t: none\n\n";

    #[test]
    fn model_and_flags_are_those_of_the_first_processor() {
        let (model, flags) = parse_cpuinfo(CPUINFO);
        assert_eq!(model.unwrap(), "AMD EPYC 7302 16-Core Processor");
        assert_eq!(flags, ["fpu", "vme", "de"]);
        let (model, features) = parse_cpuinfo("processor : 0\nFeatures : fp asimd\n");
        assert_eq!((model, features.len()), (None, 2));
        assert_eq!(parse_cpuinfo(""), (None, Vec::new()));
    }

    #[test]
    fn ranges_are_read_as_the_kernel_writes_them() {
        let numbers = |text| parse_ranges(text).into_iter().collect::<Vec<_>>();
        assert_eq!(numbers("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(numbers("0\n"), [0]);
        assert_eq!(numbers("x,-,2"), [2]);
        assert_eq!(parse_ranges("0-18446744073709551615").len(), CPUS_MAX);
    }

    #[test]
    fn sockets_and_frequency_come_from_the_processors_that_are_online() {
        let tree = SystemTree::new();
        tree.file("proc/cpuinfo", CPUINFO);
        tree.file("sys/devices/system/cpu/present", "0-3\n");
        tree.file("sys/devices/system/cpu/online", "0-2\n");
        for (cpu, siblings, khz) in [(0, "0-1", "3000000"), (1, "0-1", "3400125"), (2, "2", "1")] {
            let home = format!("sys/devices/system/cpu/cpu{cpu}");
            tree.file(&format!("{home}/topology/package_cpus_list"), siblings);
            tree.file(&format!("{home}/cpufreq/cpuinfo_max_freq"), khz);
        }
        let cpu = read(&tree.root());
        assert_eq!((cpu.count, cpu.socket_count), (Some(4), Some(2)));
        assert_eq!(cpu.frequency.unwrap(), "3400.1250");
        assert_eq!(cpu.architecture.unwrap(), std::env::consts::ARCH);
    }

    #[test]
    fn a_machine_without_these_files_has_empty_fields() {
        let cpu = read(&SystemTree::new().root());
        assert_eq!((cpu.count, cpu.socket_count), (Some(0), Some(0)));
        assert_eq!(cpu.frequency.as_deref(), Some(""));
        assert_eq!(cpu.model_name.as_deref(), Some(""));
    }
}
