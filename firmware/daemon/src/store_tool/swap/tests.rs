//! Tests of power cuts in every step of a repair and of an import. After each of them
//! the name `store` refers to the old store or to the new one, and the next run
//! finishes the work.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::sync::Arc;

use trivet_model::{Node, NodeId, SeededRandom, UnixMs};
use trivet_store::StoreChange;

use super::*;
use crate::appliance::open_store;
use crate::store_tool::tests::{damage_sector, data, names};
use crate::store_tool::{check, export, import, repair};
use crate::testbed::{self, TestbedDirectory};

/// More steps than any run takes.
const STEPS_MAX: usize = 30;

/// A data directory with a power cut in one of the steps.
struct PowerCutDisk<'a> {
    data: &'a Path,
    /// The durable names: second names of the files in a separate directory.
    durable: TestbedDirectory,
    /// Files whose bytes are not durable.
    unsynced: BTreeSet<PathBuf>,
    /// How many steps pass before the power cut.
    left: usize,
    /// Whether changes that were not durable survive the cut, and the step was
    /// executed.
    keeps: bool,
    off: bool,
}

impl<'a> PowerCutDisk<'a> {
    fn new(data: &'a Path, left: usize, keeps: bool) -> Self {
        let disk = Self {
            data,
            durable: TestbedDirectory::new(),
            unsynced: BTreeSet::new(),
            left,
            keeps,
            off: false,
        };
        link_all(data, &disk.durable.0);
        disk
    }

    fn cut(&mut self) -> anyhow::Result<()> {
        self.off = true;
        if !self.keeps {
            link_all(&self.durable.0, self.data);
        }
        for path in self.unsynced.iter().filter(|path| path.exists()) {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        }
        bail!("the power went")
    }
}

/// Makes the names in the second directory equal to those in the first one.
fn link_all(from: &Path, to: &Path) {
    for entry in fs::read_dir(to).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::hard_link(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

impl SwapDisk for PowerCutDisk<'_> {
    fn apply(&mut self, step: SwapStep<'_>) -> anyhow::Result<()> {
        if self.off {
            bail!("the power is off");
        }
        let is_cut = self.left == 0;
        self.left = self.left.saturating_sub(1);
        if is_cut && !self.keeps {
            return self.cut();
        }
        let mut names_durable = false;
        match &step {
            SwapStep::Write(path, _) => {
                self.unsynced.insert(path.to_path_buf());
                if is_cut {
                    fs::write(unfilled(path), b"half").unwrap();
                    fs::write(path, b"half").unwrap();
                    return self.cut();
                }
                // Creating a file makes its name durable.
                names_durable = true;
            }
            SwapStep::SyncFile(path) => {
                self.unsynced.remove(*path);
            }
            SwapStep::Link(from, to) | SwapStep::Rename(from, to) => {
                if self.unsynced.contains(*from) {
                    self.unsynced.insert(to.to_path_buf());
                }
            }
            SwapStep::SyncDirectory(_) => names_durable = true,
            SwapStep::Remove(_) | SwapStep::GiveTo(..) => {}
        }
        RealDisk.apply(step)?;
        if is_cut {
            return self.cut();
        }
        if names_durable {
            link_all(self.data, &self.durable.0);
        }
        Ok(())
    }
}

/// Cuts the power in every step of what `run` does to a directory that `make` creates;
/// `look` checks each result, with the bytes that the store had before.
fn at_every_cut(
    make: impl Fn() -> TestbedDirectory,
    run: impl Fn(&mut dyn SwapDisk, &Path) -> anyhow::Result<()>,
    look: impl Fn(&Path, &[u8]),
) {
    for keeps in [false, true] {
        let mut steps = 0;
        loop {
            let scratch = make();
            let before = fs::read(scratch.0.join("store")).unwrap_or_default();
            let mut disk = PowerCutDisk::new(&scratch.0, steps, keeps);
            let done = run(&mut disk, &scratch.0);
            let was_cut = disk.off;
            drop(disk);
            assert_eq!(done.is_err(), was_cut, "step {steps}: {done:?}");
            look(&scratch.0, &before);
            if !was_cut {
                break;
            }
            steps += 1;
            assert!(steps < STEPS_MAX, "it never ends");
        }
        assert!(steps >= 6, "{steps} steps only");
    }
}

/// `check` explains the leftovers, and the next start removes them.
#[track_caller]
fn nothing_is_left_over_after_a_start(data: &Path) {
    let found = leftovers(data);
    let text = check(data).unwrap().text;
    for leftover in &found {
        assert!(text.contains(&leftover.explain()), "{text}");
    }
    drop(open_store(data, 4).unwrap());
    assert!(leftovers(data).is_empty(), "{:?}", leftovers(data));
    assert!(!check(data).unwrap().text.contains("interrupted"));
}

#[test]
fn a_power_cut_in_any_step_of_a_repair_leaves_the_old_store_or_the_new_one() {
    let damaged = || {
        let scratch = data();
        damage_sector(&scratch.0, "name-2");
        scratch
    };
    let run = |disk: &mut dyn SwapDisk, data: &Path| repair(disk, data).map(drop);
    at_every_cut(damaged, run, |data, before| {
        let is_old = fs::read(data.join("store")).unwrap() == before;
        let checked = check(data).unwrap();
        assert_eq!(checked.is_whole, !is_old, "{}", checked.text);
        for leftover in leftovers(data) {
            assert!(checked.text.contains(&leftover.explain()));
        }
        repair(&mut RealDisk, data).unwrap();
        assert_eq!(names(data), ["name-1", "name-3"]);
        assert_eq!(fs::read(data.join("store.damaged-1")).unwrap(), before);
        assert!(!data.join("store.damaged-2").exists());
        nothing_is_left_over_after_a_start(data);
    });
}

#[test]
fn a_power_cut_in_any_step_of_an_import_leaves_the_old_store_or_the_new_one() {
    let exported = TestbedDirectory::new();
    let file = exported.0.join("export");
    // A store with a fourth node, whose export has the other three.
    let make = || {
        let scratch = data();
        let _ = fs::remove_file(&file);
        export(&scratch.0, Some(&file), true).unwrap();
        let mut store = testbed::store(&scratch.0, 4096, SEGMENT_BYTES);
        let id = NodeId::random(&mut SeededRandom::new(4));
        let mut node = Node::new(id, "ipmi", UnixMs(1));
        node.name = Some("name-4".to_owned());
        store
            .commit(&[StoreChange::PutNode(Arc::new(node))])
            .unwrap();
        drop(store);
        scratch
    };
    let run = |disk: &mut dyn SwapDisk, data: &Path| import(disk, data, &file, true).map(drop);
    at_every_cut(make, run, |data, before| {
        let old: &[&str] = &["name-1", "name-2", "name-3", "name-4"];
        let new = &old[..3];
        let is_old = fs::read(data.join("store")).unwrap() == before;
        assert_eq!(names(data), if is_old { old } else { new });
        import(&mut RealDisk, data, &file, true).unwrap();
        assert_eq!(names(data), new);
        assert_eq!(fs::read(data.join("store.replaced-1")).unwrap(), before);
        nothing_is_left_over_after_a_start(data);
    });
}

#[test]
fn a_power_cut_in_any_step_of_a_first_import_leaves_no_store_or_the_whole_one() {
    let (scratch, exported) = (data(), TestbedDirectory::new());
    let file = exported.0.join("export");
    export(&scratch.0, Some(&file), true).unwrap();
    let run = |disk: &mut dyn SwapDisk, data: &Path| import(disk, data, &file, false).map(drop);
    at_every_cut(TestbedDirectory::new, run, |data, _| {
        let all = ["name-1", "name-2", "name-3"];
        if data.join("store").exists() {
            assert_eq!(names(data), all);
        } else {
            import(&mut RealDisk, data, &file, false).unwrap();
        }
        assert_eq!(names(data), all);
        nothing_is_left_over_after_a_start(data);
    });
}

#[test]
fn a_start_removes_what_interrupted_runs_left_and_leaves_former_stores_alone() {
    let scratch = data();
    let path = |name: &str| scratch.0.join(name);
    for name in ["store.repaired", "store.imported.new", "store.damaged-1"] {
        scratch.file(name, b"half");
    }
    fs::hard_link(path("store"), path("store.replaced-3")).unwrap();
    // Another process is writing this one.
    drop(FileFlash::open(&path("store.imported"), 4096).unwrap());
    let held = FileFlash::open_read_only(&path("store.imported")).unwrap();
    let text = check(&scratch.0).unwrap().text;
    assert!(
        text.contains("store.replaced-3 is the store itself"),
        "{text}"
    );
    assert!(text.contains("store.repaired is a new store"), "{text}");

    drop(open_store(&scratch.0, 4).unwrap());
    for name in ["store.repaired", "store.imported.new", "store.replaced-3"] {
        assert!(!path(name).exists(), "{name}");
    }
    assert!(path("store.imported").exists() && path("store.damaged-1").exists());
    drop(held);
    assert_eq!(names(&scratch.0), ["name-1", "name-2", "name-3"]);
}
