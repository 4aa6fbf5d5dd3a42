//! Bytes in hexadecimal: JSON has no bytes.

/// Bytes in hexadecimal: JSON has no bytes.
pub fn to_hexadecimal(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    bytes
        .iter()
        .flat_map(|b| [digit(b >> 4), digit(b & 15)])
        .collect()
}

/// What [`to_hexadecimal`] wrote; `None` where it is something else.
pub fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| u8::try_from(char::from(digit).to_digit(16)?).ok();
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match *pair {
            [high, low] => Some(value(high)? << 4 | value(low)?),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_goes_both_ways() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hexadecimal(&to_hexadecimal(&bytes)), Some(bytes));
        assert_eq!(from_hexadecimal("0"), None);
        assert_eq!(from_hexadecimal("0g"), None);
        assert_eq!(from_hexadecimal("é"), None);
    }
}
