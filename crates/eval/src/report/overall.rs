//! What all applications of a record come to.

use super::html::{escape, table};
use super::plot::colour;
use crate::study::text::{app_rows, interval, left_out, losses, overall_rows};
use crate::study::{Studies, sequences, stalls};
use std::fmt::Write;

/// The numbers to see first; nothing where there are not several applications.
pub fn key_numbers(studies: &Studies) -> String {
    if studies.overall.is_empty() {
        return String::new();
    }
    let mut out = String::from("<div class=\"keys\">");
    for o in studies.overall.iter().filter(|o| o.mode.is_helped()) {
        let (name, colour) = (o.mode.word(), colour(o.mode));
        // Not the gap closed, which leaves some applications out.
        if let Some(ratio) = o.ratio_to_off {
            let _ = write!(
                out,
                "<div><b style=\"color:{colour}\">{name}</b><span>{}</span> of the time without help, mean of {} applications</div>",
                interval(Some(ratio), 2),
                ratio.n
            );
        }
        let _ = write!(
            out,
            "<div><b style=\"color:{colour}\">{name}</b><span>{} of {}</span> applications faster with 95 % confidence</div>",
            o.faster, o.apps
        );
    }
    let losses = losses(studies).map(|words| format!("<p>{}</p>\n", escape(&words)));
    out + "</div>\n" + &losses.unwrap_or_default()
}

/// Every application against off, and all of them, where there are several; and how long they waited.
pub fn tables(studies: &Studies) -> String {
    let against_off = match studies.overall.is_empty() {
        true => String::new(),
        false => {
            let left_out = left_out(studies).map(|text| format!("<p>{}</p>\n", escape(&text)));
            table(&app_rows(studies))
                + &table(&overall_rows(studies))
                + &left_out.unwrap_or_default()
                + &table(&sequences::sequence_rows(studies))
        }
    };
    let stalls = table(&stalls::stall_rows(studies));
    let note = match stalls.as_str() {
        "" => String::new(),
        _ => format!("<p>{}</p>\n", stalls::NOTE),
    };
    against_off + &stalls + &note
}
