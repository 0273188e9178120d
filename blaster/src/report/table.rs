//! A table of the page. A wide table scrolls sideways, and a button copies the table.
//!
//! Where: in all parts of the page.
//! Invariant: each cell is text, and `html` and `markdown` escape it. The first column names the
//! row.
//! Source: WCAG 2.2, 1.3.1. The page's script copies a table as tab-separated values.

use super::words::{escaped, escaped_markdown};
use std::fmt::Write;

/// A table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug, Default)]
struct Row {
    cells: Vec<String>,
    /// The class in the style sheet; empty if the row has no class.
    class: &'static str,
    /// The address to which the first cell links.
    link: Option<String>,
}

impl Table {
    /// Returns an empty table with these columns.
    pub(crate) fn new(head: &[&str]) -> Table {
        Table { head: head.iter().map(|name| (*name).to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: &[String]) {
        self.rows.push(Row { cells: cells.to_vec(), ..Row::default() });
    }

    /// Adds a row whose first cell links to `link`. `class` is a class of the style sheet, or
    /// empty. `link` must not contain a blank, a bracket, or a character that `escaped` replaces.
    pub(crate) fn linked(&mut self, link: String, class: &'static str, cells: &[String]) {
        self.rows.push(Row { cells: cells.to_vec(), class, link: Some(link) });
    }

    /// Adds a row, and marks the row if its values differ. The first cell is the row's name.
    pub(crate) fn compared(&mut self, cells: &[String]) {
        let values = cells.get(1..).unwrap_or_default();
        let differs = values.windows(2).any(|pair| pair[0] != pair[1]);
        let class = if differs { "differs" } else { "" };
        self.rows.push(Row { cells: cells.to_vec(), class, link: None });
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if the table has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the table as HTML; `title` names the table for screen readers.
    pub(crate) fn html(&self, title: &str) -> String {
        let mut out = format!(
            "<div class=\"table\"><button type=\"button\" class=\"copy\" hidden>Copy</button><span \
             class=\"hint\" hidden>more columns to the right: scroll the table</span><div \
             class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table><thead><tr>",
            escaped(title)
        );
        for name in &self.head {
            let _ = write!(out, "<th scope=\"col\">{}</th>", escaped(name));
        }
        out.push_str("</tr></thead><tbody>\n");
        for Row { cells, class, link } in &self.rows {
            match *class {
                "" => out.push_str("<tr>"),
                class => out.extend(["<tr class=\"", class, "\">"]),
            }
            for (at, cell) in cells.iter().enumerate() {
                let cell = escaped(cell);
                let _ = match link {
                    Some(link) if at == 0 => {
                        let link = escaped(link);
                        write!(out, "<th scope=\"row\"><a href=\"{link}\">{cell}</a></th>")
                    }
                    _ if at == 0 => write!(out, "<th scope=\"row\">{cell}</th>"),
                    _ => write!(out, "<td>{cell}</td>"),
                };
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div></div>\n");
        out
    }

    /// Returns the table as Markdown.
    pub(crate) fn markdown(&self) -> String {
        let row = |cells: &mut dyn Iterator<Item = String>| {
            cells.fold("|".to_owned(), |row, cell| row + " " + &cell + " |") + "\n"
        };
        let mut out = row(&mut self.head.iter().map(|name| escaped_markdown(name)));
        out += &row(&mut self.head.iter().map(|_| "---".to_owned()));
        for Row { cells, link, .. } in &self.rows {
            let cell = |(at, cell): (usize, &String)| {
                let cell = escaped_markdown(cell).replace('\n', "<br>");
                match link {
                    Some(link) if at == 0 => format!("[{cell}]({link})"),
                    _ => cell,
                }
            };
            out += &row(&mut cells.iter().enumerate().map(cell));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_differ_are_marked_and_cells_are_escaped() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let mut table = Table::new(&["field", "a", "b<"]);
        assert!(table.is_empty());
        table.compared(&row(&["same", "1", "1"]));
        table.compared(&row(&["other", "1", "2&"]));
        table.row(&row(&["plain", "1", "2"]));
        let html = table.html("x\"y");
        assert_eq!(html.matches("class=\"differs\"").count(), 1);
        assert!(html.contains("<tr class=\"differs\"><th scope=\"row\">other</th>"), "{html}");
        assert!(html.contains("b&lt;") && html.contains("2&amp;") && html.contains("x&quot;y"));
    }

    #[test]
    fn a_row_links_and_markdown_escapes_its_cells() {
        let mut table = Table::new(&["a|b", "c"]);
        table.linked("x.md".to_owned(), "good", &["`x`".to_owned(), "1\n<2>".to_owned()]);
        let markdown = "| a\\|b | c |\n| --- | --- |\n| [\\`x\\`](x.md) | 1<br>&lt;2&gt; |\n";
        assert_eq!(table.markdown(), markdown);
        assert!(
            table
                .html("t")
                .contains("<tr class=\"good\"><th scope=\"row\"><a href=\"x.md\">`x`</a></th>")
        );
    }
}
