//! Shrinks a sequence of commands. The two servers' replies to the sequence's last command differ.
//!
//! Where: client side.
//! Invariant: a returned sequence marked `again` has shown the difference on fresh servers.
//! Source: Zeller and Hildebrandt's delta debugging (ddmin), 2002.

use crate::Difference;
use crate::command::Command;
use crate::peer::{self, Peer};

/// After this number of tried sequences, the shortest sequence so far is returned.
const TRIALS_MAX: usize = 400;

/// If the second run showed no difference, at most this number of commands is shown.
const SHOWN_COMMANDS_MAX: usize = 40;

/// Returns the shortest sequence of commands found that still shows a difference. If a second run
/// of `found` shows no difference, returns the last commands of `found` that can change the reply
/// to its last command.
pub(crate) fn shrink(found: Difference, pair: &dyn Fn() -> [Peer; 2]) -> Difference {
    let mut search = Search { pair, trials: 0 };
    let Some(whole) = search.run(&found.commands) else {
        let mut commands = related(&found.commands);
        let extra = commands.len().saturating_sub(SHOWN_COMMANDS_MAX);
        return Difference { commands: commands.split_off(extra), ..found };
    };
    let mut best = search.related(whole);
    best = search.tail(best);
    best = search.without_parts(best);
    search.one_by_one(best)
}

fn related(commands: &[Command]) -> Vec<Command> {
    let Some(last) = commands.last() else { return Vec::new() };
    commands.iter().filter(|command| command.meets(last)).cloned().collect()
}

struct Search<'a> {
    pair: &'a dyn Fn() -> [Peer; 2],
    trials: usize,
}

impl Search<'_> {
    /// Runs `commands` on fresh servers. Returns the commands up to the first difference, if any.
    fn run(&mut self, commands: &[Command]) -> Option<Difference> {
        self.trials += 1;
        let mut peers = (self.pair)();
        let mut done = 0;
        for batch in commands.chunk_by(|one, next| one.batch == next.batch) {
            if let Err(found) = peer::run_batch(&mut peers, batch) {
                let (index, replies) = *found;
                let commands = commands[..=done + index].to_vec();
                return Some(Difference { commands, replies, again: true });
            }
            done += batch.len();
        }
        None
    }

    fn try_shorter(&mut self, best: &mut Difference, commands: &[Command]) -> bool {
        if self.trials >= TRIALS_MAX || commands.len() >= best.commands.len() {
            return false;
        }
        match self.run(commands) {
            Some(found) => {
                *best = found;
                true
            }
            None => false,
        }
    }

    /// Keeps only the commands that can change the last command's reply.
    fn related(&mut self, mut best: Difference) -> Difference {
        let related = related(&best.commands);
        self.try_shorter(&mut best, &related);
        best
    }

    /// Keeps only the last four commands of the sequence, or more if four do not suffice.
    fn tail(&mut self, mut best: Difference) -> Difference {
        let mut count = 4;
        while count < best.commands.len() {
            let tail = best.commands[best.commands.len() - count..].to_vec();
            if self.try_shorter(&mut best, &tail) {
                break;
            }
            count *= 4;
        }
        best
    }

    /// Drops one part of the sequence at a time. The parts become smaller.
    fn without_parts(&mut self, mut best: Difference) -> Difference {
        let mut part = best.commands.len().div_ceil(2);
        loop {
            let mut start = 0;
            while start < best.commands.len() {
                let end = (start + part).min(best.commands.len());
                let rest = [&best.commands[..start], &best.commands[end..]].concat();
                if !self.try_shorter(&mut best, &rest) {
                    start = end;
                }
            }
            if part == 1 {
                return best;
            }
            part = part.div_ceil(2);
        }
    }

    fn one_by_one(&mut self, best: Difference) -> Difference {
        let mut single = best.commands.clone();
        for (number, command) in single.iter_mut().enumerate() {
            command.batch = number;
        }
        self.run(&single).unwrap_or(best)
    }
}
