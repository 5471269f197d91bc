//! The output of the demo: progress bars in a terminal, plain lines elsewhere.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::sync::watch;
use trivet_model::RackView;
use trivet_sim::SimHardware;

use super::scenario::DemoNodeReport;

/// The interval between two redraws.
const DRAW_GAP: Duration = Duration::from_millis(100);

/// The most bars that fit a terminal; a larger rack gets lines.
const BARS_MAX: u16 = 64;

/// The demo's output.
pub(crate) struct DemoTerminal {
    bars: Option<(MultiProgress, BTreeMap<String, ProgressBar>)>,
}

impl DemoTerminal {
    pub(crate) fn new(nodes: u16) -> Self {
        if !std::io::stdout().is_terminal() || nodes > BARS_MAX {
            return Self { bars: None };
        }
        let all = MultiProgress::with_draw_target(indicatif::ProgressDrawTarget::stdout());
        let style = ProgressStyle::with_template("{prefix:8} {bar:30.cyan/blue} {pos:>3}% {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bars = (1..=nodes).map(|number| {
            let name = SimHardware::new(number).name();
            let bar = all.add(ProgressBar::new(100).with_style(style.clone()));
            bar.set_prefix(name.clone());
            bar.tick();
            (name, bar)
        });
        let bars = bars.collect();
        Self {
            bars: Some((all, bars)),
        }
    }

    /// Prints a line about the demo as a whole.
    pub(crate) fn print(&self, line: &str) {
        match &self.bars {
            Some((all, _)) => {
                let _ = all.println(line);
            }
            None => print_line(line),
        }
    }

    /// Prints the state of a node. With bars it prints nothing, as they show the state.
    pub(crate) fn print_node_state(&self, name: &str, state: &str) {
        if self.bars.is_none() {
            print_line(&format!("{name} {state}"));
        }
    }

    /// Draws the bars from snapshots; returns when the box stops.
    pub(crate) async fn watch(&self, mut view: watch::Receiver<Arc<RackView>>) {
        loop {
            if let Some((_, bars)) = &self.bars {
                let view = Arc::clone(&view.borrow_and_update());
                for (name, bar) in bars {
                    if let Some(node) = view.node(name) {
                        bar.set_position(trivet_web::progress(node).into());
                        bar.set_message(trivet_web::doing(&view, node));
                    }
                }
            }
            tokio::time::sleep(DRAW_GAP).await;
            if view.changed().await.is_err() {
                return;
            }
        }
    }

    /// One line per node.
    pub(crate) fn summary(&self, reports: &[DemoNodeReport]) {
        for report in reports {
            self.print(&line(report));
        }
        let active = reports
            .iter()
            .filter(|report| report.failure.is_none())
            .count();
        self.print(&format!("{active} of {} nodes active", reports.len()));
    }
}

fn line(report: &DemoNodeReport) -> String {
    let stages: Vec<_> = report
        .stages
        .iter()
        .map(|(name, ms)| format!("{name} {}.{:01}s", ms / 1000, ms % 1000 / 100))
        .collect();
    let disk = report
        .disk
        .as_ref()
        .map(|(bytes, digest)| format!("  {bytes} bytes  {} {digest}", digest.algorithm()));
    let end = match &report.failure {
        None => "  equal".to_owned(),
        Some(why) => format!("  FAILED: {why}"),
    };
    format!(
        "{}  {}{}{end}",
        report.name,
        stages.join("  "),
        disk.unwrap_or_default()
    )
}

fn print_line(line: &str) {
    // A closed standard output is not an error of the demo.
    let _ = writeln!(std::io::stdout(), "{line}");
}
