//! Boot entries in a directory in the place of `efivarfs`.

use super::*;
use crate::shell::mounted::tests::ScratchDirectory;
use trivet_image_disks::{EfiPartition, EfiPartitionIdentity, GptGuid, efi_description};

fn entry(description: &str) -> EfiBootEntry {
    EfiBootEntry {
        description: description.to_owned(),
        partition: EfiPartition {
            number: 1,
            first_sector: 2048,
            sectors: 4096,
            identity: EfiPartitionIdentity::Gpt(GptGuid([7; 16])),
        },
        loader: "\\a.efi".to_owned(),
    }
}

fn variable(directory: &ScratchDirectory, name: &str, value: &[u8]) {
    let file = directory.0.join(format!("{name}-{EFI_GLOBAL_VARIABLE}"));
    fs::write(file, [&[7, 0, 0, 0], value].concat()).unwrap();
}

fn descriptions(variables: &EfiVariables) -> Vec<String> {
    let present = variables.read().unwrap();
    let found = present
        .order
        .iter()
        .map(|number| efi_description(&present.entries[number]).unwrap());
    found.collect()
}

#[test]
fn entries_come_first_and_replace_those_with_their_names() {
    let directory = ScratchDirectory::new();
    variable(&directory, "Boot0000", &entry("UiApp").encode());
    variable(&directory, "Boot0007", &entry("two").encode());
    variable(&directory, "Boot000A", &entry("one").encode());
    variable(&directory, "BootOrder", &[0, 0, 7, 0, 10, 0]);
    variable(&directory, "Timeout", &[3, 0]);
    let variables = EfiVariables::at(&directory.0);
    variables.add(&[entry("one"), entry("two")]).unwrap();
    assert_eq!(descriptions(&variables), ["one", "two", "UiApp"]);
    assert_eq!(variables.read().unwrap().entries.len(), 3);
    variables.add(&[entry("one"), entry("two")]).unwrap();
    assert_eq!(descriptions(&variables), ["one", "two", "UiApp"]);
}

#[test]
fn a_firmware_without_entries_gets_the_first() {
    let directory = ScratchDirectory::new();
    let variables = EfiVariables::at(&directory.0);
    variables.add(&[entry("one")]).unwrap();
    assert_eq!(descriptions(&variables), ["one"]);
    let bytes = fs::read(directory.0.join(format!("Boot0000-{EFI_GLOBAL_VARIABLE}"))).unwrap();
    assert_eq!(bytes[..4], [7, 0, 0, 0]);
    assert_eq!(bytes[4..], entry("one").encode());
}

#[test]
fn a_variable_that_cannot_be_changed_is_named() {
    let directory = ScratchDirectory::new();
    let file = format!("BootOrder-{EFI_GLOBAL_VARIABLE}");
    fs::create_dir(directory.0.join(&file)).unwrap();
    let variables = EfiVariables::at(&directory.0);
    let change = EfiVariableChange::Write {
        file: file.clone(),
        bytes: vec![7, 0, 0, 0],
    };
    let error = variables.apply(&change).unwrap_err().to_string();
    assert!(error.contains(&file), "{error}");
    let change = EfiVariableChange::Delete {
        file: "Boot0001".to_owned(),
    };
    let error = variables.apply(&change).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().contains("Boot0001"), "{error}");
}
