//! The meaning of each figure in a sentence, for people who do not know the names of figures.
//!
//! Where: in the caption of each chart.
//! Invariant: each figure of `figures::FIGURES` has a meaning.
//! Source: none.

use crate::lab::figures::BESIDE;

/// Returns the meaning of a figure, or an empty text if the name is unknown.
pub(crate) fn meaning(figure: &str) -> String {
    if let Some(name) = figure.strip_prefix(BESIDE) {
        return format!("Of the second load, sent at the same time: {}", meaning(name));
    }
    let sentence = match figure {
        "requests/s" => "Requests that were answered per second.",
        "keys/s" => "Keys in the requests that were answered, per second.",
        "gets/s" => "Gets that were answered per second.",
        "sets/s" => "Sets that were answered per second.",
        "deletes/s" => "Deletes that were answered per second.",
        "bytes/s" => "Bytes that kvblaster sent and received per second.",
        "capacity, mean < 1 ms" => {
            "The highest rate, in requests per second, with a mean response time below 1 ms; 0 if \
             there was no such rate."
        }
        "capacity, p99 < 1 ms" => {
            "The highest rate, in requests per second, at which 99 % of the responses took less \
             than 1 ms; 0 if there was no such rate."
        }
        "capacity, none late" => {
            "The highest rate, in requests per second, at which no response was late; 0 if there \
             was no such rate."
        }
        "mean" => "The mean response time.",
        "deviation" => "The standard deviation of the response times.",
        "min" => "The shortest response time.",
        "p50" => "Half of the responses took at most this time.",
        "p99" => "99 % of the responses took at most this time.",
        "p99.9" => "99.9 % of the responses took at most this time.",
        "max" => "The longest response time.",
        "get mean" => "The mean response time of gets.",
        "get p99" => "99 % of the responses to gets took at most this time.",
        "get max" => "The longest response time of a get.",
        "set mean" => "The mean response time of sets.",
        "set p99" => "99 % of the responses to sets took at most this time.",
        "late" => "The share of the requests whose response was late or never came.",
        "hits" => "The share of the gets that found their key.",
        "failures" => "The share of the requests that failed.",
        "not found" => "The share of the keys that the server did not find.",
        "requests/CPU-s" => {
            "The number of answered requests for each second for which one of the servers' CPUs \
             was busy."
        }
        "user time/request" => {
            "The CPU time that the servers spent outside the kernel, for each answered request."
        }
        "server CPUs" => {
            "The mean number of the servers' CPUs that were busy; 1 means that one CPU was always \
             busy."
        }
        "server user" => "The mean number of the servers' CPUs that ran programs, not the kernel.",
        "server system" => "The mean number of the servers' CPUs that ran the kernel for programs.",
        "server softirq" => {
            "The mean number of the servers' CPUs that ran soft interrupts, which handle packets."
        }
        "fullest CPU" => "The share of the time for which the machine's busiest CPU was busy.",
        "client CPUs" => "The mean number of CPUs that kvblaster used.",
        "others on server CPUs" => {
            "The share of the time of the servers' CPUs that other programs used."
        }
        "resident memory" => "Memory that the servers used.",
        "memory limit" => {
            "The memory limit (-m, maxmemory) at which the server had the resident memory that the \
             experiment asks for."
        }
        "lost datagrams" => "The share of the datagrams that were lost.",
        _ => "",
    };
    sentence.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::figures::FIGURES;

    #[test]
    fn each_figure_has_a_meaning() {
        for figure in &FIGURES {
            assert!(meaning(figure.name).ends_with('.'), "{}", figure.name);
        }
        let beside = meaning("beside: p99");
        let of = "Of the second load, sent at the same time: ";
        assert_eq!(beside, format!("{of}99 % of the responses took at most this time."));
        assert_eq!(meaning("beside: x"), of);
    }
}
