//! Disks of the machine that the agent runs on.
//!
//! Which disk is used ([`choose_root_disk`]), how an image is written to it ([`ImageWriter`]),
//! what follows the image on the disk, and how disks are erased. Everything that decides works
//! on bytes; disks are reached through [`TargetDisk`], whose implementation for block devices is
//! `board/linux`'s.

mod ata;
mod configdrive;
mod crc;
mod efi;
mod efi_loader;
mod erase;
#[cfg(test)]
mod foreign;
mod gpt;
mod hints;
mod mbr;
mod nvme;
mod partition_image;
mod partition_plan;
mod signatures;
mod table;
mod target;
#[cfg(test)]
mod testing;
mod unzstd;
mod volume;
mod writer;

pub use ata::{
    ATA_SECTOR_BYTES, AtaCommand, AtaErasePlan, AtaEraseRefusal, AtaSecurity, security_data,
};
pub use configdrive::{
    CONFIG_DRIVE_BYTES_MAX, CONFIG_DRIVE_LABEL, ConfigDriveWriteError, unpack_config_drive,
    write_config_drive,
};
pub use efi::{
    EFI_DEFAULT_LOADER, EFI_ENTRIES_MAX, EFI_GLOBAL_VARIABLE, EFI_VARIABLE_BYTES_MAX, EfiBootEntry,
    EfiPartition, EfiPartitionIdentity, EfiVariableChange, add_boot_entry, efi_description,
    efi_entry_number, parse_boot_order,
};
pub use efi_loader::{
    EFI_LIST_BYTES_MAX, EFI_LOADERS_MAX, EFI_TEXT_CHARACTERS_MAX, EfiLoader, choose_efi_loaders,
    efi_system_partition, parse_efi_list,
};
pub use erase::{
    BlockEraseDevice, DiskEraseError, DriveFacts, EraseAttempt, EraseDevice, EraseEvidence,
    EraseMethod, EraseProgress, EraseSettings, MetadataEvidence, OVERWRITE_PASSES_MAX,
    SANITIZE_POLL, disk_signatures, drive_facts, erase_disk, erase_metadata, is_frozen, plan_erase,
    refuse_shared,
};
pub use gpt::{
    GPT_ENTRIES_MAX, GPT_HEADER_SECTOR, GptError, GptGuid, GptHeader, GptPartition, GptTable,
    SectorWrite,
};
pub use hints::{
    HINT_BYTES_MAX, HINT_VALUES_MAX, ROOT_DISK_BYTES_MIN, RootDeviceHints, RootDiskCandidate,
    RootDiskError, choose_root_disk,
};
pub use mbr::{
    MBR_BYTES, MBR_PARTITIONS_MAX, MbrFull, MbrPartition, MbrTable, protective_mbr,
    put_mbr_partition,
};
pub use nvme::{
    NVME_ALL_NAMESPACES, NVME_FORMAT_TIMEOUT, NVME_IDENTIFY_BYTES, NVME_SANITIZE_LOG_BYTES,
    NVME_SANITIZE_TIMEOUT, NvmeController, NvmeFormatErase, NvmeSanitizeAction, NvmeSanitizeStatus,
    format_nvme, identify_nvme_controller, identify_nvme_namespace, nvme_current_format,
    nvme_sanitize_log, parse_nvme_sanitize_log, sanitize_nvme,
};
pub use partition_image::{
    PartitionIdentifiers, PartitionImageError, partition_identifiers, prepare_partitions,
};
pub use partition_plan::{
    PartitionLayout, PartitionPlanError, PartitionRole, PartitionTableKind, PlannedPartition,
};
pub use signatures::{
    FoundSignature, HEAD_BYTES, SIGNATURES_MAX, TAIL_BYTES, find_signatures, metadata_ranges,
};
pub use table::{
    DiskPartition, DiskTable, DiskTableError, file_system_label, labelled_partitions,
    move_gpt_backup,
};
pub use target::{TargetDisk, TargetDiskError};
pub use unzstd::{PackedImageDecoder, PackedImageError};
pub use volume::{
    DiskSlice, FatFormatError, IDENTIFIER_BYTES, file_system_uuid, format_fat32, format_swap,
};
pub use writer::{
    ExpectedImage, ImageWriteError, ImageWriteProgress, ImageWriteReport, ImageWriter,
    ImageWrittenAhead, ReadBackCheck, finish_written,
};
