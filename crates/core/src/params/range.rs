//! What parameters may be: one table for each struct, by which they are checked and documented.

/// What a number may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The parameter's name as in the configuration, `table.key`.
    pub name: &'static str,
    /// Least.
    pub min: f64,
    /// Most.
    pub max: f64,
    /// Of whole numbers: a power of two.
    pub is_power_of_two: bool,
}

impl Range {
    /// Whether a number is in it. What is no number is not.
    pub fn contains(&self, number: f64) -> bool {
        let is_power_of_two = number >= 1.0 && (number as u64).is_power_of_two();
        (self.min..=self.max).contains(&number) && (is_power_of_two || !self.is_power_of_two)
    }

    /// Checks a number, which is shown as `found`.
    ///
    /// # Errors
    /// Where it is not in the range.
    pub fn check(&self, number: f64, found: &dyn std::fmt::Display) -> Result<(), ParamError> {
        match self.contains(number) {
            true => Ok(()),
            false => Err(ParamError::new(self.name, self, found)),
        }
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let power = if self.is_power_of_two {
            "a power of two, "
        } else {
            ""
        };
        write!(f, "{power}{} to {}", self.min, self.max)
    }
}

/// A parameter that is not what it may be.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamError {
    /// The parameter's name as in the configuration, `table.key`.
    pub name: &'static str,
    /// What it may be.
    pub expected: String,
    /// What it is.
    pub found: String,
}

impl ParamError {
    /// That a parameter is `found` and must be `expected`.
    pub fn new(
        name: &'static str,
        expected: impl std::fmt::Display,
        found: impl std::fmt::Display,
    ) -> Self {
        Self {
            name,
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }
}

impl std::fmt::Display for ParamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} must be {}, and is {}",
            self.name, self.expected, self.found
        )
    }
}

impl std::error::Error for ParamError {}

/// Checks that one parameter is at most another.
///
/// # Errors
/// That the other one is less.
pub(super) fn check_order<T: PartialOrd + std::fmt::Display>(
    (low_name, low): (&'static str, T),
    (high_name, high): (&'static str, T),
) -> Result<(), ParamError> {
    match low <= high {
        true => Ok(()),
        false => Err(ParamError::new(
            high_name,
            format_args!("at least {low_name} ({low})"),
            high,
        )),
    }
}

/// Gives a struct of parameters its ranges: `RANGES`, and `check_ranges`, which returns the first [`ParamError`].
#[macro_export]
macro_rules! ranges {
    ($params:ident in $table:literal { $($key:ident: $($power:ident)? $min:literal to $max:expr,)* }) => {
        impl $params {
            /// What its numbers may be.
            pub const RANGES: &'static [$crate::params::range::Range] = &[
                $($crate::ranges!(@range $table $key [$($power)?] $min, $max)),*
            ];

            /// Checks them.
            ///
            /// # Errors
            /// The first that is out of its range.
            pub fn check_ranges(&self) -> Result<(), $crate::params::range::ParamError> {
                $($crate::ranges!(@range $table $key [$($power)?] $min, $max)
                    .check(self.$key as f64, &self.$key)?;)*
                Ok(())
            }
        }
    };
    (@range $table:literal $key:ident [$($power:ident)?] $min:literal, $max:expr) => {
        $crate::params::range::Range {
            name: concat!($table, ".", stringify!($key)),
            min: $min as i64 as f64,
            max: $max as i64 as f64,
            is_power_of_two: $crate::ranges!(@power $($power)?),
        }
    };
    (@power) => { false };
    (@power power_of_two) => { true };
}
