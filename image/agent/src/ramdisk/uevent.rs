//! Messages of the kernel about devices that appear (NETLINK_KOBJECT_UEVENT).
//!
//! A message is `ACTION@DEVPATH` and then `KEY=VALUE` texts, each with a closing zero.

/// The alias of a device that was added, by which its module is found.
pub fn added_alias(message: &[u8]) -> Option<&str> {
    let mut texts = message.split(|&byte| byte == 0);
    if !texts.next()?.starts_with(b"add@") {
        return None;
    }
    let alias = texts.find_map(|text| text.strip_prefix(b"MODALIAS="))?;
    core::str::from_utf8(alias).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_added_devices_with_an_alias_count() {
        let added = b"add@/devices/pci0/virtio0\0ACTION=add\0MODALIAS=virtio:d1v1\0SEQNUM=7\0";
        assert_eq!(added_alias(added), Some("virtio:d1v1"));
        let removed = b"remove@/devices/pci0/virtio0\0MODALIAS=virtio:d1v1\0";
        for other in [
            &removed[..],
            b"add@/devices/x\0ACTION=add\0",
            b"libudev\0\xfe\xed",
            b"add@/x\0MODALIAS=\xff\0",
            b"",
        ] {
            assert_eq!(added_alias(other), None);
        }
    }
}
