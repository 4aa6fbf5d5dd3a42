//! Content for programs to work on: functions of a seed alone. Pure.

use crate::random::Random;
use std::fmt::Write;

/// A word of two to four syllables.
pub fn word(random: &mut Random) -> String {
    const SYLLABLES: [&str; 16] = [
        "ka", "mo", "ri", "te", "lu", "sa", "ne", "vo", "pi", "du", "ze", "fa", "go", "bi", "ho",
        "ju",
    ];
    let syllables = 2 + random.below(3);
    (0..syllables)
        .map(|_| SYLLABLES[random.below(SYLLABLES.len())])
        .collect()
}

/// So many words in sentences of eight.
pub fn prose(random: &mut Random, words: usize) -> String {
    let sentences = (0..words.div_ceil(8)).map(|_| {
        let words: Vec<String> = (0..8).map(|_| word(random)).collect();
        format!("{}.", words.join(" "))
    });
    sentences.collect::<Vec<_>>().join(" ")
}

/// A table of comma-separated values: name, group, amount.
pub fn csv(random: &mut Random, rows: usize) -> String {
    let mut text = String::from("name,group,amount\n");
    for _ in 0..rows {
        let (name, group) = (word(random), random.below(40));
        let _ = writeln!(text, "{name},g{group},{}", random.below(10_000));
    }
    text
}

/// The same table as JSON.
pub fn json(random: &mut Random, rows: usize) -> String {
    let row = |_| {
        let (name, group) = (word(random), random.below(40));
        let amount = random.below(10_000);
        format!(r#"{{"name":"{name}","group":"g{group}","amount":{amount}}}"#)
    };
    format!("[{}]", (0..rows).map(row).collect::<Vec<_>>().join(",\n"))
}

/// An outline for Org mode: headings, lists, tables and source blocks.
pub fn org(random: &mut Random, sections: usize) -> String {
    let mut text = String::from("#+TITLE: Notes\n");
    for _ in 0..sections {
        let _ = write!(
            text,
            "* {}\n{}\n- {}\n- /{}/ and *{}*\n\n| {} | {} |\n|---+---|\n| {} | {} |\n\n#+begin_src c\nint {}(void);\n#+end_src\n",
            word(random),
            prose(random, 40),
            prose(random, 8),
            word(random),
            word(random),
            word(random),
            word(random),
            random.below(100),
            random.below(100),
            word(random),
        );
    }
    text
}

/// A text document in LibreOffice's flat XML.
pub fn flat_document(random: &mut Random, paragraphs: usize) -> String {
    let mut body = String::new();
    for _ in 0..paragraphs {
        let _ = write!(
            body,
            "<text:h text:outline-level=\"1\">{}</text:h><text:p>{}</text:p>",
            word(random),
            prose(random, 80)
        );
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <office:document xmlns:office=\"urn:oasis:names:tc:opendocument:xmlns:office:1.0\" \
         xmlns:text=\"urn:oasis:names:tc:opendocument:xmlns:text:1.0\" office:version=\"1.3\" \
         office:mimetype=\"application/vnd.oasis.opendocument.text\">\
         <office:body><office:text>{body}</office:text></office:body></office:document>\n"
    )
}

/// A drawing of gradients, shapes and text.
pub fn svg(random: &mut Random, shapes: usize) -> String {
    let mut text = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"600\" height=\"400\">\
         <defs><linearGradient id=\"g\"><stop offset=\"0\" stop-color=\"#d84\"/>\
         <stop offset=\"1\" stop-color=\"#48d\"/></linearGradient></defs>",
    );
    for _ in 0..shapes {
        let (x, y, r) = (random.below(600), random.below(400), 5 + random.below(40));
        let _ = write!(
            text,
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\" fill=\"url(#g)\" opacity=\".4\"/>\
             <text x=\"{x}\" y=\"{y}\" font-family=\"serif\">{}</text>",
            word(random)
        );
    }
    text + "</svg>\n"
}

/// A picture in the portable pixmap format.
pub fn picture(random: &mut Random, width: usize, height: usize) -> Vec<u8> {
    let mut bytes = format!("P6\n{width} {height}\n255\n").into_bytes();
    for _ in 0..width * height {
        bytes.extend(&random.next_u64().to_le_bytes()[..3]);
    }
    bytes
}

/// So many seconds of a stereo tone with noise, as a WAV file.
pub fn sound(random: &mut Random, seconds: u32) -> Vec<u8> {
    const RATE: u32 = 44_100;
    const CHANNELS: u16 = 2;
    const SAMPLE_BYTES: u16 = 2;
    let data_bytes = RATE * seconds * u32::from(CHANNELS * SAMPLE_BYTES);
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + data_bytes).to_le_bytes());
    bytes.extend(b"WAVEfmt ");
    bytes.extend(16u32.to_le_bytes());
    // Plain samples.
    bytes.extend(1u16.to_le_bytes());
    bytes.extend(CHANNELS.to_le_bytes());
    bytes.extend(RATE.to_le_bytes());
    bytes.extend((RATE * u32::from(CHANNELS * SAMPLE_BYTES)).to_le_bytes());
    bytes.extend((CHANNELS * SAMPLE_BYTES).to_le_bytes());
    bytes.extend((8 * SAMPLE_BYTES).to_le_bytes());
    bytes.extend(b"data");
    bytes.extend(data_bytes.to_le_bytes());
    for i in 0..RATE * seconds {
        let tone = (f64::from(i) / f64::from(RATE) * 440.0 * std::f64::consts::TAU).sin();
        let sample = (tone * 8_000.0) as i16 + random.below(400) as i16;
        for _ in 0..CHANNELS {
            bytes.extend(sample.to_le_bytes());
        }
    }
    bytes
}

/// C functions that use the standard library.
pub fn c_source(random: &mut Random, functions: usize) -> String {
    let mut text = String::from(
        "#include <math.h>\n#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
         #include <sys/socket.h>\n#include <time.h>\n",
    );
    for i in 0..functions {
        let name = word(random);
        let factor = 1 + random.below(97);
        let _ = write!(
            text,
            "static double {name}_{i}(const char *s) {{ double x = {factor}; while (*s) x = fma(x, 1.01, sin(*s++)); \
             printf(\"%s %f\\n\", \"{name}\", x); return x; }}\n\
             double call_{i}(void) {{ char b[64]; snprintf(b, sizeof b, \"%d\", {factor}); return {name}_{i}(b) + strlen(b); }}\n"
        );
    }
    text
}

/// Java classes with generics, streams and lambdas.
pub fn java_source(random: &mut Random, classes: usize) -> String {
    let mut text = String::from("import java.util.*;\nimport java.util.stream.*;\n");
    for i in 0..classes {
        let (name, factor) = (word(random), 1 + random.below(97));
        let _ = write!(
            text,
            "class C{i} {{ final Map<String, List<Integer>> {name} = new TreeMap<>();\n\
             List<String> words(int n) {{ return IntStream.range(0, n).mapToObj(x -> \"{name}\" + x * {factor})\
             .sorted(Comparator.reverseOrder()).collect(Collectors.toList()); }}\n\
             void add(int n) {{ for (String w : words(n)) {name}.computeIfAbsent(w, k -> new ArrayList<>()).add(n); }} }}\n"
        );
    }
    text + "public class Main { public static void main(String[] a) { new C0().add(9); } }\n"
}

/// A history for `git fast-import`: so many commits, each of which writes some of so many files.
pub fn git_history(random: &mut Random, commits: usize, files: usize) -> String {
    let mut text = String::new();
    for commit in 0..commits {
        let message = prose(random, 8);
        let _ = write!(
            text,
            "commit refs/heads/main\ncommitter A U Thor <author@example.org> {} +0000\ndata {}\n{message}\n",
            1_600_000_000 + commit * 3_600,
            message.len()
        );
        let written = if commit == 0 {
            (0..files).collect()
        } else {
            (0..5).map(|_| random.below(files)).collect::<Vec<_>>()
        };
        for file in written {
            let body = prose(random, 120);
            let _ = write!(
                text,
                "M 100644 inline d{}/f{file}.txt\ndata {}\n{body}\n",
                file % 20,
                body.len()
            );
        }
    }
    text
}

/// A page of PostScript text in three fonts.
pub fn postscript(random: &mut Random, lines: usize) -> String {
    let mut text = String::from("%!PS\n");
    for i in 0..lines {
        let font = ["Times-Roman", "Helvetica", "Courier-Bold"][i % 3];
        let _ = writeln!(
            text,
            "/{font} findfont 10 scalefont setfont 40 {} moveto ({}) show",
            780 - 12 * (i % 60),
            prose(random, 8)
        );
    }
    text + "showpage\n"
}

/// A directed graph for Graphviz.
pub fn graph(random: &mut Random, nodes: usize) -> String {
    let mut text = String::from("digraph g {\n");
    for node in 1..nodes {
        let _ = writeln!(
            text,
            "n{node} [label=\"{}\"]; n{} -> n{node};",
            word(random),
            random.below(node)
        );
    }
    text + "}\n"
}

/// SQL that fills a table of so many rows.
pub fn sql(random: &mut Random, rows: usize) -> String {
    let mut text =
        String::from("create table t(name text, grp integer, amount integer);\nbegin;\n");
    for _ in 0..rows {
        let (name, group) = (word(random), random.below(40));
        let _ = writeln!(
            text,
            "insert into t values('{name}',{group},{});",
            random.below(10_000)
        );
    }
    text + "commit;\ncreate index i on t(name);\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_a_function_of_the_seed() {
        let all = |seed| {
            let random = &mut Random::new(seed);
            [
                prose(random, 20),
                csv(random, 5),
                json(random, 5),
                org(random, 2),
                svg(random, 3),
                c_source(random, 2),
                java_source(random, 2),
                git_history(random, 3, 4),
                sql(random, 3),
            ]
        };
        assert_eq!(all(1), all(1));
        for (one, other) in all(1).iter().zip(all(2)) {
            assert_ne!(*one, other);
        }
    }

    #[test]
    fn formats_are_whole() {
        let random = &mut Random::new(3);
        let rows: serde_json::Value = serde_json::from_str(&json(random, 7)).unwrap();
        assert_eq!(rows.as_array().unwrap().len(), 7);
        let sound = sound(random, 1);
        let said = u32::from_le_bytes(sound[40..44].try_into().unwrap());
        assert_eq!(sound.len(), 44 + said as usize);
        let picture = picture(random, 4, 3);
        assert_eq!(picture.len(), b"P6\n4 3\n255\n".len() + 36);
    }
}
