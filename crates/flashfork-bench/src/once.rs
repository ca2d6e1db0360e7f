//! Values that the user gave in a list. One given twice is measured once: two cells with nothing to tell them apart say
//! nothing.

/// Each value once, in the order given.
pub(crate) fn each_once<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_kept() {
        assert_eq!(each_once([4, 1, 4, 2, 1]), [4, 1, 2]);
    }
}
