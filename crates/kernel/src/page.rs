//! The page size: asked, never assumed.

/// The size of a page in bytes, from the auxiliary vector (asked once, then cached).
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// How many pages hold `bytes` bytes, rounded up.
pub fn pages_of(bytes: u64) -> u64 {
    bytes.div_ceil(page_size())
}

/// The byte address of a page number, or `None` where it exceeds the address space.
pub fn address_of(page: u64) -> Option<u64> {
    page.checked_mul(page_size())
}

/// The number of the page that holds a byte address.
pub fn page_of(address: u64) -> u64 {
    address / page_size()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_up_and_refuses_overflow() {
        let size = page_size();
        assert!(size.is_power_of_two());
        assert_eq!(
            [pages_of(0), pages_of(1), pages_of(size), pages_of(size + 1)],
            [0, 1, 1, 2]
        );
        assert_eq!(address_of(3), Some(3 * size));
        assert_eq!(address_of(u64::MAX), None);
        assert_eq!(page_of(3 * size + 1), 3);
    }
}
