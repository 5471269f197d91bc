//! The collector `usb-devices`: devices of no class that `lshw` knows, as the stock agent lists
//! them.

use serde_json::{Value, json};

use crate::SystemRoot;

/// Most devices that are listed. Ours.
const DEVICES_MAX: usize = 1024;

/// Classes that `lshw` calls by another name than generic: audio, communication, HID, printer,
/// storage and hub (USB class codes, usb.org).
const KNOWN_CLASSES: [&str; 6] = ["01", "02", "03", "07", "08", "09"];

/// The class is that of the interfaces.
const CLASS_OF_INTERFACE: &str = "00";

/// All such devices, by port.
pub(crate) fn document(root: &SystemRoot) -> Value {
    let names = root.names("sys/bus/usb/devices");
    let devices = names.iter().filter(|name| !name.contains(':'));
    devices
        .filter_map(|name| device(root, name))
        .take(DEVICES_MAX)
        .collect()
}

fn device(root: &SystemRoot, name: &str) -> Option<Value> {
    let home = format!("sys/bus/usb/devices/{name}");
    let text = |path: &str| root.text(&format!("{home}/{path}"));
    let mut class = text("bDeviceClass")?;
    if class == CLASS_OF_INTERFACE {
        let names = root.names(&home);
        let interface = names
            .iter()
            .find(|part| part.starts_with(&format!("{name}:")));
        let own = interface.and_then(|interface| text(&format!("{interface}/bInterfaceClass")));
        class = own.unwrap_or(class);
    }
    if KNOWN_CLASSES.contains(&class.as_str()) {
        return None;
    }
    let (bus, number) = (text("busnum")?, text("devnum")?);
    Some(json!({
        "product": text("product").unwrap_or_default(),
        "vendor": text("manufacturer").unwrap_or_default(),
        "handle": format!("USB:{bus}:{number}"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SystemTree;

    fn device(tree: &SystemTree, name: &str, class: &str, interface: &str) {
        let home = format!("sys/bus/usb/devices/{name}");
        tree.file(&format!("{home}/bDeviceClass"), class);
        tree.file(&format!("{home}/busnum"), "1\n");
        tree.file(&format!("{home}/devnum"), "3\n");
        tree.file(&format!("{home}/product"), "Key\n");
        tree.file(&format!("{home}/manufacturer"), "Maker\n");
        tree.file(&format!("{home}/{name}:1.0/bInterfaceClass"), interface);
    }

    #[test]
    fn only_devices_of_unknown_classes_are_listed() {
        let tree = SystemTree::new();
        device(&tree, "usb1", "09\n", "09\n");
        device(&tree, "1-1", "00\n", "03\n");
        device(&tree, "1-2", "00\n", "08\n");
        device(&tree, "1-3", "00\n", "ff\n");
        device(&tree, "1-4", "ef\n", "08\n");
        let one = json!({"product": "Key", "vendor": "Maker", "handle": "USB:1:3"});
        assert_eq!(document(&tree.root()), json!([one, one]));
    }
}
