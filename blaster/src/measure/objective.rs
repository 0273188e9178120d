//! Objectives of a result: `p99<1ms`, `mean<800us`, `errors<0.1%`, `hit>95%`, `rate>100k`.
//!
//! Where: the capacity search finds the highest rate that meets all objectives. With `--assert`,
//! the exit status tells whether objectives are met.
//! Invariant: an objective whose figure is unknown (such as the p99 without answers) is not met. A
//! request that was given up counts as later than every answer.
//! Source: the KV-Cache paper, section 6.

use super::schedule;
use super::tally::{TimedTally, VerbTally};
use super::times::Times;
use super::verdict::Verdict;
use crate::words::{time, whole};
use crate::workload::{VERBS, Verb};
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
    Mean,
    Min,
    Max,
    Sd,
    Quantile(f64),
    /// Requests answered late or given up, as a share of the requests that ended.
    Late,
    /// Errors, wrong values and requests never answered, as a share of the requests that ended. If
    /// the objective names no type of request, failed connections are counted too.
    Errors,
    Timeouts,
    Hit,
    Rate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Below,
    AtMost,
    Above,
    AtLeast,
}

/// One objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    pub(crate) text: String,
    verb: Option<Verb>,
    is_service: bool,
    figure: Figure,
    order: Order,
    bound: f64,
}

/// The reason why an objective is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an objective: {1}.\nAn objective is FIGURE<VALUE or FIGURE>VALUE (also <= and \
     >=). Figures of time are mean, min, max, sd and any percentile, such as p50 or p99.9; their \
     values end in ns, us, ms or s. Shares are late, errors, timeouts and hit; their values end in \
     % or are fractions. The value of rate may end in k or M. get:p99<1ms judges gets only. \
     service:p99<1ms measures times from the sending of a request instead of from its intended \
     time."
)]
pub struct ObjectiveError(String, &'static str);

/// The judgement of one objective.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Judgement {
    /// The objective's text, without spaces.
    pub objective: String,
    /// The figure: a time in nanoseconds, a ratio, or a rate per second; `None` if it is unknown.
    pub value: Option<f64>,
    /// True if the objective is met.
    pub is_met: bool,
    /// The judgement in words.
    pub sentence: String,
}

impl Judgement {
    /// Judges the assertion `valid`, which is met if the self-check finds the result valid.
    pub(crate) fn of_validity(verdict: &Verdict) -> Judgement {
        let sentence = match verdict.why_invalid() {
            None => "valid is met: the self-check found no reason to reject the result".to_owned(),
            Some(remark) => format!("valid is not met: {}", remark.sentence),
        };
        let (objective, is_met) = ("valid".to_owned(), verdict.is_valid());
        Judgement { objective, value: None, is_met, sentence }
    }
}

impl Objective {
    pub(crate) fn value(&self, judged: TimedTally<'_>) -> Option<f64> {
        let total;
        let seen: &VerbTally = match self.verb {
            Some(verb) => judged.tally.verb(verb),
            None => {
                total = judged.tally.total();
                &total
            }
        };
        let times: &Times = if self.is_service { &seen.service_ns } else { &seen.response_ns };
        // Requests given up count as later than all answers, which shifts the quantiles.
        let grown = 1.0 + seen.never() as f64 / times.len().max(1) as f64;
        let at = |quantile: f64| {
            let share = Some(quantile * grown).filter(|share| *share <= 1.0)?;
            times.quantile_ns(share).map(|ns| ns as f64)
        };
        match self.figure {
            Figure::Mean => times.mean_ns(),
            Figure::Min => times.min_ns().map(|ns| ns as f64),
            Figure::Max => at(1.0),
            Figure::Sd => times.sd_ns(),
            Figure::Quantile(quantile) => at(quantile),
            Figure::Late => seen.late_ratio(),
            // A failed connection has no type of request, so objectives for one type omit it.
            Figure::Errors if self.verb.is_none() => judged.tally.failure_ratio(),
            Figure::Errors => seen.failure_ratio(),
            Figure::Timeouts => seen.timeout_ratio(),
            Figure::Hit => seen.hit_ratio(),
            Figure::Rate => (judged.seconds > 0.0).then(|| seen.answered as f64 / judged.seconds),
        }
    }

    pub(crate) fn is_met(&self, judged: TimedTally<'_>) -> bool {
        self.value(judged).is_some_and(|value| self.accepts(value))
    }

    /// True if sending late cannot help the generator to meet the objective. Late sending lengthens
    /// response times, which helps to meet a lower bound. Late sending also helps to meet
    /// objectives for service times.
    pub(crate) fn is_harder_when_late(&self) -> bool {
        let is_upper = matches!(self.order, Order::Below | Order::AtMost);
        match self.figure {
            Figure::Mean | Figure::Min | Figure::Max | Figure::Quantile(_) | Figure::Late => {
                is_upper && !self.is_service
            }
            Figure::Errors | Figure::Timeouts | Figure::Hit | Figure::Rate => true,
            Figure::Sd => false,
        }
    }

    /// True if the objective requires a share of 0, so that the search tolerates no failures.
    pub(crate) fn asks_for_none(&self) -> bool {
        let is_share = matches!(self.figure, Figure::Late | Figure::Errors | Figure::Timeouts);
        is_share && self.order == Order::AtMost && self.bound <= 0.0
    }

    pub(crate) fn judge(&self, judged: TimedTally<'_>) -> Judgement {
        let value = self.value(judged);
        let is_met = value.is_some_and(|value| self.accepts(value));
        let was = match value {
            Some(value) => format!("it is {}", self.figure.worded(value)),
            None if judged.tally.total().never() > 0 => {
                "it is unknown, because too many requests were given up".to_owned()
            }
            None => "it is unknown, because nothing was counted".to_owned(),
        };
        let verdict = if is_met { "met" } else { "not met" };
        let sentence = format!("{} is {verdict}: {was}", self.text);
        Judgement { objective: self.text.clone(), value, is_met, sentence }
    }

    fn accepts(&self, value: f64) -> bool {
        match self.order {
            Order::Below => value < self.bound,
            Order::AtMost => value <= self.bound,
            Order::Above => value > self.bound,
            Order::AtLeast => value >= self.bound,
        }
    }
}

impl Figure {
    fn parse(text: &str) -> Option<Figure> {
        Some(match text {
            "mean" | "avg" => Figure::Mean,
            "min" => Figure::Min,
            "max" => Figure::Max,
            "sd" => Figure::Sd,
            "median" => Figure::Quantile(0.5),
            "late" => Figure::Late,
            "errors" => Figure::Errors,
            "timeouts" => Figure::Timeouts,
            "hit" | "hits" => Figure::Hit,
            "rate" => Figure::Rate,
            // Other tools write p99.9 and p99.99 without a decimal point.
            "p999" => Figure::Quantile(0.999),
            "p9999" => Figure::Quantile(0.9999),
            _ => {
                let percent = text.strip_prefix('p')?;
                let plain = percent.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
                let percent = percent.parse::<f64>().ok().filter(|_| plain)?;
                (0.0..=100.0).contains(&percent).then_some(Figure::Quantile(percent / 100.0))?
            }
        })
    }

    fn bound(self, text: &str) -> Option<f64> {
        match self {
            Figure::Late | Figure::Errors | Figure::Timeouts | Figure::Hit => {
                let percent = text.strip_suffix('%');
                let (figure, of) = percent.map_or((text, 1.0), |percent| (percent, 100.0));
                let ratio = number(figure)? / of;
                (ratio <= 1.0).then_some(ratio)
            }
            Figure::Rate => {
                let text = text.strip_suffix("/s").unwrap_or(text).trim_end();
                let (figure, times) = match text.chars().last()? {
                    'k' | 'K' => (&text[..text.len() - 1], 1e3),
                    'M' => (&text[..text.len() - 1], 1e6),
                    _ => (text, 1.0),
                };
                Some(number(figure)? * times)
            }
            _ if text.ends_with(|one: char| one.is_ascii_digit()) && text != "0" => None,
            _ => Some(schedule::span(text)?.as_nanos() as f64),
        }
    }

    fn worded(self, value: f64) -> String {
        match self {
            Figure::Late | Figure::Errors | Figure::Timeouts | Figure::Hit => share(value),
            Figure::Rate => format!("{value:.0} a second"),
            _ => time(whole(value)),
        }
    }
}

/// Formats a share as a percentage. A share above 0 is never shown as 0.
pub(crate) fn share(value: f64) -> String {
    match 100.0 * value {
        0.0 => "0 %".to_owned(),
        percent if percent < 0.0001 => "less than 0.0001 %".to_owned(),
        percent => format!("{percent:.4} %"),
    }
}

/// Parses a number that has neither a sign nor an exponent.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse().ok().filter(|_| plain)
}

impl FromStr for Objective {
    type Err = ObjectiveError;

    fn from_str(text: &str) -> Result<Objective, ObjectiveError> {
        let refused = |why| ObjectiveError(text.to_owned(), why);
        let at = text.find(['<', '>']).ok_or(refused("it has no < or >"))?;
        let (left, right) = (text[..at].trim(), &text[at..]);
        let (order, bound) = match right.as_bytes() {
            [b'<', b'=', ..] => (Order::AtMost, &right[2..]),
            [b'<', ..] => (Order::Below, &right[1..]),
            [b'>', b'=', ..] => (Order::AtLeast, &right[2..]),
            _ => (Order::Above, &right[1..]),
        };
        let (mut verb, mut is_service, mut figure) = (None, false, left);
        while let Some((scope, rest)) = figure.split_once(':') {
            match VERBS.iter().find(|verb| verb.name() == scope.trim()) {
                Some(found) if verb.is_none() => verb = Some(*found),
                None if scope.trim() == "service" && !is_service => is_service = true,
                _ => return Err(refused("the text before the colon is not a type of request")),
            }
            figure = rest.trim();
        }
        let figure = Figure::parse(figure).ok_or(refused("there is no such figure"))?;
        let bound =
            figure.bound(bound.trim()).ok_or(refused("the value does not suit the figure"))?;
        let text = text.split_whitespace().collect();
        Ok(Objective { text, verb, is_service, figure, order, bound })
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Tally;

    /// A thousand GETs took 1 to 1,000 µs, and every tenth missed. Ten SETs took 5 ms and were sent
    /// 5 ms late, and one of the SETs failed.
    fn seen() -> Tally {
        let mut tally = Tally::new(990_000);
        for us in 1..=1000 {
            tally.sent(Verb::Get, 1, 0, 0);
            tally.found(Verb::Get, if us % 10 == 0 { KeyAnswer::Miss } else { KeyAnswer::Hit });
            tally.answered(Verb::Get, false, 0, 0, us * 1000);
        }
        for nth in 0..10 {
            tally.sent(Verb::Set, 1, 0, 5_000_000);
            tally.answered(Verb::Set, nth == 0, 0, 5_000_000, 10_000_000);
        }
        tally
    }

    use super::super::KeyAnswer;

    fn is_met(objective: &str) -> bool {
        let tally = seen();
        objective
            .parse::<Objective>()
            .unwrap_or_else(|error| panic!("{error}"))
            .is_met(TimedTally { tally: &tally, seconds: 0.01 })
    }

    #[test]
    fn what_holds_is_met_and_what_does_not_is_not() {
        let met = "get:p99<1ms, get:mean<510us, get:mean>0.49ms, p50 < 600 us, max>=10ms, \
             service:max<6ms, set:service:min>4ms, get:late<=1%, errors<0.1%, \
             set:errors>=10%, hit>=90%, hit>0.89, rate>100k, rate<0.11M/s, timeouts<=0, \
             p99.9>9ms, get:p999<=1001us, sd>1us, delete:rate<=0";
        for objective in met.split(", ") {
            assert!(is_met(objective), "{objective}");
        }
        let unmet = "get:p99<900us, mean<500us, max<10ms, service:max<4ms, late<=0, errors<=0, \
             hit>95%, rate>200k, append:p99<1s, delete:hit>=0";
        for objective in unmet.split(", ") {
            assert!(!is_met(objective), "{objective}");
        }
    }

    #[test]
    fn only_what_lateness_adds_to_is_harder_when_late() {
        let harder = |text: &str| text.parse::<Objective>().unwrap().is_harder_when_late();
        for objective in ["p99<1ms", "get:mean<=1ms", "late<=0", "errors<1%", "hit>9%", "rate>1k"] {
            assert!(harder(objective), "{objective}");
        }
        for objective in ["service:p99<1ms", "max>1ms", "late>=1%", "sd<1ms"] {
            assert!(!harder(objective), "{objective}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let wrong = ", p99, p99<, p99<1, p99<1%, p99=1ms, p101<1ms, pp<1ms, p<1ms, p-1<1ms, \
             hit>1ms, hit>101%, hit>-1, rate>1s, rate>k, rate>, x:p99<1ms, \
             get:set:p99<1ms, service:service:p99<1ms, mean<1ms<2ms, pnan<1ms, hit>NaN, \
             errors<1e-3, rate>inf, rate>é";
        for text in wrong.split(", ") {
            let error = text.parse::<Objective>().expect_err(text);
            assert!(error.to_string().contains("p99<1ms"), "{error}");
        }
    }

    #[test]
    fn a_request_that_was_given_up_is_late() {
        // Counts a thousand answers, which took 1 to 1,000 µs.
        let mut tally = Tally::new(2_000_000);
        (1..=1000).for_each(|us| tally.answered(Verb::Get, false, 0, 0, us * 1000));
        let mut judge = |objective: &str, lost| {
            (0..lost).for_each(|_| tally.timed_out(Verb::Get));
            let judged = TimedTally { tally: &tally, seconds: 1.0 };
            objective.parse::<Objective>().unwrap().judge(judged)
        };
        assert!(judge("late<=0", 0).is_met && judge("p100<2ms", 0).is_met);
        let late = judge("late<=0", 1);
        assert_eq!((late.is_met, late.value), (false, Some(1.0 / 1001.0)));
        assert!(late.sentence.ends_with("it is 0.0999 %"), "{}", late.sentence);
        let longest = judge("max<2ms", 0);
        assert_eq!((longest.is_met, longest.value), (false, None));
        assert!(
            longest.sentence.ends_with("it is unknown, because too many requests were given up")
        );
        // With 111 of 1,111 requests unanswered, the p99 is unknown.
        assert!(judge("p99<2ms", 0).is_met && !judge("get:p99<2ms", 110).is_met);
        assert!(judge("p50<557us", 0).is_met && !judge("p50<554us", 0).is_met);
    }

    #[test]
    fn a_share_is_told_by_what_it_is_not_rounded_to_nothing() {
        let judged = |late: u64| {
            let mut tally = Tally::new(0);
            tally.answered_n(Verb::Get, 1, None, late);
            tally.late_limit_ns = 2;
            tally.answered_n(Verb::Get, 1, None, 10_000_000 - late);
            let judged = TimedTally { tally: &tally, seconds: 1.0 };
            "late<=0".parse::<Objective>().unwrap().judge(judged).sentence
        };
        assert_eq!(judged(0), "late<=0 is met: it is 0 %");
        assert_eq!(judged(1), "late<=0 is not met: it is less than 0.0001 %");
        assert_eq!(judged(10_000), "late<=0 is not met: it is 0.1000 %");
    }

    #[test]
    fn a_judgement_says_what_was_found() {
        let tally = seen();
        let judged = TimedTally { tally: &tally, seconds: 0.01 };
        let judgement = "set: p99 < 1ms".parse::<Objective>().unwrap().judge(judged);
        assert!(!judgement.is_met);
        assert!(
            judgement.sentence.starts_with("set:p99<1ms is not met: it is 10"),
            "{judgement:?}"
        );
        let nothing = "append:p99<1ms".parse::<Objective>().unwrap().judge(judged);
        assert_eq!(nothing.value, None);
    }
}
