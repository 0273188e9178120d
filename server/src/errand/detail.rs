//! `stats detail dump`: what was asked of the keys with each prefix.
//!
//! Where: an errand in text; in binary one value.
//! Invariant: a step shows as many prefixes as a few shelves have, whatever happens beside it.
//! Source: memcached 1.6.45 `stats_prefix_dump`.

use protocol::Form;
use protocol::text::list;

use super::Progress;
use crate::limits::DUMP_STEP_BYTES;
use crate::prefixes::Prefixes;

/// A list of prefixes under way.
#[derive(Debug, Default)]
pub(crate) struct Detail {
    shelf: usize,
}

impl Detail {
    /// Shows the prefixes of some shelves.
    pub(crate) fn step(&mut self, prefixes: &Prefixes, out: &mut Vec<u8>) -> Progress {
        let end = out.len() + DUMP_STEP_BYTES;
        while out.len() < end {
            let show = |prefix: &[u8], asked: &list::Asked| list::prefix(prefix, asked, out);
            if !prefixes.show(self.shelf, show) {
                list::end(false, out);
                return Progress::Done;
            }
            self.shelf += 1;
        }
        Progress::More
    }

    /// Shows all of them as one statistic.
    pub(crate) fn whole(prefixes: &Prefixes, form: Form, out: &mut Vec<u8>) {
        let (mut all, mut detail) = (Vec::new(), Detail::default());
        while detail.step(prefixes, &mut all) != Progress::Done {}
        form.stat("detailed", format_args!("{}", String::from_utf8_lossy(&all)), out);
    }
}
