//! Virtual media: parameters, files and network data that came through the BMC, where the
//! provisioning network cannot read them.
//!
//! As the stock agent does: a medium is a CD or a small USB disk, by its label.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tokio::time::sleep;

use super::init::log;
use super::network_data::static_addresses;
use super::volume_label::{LABEL_BYTES, volume_label};
use crate::parameters::{AgentParameters, PARAMETERS_BYTES_MAX};

/// The label of a medium with `parameters.txt`, and the model of one.
const PARAMETERS_LABEL: &str = "ir-vfd-dev";
const PARAMETERS_MODEL: &str = "virtual media";

/// The labels of a medium with files.
const FILES_LABELS: [&str; 2] = ["config-2", "vmedia_boot_iso"];

/// A USB disk of this size is no virtual medium. The stock agent's.
const USB_BYTES_MAX: u64 = 4 << 30;

/// The size of a sector in /sys/block, whatever the device's own is.
const SECTOR_BYTES: u64 = 512;

/// Directories whose files are copied to the same place.
const DIRECTORIES: [&str; 2] = ["etc/ironic-python-agent", "etc/ironic-python-agent.d"];

/// Most files of a directory, and most bytes of one. Ours.
const FILES_MAX: usize = 64;
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Where media are mounted.
const PLACE: &str = "/run/virtual-media";

/// How long media are awaited: USB devices appear late. Ours.
const SEARCH_PERIOD: Duration = Duration::from_millis(500);
const SEARCHES_MAX: usize = 40;

/// Takes the parameters of the media of this machine and copies their files. Waits until there
/// is a medium, but not without end.
pub async fn read_virtual_media(parameters: &mut AgentParameters) {
    for search in 0..SEARCHES_MAX {
        if search > 0 {
            sleep(SEARCH_PERIOD).await;
        }
        let media = media();
        for medium in &media {
            match read_medium(medium, parameters) {
                Ok(()) => log(&format!("virtual media: {} read", medium.label)),
                Err(error) => log(&format!("virtual media {}: {error}", medium.label)),
            }
        }
        if !media.is_empty() {
            return;
        }
    }
    log("virtual media: there are none");
}

struct VirtualMedium {
    device: PathBuf,
    label: String,
    has_parameters: bool,
}

/// The media that the kernel has found.
fn media() -> Vec<VirtualMedium> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let text = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let bytes = text("size").trim().parse().unwrap_or(0_u64) * SECTOR_BYTES;
        let place = fs::canonicalize(entry.path()).unwrap_or_default();
        let is_usb = place.to_string_lossy().contains("/usb");
        if !(name.starts_with("sr") || is_usb && bytes < USB_BYTES_MAX) {
            continue;
        }
        let device = Path::new("/dev").join(&name);
        let Some(label) = label_of(&device) else {
            continue;
        };
        let lower = label.to_ascii_lowercase();
        let model = text("device/model").to_ascii_lowercase();
        let has_parameters = lower == PARAMETERS_LABEL || model.contains(PARAMETERS_MODEL);
        if has_parameters || FILES_LABELS.contains(&lower.as_str()) {
            found.push(VirtualMedium {
                device,
                label,
                has_parameters,
            });
        }
    }
    found
}

/// The media that the kernel has found, by their devices in `/dev`.
pub fn virtual_media_devices() -> Vec<PathBuf> {
    media().into_iter().map(|medium| medium.device).collect()
}

fn label_of(device: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(device).ok()?;
    file.take(LABEL_BYTES as u64).read_to_end(&mut bytes).ok()?;
    volume_label(&bytes)
}

fn read_medium(medium: &VirtualMedium, parameters: &mut AgentParameters) -> std::io::Result<()> {
    fs::create_dir_all(PLACE)?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    let iso = mount(&medium.device, PLACE, "iso9660", flags, None);
    iso.or_else(|_| mount(&medium.device, PLACE, "vfat", flags, None))?;
    let place = Path::new(PLACE);
    let text = |path: &Path| {
        let length = fs::metadata(path).map_or(0, |facts| facts.len());
        if length > PARAMETERS_BYTES_MAX as u64 {
            return String::new();
        }
        fs::read_to_string(path).unwrap_or_default()
    };
    if medium.has_parameters {
        parameters.read_kernel_line(&text(&place.join("parameters.txt")));
    }
    let network = text(&place.join("openstack/latest/network_data.json"));
    parameters
        .static_addresses
        .extend(static_addresses(&network));
    for directory in DIRECTORIES {
        let (from, to) = (place.join(directory), Path::new("/").join(directory));
        if let Err(error) = copy_files(&from, &to) {
            log(&format!("virtual media: {directory}: {error}"));
        }
    }
    Ok(unmount(PLACE, UnmountFlags::empty())?)
}

fn copy_files(from: &Path, to: &Path) -> std::io::Result<()> {
    if !from.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)?.take(FILES_MAX) {
        let entry = entry?;
        let facts = entry.metadata()?;
        if facts.is_file() && facts.len() <= FILE_BYTES_MAX {
            fs::write(to.join(entry.file_name()), fs::read(entry.path())?)?;
        }
    }
    Ok(())
}
