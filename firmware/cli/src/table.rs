//! Tables with aligned columns.

/// Between two columns.
const GAP: &str = "  ";

/// The smallest width to which a column is cut.
const COLUMN_CHARS_MIN: usize = 6;

/// Longest cell where nothing else bounds it.
const CELL_CHARS_MAX: usize = 4000;

/// Rows under a head.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct TextTable {
    /// Empty when the table has no head.
    pub(crate) head: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
    /// Columns that are left out where the table is too wide, in this order.
    pub(crate) spare: &'static [usize],
}

impl TextTable {
    pub(crate) fn new(head: &[&'static str]) -> Self {
        Self {
            head: head.to_vec(),
            rows: Vec::new(),
            spare: &[],
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The lines of the table; cut to `width` where there is one.
    pub(crate) fn lines(&self, width: Option<usize>) -> Vec<String> {
        let head: Vec<String> = self.head.iter().map(|cell| (*cell).to_owned()).collect();
        let rows = self.rows.iter().map(|row| {
            let clean = row.iter().map(|cell| harmless(cell));
            clean.collect::<Vec<String>>()
        });
        let mut all: Vec<Vec<String>> = Vec::with_capacity(self.rows.len() + 1);
        all.extend((!head.is_empty()).then_some(head));
        all.extend(rows);
        let columns = all.iter().map(Vec::len).max().unwrap_or(0);
        let mut widths = vec![0; columns];
        for row in &all {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut shown: Vec<usize> = (0..columns).collect();
        for spare in self.spare {
            if width.is_none_or(|width| total(&picked(&widths, &shown)) <= width) {
                break;
            }
            shown.retain(|column| column != spare);
        }
        let mut widths = picked(&widths, &shown);
        if let Some(width) = width {
            shrink(&mut widths, width);
        }
        let rows = all.iter().map(|row| picked(row, &shown));
        rows.map(|row| line(&row, &widths)).collect()
    }
}

/// These columns of a row; a row may have fewer.
fn picked<T: Clone>(row: &[T], shown: &[usize]) -> Vec<T> {
    let cells = shown.iter().filter_map(|column| row.get(*column));
    cells.cloned().collect()
}

/// Width of a whole line in characters.
fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1)
}

/// Reduces the widest column until the row fits or all columns are minimal.
fn shrink(widths: &mut [usize], total: usize) {
    loop {
        let sum = self::total(widths);
        let Some(over) = sum.checked_sub(total).filter(|over| *over > 0) else {
            return;
        };
        let Some(widest) = widths.iter_mut().max_by_key(|width| **width) else {
            return;
        };
        if *widest <= COLUMN_CHARS_MIN {
            return;
        }
        // One by one where two columns have the same width, so that both are reduced.
        let take = if over > 64 { over / 8 } else { 1 };
        *widest = widest.saturating_sub(take).max(COLUMN_CHARS_MIN);
    }
}

fn line(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (at, (cell, &width)) in row.iter().zip(widths).enumerate() {
        if at > 0 {
            line.push_str(GAP);
        }
        let cell = cut(cell, width);
        line.push_str(&cell);
        let missing = width.saturating_sub(cell.chars().count());
        line.extend(std::iter::repeat_n(' ', missing));
    }
    line.truncate(line.trim_end().len());
    line
}

/// At most this many characters; a cut is marked.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let shown_width = width.saturating_sub(3);
    let mut short: String = text.chars().take(shown_width).collect();
    short.extend("...".chars().take(width));
    short
}

/// One line of bounded length: text from others cannot start a new line or control the
/// terminal.
pub(crate) fn harmless(text: &str) -> String {
    let shown = |character: char| {
        if character.is_control() {
            ' '
        } else {
            character
        }
    };
    text.chars().take(CELL_CHARS_MAX).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[&[&str]]) -> TextTable {
        let mut table = TextTable::new(&["NAME", "STATE", "ERROR"]);
        for row in rows {
            table.row(row.iter().map(|cell| (*cell).to_owned()));
        }
        table
    }

    #[test]
    fn columns_are_aligned_and_lines_have_no_tail() {
        let lines = table(&[&["node-01", "active", ""], &["n2", "deploy failed", "why"]]);
        assert_eq!(
            lines.lines(None),
            [
                "NAME     STATE          ERROR",
                "node-01  active",
                "n2       deploy failed  why"
            ]
        );
    }

    #[test]
    fn the_widest_column_gives_first() {
        let long = "the BMC at 192.0.2.7 does not answer";
        let one = table(&[&["node-01", "clean failed", long]]);
        for width in [80, 50, 40, 32, 30] {
            let lines = one.lines(Some(width));
            assert!(lines.iter().all(|line| line.len() <= width), "{lines:?}");
        }
        let lines = one.lines(Some(40));
        assert_eq!(lines[1], "node-01  clean failed  the BMC at 192...");
        // Below the minimum nothing more is cut: lines wrap.
        assert_eq!(one.lines(Some(1))[1], "nod...  cle...  the...");
        assert!(one.lines(None)[1].ends_with(long));
    }

    #[test]
    fn spare_columns_are_left_out_before_anything_is_cut() {
        let mut wide = table(&[&["node-01", "a long state", "why"]]);
        wide.spare = &[1, 0];
        assert_eq!(wide.lines(Some(28))[1], "node-01  a long state  why");
        assert_eq!(wide.lines(Some(27))[1], "node-01  why");
        assert_eq!(wide.lines(Some(13))[1], "why");
        assert_eq!(wide.lines(None)[1], "node-01  a long state  why");
    }

    #[test]
    fn cells_stay_in_their_line() {
        let lines = table(&[&["a\nb", "c\u{1b}[2Jd", "\t"]]).lines(None);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1], "a b   c [2Jd");
        assert_eq!(harmless(&"x".repeat(9999)).len(), CELL_CHARS_MAX);
    }

    #[test]
    fn an_empty_table_is_its_head() {
        assert_eq!(table(&[]).lines(Some(80)), ["NAME  STATE  ERROR"]);
        assert!(TextTable::default().lines(Some(80)).is_empty());
    }

    #[test]
    fn cutting_counts_characters() {
        assert_eq!(cut("\u{e4}\u{e4}\u{e4}\u{e4}", 4).chars().count(), 4);
        assert_eq!(cut("abcdef", 5), "ab...");
        assert_eq!(cut("abcdef", 2), "..");
        assert_eq!(cut("abcdef", 0), "");
    }
}
