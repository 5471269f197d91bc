//! That the benchmark of a rack works: few nodes, an unoptimised program, and no word about
//! time.

use std::time::Duration;

use trivet_tests_bench::deploy::{self, Deployed, Scale};
use trivet_tests_bench::peers::Scratch;
use trivet_tests_bench::server::{self, Profile};

fn rack(name: &str, patience: Duration) -> std::io::Result<Deployed> {
    let program = server::build(Profile::Dev)?;
    let scratch = Scratch::new(name)?;
    let scale = Scale {
        nodes: 3,
        image_bytes: 4096,
        patience,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(deploy::rack(&program, scratch.path(), scale))
}

#[test]
fn every_node_becomes_active() {
    let went = rack("active", Duration::from_mins(10)).unwrap();
    assert!(went.peak_mib > 1.0, "{went:?}");
}

#[test]
fn a_rack_that_does_not_come_to_its_end_is_noticed() {
    let error = rack("endless", Duration::ZERO).unwrap_err().to_string();
    assert!(error.starts_with("the rack does not come"), "{error}");
}
