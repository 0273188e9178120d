//! `/stats.json`: the statistics that are a list of rows, in one object.
//!
//! Where: `admin` calls `all`.
//! Invariant: the object has a member for each such subcommand, with the rows of its answer. The
//! statistics that go through all items are left out, and with `-X` those that show keys.

use serde_json::{Map, Value};

use super::rows::{Rows, Target, WriteRows};
use super::{Answer, WHOLE_NAMES, general, hot, settings};
use crate::shared::Shared;

/// Returns the statistics.
pub(crate) fn all(shared: &Shared) -> Value {
    let (mut all, now) = (Map::new(), shared.now());
    let mut add = |name: &str, write: WriteRows| {
        let mut object = Map::new();
        write(shared, &mut Rows { now, target: Target::Json(&mut object) });
        all.insert(name.to_owned(), Value::Object(object));
    };
    add("general", general::write);
    add("settings", settings::write);
    for (name, answer) in WHOLE_NAMES {
        if let Answer::Rows(write) = answer {
            add(&String::from_utf8_lossy(name), *write);
        }
    }
    if shared.settings.dump_enabled {
        add("hot", |shared, rows| _ = hot::hottest(shared, rows));
    }
    Value::Object(all)
}
