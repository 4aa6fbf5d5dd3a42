//! The numbers that the paper on switches states (ASAP, USENIX ATC 2021), as far as its text has them: most of its figures'
//! single values are in the drawings only.

use serde::Serialize;

/// One number of the paper, on both of its phones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Reported {
    /// The figure, or `-`.
    pub figure: &'static str,
    /// What it is; of all applications the mean, where it does not say otherwise.
    pub what: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// On the faster phone (Pixel 4: 8 cores, UFS), empty where the text does not say.
    pub pixel_4: &'static str,
    /// On the slower one (Pixel 3a: 8 cores, eMMC), likewise.
    pub pixel_3a: &'static str,
    /// Where it says so.
    pub section: &'static str,
}

/// Each number by name: figure, what, unit, Pixel 4, Pixel 3a, section.
macro_rules! numbers {
    ($($name:ident: $figure:literal, $what:literal, $unit:literal, $pixel_4:literal, $pixel_3a:literal, $section:literal;)*) => {
        $(
            #[doc = $what]
            pub const $name: Reported = Reported {
                figure: $figure,
                what: $what,
                unit: $unit,
                pixel_4: $pixel_4,
                pixel_3a: $pixel_3a,
                section: $section,
            };
        )*
    };
}

numbers! {
    SLOWDOWN: "1", "everything out: time over all resident", "x", "4", "", "2.2";
    FILES_SLOWDOWN: "1", "file pages dropped: time over all resident", "x", "", "", "2.2";
    CPU_OFF: "2", "CPU use of a switch without help", "%", "34.2", "", "1";
    DISK_OFF: "2", "disk use of a switch without help, of sequential reads", "%", "19.4", "", "1";
    FILE_RECURRENT: "5", "file pages accessed in all switches but one at most (paper: of 10)", "%", "75", "", "4.1";
    FILE_RARE: "5", "file pages accessed in fewer than half", "%", "10", "", "4.1";
    ANON_RECURRENT: "6", "anonymous pages accessed in all but one at most", "%", "44", "", "4.1";
    LARGE_FILES: "10", "accessed pages in the largest 15 % of the files", "%", "90", "", "5.2";
    TIME_ANON: "11", "anonymous pages prepaged: change of time", "%", "-6.8", "-14.6", "6.2";
    TIME_FILE: "11", "file pages prepaged: change of time", "%", "-18.3", "-14.4", "6.2";
    TIME_FULL: "11", "both prepaged: change of time", "%", "-22.2", "-28.3", "6.2";
    TIME_FULL_BEST: "11", "both prepaged: the application that gains most", "%", "-33.3", "-35.7", "6.2";
    ANON_PRECISION: "12", "anonymous precision", "%", "68.4", "", "6.3";
    ANON_RECALL: "12", "anonymous recall, in switches held out", "%", "60.4", "", "6.3";
    FILE_PRECISION: "12", "file precision", "%", "79.3", "", "6.3";
    FILE_RECALL: "12", "file recall, in switches held out", "%", "52.2", "", "6.3";
    CPU_RATIO: "13", "both prepaged: CPU use over that without help", "x", "1.18", "", "6.4";
    DISK_RATIO: "14", "both prepaged: disk use over that without help", "x", "1.25", "", "6.4";
    SWITCH_PATH: "-", "switch path, the longest", "ms", "14", "", "6.6";
    MANAGEMENT: "-", "observing and learning, CPU, the most of a switch", "ms", "40", "", "6.6";
    TABLES: "-", "tables of an application", "kB", "800", "", "6.6";
    ANON_WASTE: "-", "anonymous pages fetched for nothing, of a switch", "MB", "10", "", "6.6";
    FILE_WASTE: "-", "file pages fetched for nothing, of a switch", "MB", "10", "", "6.6";
}

/// The paper's static policies against its own: section 6.5 and Figure 15, on Pixel 4, file pages only. Times over those of
/// its policy, by the names that the configuration has for them.
pub const POLICIES: [(&str, &str); 4] = [
    ("big1", "1.06"),
    ("big-all", "1.05"),
    ("little1", "1.02"),
    ("little-all", "1.04"),
];
