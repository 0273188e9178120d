//! Ketama: assigns each key to one of several servers in the same way as libmemcached.
//!
//! Where: the drive calls `place` for each key, before it writes the key's request.
//! Invariant: a key's index is less than the number of targets. The same targets in the same order
//! give the same indices.
//! Source: libmemcached 1.1.4, `update_continuum` and `dispatch_host`. Points are computed in
//! single precision, as in libmemcached, because different rounding would assign some keys to
//! different servers.

use super::{MEMCACHED_PORT, Target};
use md5::{Digest, Md5};

/// Number of points of each server if no server has a weight.
const POINTS_PLAIN: u32 = 100;
/// Average number of points of a server if servers have weights.
const POINTS_WEIGHTED: u32 = 160;
const POINTS_PER_SUM: u32 = 4;

/// The libmemcached setting that determines the points of servers and the hash of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ketama {
    /// `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED`: MD5 for points and keys; the ketama of other clients.
    #[default]
    Weighted,
    /// `MEMCACHED_BEHAVIOR_KETAMA` with the default hash (one-at-a-time). If a weight is above 1,
    /// the points are the same as for `Weighted`, but the hash does not change, as in libmemcached.
    Plain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    value: u32,
    target: u32,
}

/// The servers' points on a circle of hash values. A key belongs to the server of the next point.
#[derive(Clone, Debug)]
pub struct Ring {
    points: Vec<Point>,
    hash: Ketama,
    targets: usize,
}

impl Ring {
    /// Builds the circle of `Ketama::Weighted`, which other clients compute, too.
    pub fn new(targets: &[Target]) -> Ring {
        Ring::with(Ketama::Weighted, targets)
    }

    /// Builds the circle that libmemcached builds with the setting `ketama`.
    pub fn with(ketama: Ketama, targets: &[Target]) -> Ring {
        let weighted = ketama == Ketama::Weighted || targets.iter().any(|one| one.weight > 1);
        let total: u64 = targets.iter().map(|one| u64::from(one.weight)).sum();
        let mut points = Vec::new();
        for (number, target) in (0..).zip(targets) {
            if weighted {
                for sum in 0..sums(target.weight, total, targets.len()) {
                    let digest: [u8; 16] = Md5::digest(label(target, sum).as_bytes()).into();
                    let (words, _) = digest.as_chunks::<4>();
                    let values = words.iter().map(|word| u32::from_le_bytes(*word));
                    points.extend(values.map(|value| Point { value, target: number }));
                }
            } else {
                let value = |point| one_at_a_time(label(target, point).as_bytes());
                let made = (0..POINTS_PLAIN).map(value);
                points.extend(made.map(|value| Point { value, target: number }));
            }
        }
        points.sort_unstable();
        Ring { points, hash: ketama, targets: targets.len() }
    }

    /// Returns the index of the target to which `key` is assigned.
    pub fn place(&self, key: &[u8]) -> usize {
        if self.targets <= 1 {
            return 0;
        }
        let hash = match self.hash {
            Ketama::Weighted => {
                let digest: [u8; 16] = Md5::digest(key).into();
                u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]])
            }
            Ketama::Plain => one_at_a_time(key),
        };
        let at = self.points.partition_point(|point| point.value < hash);
        self.points.get(at).or(self.points.first()).map_or(0, |point| point.target as usize)
    }
}

/// The number of MD5 sums that give the points of a server with this weight (four points per sum).
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most 160 / 4 times the number of targets, which is limited"
)]
fn sums(weight: u32, total: u64, targets: usize) -> u32 {
    let share = weight as f32 / total as f32;
    let per_target = (POINTS_WEIGHTED / POINTS_PER_SUM) as f32;
    // The operations have the same order as in libmemcached: share * 160 / 4 * servers + 1e-10.
    let points = share * POINTS_WEIGHTED as f32 / POINTS_PER_SUM as f32 * targets as f32;
    ((points + 1e-10).floor() as u32).min(per_target as u32 * targets as u32)
}

/// Returns the text that is hashed for one of a server's points. The text omits the default port.
fn label(target: &Target, number: u32) -> String {
    let (host, port) = (&target.host, target.port());
    if port == MEMCACHED_PORT {
        format!("{host}-{number}")
    } else {
        format!("{host}:{port}-{number}")
    }
}

/// Bob Jenkins's one-at-a-time hash. Bytes are signed, like `char` in C on most platforms.
fn one_at_a_time(bytes: &[u8]) -> u32 {
    let mut hash = 0_u32;
    for byte in bytes {
        hash = hash.wrapping_add(i32::from(byte.cast_signed()).cast_unsigned());
        hash = hash.wrapping_add(hash << 10);
        hash ^= hash >> 6;
    }
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}
