//! Resident memory of both servers with the same items, measured at eight numbers of items.
//!
//! Where: both servers, each filled once, with room for all items.
//! Invariant: each of the eight fills has `2^(1/8)` times the items of the preceding fill. A table
//! that grows by doubling is therefore measured at eight degrees of fullness. The figure is the
//! rival's resident bytes divided by the subject's, including memory taken at the start.

use crate::density::start;
use crate::feeder::{Feeder, PLAIN};
use crate::measure::report::{Report, say};
use crate::measure::statistics::count_of_u64;
use crate::measure::{Outcome, fail};
use crate::sizes::Mix;
use crate::{Options, TestedServer};

const FILLS: u32 = 8;

pub(crate) fn measure(options: &Options, report: &mut Report) -> Outcome<()> {
    let tested_servers = options.tested_servers()?;
    for &mix in options.mixes() {
        let [ours, theirs] = [0, 1].map(|index| filled(&tested_servers[index], mix, options));
        let mut worst = f64::INFINITY;
        for (ours, theirs) in ours?.into_iter().zip(theirs?) {
            let items = count_of_u64(ours.items);
            say(&format!(
                "  {:<10} {:>9} items  subject {:>7.2}  rival {:>7.2} bytes an item\n",
                mix.name(),
                ours.items,
                count_of_u64(ours.resident_bytes) / items,
                count_of_u64(theirs.resident_bytes) / items,
            ))?;
            let ratio = count_of_u64(theirs.resident_bytes) / count_of_u64(ours.resident_bytes);
            worst = ratio.min(worst);
            let name = format!("items a resident byte, {}, {} items", mix.name(), ours.items);
            report.figure(&name, "x the rival's", ratio)?;
        }
        let name = format!("items a resident byte, {}, worst fill", mix.name());
        report.figure(&name, "x the rival's", worst)?;
    }
    Ok(())
}

struct Fill {
    items: u64,
    resident_bytes: u64,
}

fn filled(tested: &TestedServer, mix: Mix, options: &Options) -> Outcome<Vec<Fill>> {
    let server = start(tested, mix, options.items.into(), &[])?;
    let mut feeder = Feeder::connect(&server)?;
    let (mut stored, mut fills) = (0, Vec::new());
    for fill in 0..FILLS {
        let items = items_of(options.items, fill);
        while stored < items {
            feeder.set(mix, stored, PLAIN)?;
            stored += 1;
        }
        let there = feeder.stat("curr_items")?;
        if there != stored {
            return fail(format!("{} holds {there} of {stored} stored items", tested.name));
        }
        let resident_bytes = feeder.resident_bytes(&server, options.settle())?;
        fills.push(Fill { items, resident_bytes });
    }
    Ok(fills)
}

/// Returns the number of items in fill number `fill`. Fill 0 has half of `most` items.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and below `most`"
)]
fn items_of(most: u32, fill: u32) -> u64 {
    (f64::from(most) / 2.0 * (f64::from(fill) / f64::from(FILLS)).exp2()).round() as u64
}
