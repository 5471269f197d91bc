//! The agent as the first program of its own ramdisk.
//!
//! Process 1 mounts the kernel's file systems, loads modules for the devices, and starts the
//! same program again as its child: the agent, which brings the network up. Process 1 then only
//! collects ended processes and loads modules for devices that appear later, so that an agent
//! that ends is started again and no machine stops with a kernel panic.

mod init;
mod lease_timer;
mod links;
mod modules;
pub mod modules_list;
pub mod network_data;
mod power;
mod rescue;
pub mod uevent;
mod virtual_media;
pub mod volume_label;

pub use init::{is_init, run_as_init};
pub use links::{LinkPlan, RamdiskLinks, wait_for_links};
pub use modules::{ModuleLoader, run_as_modprobe};
pub use power::{power_off, restart};
pub use rescue::{rescue_file, start_rescue};
pub use virtual_media::{read_virtual_media, virtual_media_devices};

/// The word that makes the program the agent in the ramdisk, in the place of options.
pub const RAMDISK_ARGUMENT: &str = "--ramdisk";
