//! `/dev/ipmi0`: requests to the BMC of this machine through the kernel's driver.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::block::outcome;

/// `IPMICTL_SEND_COMMAND` and `IPMICTL_RECEIVE_MSG_TRUNC` of `linux/ipmi.h`.
const IPMICTL_SEND_COMMAND: u64 = 0x8028_690d;
const IPMICTL_RECEIVE_MSG_TRUNC: u64 = 0xc030_690b;

/// `IPMI_SYSTEM_INTERFACE_ADDR_TYPE` and `IPMI_BMC_CHANNEL`.
const SYSTEM_INTERFACE: libc::c_int = 0x0c;
const BMC_CHANNEL: libc::c_short = 0x0f;

/// Longest reply; the driver's own limit (`IPMI_MAX_MSG_LENGTH`).
const REPLY_BYTES_MAX: usize = 272;

/// Replies to other requests that are skipped before ours. Ours.
const SKIPPED_MAX: usize = 8;

/// `struct ipmi_system_interface_addr`.
#[repr(C)]
struct SystemInterfaceAddress {
    kind: libc::c_int,
    channel: libc::c_short,
    lun: u8,
}

/// `struct ipmi_msg`.
#[repr(C)]
struct KernelMessage {
    function: u8,
    command: u8,
    data_bytes: u16,
    data: *mut u8,
}

/// `struct ipmi_req`.
#[repr(C)]
struct KernelRequest {
    address: *mut SystemInterfaceAddress,
    address_bytes: libc::c_uint,
    sequence: libc::c_long,
    message: KernelMessage,
}

/// `struct ipmi_recv`.
#[repr(C)]
struct KernelReply {
    kind: libc::c_int,
    address: *mut SystemInterfaceAddress,
    address_bytes: libc::c_uint,
    sequence: libc::c_long,
    message: KernelMessage,
}

/// The BMC of this machine.
#[derive(Debug)]
pub struct IpmiDevice {
    file: File,
    sequence: libc::c_long,
}

impl IpmiDevice {
    /// Opens the device, usually `/dev/ipmi0`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self { file, sequence: 0 })
    }

    /// Sends a request and waits for its reply: the completion code and the data after it.
    #[expect(unsafe_code, reason = "requests to a device are not in std")]
    pub fn request(
        &mut self,
        function: u8,
        command: u8,
        data: &[u8],
        timeout: Duration,
    ) -> io::Result<Vec<u8>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut address = SystemInterfaceAddress {
            kind: SYSTEM_INTERFACE,
            channel: BMC_CHANNEL,
            lun: 0,
        };
        let mut data = data.to_vec();
        let mut request = KernelRequest {
            address: &raw mut address,
            address_bytes: mem::size_of::<SystemInterfaceAddress>() as libc::c_uint,
            sequence: self.sequence,
            message: KernelMessage {
                function,
                command,
                data_bytes: data.len() as u16,
                data: data.as_mut_ptr(),
            },
        };
        // SAFETY: the structure has the kernel's layout, and its pointers are to an address and
        // data of the given lengths that outlive the call.
        let sent = unsafe {
            libc::ioctl(
                self.file.as_raw_fd(),
                IPMICTL_SEND_COMMAND as _,
                &raw mut request,
            )
        };
        outcome(sent)?;
        for _ in 0..SKIPPED_MAX {
            self.wait(timeout)?;
            let (sequence, reply) = self.receive()?;
            if sequence == self.sequence {
                return Ok(reply);
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    fn wait(&self, timeout: Duration) -> io::Result<()> {
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as _,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let mut files = [PollFd::new(&self.file, PollFlags::IN)];
        if poll(&mut files, Some(&timeout))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    #[expect(unsafe_code, reason = "requests to a device are not in std")]
    fn receive(&self) -> io::Result<(libc::c_long, Vec<u8>)> {
        let mut address = SystemInterfaceAddress {
            kind: 0,
            channel: 0,
            lun: 0,
        };
        let mut data = [0; REPLY_BYTES_MAX];
        let mut received = KernelReply {
            kind: 0,
            address: &raw mut address,
            address_bytes: mem::size_of::<SystemInterfaceAddress>() as libc::c_uint,
            sequence: 0,
            message: KernelMessage {
                function: 0,
                command: 0,
                data_bytes: REPLY_BYTES_MAX as u16,
                data: data.as_mut_ptr(),
            },
        };
        // SAFETY: as above; the kernel writes at most the given lengths.
        let done = unsafe {
            libc::ioctl(
                self.file.as_raw_fd(),
                IPMICTL_RECEIVE_MSG_TRUNC as _,
                &raw mut received,
            )
        };
        outcome(done)?;
        let bytes = usize::from(received.message.data_bytes).min(REPLY_BYTES_MAX);
        Ok((received.sequence, data[..bytes].to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_have_the_sizes_of_the_kernel() {
        assert_eq!(mem::size_of::<KernelMessage>(), 16);
        assert_eq!(mem::size_of::<KernelRequest>(), 40);
        assert_eq!(mem::size_of::<KernelReply>(), 48);
        assert_eq!(mem::size_of::<SystemInterfaceAddress>(), 8);
    }

    #[test]
    fn a_machine_without_a_bmc_and_a_device_of_another_kind_are_errors() {
        assert!(IpmiDevice::open(Path::new("/nowhere/ipmi0")).is_err());
        let mut other = IpmiDevice::open(Path::new("/dev/null")).unwrap();
        let reply = other.request(6, 1, &[], Duration::from_millis(1));
        assert!(reply.is_err());
    }
}
