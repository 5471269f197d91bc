//! Names of Ironic's hardware interfaces are enums of `firmware/model`, not text.
//!
//! The names that mean nothing else are searched for; `redfish` or `ssh` are protocols as well.

use crate::size::{is_test_file, without_tests};
use crate::{Finding, SourceFile};

/// Names that only interfaces have.
const NAMES: [&str; 14] = [
    "autodetect",
    "custom-agent",
    "ipmitool",
    "ipmitool-socat",
    "no-bios",
    "no-console",
    "no-firmware",
    "no-inspect",
    "no-raid",
    "no-rescue",
    "no-vendor",
    "noop",
    "redfish-virtual-media",
    "wake-on-lan",
];

/// Where the names are text: the enums themselves, Ironic's API, the hardware types, and old
/// records; and programs that are clients of the API.
const PLACES: [&str; 9] = [
    "firmware/model/src/interface.rs",
    "firmware/api/",
    "firmware/drivers/",
    "firmware/store/",
    "firmware/cli/",
    "firmware/daemon/src/demo/",
    "firmware/sim/",
    // ipmitool is a Debian package there.
    "image/ramdisk/",
    "tests/",
];

/// Interface names as text in product code.
pub fn as_text(file: &SourceFile) -> Vec<Finding> {
    let allowed = PLACES.iter().any(|place| file.path.starts_with(place));
    if allowed || is_test_file(&file.path) {
        return Vec::new();
    }
    let code = without_tests(&file.text);
    let found = NAMES.iter().flat_map(|name| {
        let literal = format!("\"{name}\"");
        let lines = code.lines().enumerate();
        let lines = lines.filter(move |(_, line)| {
            !line.trim_start().starts_with("//") && line.contains(&literal)
        });
        lines.map(move |(index, _)| {
            let message = format!("{name} as text: use the enums of firmware/model/interface.rs");
            Finding::at_line(&file.path, index + 1, message)
        })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> usize {
        let file = SourceFile {
            path: path.into(),
            text: text.into(),
        };
        as_text(&file).len()
    }

    #[test]
    fn a_name_as_text_is_found_outside_its_places() {
        let text = "let power = \"ipmitool\";\n// as \"noop\"\n";
        assert_eq!(findings("firmware/rack/src/boot.rs", text), 1);
        assert_eq!(findings("firmware/api/src/routes.rs", text), 0);
        assert_eq!(findings("firmware/rack/src/tests/boot.rs", text), 0);
    }
}
