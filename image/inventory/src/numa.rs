//! The collector `numa-topology`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::SystemRoot;
use crate::memory::total_kib;

const NODES: &str = "sys/devices/system/node";

/// Memory, processors and network cards of each node. An error names what is missing, because
/// the stock agent reports a collector that failed.
pub(crate) fn document(root: &SystemRoot) -> Result<Value, String> {
    let nodes: Vec<u64> = root
        .names(NODES)
        .iter()
        .filter_map(|name| name.strip_prefix("node")?.parse().ok())
        .collect();
    if nodes.is_empty() {
        return Err("failed to get the list of NUMA nodes".to_owned());
    }
    let mut memory = Vec::new();
    let mut cores: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
    for node in nodes {
        let home = format!("{NODES}/node{node}");
        let meminfo = root.whole_text(&format!("{home}/meminfo"));
        let kib = meminfo.and_then(|text| total_kib(&text));
        let kib = kib.ok_or_else(|| format!("failed to get the memory of NUMA node {node}"))?;
        memory.push(json!({"numa_node": node, "size_kb": kib}));
        for name in root.names(&home) {
            let Some(thread) = name
                .strip_prefix("cpu")
                .and_then(|number| number.parse().ok())
            else {
                continue;
            };
            let core = root.number(&format!("{home}/{name}/topology/core_id"));
            let core = core.ok_or_else(|| format!("failed to get the core of thread {thread}"))?;
            cores.entry((node, core)).or_default().push(thread);
        }
    }
    let processors = cores.into_iter().map(|((node, core), mut threads)| {
        threads.sort_unstable();
        json!({"cpu": core, "numa_node": node, "thread_siblings": threads})
    });
    Ok(json!({
        "ram": memory,
        "cpus": processors.collect::<Vec<_>>(),
        "nics": cards(root),
    }))
}

fn cards(root: &SystemRoot) -> Vec<Value> {
    let names = root.names("sys/class/net").into_iter();
    let card = |name: String| {
        let node = root.text(&format!("sys/class/net/{name}/device/numa_node"))?;
        Some(json!({"name": name, "numa_node": node.parse::<i64>().ok()?}))
    };
    names.filter_map(card).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SystemTree;

    #[test]
    fn threads_of_a_core_are_siblings() {
        let tree = SystemTree::new();
        tree.file(
            &format!("{NODES}/node0/meminfo"),
            "Node 0 MemTotal:  10969668 kB\n",
        );
        for (thread, core) in [(0, 0), (1, 1), (10, 0)] {
            tree.file(
                &format!("{NODES}/node0/cpu{thread}/topology/core_id"),
                &format!("{core}\n"),
            );
        }
        tree.file(&format!("{NODES}/node0/cpulist"), "0-1,10\n");
        tree.file("sys/class/net/eth0/device/numa_node", "-1\n");
        tree.directory("sys/class/net/lo");
        let want = json!({
            "ram": [{"numa_node": 0, "size_kb": 10_969_668}],
            "cpus": [
                {"cpu": 0, "numa_node": 0, "thread_siblings": [0, 10]},
                {"cpu": 1, "numa_node": 0, "thread_siblings": [1]}],
            "nics": [{"name": "eth0", "numa_node": -1}]});
        assert_eq!(document(&tree.root()), Ok(want));
    }

    #[test]
    fn what_is_missing_is_named() {
        let tree = SystemTree::new();
        assert!(
            document(&tree.root())
                .unwrap_err()
                .contains("list of NUMA nodes")
        );
        tree.directory(&format!("{NODES}/node0"));
        assert!(
            document(&tree.root())
                .unwrap_err()
                .contains("memory of NUMA node 0")
        );
        tree.file(&format!("{NODES}/node0/meminfo"), "MemTotal: 1 kB");
        tree.directory(&format!("{NODES}/node0/cpu3"));
        assert!(
            document(&tree.root())
                .unwrap_err()
                .contains("core of thread 3")
        );
    }
}
