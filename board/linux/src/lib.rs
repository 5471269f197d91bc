//! The board on Linux.
//!
//! Implements the traits of `board/hal` with system calls and decides nothing.

mod beneath;
mod block;
mod chroot;
mod datagram;
mod ethtool;
mod files;
mod flash;
mod frames;
mod interface;
mod ipmi_device;
mod key;
mod link;
mod lldp_socket;
mod memory;
mod passthrough;
mod poll;
mod reading;
mod sending;
mod undelivered;

pub use beneath::open_beneath;
pub use block::{ALIGNMENT_BYTES, AlignedBuffer, BlockAccess, BlockFile, BlockGeometry};
pub use chroot::run_in_root;
pub use datagram::{
    DatagramDestination, ReceivedDatagram, SEGMENTS_BYTES_MAX, SEGMENTS_MAX, SegmentSender,
    enable_destination_info, path_mtu, receive, set_receive_buffer,
};
pub use ethtool::{InterfaceAddress, interface_addresses, permanent_address, supported_link_modes};
pub use files::{check_writable, free_bytes, raise_open_files};
pub use flash::{FileFlash, FileFlashCounts, OpenFileError};
pub use frames::{PacketSocketReceiver, PacketSocketSender, RECEIVE_BYTES_MAX};
pub use interface::{EthernetInterface, interface, interfaces};
pub use ipmi_device::IpmiDevice;
pub use key::{BoxKeyFile, KeyFileError};
pub use link::{add_default_route, set_link_address, set_link_down, set_link_up};
pub use lldp_socket::receive_lldp;
pub use memory::{clock_ticks_per_s, disable_core_dumps, give_memory_back, page_bytes};
pub use passthrough::{NvmeAdminCommand, ScsiStatus, ScsiTransfer};
pub use poll::{Epoll, Interest, PollWaker};
pub use reading::read_cached;
pub use sending::{in_memory, send_file, send_more, unacknowledged};
pub use undelivered::{UndeliveredDatagram, enable_delivery_errors, receive_delivery_error};
