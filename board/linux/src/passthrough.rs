//! Commands to a drive itself: NVMe admin commands, and SCSI commands through `SG_IO`.
//!
//! Which commands are sent is decided elsewhere; here is only the way into the kernel.

use std::io;
use std::mem;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use crate::BlockFile;
use crate::block::outcome;

/// `NVME_IOCTL_ADMIN_CMD` of `linux/nvme_ioctl.h`.
const NVME_IOCTL_ADMIN_CMD: u64 = 0xc048_4e41;

/// `NVME_IOCTL_ID`: the number of the namespace.
const NVME_IOCTL_ID: u64 = 0x4e40;

/// `SG_IO` of `scsi/sg.h`.
const SG_IO: u64 = 0x2285;

const SG_DXFER_NONE: libc::c_int = -1;
const SG_DXFER_TO_DEV: libc::c_int = -2;
const SG_DXFER_FROM_DEV: libc::c_int = -3;

/// Bytes of sense data that are requested.
const SENSE_BYTES: usize = 32;

/// An NVMe admin command (NVM Express base specification, figure "Common Command Format").
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NvmeAdminCommand {
    /// Its opcode.
    pub opcode: u8,
    /// The namespace it is about; all ones is every namespace.
    pub namespace: u32,
    /// Command dwords 10 to 15.
    pub dwords: [u32; 6],
}

/// Where the data of a SCSI command go.
#[derive(Debug)]
pub enum ScsiTransfer<'a> {
    /// There are none.
    None,
    /// To the device.
    Out(&'a [u8]),
    /// From the device.
    In(&'a mut [u8]),
}

/// How a SCSI command ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScsiStatus {
    /// The status byte (SAM-5): zero is GOOD, two is CHECK CONDITION.
    pub status: u8,
    /// The sense data; empty if there are none.
    pub sense: Vec<u8>,
    /// Errors of the adapter and of the kernel's driver; zero is none.
    pub transport_error: u16,
}

/// `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Default)]
struct NvmePassthrough {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    dword2: u32,
    dword3: u32,
    metadata: u64,
    data: u64,
    metadata_bytes: u32,
    data_bytes: u32,
    dwords: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

/// `struct sg_io_hdr`.
#[repr(C)]
struct ScsiGeneric {
    interface: libc::c_int,
    direction: libc::c_int,
    command_bytes: u8,
    sense_bytes_max: u8,
    vectors: u16,
    data_bytes: libc::c_uint,
    data: *mut libc::c_void,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: libc::c_uint,
    flags: libc::c_uint,
    pack: libc::c_int,
    user: *mut libc::c_void,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_bytes: u8,
    host_status: u16,
    driver_status: u16,
    residual: libc::c_int,
    duration_ms: libc::c_uint,
    info: libc::c_uint,
}

impl BlockFile {
    /// Sends an NVMe admin command. Data go to or come from the buffer, as the opcode says. The
    /// result is the status of the completion (zero is success) and its dword 0.
    #[expect(unsafe_code, reason = "commands to a device are not in std")]
    pub fn nvme_admin(
        &self,
        command: NvmeAdminCommand,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> io::Result<(u16, u32)> {
        let mut request = NvmePassthrough {
            opcode: command.opcode,
            namespace: command.namespace,
            data: buffer.as_mut_ptr() as u64,
            data_bytes: buffer.len() as u32,
            dwords: command.dwords,
            timeout_ms: timeout.as_millis() as u32,
            ..NvmePassthrough::default()
        };
        // SAFETY: the structure has the kernel's layout, and its data pointer is to a buffer of
        // the given length that outlives the call.
        let status = unsafe {
            libc::ioctl(
                self.file().as_raw_fd(),
                NVME_IOCTL_ADMIN_CMD as _,
                &raw mut request,
            )
        };
        outcome(status)?;
        Ok((status as u16, request.result))
    }

    /// The number of the NVMe namespace.
    #[expect(unsafe_code, reason = "commands to a device are not in std")]
    pub fn nvme_namespace(&self) -> io::Result<u32> {
        // SAFETY: the request takes no argument.
        let number = unsafe { libc::ioctl(self.file().as_raw_fd(), NVME_IOCTL_ID as _, 0) };
        outcome(number)?;
        Ok(number as u32)
    }

    /// Sends a SCSI command.
    #[expect(unsafe_code, reason = "commands to a device are not in std")]
    pub fn scsi_command(
        &self,
        command: &[u8],
        transfer: ScsiTransfer<'_>,
        timeout: Duration,
    ) -> io::Result<ScsiStatus> {
        let mut sense = [0; SENSE_BYTES];
        let (direction, data, data_bytes) = match transfer {
            ScsiTransfer::None => (SG_DXFER_NONE, std::ptr::null_mut(), 0),
            ScsiTransfer::Out(bytes) => (
                SG_DXFER_TO_DEV,
                bytes.as_ptr().cast_mut().cast(),
                bytes.len(),
            ),
            ScsiTransfer::In(bytes) => (SG_DXFER_FROM_DEV, bytes.as_mut_ptr().cast(), bytes.len()),
        };
        // SAFETY: all zeros is a valid value of this plain structure.
        let mut request: ScsiGeneric = unsafe { mem::zeroed() };
        request.interface = libc::c_int::from(b'S');
        request.direction = direction;
        request.command_bytes = command.len() as u8;
        request.sense_bytes_max = SENSE_BYTES as u8;
        request.data_bytes = data_bytes as libc::c_uint;
        request.data = data;
        request.command = command.as_ptr();
        request.sense = sense.as_mut_ptr();
        request.timeout_ms = timeout.as_millis() as libc::c_uint;
        // SAFETY: the structure has the kernel's layout; its pointers are to buffers of the
        // given lengths that outlive the call, and the kernel only writes to data from the
        // device.
        let done = unsafe { libc::ioctl(self.file().as_raw_fd(), SG_IO as _, &raw mut request) };
        outcome(done)?;
        let sense_bytes = usize::from(request.sense_bytes).min(SENSE_BYTES);
        // The driver's status only says that there are sense data (8).
        let driver = request.driver_status & !8;
        Ok(ScsiStatus {
            status: request.status,
            sense: sense[..sense_bytes].to_vec(),
            transport_error: request.host_status | driver,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockAccess;

    #[test]
    fn the_structures_have_the_sizes_of_the_kernel() {
        assert_eq!(mem::size_of::<NvmePassthrough>(), 72);
        assert_eq!(mem::size_of::<ScsiGeneric>(), 88);
    }

    #[test]
    fn a_file_takes_no_commands() {
        let name = format!("trivet-passthrough-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, [0; 512]).unwrap();
        let file = BlockFile::open(&path, BlockAccess::Read).unwrap();
        let timeout = Duration::from_secs(1);
        let mut buffer = [0; 512];
        let identify = NvmeAdminCommand {
            opcode: 6,
            ..NvmeAdminCommand::default()
        };
        assert!(file.nvme_admin(identify, &mut buffer, timeout).is_err());
        assert!(file.nvme_namespace().is_err());
        for transfer in [
            ScsiTransfer::None,
            ScsiTransfer::In(&mut buffer),
            ScsiTransfer::Out(&[0; 512]),
        ] {
            assert!(file.scsi_command(&[0; 6], transfer, timeout).is_err());
        }
        std::fs::remove_file(&path).unwrap();
    }
}
