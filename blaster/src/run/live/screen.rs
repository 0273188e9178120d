//! A terminal on which a few lines are redrawn in place.
//!
//! Where: below the view. Invariant: what was drawn is gone after `clear`, and the cursor where it
//! was before; nothing is drawn wider or higher than the terminal.
//! Source: ECMA-48: CUU, ED and EL, which every terminal has; NO_COLOR (no-color.org).

use super::view::View;
use rustix::termios::tcgetwinsize;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};

/// Columns and rows where the terminal does not tell.
const USUAL: (usize, usize) = (80, 24);

/// The lines that stand there.
#[derive(Debug)]
pub(super) struct Screen {
    is_coloured: bool,
    lines: usize,
}

impl Screen {
    /// One on stderr; none if that is no terminal that can move its cursor.
    pub(super) fn on_stderr() -> Option<Screen> {
        let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let can_move = named("TERM").is_some_and(|term| term != "dumb");
        let is_terminal = std::io::stderr().is_terminal();
        let is_coloured = named("NO_COLOR").is_none();
        (is_terminal && can_move).then_some(Screen { is_coloured, lines: 0 })
    }

    /// Draws, over what was drawn before.
    pub(super) fn draw(&mut self, view: &View) {
        let (columns, rows) = size();
        let lines = view.lines(columns, self.is_coloured);
        // The cursor rests on the row below.
        write(&self.over(&lines, rows.saturating_sub(1)));
    }

    /// The characters that put `lines` where others stand, so many rows at most.
    fn over(&mut self, lines: &[String], rows: usize) -> String {
        let mut text = self.upwards();
        self.lines = lines.len().min(rows);
        for line in lines.iter().take(rows) {
            let _ = writeln!(text, "{line}\x1b[K");
        }
        text.push_str("\x1b[J");
        text
    }

    /// Back to the first line.
    fn upwards(&self) -> String {
        match self.lines {
            0 => "\r".to_owned(),
            lines => format!("\r\x1b[{lines}A"),
        }
    }

    /// Takes away what stands there.
    pub(super) fn clear(&mut self) {
        if self.lines > 0 {
            write(&(self.upwards() + "\x1b[J"));
            self.lines = 0;
        }
    }
}

/// Columns and rows of the terminal.
fn size() -> (usize, usize) {
    let told = tcgetwinsize(std::io::stderr()).ok();
    let told = told.filter(|size| size.ws_col > 0 && size.ws_row > 0);
    told.map_or(USUAL, |size| (usize::from(size.ws_col), usize::from(size.ws_row)))
}

/// Writes to stderr, all at once. If it is closed, there is nobody to see it.
pub(super) fn write(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stand_over_those_before_and_no_higher_than_the_terminal() {
        let mut screen = Screen { is_coloured: false, lines: 0 };
        let [a, b, c] = ["a", "b", "c"].map(str::to_owned);
        let two = [a.clone(), b.clone()];
        assert_eq!(screen.over(&two, 9), "\ra\x1b[K\nb\x1b[K\n\x1b[J");
        assert_eq!(screen.over(std::slice::from_ref(&a), 9), "\r\x1b[2Aa\x1b[K\n\x1b[J");
        assert_eq!(screen.over(&[a, b, c], 2), "\r\x1b[1Aa\x1b[K\nb\x1b[K\n\x1b[J");
        assert_eq!((screen.lines, screen.upwards()), (2, "\r\x1b[2A".to_owned()));
    }
}
